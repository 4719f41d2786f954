"""Reads numbers, bytes and texts at many positions of one buffer at once. Pure.

`avro_values` moves a position in each value of a column. Invariant: reads stay within the buffer, also those of
wrong values.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import DecimalType

from pyspark_odradek.formats.bad_records import decode_values

_MAX_VARINT_BYTES: Final = 10
_DECIMAL_BYTES: Final = 16
_PADDING: Final = 16
"""Zeros behind the values: a number can be read at the end of the last one."""

Rows = NDArray[np.int64]


class Cursors:
    """The position in each value of a column."""

    def __init__(self, values: pa.BinaryArray) -> None:
        """Each position is at the beginning of its value."""
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
        first, last = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
        self.data = np.zeros(last - first + _PADDING, dtype=np.uint8)
        if last > first:
            self.data[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
        self.position = bounds[:-1] - first
        self.end = bounds[1:] - first
        self.wrong = np.zeros(len(values), dtype=np.bool_)

    def reject(self, rows: Rows) -> None:
        """Mark rows as wrong, and move them to their end. A row may be given several times."""
        self.wrong[rows] = True
        self.position[rows] = self.end[rows]

    def advance(self, rows: Rows, length: NDArray[np.int64]) -> NDArray[np.int64]:
        """Move by a number of bytes, and return the earlier positions. Rows without so many bytes are wrong."""
        start = self.position[rows]
        short = (length < 0) | (length > self.end[rows] - start)
        self.position[rows] = start + np.where(short, 0, length)
        self.reject(rows[short])
        return start

    def varint(self, rows: Rows) -> NDArray[np.int64]:
        """Read a number with variable length and zigzag encoding. Rows without one are wrong and yield 0."""
        start = self.position[rows]
        byte = self.data[start].astype(np.uint64)
        result = byte & np.uint64(0x7F)
        size = np.ones(len(rows), dtype=np.int64)
        more = np.flatnonzero(byte & np.uint64(0x80))
        for number in range(1, _MAX_VARINT_BYTES):
            if not len(more):
                break
            # A position may be at the end of the buffer; the padding has less bytes than a number may have.
            byte = self.data[np.minimum(start[more] + number, len(self.data) - 1)].astype(np.uint64)
            result[more] |= (byte & np.uint64(0x7F)) << np.uint64(7 * number)
            size[more] += 1
            more = more[(byte & np.uint64(0x80)) != 0]
        # After ten bytes, a number that still continues is too long.
        size[more] = len(self.data)
        self.advance(rows, size)
        value = (result >> np.uint64(1)).astype(np.int64) ^ -(result & np.uint64(1)).astype(np.int64)
        return np.where(self.wrong[rows], 0, value)


def take_bytes(data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """Return pieces of a buffer, in any order."""
    offsets = np.zeros(len(start) + 1, dtype=np.int64)
    np.cumsum(length, out=offsets[1:])
    index = np.repeat(start - offsets[:-1], length) + np.arange(offsets[-1])
    return pa.Array.from_buffers(
        pa.binary(), len(start), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[index])]
    )


def texts(cursors: Cursors, rows: Rows, start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.StringArray:
    """Return pieces as text; null where they are not UTF-8, and the row is wrong."""
    found, wrong = decode_values(
        take_bytes(cursors.data, start, length), lambda each: each.cast(pa.string()), pa.string()
    )
    cursors.reject(rows[np.asarray(wrong.is_valid())])
    return found


def decimals(
    cursors: Cursors, rows: Rows, start: NDArray[np.int64], length: NDArray[np.int64], data_type: DecimalType
) -> pa.Array:
    """Return pieces as decimals: whole numbers in two's complement, the highest byte first, times 10 ** -scale.

    Numbers with more than 16 bytes or more digits than the type are wrong.
    """
    too_long = length > _DECIMAL_BYTES
    length = np.where(too_long, 0, length)
    # Column `n` of the result is the byte with the weight 256 ** n, as Arrow has it.
    weight = np.arange(_DECIMAL_BYTES)
    place = (start + length - 1)[:, None] - weight
    present = weight < length[:, None]
    content = np.where(present, cursors.data[np.where(present, place, 0)], 0).astype(np.uint8)
    negative = (length > 0) & (cursors.data[start] >= 0x80)
    content[(~present) & negative[:, None]] = 0xFF
    wrong = too_long | _exceeds(content, negative, 10**data_type.precision - 1)
    cursors.reject(rows[wrong])
    content[wrong] = 0
    wanted = pa.decimal128(data_type.precision, data_type.scale)
    return pa.Array.from_buffers(wanted, len(start), [None, pa.py_buffer(np.ascontiguousarray(content))])


def _exceeds(content: NDArray[np.uint8], negative: NDArray[np.bool_], limit: int) -> NDArray[np.bool_]:
    """Whether the absolute value of each number is greater than `limit`."""
    halves = np.ascontiguousarray(content).view("<u8")
    low, high = halves[:, 0], halves[:, 1]
    # The absolute value, as two halves.
    low = np.where(negative, ~low + np.uint64(1), low)
    high = np.where(negative, ~high + (low == 0).astype(np.uint64), high)
    limit_high, limit_low = np.uint64(limit >> 64), np.uint64(limit & ((1 << 64) - 1))
    exceeds: NDArray[np.bool_] = (high > limit_high) | ((high == limit_high) & (low > limit_low))
    return exceeds
