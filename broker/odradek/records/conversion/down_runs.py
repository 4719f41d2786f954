"""Converts runs of similar format 2 records to messages of formats 0 and 1, all at once.

`conversion/down` uses it, and converts unusual records one by one itself. Invariant: the result is identical to a
conversion record by record; invalid records and records with headers are never part of a run.

Records are similar if their lengths have the same values and their other numbers the same widths. They then form the
rows of a table, in which each field is a block of columns. Only the CRC needs a step of Python per record.
"""

from __future__ import annotations

from struct import iter_unpack
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.conversion.message_table import (
    BEFORE_CRC,
    BEHIND_CRC,
    MOST,
    MOST_BYTES,
    Integers,
    Octets,
    message_type,
)
from odradek.records.v2.record_starts import count_alike
from odradek.records.v2.varint import decode_varint

_FEWEST: Final = 48
"""Minimum length of a run: the fixed steps cost as much as converting this many records one by one."""
_MOST_NUMBER_BYTES: Final = 5
"""Longer timestamp deltas, beyond half a year, are left to the conversion one by one, which also handles overflows."""
_MAX_BASE_TIMESTAMP: Final = 1 << 62

_HIGH_BYTES: Final = bytes(range(0x80, 0x100))


class Target(NamedTuple):
    """The requested messages: format, attributes, and the base of offsets and timestamps."""

    magic: int
    attributes: int
    base_offset: int
    base_timestamp: int
    scale: int
    """0 if all records have the base timestamp, else 1."""
    last_offset_delta: int


class Transcript(NamedTuple):
    """Messages, their number, where their records end, and the last offset delta."""

    messages: Buffer
    number: int
    end: int
    offset_delta: int


class _Layout(NamedTuple):
    """Positions of the fields of a record without headers, relative to its start."""

    timestamp: slice
    offset: slice
    key_length: slice
    key: slice
    value_length: slice
    value: slice
    nulls: tuple[bool, bool]
    """Whether key and value are null."""

    @property
    def lengths(self) -> list[int]:
        """Positions of the bytes that are the same in all records, besides the record's length."""
        return [*_places(self.key_length), *_places(self.value_length), self.value.stop]


def _places(where: slice) -> range:
    return range(where.start, where.stop)


def transcribe_alike(data: bytes, position: int, most: int, target: Target) -> Transcript | None:
    """Convert at most `most` records from `position` on; None if too few are similar."""
    if most < _FEWEST or abs(target.base_timestamp) > _MAX_BASE_TIMESTAMP:
        return None
    try:
        size, alike = count_alike(data, position, min(most, MOST))
        layout = _layout(data, position, size) if alike >= _FEWEST else None
    except CorruptMessageError:
        return None
    if layout is None:
        return None
    alike = min(alike, max(MOST_BYTES // size, 1))
    rows = np.frombuffer(data, dtype=np.uint8, count=alike * size, offset=position).reshape(alike, size)
    if not _are_alike(data, range(position, position + alike * size, size), layout):
        rows = rows[: _alike_inside(rows, layout)]
    timestamps, offsets = _numbers(rows[:, layout.timestamp]), _numbers(rows[:, layout.offset])
    sound = (offsets >= 0) & (offsets <= target.last_offset_delta)
    count = len(rows) if sound.all() else int(sound.argmin())
    if count < _FEWEST:
        return None
    messages = _write(rows[:count], timestamps[:count], offsets[:count], layout, target)
    return Transcript(messages, count, position + count * size, int(offsets[count - 1]))


def _layout(data: bytes, position: int, size: int) -> _Layout | None:
    """Return the layout of the record at `position`; None if it is invalid, or has headers or very wide numbers."""
    length, body = decode_varint(data, position)
    _, offset_at = decode_varint(data, body + 1)
    _, key_length_at = decode_varint(data, offset_at)
    key_length, key_at = decode_varint(data, key_length_at)
    value_length_at = key_at + max(key_length, 0)
    value_length, value_at = decode_varint(data, value_length_at)
    end = value_at + max(value_length, 0)
    sound = length > 0 and min(key_length, value_length) >= -1 and end + 1 == position + size and not data[end]
    if not sound or max(offset_at - body - 1, key_length_at - offset_at) > _MOST_NUMBER_BYTES:
        return None
    return _Layout(
        slice(body + 1 - position, offset_at - position),
        slice(offset_at - position, key_length_at - position),
        slice(key_length_at - position, key_at - position),
        slice(key_at - position, value_length_at - position),
        slice(value_length_at - position, value_at - position),
        slice(value_at - position, end - position),
        (key_length < 0, value_length < 0),
    )


def _are_alike(data: bytes, begins: range, layout: _Layout) -> bool:
    """Whether all records have the lengths and number widths of the first one: the usual case, and quick to check."""
    start, stop, size = begins.start, begins.stop, begins.step
    for place in layout.lengths:
        column = data[start + place : stop : size]
        if column.count(column[0]) != len(column):
            return False
    for where in (layout.timestamp, layout.offset):
        for place in _places(where):
            column = data[start + place : stop : size]
            # The last byte of a number is ASCII (high bit clear); the bytes before it have the high bit set.
            if not column.isascii() if place + 1 == where.stop else column.translate(None, _HIGH_BYTES):
                return False
    return True


def _alike_inside(rows: Octets, layout: _Layout) -> int:
    """Return how many rows from the first on have its field lengths and number widths."""
    alike = np.ones(len(rows), dtype=np.bool_)
    for place in layout.lengths:
        alike &= rows[:, place] == rows[0, place]
    for where in (layout.timestamp, layout.offset):
        for place in _places(where):
            alike &= (rows[:, place] >= 0x80) == (place + 1 < where.stop)
    return len(rows) if alike.all() else int(alike.argmin())


def _numbers(columns: Octets) -> Integers:
    """Decode the varints that fill each row."""
    value = columns[:, 0].astype(np.int64)
    if columns.shape[1] > 1:
        value &= 0x7F
        for place in range(1, columns.shape[1]):
            value |= (columns[:, place] & 0x7F).astype(np.int64) << 7 * place
    return (value >> 1) ^ -(value & 1)


def _write(rows: Octets, timestamps: Integers, offsets: Integers, layout: _Layout, target: Target) -> memoryview:
    key_bytes = layout.key.stop - layout.key.start
    value_bytes = layout.value.stop - layout.value.start
    table = np.empty(len(rows), dtype=message_type(target.magic, key_bytes, value_bytes))
    size = table.itemsize
    table["offset"] = offsets + target.base_offset
    table["size"] = size - BEFORE_CRC
    table["magic"] = target.magic
    table["attributes"] = target.attributes
    if target.magic:
        table["timestamp"] = timestamps * target.scale + target.base_timestamp
    key_is_null, value_is_null = layout.nulls
    table["key_length"] = -1 if key_is_null else key_bytes
    table["key"] = rows[:, layout.key]
    table["value_length"] = -1 if value_is_null else value_bytes
    table["value"] = rows[:, layout.value]
    octets: Octets = table.view(np.uint8)
    view = octets.data
    table["crc"] = [crc32(body) for (body,) in iter_unpack(f"{BEHIND_CRC}x{size - BEHIND_CRC}s", view)]
    return view
