"""Builds the rows for Spark as Arrow batches, column by column.

`task_reader` calls it in executor workers with columns of positions (`odradek.records.frame_columns`) and gets record
batches with exactly the layout that PySpark requires. Invariant: no Python object is created per record; keys and
values are copied once, from the buffer in which the records were decoded.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.records.frame_columns import FrameColumns, Pieces
from odradek.records.record_cursors import HeaderColumns
from odradek.records.regular_records import RegularPieces, rows_of
from pyspark_odradek.decoding.row_schema import CORRUPT, RowSchema, ValueDecoder

_MAX_TIMESTAMP_MS: Final = (1 << 63) // 1000 - 1
_CONSTANT_ROWS: Final = 1 << 14
"""Number of rows for which constant columns are first prepared. They grow with the batches."""
_MOST_BYTES: Final = (1 << 31) - 1


class BatchMaker:
    """Creates Arrow batches of one partition."""

    def __init__(self, topic_partition: TopicPartition, schema: RowSchema, decoder: ValueDecoder | None = None) -> None:
        """`decoder` makes the values of the columns `value` and `_corrupt`. The constant columns are created once, and
        sliced for each batch."""
        self._arrow = schema.arrow
        self._names = schema.names
        self._decoder = decoder
        self._topic_partition = topic_partition
        self._constant_rows = 0
        self._constants: dict[str, pa.Array] = {}

    def _constant_columns(self, rows: int) -> dict[str, pa.Array]:
        """Return the constant columns that the query wants with so many rows."""
        if rows > self._constant_rows:
            topic, partition = self._topic_partition
            self._constant_rows = max(rows, _CONSTANT_ROWS)
            constants = {
                "topic": pa.scalar(topic, pa.string()),
                "partition": pa.scalar(partition, pa.int32()),
                "timestampType": pa.scalar(0, pa.int32()),
            }
            self._constants = {
                name: pa.repeat(value, self._constant_rows) for name, value in constants.items() if name in self._names
            }
        return {name: column.slice(0, rows) for name, column in self._constants.items()}

    def make(self, columns: FrameColumns) -> pa.RecordBatch:
        """Return the rows of `columns`, which has all fields of the schema.

        Raises `CorruptMessageError` if a timestamp does not fit microseconds.
        """
        rows = len(columns)
        found = self._constant_columns(rows)
        if "timestampType" in found and columns.timestamp_type.any():
            found["timestampType"] = pa.array(columns.timestamp_type, pa.int32())
        found["offset"] = pa.array(columns.offset, pa.int64())
        if columns.key is not None:
            found["key"] = take_pieces(columns.buffer, columns.key)
        if columns.value is not None:
            values = take_pieces(columns.buffer, columns.value)
            if self._decoder is None:
                found["value"] = values
            else:
                found["value"], found[CORRUPT] = self._decoder.decode(values)
        if columns.timestamp_ms is not None:
            found["timestamp"] = _timestamps(columns.timestamp_ms)
        if columns.headers is not None:
            found["headers"] = _headers(
                pa.py_buffer(columns.buffer), columns.headers, self._arrow.field("headers").type
            )
        return pa.RecordBatch.from_arrays([found[name] for name in self._names], schema=self._arrow)


def take_pieces(array: NDArray[np.uint8], pieces: Pieces) -> pa.BinaryArray:
    """Return the pieces of `array` as a binary array, null where the length is -1; starts must not decrease.

    Pieces of one length at regular distances are copied at once. The array must be smaller than 2 GiB, because of
    Arrow's 32-bit positions.
    """
    if isinstance(pieces, RegularPieces):
        lengths = {run.length for run in pieces.runs}
        if len(lengths) == 1 and 0 < max(lengths) * pieces.rows <= _MOST_BYTES:
            return _take_regular(array, pieces, lengths.pop())
    return _take_ranges(pa.py_buffer(array), pieces.start, pieces.length)


def _take_regular(array: NDArray[np.uint8], pieces: RegularPieces, length: int) -> pa.BinaryArray:
    """Return pieces of one length. The copy of a run is one call: for numpy, each piece is one element."""
    rows = pieces.rows
    content = pa.allocate_buffer(rows * length)
    kind = np.dtype((np.void, length))
    target = np.frombuffer(content, dtype=kind)
    for run in pieces.runs:
        rows_of(target, run)[:] = np.ndarray(
            shape=(run.batches, run.records),
            dtype=kind,
            buffer=array,
            offset=run.start,
            strides=(run.batch_step, run.record_step),
        )
    positions = np.arange(0, rows * length + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(positions), content])


def _take_ranges(buffer: pa.Buffer, start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """Return pieces of any lengths.

    An array with twice as many elements (piece, gap, piece, gap ...) is created over the buffer, and the even ones are
    taken: one pass in C.
    """
    count = len(start)
    positions = np.empty(2 * count + 1, dtype=np.int32)
    positions[0:-1:2] = start
    np.add(start, np.maximum(length, 0), out=positions[1::2], casting="same_kind")
    positions[-1] = positions[-2] if count else 0
    laid_over = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(positions), buffer])
    even = np.arange(0, 2 * count, 2, dtype=np.int32)
    missing = length < 0
    return laid_over.take(pa.array(even, mask=missing if missing.any() else None))


def _timestamps(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    if len(timestamp_ms) and (timestamp_ms.max() > _MAX_TIMESTAMP_MS or timestamp_ms.min() < -_MAX_TIMESTAMP_MS):
        raise CorruptMessageError("KAFKA_MALFORMED_RECORD_TIMESTAMP: a timestamp is beyond what Spark can express")
    return pa.array(timestamp_ms * 1000, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def _headers(buffer: pa.Buffer, headers: HeaderColumns, list_type: pa.ListType) -> pa.Array:
    names = _as_text(_take_ranges(buffer, headers.name_start, headers.name_length))
    values = _take_ranges(buffer, headers.value_start, headers.value_length)
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
