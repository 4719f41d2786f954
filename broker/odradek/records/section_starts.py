"""Finds where records begin in the records sections of many batches of one buffer, without copying them.

`frame_columns` uses it. Batches of one record need no search. Batches of few records are followed together, one record
of each per step; large ones one after the other, with runs of records of one size found together. Invariant: a result
was reached by following lengths from the begin of each section exactly to its end.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from odradek.base.errors import CorruptMessageError
from odradek.records.batch_table import rows_before
from odradek.records.record_cursors import Bytes, Integers, read_varints
from odradek.records.v2.record import MIN_RECORD_BYTES
from odradek.records.v2.record_starts import find_record_starts
from odradek.records.v2.varint import decode_varint

_FEW_RECORDS: Final = 48
"""Batches with up to this number of records are followed together."""
_FEWEST_TOGETHER: Final = 8
"""Fewer batches are followed one by one: a step costs the same for one batch as for a hundred."""
_FEWEST_ALIKE: Final = 12
"""A run of at least this number of records of one size is found faster together than one by one."""
_MOST_ALIKE: Final = 1 << 14


def check_counts(start: Integers, end: Integers, count: Integers) -> None:
    """Raise `CorruptMessageError` if a section is too small for its records."""
    if (count > (end - start) // MIN_RECORD_BYTES).any():
        raise CorruptMessageError("a batch declares more records than fit into it")


def section_starts(array: Bytes, start: Integers, end: Integers, count: Integers) -> Integers:
    """Return the position of every record of the sections, in order.

    No section is empty, and `check_counts` has passed. Raises `CorruptMessageError` if the records of a section do not
    fill it.
    """
    first_row = rows_before(count)
    begin = np.empty(int(first_row[-1]), dtype=np.int64)
    begin[first_row[:-1]] = start
    few = np.flatnonzero((count > 1) & (count <= _FEW_RECORDS))
    if len(few) < _FEWEST_TOGETHER:
        few = few[:0]
    else:
        found = _follow_together(array, start[few], end[few], count[few])
        before = rows_before(count[few])
        begin[np.repeat(first_row[few] - before[:-1], count[few]) + np.arange(len(found))] = found
    many = np.ones(len(count), dtype=np.bool_)
    many[few] = False
    view = array.data
    for index in np.flatnonzero(many & (count > 1)).tolist():
        row = int(first_row[index])
        stop = follow_section(array, view, int(start[index]), int(end[index]), begin[row : row + int(count[index])])
        if stop != end[index]:
            raise CorruptMessageError("the records of a batch do not fill it")
    return begin


def _follow_together(array: Bytes, start: Integers, end: Integers, count: Integers) -> Integers:
    """Return the positions of the records of all sections, in order, with one step for each record of the largest."""
    first_row = rows_before(count)
    begin = np.empty(int(first_row[-1]), dtype=np.int64)
    # The sections that still have a record are always the first ones.
    order = np.argsort(-count, kind="stable")
    cursor, row = start[order], first_row[order]
    active = np.searchsorted(-count[order], -np.arange(1, int(count.max()) + 1), side="right").tolist()
    for step, sections in enumerate(active):
        at = cursor[:sections]
        begin[row[:sections] + step] = at
        length, body = read_varints(array, at)
        cursor[:sections] = body + np.abs(length)
    if not (cursor == end[order]).all():
        raise CorruptMessageError("the records of a batch do not fill it")
    return begin


def follow_section(array: Bytes, view: memoryview, start: int, end: int, begin: Integers) -> int:
    """Fill `begin` with the positions of the next records of a section, the first of which is at `start`.

    Returns the position after the last one, which is not after `end`. Raises `CorruptMessageError` if a record extends
    beyond the section.
    """
    position, done = start, 0
    while done < len(begin):
        size, alike = _count_alike(array, view, position, end, min(len(begin) - done, _MOST_ALIKE))
        begin[done : done + alike] = np.arange(position, position + size * alike, size)
        position += size * alike
        done += alike
        if alike < _FEWEST_ALIKE:
            break
    if done < len(begin):
        # The walk over uneven records needs the type `bytes`. The copy ends with this call.
        parts, stop = find_record_starts(bytes(view[position:end]), 0, len(begin) - done)
        begin[done:] = np.concatenate(parts) + position
        position += stop
    if position > end:
        raise CorruptMessageError("a record extends beyond its batch")
    return position


def _count_alike(array: Bytes, view: memoryview, position: int, end: int, most: int) -> tuple[int, int]:
    """Return the size of the record at `position`, and how many records (1 .. `most`) from it on have that length."""
    length, body = decode_varint(view, position)
    size = body - position + abs(length)
    alike = min(most, (end - position) // size)
    if alike < 1:
        raise CorruptMessageError("a record extends beyond its batch")
    for place in range(position, body):
        other = array[place : place + size * (alike - 1) + 1 : size] != array[place]
        if other.any():
            alike = int(other.argmax())
    return size, alike
