"""Reads the fields of many records at once: one cursor per record, and one vectorized step per field.

`columns` and `frame_columns` use it over a buffer with many records. Invariant: no step reads outside the buffer,
whatever its bytes are, and a field is returned only if it is inside its record; anything else raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.v2.varint import decode_varint

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_VECTORISED_HEADERS: Final = 32
"""Headers per record that are read column by column. The few records with more are finished one by one, because a step
for a handful of records costs as much as one for thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumns:
    """Headers of all records in sequence: `count` for each record, and one row for each header.

    A value length of -1 means a null value.
    """

    count: Integers
    name_start: Integers
    name_length: Integers
    value_start: Integers
    value_length: Integers

    def slice(self, first: int, last: int) -> HeaderColumns:
        """Return the headers of the records from `first` to before `last`."""
        skipped = int(self.count[:first].sum())
        rows = slice(skipped, skipped + int(self.count[first:last].sum()))
        return HeaderColumns(
            count=self.count[first:last],
            name_start=self.name_start[rows],
            name_length=self.name_length[rows],
            value_start=self.value_start[rows],
            value_length=self.value_length[rows],
        )

    def select(self, records: NDArray[np.bool_]) -> HeaderColumns:
        """Return the headers of some records."""
        rows = np.repeat(records, self.count)
        return HeaderColumns(
            count=self.count[records],
            name_start=self.name_start[rows],
            name_length=self.name_length[rows],
            value_start=self.value_start[rows],
            value_length=self.value_length[rows],
        )


class RecordCursors:
    """One cursor per record; all advance together."""

    __slots__ = ("array", "position")

    def __init__(self, array: Bytes, position: Integers) -> None:
        """`position`: where each record begins; its fields are read in their order."""
        self.array = array
        self.position = position

    def check(self, sound: NDArray[np.bool_]) -> None:
        """Raise `CorruptMessageError` unless all are true."""
        if not sound.all():
            raise CorruptMessageError("the fields of a record do not match its length")

    def read_record_lengths(self, following: Integers) -> Integers:
        """Return the end of each record, after checking that it is where `following` says: the begin of the next record
        or the end of its batch."""
        length = self.read_numbers()
        end = self.position + length
        self.check(length > 0)
        self.check(end == following)
        return end

    def read_deltas(self, end: Integers) -> tuple[Integers, Integers]:
        """Return timestamp and offset deltas, which must end before `end`; the cursors are after the lengths."""
        self.position += 1  # The attributes of a record are not used.
        timestamp_delta, offset_delta = self.read_numbers(), self.read_numbers()
        self.check(self.position <= end)
        return timestamp_delta, offset_delta

    def read_numbers(self) -> Integers:
        """Return the varint at each cursor. Outside the buffer, the last byte is read instead; callers check later that
        the cursors are inside their records."""
        value, self.position = read_varints(self.array, self.position)
        return value

    def read_field(self, end: Integers) -> tuple[Integers, Integers]:
        """Return start and length (-1: null) of the field at each cursor, and move the cursors after it."""
        length = self.read_numbers()
        start = self.position
        # Compare by subtraction: a huge length must not wrap around.
        self.check((length >= -1) & (length <= end - start))
        self.position = start + np.maximum(length, 0)
        return start, length


