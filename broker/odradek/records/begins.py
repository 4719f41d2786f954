"""Where the records of an unpacked records section begin: the one step that needs the one before it.

A section and its number of records enter, their begins leave. `records.columns`, `records.transcription` and
`log.filtering` ask. Records of
one size, as many producers write them, are found together: as long as the bytes of the length repeat at the distance
that they tell, each record proves the next one's begin. Others are followed one by one. Invariant: begins that leave
are those that following the lengths one by one would tell.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.varint import decode_varint

Integers = NDArray[np.int64]

_FEWEST_AHEAD: Final = 16
_MOST_AHEAD: Final = 1 << 16
"""Records that are compared in one step; the more were alike, the more are tried next."""
_MOST_ALONE: Final = 512
"""Records that are followed one by one before the next try; the more tries were in vain, the more they are."""


def find_begins(data: bytes, position: int, count: int) -> tuple[list[Integers], int]:
    """Where each of `count` records from `position` on begins, in parts, and where the last one ends.

    A length's sign is ignored, so the caller has to look at it. `CorruptMessageError` when a record reaches beyond the
    data.
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
    """Size of the record there, and how many from it on, at least it and at most `most`, tell the same length.

    `CorruptMessageError`: see `find_begins`.
    """
    length, body = decode_varint(data, position)
    size = body - position + abs(length)
    alike = min(most, (len(data) - position) // size)
    if alike < 1:
        raise CorruptMessageError("a record reaches beyond its batch")
    for place in range(position, body):
        column = data[place : position + size * alike : size]
        first = column[:1]
        if column != first * alike:
            alike -= len(column.lstrip(first))
    return size, alike


def _follow(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """The begins of the next records, one by one, and where the last one ends."""
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
        raise CorruptMessageError("a record reaches beyond its batch") from None
    return begins, position
