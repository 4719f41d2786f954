"""Builds the rows for Spark as Arrow batches, column by column.

`tasks` calls it in executor workers with columns of positions (`odradek.records.columns`) and gets record batches with
exactly the layout that PySpark requires. Invariant: no Python object is created per record; Arrow copies keys and
values once, from the buffer in which the records were decoded.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.base.errors import CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.records.columns import Columns, HeaderColumns

_BASE: Final = (
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

_MAX_TIMESTAMP_MS: Final = (1 << 63) // 1000 - 1
_CONSTANT_ROWS: Final = 1 << 14
"""Number of rows for which constant columns are prepared; larger batches create their own."""


def row_schema(*, include_headers: bool) -> StructType:
    """Return the schema of the source: the seven columns of Spark's own source for Kafka, and headers."""
    return StructType([*_BASE, _HEADERS] if include_headers else list(_BASE))


class BatchMaker:
    """Creates Arrow batches of one partition."""

    def __init__(self, topic_partition: TopicPartition, *, include_headers: bool) -> None:
        """The constant columns are created once, and sliced for each batch."""
        # PySpark compares the first batch with the result of this function.
        self._schema = to_arrow_schema(row_schema(include_headers=include_headers), timezone="UTC")
        self._include_headers = include_headers
        self._topic_partition = topic_partition
        self._constants = self._constant_columns(_CONSTANT_ROWS)

    def _constant_columns(self, rows: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        topic, partition = self._topic_partition
        return (
            pa.repeat(pa.scalar(topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
        )

    def make(self, columns: Columns) -> pa.RecordBatch:
        """Return the rows of `columns`. Raises `CorruptMessageError` if a timestamp does not fit microseconds."""
        rows = len(columns)
        constants = self._constants if rows <= _CONSTANT_ROWS else self._constant_columns(rows)
        topic, partition, timestamp_type = (column.slice(0, rows) for column in constants)
        if columns.timestamp_type.any():
            timestamp_type = pa.array(columns.timestamp_type, pa.int32())
        buffer = pa.py_buffer(columns.buffer)
        arrays = [
            take_ranges(buffer, columns.key_start, columns.key_length),
            take_ranges(buffer, columns.value_start, columns.value_length),
            topic,
            partition,
            pa.array(columns.offset, pa.int64()),
            _timestamps(columns.timestamp_ms),
            timestamp_type,
        ]
        if self._include_headers:
            if columns.headers is None:
                raise ValueError("headers are wanted but were not decoded")
            arrays.append(_headers(buffer, columns.headers, self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def take_ranges(buffer: pa.Buffer, start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """Return the pieces of `buffer` as a binary array, null where the length is -1; starts must not decrease.

    An array with twice as many elements (piece, gap, piece, gap ...) is created over the buffer, and the even ones are
    taken: one pass in C. The buffer must be smaller than 2 GiB, because of Arrow's 32-bit positions.
    """
    count = len(start)
    positions = np.zeros(2 * count + 1, dtype=np.int32)
    positions[0:-1:2] = start
    positions[1::2] = start + np.maximum(length, 0)
    if count:
        positions[-1] = positions[-2]
    laid_over = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(positions), buffer])
    even = np.arange(0, 2 * count, 2, dtype=np.int32)
    missing = length < 0
    return laid_over.take(pa.array(even, mask=missing if missing.any() else None))


def _timestamps(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    if bool((np.abs(timestamp_ms) > _MAX_TIMESTAMP_MS).any()):
        raise CorruptMessageError("KAFKA_MALFORMED_RECORD_TIMESTAMP: a timestamp is beyond what Spark can express")
    return pa.array(timestamp_ms * 1000, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def _headers(buffer: pa.Buffer, headers: HeaderColumns, list_type: pa.ListType) -> pa.Array:
    names = _as_text(take_ranges(buffer, headers.name_start, headers.name_length))
    values = take_ranges(buffer, headers.value_start, headers.value_length)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(list_type.value_type))
    positions = np.zeros(len(headers.count) + 1, dtype=np.int32)
    np.cumsum(headers.count, out=positions[1:])
    # As in the JVM's source, a record without headers has null, not an empty list.
    none = pa.array(headers.count == 0)
    return pa.ListArray.from_arrays(pa.array(positions, pa.int32()), pairs, type=list_type, mask=none)


def _as_text(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Only for invalid records: keep the readable part of names that are not UTF-8.
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
