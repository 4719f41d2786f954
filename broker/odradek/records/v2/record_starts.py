"""Finds where the records of a decompressed records section begin, by following their lengths.

`records/columns`, `conversion/down_runs` and `log/compaction/filtering` use it. Records of one size, as many producers
write them, are found together: as long as the bytes of the length repeat at that distance, each record proves where the
next one begins. Other records are followed one by one. Invariant: the result is the same as if all lengths were
followed one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.v2.varint import decode_varint

Integers = NDArray[np.int64]

_FEWEST_AHEAD: Final = 16
_MOST_AHEAD: Final = 1 << 16
"""Bounds of the number of records compared in one step; it grows as long as records are alike."""
_MOST_ALONE: Final = 512
"""Limit of the records followed one by one before the next attempt; the number grows with failed attempts."""


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
            begins, position = _follow(data, position, alone)
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


def _follow(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return the positions of the next records, found one by one, and the end of the last one."""
    begins: list[int] = []
    append = begins.append
    try:
        for _ in range(count):
            append(position)
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
                continue
            following = data[position + 1]
            if following < 0x80:
                position += 2 + ((byte & 0x7F | following << 7) >> 1)
                continue
            length, position = decode_varint(data, position)
            position += abs(length)
    except IndexError:
        raise CorruptMessageError("a record extends beyond its batch") from None
    return begins, position
