"""The options for typed values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.value_formats import value_decoder

LONG = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"valueFormat": "json", "valueSchema": "a INT"}, "struct<a:int>"),
        ({"valueformat": "CSV", "valueschema": "a INT", "valuedelimiter": ";"}, "struct<a:int>"),
        ({"valueFormat": "avro", "valueAvroSchema": LONG}, "struct<a:bigint>"),
        ({"valueFormat": "avro", "valueAvroSchema": LONG, "valueSchema": "a LONG"}, "struct<a:bigint>"),
        ({"valueFormat": "avro", "valueAvroSchema": '"int"', "valueAvroPrefix": "confluent"}, "int"),
        ({"valueFormat": "string"}, "string"),
    ],
)
def test_the_type_of_the_column(options: dict[str, str], expected: str) -> None:
    made = value_decoder(options)
    assert made is not None
    assert made.value_type.simpleString() == expected


def test_without_a_format_values_stay_bytes() -> None:
    assert value_decoder({"subscribe": "t"}) is None


def test_text() -> None:
    made = value_decoder({"valueFormat": "string"})
    assert made is not None
    typed, wrong = made.decode(pa.array(["ä".encode(), b"\xff", None], pa.binary()))
    assert (typed.to_pylist(), wrong.to_pylist()) == (["ä", None, None], [None, b"\xff", None])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"valueFormat": "xml"}, "valueFormat='xml' is not allowed: it must be one of json, avro, csv, string"),
        ({"valueFormat": "json"}, "the option valueSchema is needed with valueFormat=json"),
        ({"valueFormat": "csv", "valueSchema": " "}, "the option valueSchema is needed with valueFormat=csv"),
        ({"valueFormat": "avro"}, "the option valueAvroSchema is needed with valueFormat=avro"),
        ({"valueSchema": "a INT"}, "valueSchema is not allowed: it belongs to valueFormat=json or csv or avro"),
        ({"valueFormat": "string", "valueSchema": "a INT"}, "valueSchema is not allowed"),
        ({"valueFormat": "json", "valueSchema": "a INT", "valueDelimiter": ";"}, "belongs to valueFormat=csv"),
        (
            {"valueFormat": "avro", "valueAvroSchema": LONG, "valueSchema": "a INT"},
            "valueAvroSchema is struct<a:bigint>",
        ),
        ({"valueFormat": "avro", "valueAvroSchema": LONG, "valueAvroPrefix": "glue"}, "one of none, confluent"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        value_decoder(options)
