"""The options for typed values, and the decoder that they choose.

`decoding` applies the decoder to the column `value` of each Arrow batch. `data_source` takes the type of the column
from it, and adds the column `_corrupt`. Invariant: options are validated before anything is read.

The first query waits for the imports of the process that plans it, so the decoders, which import `pyarrow.compute`, are
imported when one is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.avro_schema import parse_avro_schema
from pyspark_odradek.formats.bad_records import decode_values
from pyspark_odradek.formats.ddl_types import parse_schema
from pyspark_odradek.options.option_values import OptionValues

if TYPE_CHECKING:
    from pyspark_odradek.formats.avro_values import AvroDecoder
    from pyspark_odradek.formats.csv_values import CsvDecoder
    from pyspark_odradek.formats.json_values import JsonDecoder

FORMATS: Final = ("json", "avro", "csv", "string")

_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "valueSchema": ("json", "csv", "avro"),
    "valueAvroSchema": ("avro",),
    "valueAvroPrefix": ("avro",),
    "valueDelimiter": ("csv",),
}
"""The formats for which each of the other options has a meaning."""


class TextDecoder:
    """Decodes text in UTF-8 into strings."""

    value_type: DataType = StringType()

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.BinaryArray]:
        """Return the strings, and the bytes of values that are not UTF-8."""
        return decode_values(values, lambda each: each.cast(pa.string()), pa.string())


def value_decoder(options: Mapping[str, str]) -> JsonDecoder | AvroDecoder | CsvDecoder | TextDecoder | None:
    """Return the decoder that the options of the source choose; None if values stay bytes.

    Raises `ConfigError` if an option is invalid, missing, or has no meaning for the format.
    """
    values = OptionValues(options)
    chosen = None if values.text("valueFormat") is None else values.choice("valueFormat", FORMATS)
    for name in values.present(*_ONLY):
        if chosen not in _ONLY[name]:
            raise ConfigError(f"{name} is not allowed: it belongs to valueFormat={' or '.join(_ONLY[name])}")
    if chosen is None:
        return None
    if chosen == "string":
        return TextDecoder()
    if chosen == "avro":
        return _avro(values)
    schema = parse_schema("valueSchema", _needed(values, "valueSchema", chosen))
    if chosen == "json":
        from pyspark_odradek.formats.json_values import JsonDecoder

        return JsonDecoder(schema)
    from pyspark_odradek.formats.csv_values import CsvDecoder

    return CsvDecoder(schema, delimiter=values.text("valueDelimiter") or ",")


def _needed(values: OptionValues, name: str, chosen: str) -> str:
    text = values.text(name)
    if text is None or not text.strip():
        raise ConfigError(f"the option {name} is needed with valueFormat={chosen}")
    return text


def _avro(values: OptionValues) -> AvroDecoder:
    from pyspark_odradek.formats.avro_values import AvroDecoder

    schema = parse_avro_schema(_needed(values, "valueAvroSchema", "avro"))
    if (ddl := values.text("valueSchema")) is not None:
        given = parse_schema("valueSchema", ddl)
        if given != schema.spark_type:
            raise ConfigError(
                f"valueSchema={given.simpleString()} is not allowed: valueAvroSchema is "
                f"{schema.spark_type.simpleString()}"
            )
    prefix = values.choice("valueAvroPrefix", ("none", "confluent"))
    return AvroDecoder(schema, confluent_prefix=prefix == "confluent")
