"""Finds where the records of a decompressed records section begin, by following their lengths.

`records/columns`, `conversion/down_runs`, `checks/survey` and `log/compaction/filtering` use it. Records of one size,
as many producers write them, are found together: as long as the bytes of the length repeat at that distance, each
record proves where the next one begins. `v2/record_walk` follows the others one by one. Invariant: the result is the
same as if all lengths were followed one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.v2.record_walk import follow_lengths
from odradek.records.v2.varint import decode_varint

Integers = NDArray[np.int64]

_FEWEST_AHEAD: Final = 16
_MOST_AHEAD: Final = 1 << 16
"""Bounds of the number of records compared in one step; it grows as long as records are alike."""
_MOST_ALONE: Final = 512
"""Limit of the records followed one by one before the next attempt; the number grows with failed attempts."""


class RecordLayout(NamedTuple):
    """Positions of the fields of a record without headers, relative to its start, and some of their values."""

    timestamp_at: int
    offset_at: int
    key_length_at: int
    key_at: int
    value_length_at: int
    value_at: int
    headers_at: int
    """Position of the header count, the last byte."""
    offset_delta: int
    key_length: int
    value_length: int

    @property
    def size(self) -> int:
        return self.headers_at + 1

    @property
    def length_places(self) -> list[int]:
        """Positions of the bytes of the field lengths and the header count, without the record's own length."""
        return [
            *range(self.key_length_at, self.key_at),
            *range(self.value_length_at, self.value_at),
            self.headers_at,
        ]


def record_layout(data: bytes | memoryview, start: int) -> RecordLayout | None:
    """Return the layout of the record at `start`; None if it has headers, or its fields do not fill its length.

    Raises `CorruptMessageError` if a number is invalid or the data ends before it.
    """
    length, body = decode_varint(data, start)
    _, offset_at = decode_varint(data, body + 1)
    offset_delta, key_length_at = decode_varint(data, offset_at)
    key_length, key_at = decode_varint(data, key_length_at)
    value_length_at = key_at + max(key_length, 0)
    value_length, value_at = decode_varint(data, value_length_at)
    headers_at = value_at + max(value_length, 0)
    ends_there = body + length == headers_at + 1 <= len(data)
    if min(key_length, value_length) < -1 or not ends_there or data[headers_at]:
        return None
    return RecordLayout(
        body + 1 - start,
        offset_at - start,
        key_length_at - start,
        key_at - start,
        value_length_at - start,
        value_at - start,
        headers_at - start,
        offset_delta,
        key_length,
        value_length,
    )


def find_record_starts(data: bytes, position: int, count: int) -> tuple[list[Integers], int]:
    """Return the positions of `count` records from `position` on, in parts, and the end of the last one.

    The sign of a length is ignored, so the caller has to check it. Raises `CorruptMessageError` if a record extends
    beyond the data.
    """
    parts: list[Integers] = []
    ahead, alone = _FEWEST_AHEAD, 0
    while count:
        size, alike = count_alike(data, position, min(ahead, count))
        parts.append(np.arange(position, position + size * alike, size))
        position += size * alike
        count -= alike
        if alike == ahead:
            ahead, alone = min(4 * ahead, _MOST_AHEAD), 0
        elif alike < _FEWEST_AHEAD and count:
            ahead, alone = _FEWEST_AHEAD, min(2 * alone + _FEWEST_AHEAD, _MOST_ALONE, count)
            begins, position = follow_lengths(data, position, alone)
            parts.append(np.array(begins, dtype=np.int64))
            count -= alone
    return parts, position


def count_alike(data: bytes, position: int, most: int) -> tuple[int, int]:
    """Return the size of the record at `position`, and how many records (1 .. `most`) from it on have that length.

    Raises `CorruptMessageError`: see `find_record_starts`.
    """
    length, body = decode_varint(data, position)
    size = body - position + abs(length)
    alike = min(most, (len(data) - position) // size)
    if alike < 1:
        raise CorruptMessageError("a record extends beyond its batch")
    for place in range(position, body):
        column = data[place : position + size * alike : size]
        first = column[:1]
        if column != first * alike:
            alike -= len(column.lstrip(first))
    return size, alike
