"""The columns that the sink accepts, and the errors for others."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from odradek.base.errors import ConfigError
from pyspark_odradek.sink.sink_schema import HEADERS_TYPE, SinkColumns, sink_columns

STRICT_HEADERS = ArrayType(
    StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), False)]), containsNull=False
)


def schema_of(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize("text", [StringType(), BinaryType()])
@pytest.mark.parametrize("headers", [HEADERS_TYPE, STRICT_HEADERS])
def test_all_columns(text: DataType, headers: DataType) -> None:
    schema = schema_of(
        other=LongType(), headers=headers, topic=StringType(), partition=IntegerType(), key=text, value=text
    )
    assert sink_columns(schema, None) == SinkColumns(value=5, key=4, topic=2, partition=3, headers=1)


def test_only_a_value_is_needed_with_the_option_topic() -> None:
    columns = sink_columns(schema_of(value=StringType(), timestamp=LongType()), "t")
    assert columns == SinkColumns(value=0, key=None, topic=None, partition=None, headers=None)


def test_the_option_topic_overrides_the_column_whatever_its_type() -> None:
    assert sink_columns(schema_of(topic=LongType(), value=StringType()), "t").topic is None


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (schema_of(value=StringType()), None, "topic option required when no 'topic' attribute is present. Use the"),
        (schema_of(Value=StringType()), "t", "Required attribute 'value' not found"),
        (
            schema_of(value=LongType()),
            "t",
            "value attribute unsupported type bigint. value must be a(n) string or binary",
        ),
        (
            schema_of(key=LongType(), value=StringType()),
            "t",
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        (
            schema_of(topic=BinaryType(), value=StringType()),
            None,
            "topic attribute unsupported type binary. topic must be a(n) string",
        ),
        (
            schema_of(partition=LongType(), value=StringType()),
            "t",
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            schema_of(headers=MapType(StringType(), BinaryType()), value=StringType()),
            "t",
            "headers attribute unsupported type map<string,binary>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_errors_are_those_of_the_native_sink(schema: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sink_columns(schema, topic)
    assert str(raised.value).startswith(message)
