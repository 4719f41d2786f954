"""The columns of a query that the sink writes, checked when Spark plans the query.

Names, types and error messages are those of Spark's own sink for Kafka. Columns with other names are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from odradek.base.errors import ConfigError

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())]), containsNull=True
)

_TEXT: Final = (StringType, BinaryType)


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The position of each column in the query; None if the query does not have it."""

    value: int
    key: int | None
    topic: int | None
    """None also if the option `topic` overrides the column."""
    partition: int | None
    headers: int | None


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Return the columns of a query; `topic` is the option. Raises `ConfigError` for a missing or ill-typed column."""
    topic_column = None
    if topic is None:
        topic_column = _column(schema, "topic", (StringType,))
        if topic_column is None:
            raise ConfigError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
    key = _column(schema, "key", _TEXT)
    value = _column(schema, "value", _TEXT)
    if value is None:
        raise ConfigError("Required attribute 'value' not found")
    headers = _headers(schema)
    return SinkColumns(value, key, topic_column, _column(schema, "partition", (IntegerType,)), headers)


def _position(schema: StructType, name: str) -> int | None:
    # As in the native sink, the case counts, and the first of several columns with the same name is used.
    return schema.names.index(name) if name in schema.names else None


def _column(schema: StructType, name: str, allowed: tuple[type[DataType], ...]) -> int | None:
    position = _position(schema, name)
    if position is not None and not isinstance(schema[position].dataType, allowed):
        raise _unsupported(name, schema[position].dataType, " or ".join(each().simpleString() for each in allowed))
    return position


def _headers(schema: StructType) -> int | None:
    position = _position(schema, "headers")
    if position is not None and not _same_type(schema[position].dataType, HEADERS_TYPE):
        raise _unsupported("headers", schema[position].dataType, HEADERS_TYPE.simpleString())
    return position


def _unsupported(name: str, given: DataType, allowed: str) -> ConfigError:
    return ConfigError(f"{name} attribute unsupported type {given.simpleString()}. {name} must be a(n) {allowed}")


def _same_type(given: DataType, expected: DataType) -> bool:
    """Compare types without nullability and without the case of field names, as Spark does by default."""
    return given.simpleString().lower() == expected.simpleString().lower()
