"""The columns of the source, and which of them a query wants.

`data_source` checks a query's schema with it, and `row_batches` builds the columns. Invariant: a column always has the
type that Spark's own source for Kafka gives it, except `value` with a value format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.base.errors import ConfigError
from odradek.records.frame_columns import RecordFields

CORRUPT: Final = "_corrupt"
"""With a value format: the bytes of a value that does not match the format, else null."""

_FIXED: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


class ValueDecoder(Protocol):
    """Makes typed values of bytes, as the option valueFormat says. Pickled into tasks."""

    @property
    def value_type(self) -> DataType:
        """The Spark type of the column `value`."""
        ...

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        """Return the typed values, and for `_corrupt` the bytes of those that could not be decoded; both have the
        length of `values`."""
        ...


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns that a query wants, in its order."""

    spark: StructType
    decoder: ValueDecoder | None = None
    """Makes the columns `value` and `_corrupt`; None if values stay bytes."""

    @classmethod
    def full(cls, *, include_headers: bool, value_type: DataType | None = None) -> RowSchema:
        """Return all columns: those of Spark's own source for Kafka, headers if wanted, and `_corrupt` if `value` has a
        type of its own."""
        fields = [*_FIXED, _HEADERS] if include_headers else list(_FIXED)
        if value_type is not None:
            fields = [StructField("value", value_type) if field.name == "value" else field for field in fields]
            fields.append(StructField(CORRUPT, BinaryType()))
        return cls(StructType(fields))

    def project(self, wanted: StructType) -> RowSchema:
        """Return the columns of a user's schema. Raises `ConfigError` unless each is one of these columns, with its
        type, and occurs once."""
        known = {field.name: field.dataType for field in self.spark.fields}
        names = [field.name for field in wanted.fields]
        wrong = [field for field in wanted.fields if known.get(field.name) != field.dataType or not field.nullable]
        if wrong or len(set(names)) != len(names) or not names:
            culprit = (
                f"{wrong[0].name}: {wrong[0].dataType.simpleString()}" if wrong else ", ".join(names) or "no column"
            )
            raise ConfigError(
                f"the schema is not allowed ({culprit}): it can select columns of the source, each once and nullable, "
                f"from {self.spark.simpleString()}"
            )
        return RowSchema(wanted, self.decoder)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.spark.names)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema with which PySpark compares the first batch."""
        return to_arrow_schema(self.spark, timezone="UTC")

    @property
    def fields(self) -> RecordFields:
        """The fields of records that have to be decoded."""
        names = set(self.spark.names)
        return RecordFields(
            timestamp="timestamp" in names,
            key="key" in names,
            value="value" in names or CORRUPT in names,
            headers="headers" in names,
        )