def read_varints(data: Bytes, position: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varint at each position and the position after it.

    Outside `data`, its first or last byte is read. Raises `CorruptMessageError` for a number above 64 bits.
    """
    byte = data.take(position, mode="clip")
    position = position + 1
    longer = byte >= 0x80
    if not longer.any():
        value = byte.astype(np.int64)
        return (value >> 1) ^ -(value & 1), position
    following = data.take(position, mode="clip")
    if ((following >= 0x80) & longer).any():
        return _long_varints(data, byte, position, np.flatnonzero(longer))
    value = (following.astype(np.int64) << 7) + (byte & 0x7F)
    if not longer.all():
        value = np.where(longer, value, byte)
    return (value >> 1) ^ -(value & 1), position + longer


def _long_varints(data: Bytes, byte: Bytes, position: Integers, going_on: Integers) -> tuple[Integers, Integers]:
    """Decode numbers of any width: `position` is after the first `byte` of each."""
    value = (byte & 0x7F).astype(np.uint64)
    shift = 7
    while going_on.size:
        byte = data.take(position[going_on], mode="clip")
        if shift > 63 or (shift == 63 and bool((byte > 1).any())):
            raise CorruptMessageError("a number in a record is longer than 64 bits")
        value[going_on] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[going_on] += 1
        going_on = going_on[byte >= 0x80]
        shift += 7
    magnitude = (value >> np.uint64(1)).view(np.int64)
    sign = (value & np.uint64(1)).view(np.int64)
    return magnitude ^ -sign, position


def read_headers(cursors: RecordCursors, end: Integers, *, collect: bool) -> HeaderColumns | None:
    """Read all headers, which must end where their record does; return them as columns if `collect`."""
    count = cursors.read_numbers()
    # A header takes at least two bytes.
    cursors.check((count >= 0) & (count <= (end - cursors.position) // 2))
    rows = _walk_headers(cursors, end, count)
    cursors.check(cursors.position == end)
    if not collect:
        return None
    # Each round has one header of each record; a stable sort by record groups each record's headers in order.
    order = np.argsort(rows[0], kind="stable")
    _, name_start, name_length, value_start, value_length = (column[order] for column in rows)
    return HeaderColumns(
        count=count,
        name_start=name_start,
        name_length=name_length,
        value_start=value_start,
        value_length=value_length,
    )


def no_headers(records: int) -> HeaderColumns:
    """Return the columns of records without headers."""
    none = np.zeros(0, dtype=np.int64)
    return HeaderColumns(
        count=np.zeros(records, dtype=np.int64),
        name_start=none,
        name_length=none,
        value_start=none,
        value_length=none,
    )


def _walk_headers(cursors: RecordCursors, end: Integers, count: Integers) -> list[Integers]:
    """Return record number, name start, name length, value start and value length of every header, by round."""
    rounds: list[tuple[Integers, ...]] = []
    position = cursors.position
    active = np.flatnonzero(count)
    done = 0
    while active.size and done < _VECTORISED_HEADERS:
        cursor = RecordCursors(cursors.array, position[active])
        name = cursor.read_field(end[active])
        cursor.check(name[1] >= 0)
        value = cursor.read_field(end[active])
        position[active] = cursor.position
        rounds.append((active, *name, *value))
        done += 1
        active = active[count[active] > done]
    rounds += [_walk_rest(cursors, int(record), int(end[record]), int(count[record]) - done) for record in active]
    if not rounds:
        return [np.zeros(0, dtype=np.int64)] * 5
    return [np.concatenate(column) for column in zip(*rounds, strict=True)]


def _walk_rest(cursors: RecordCursors, record: int, end: int, count: int) -> tuple[Integers, ...]:
    """Read the last `count` headers of one record."""
    data = cursors.array.data
    position = int(cursors.position[record])
    rows: list[tuple[int, int, int, int, int]] = []
    for _ in range(count):
        name_length, name_start = decode_varint(data, position)
        value_length, value_start = decode_varint(data, min(name_start + max(name_length, 0), end))
        position = value_start + max(value_length, 0)
        if name_length < 0 or value_length < -1 or position > end:
            raise CorruptMessageError("a header extends beyond its record")
        rows.append((record, name_start, name_length, value_start, value_length))
    cursors.position[record] = position
    return tuple(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))


def absolute_offsets(base: Integers, last_delta: Integers, delta: Integers) -> Integers:
    """Return the offsets of records from those of their batches. Raises `CorruptMessageError` if one is outside."""
    if ((delta < 0) | (delta > last_delta)).any():
        raise CorruptMessageError("a record's offset is outside its batch")
    return base + delta


def absolute_timestamps(base: Integers, delta: Integers) -> Integers:
    """Return the timestamps of records. Raises `CorruptMessageError` if one is longer than 64 bits."""
    timestamp = base + delta
    # The sum has wrapped around if both terms have the opposite sign.
    if (((base ^ timestamp) & (delta ^ timestamp)) < 0).any():
        raise CorruptMessageError("a record's timestamp is longer than 64 bits")
    return timestamp
