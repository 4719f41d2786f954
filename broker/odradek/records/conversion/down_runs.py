"""Converts runs of similar format 2 records to messages of formats 0 and 1, all at once.

`conversion/down` uses it, and converts unusual records one by one itself. Invariant: the result is identical to a
conversion record by record; invalid records and records with headers are never part of a run.

Records are similar if their lengths have the same values and their other numbers the same widths. They then form the
rows of a table, in which each field is a block of columns. Only the CRC is computed record by record.
"""

from __future__ import annotations

from itertools import starmap
from struct import iter_unpack
from typing import Final, NamedTuple

import numpy as np

from odradek.base.errors import CorruptMessageError
from odradek.records.conversion.message_table import (
    BEFORE_CRC,
    BEHIND_CRC,
    MOST,
    MOST_BYTES,
    Integers,
    Octets,
    message_type,
)
from odradek.records.legacy.checksum import crc32
from odradek.records.v2.record_starts import RecordLayout, count_alike, record_layout

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

    messages: bytes
    number: int
    end: int
    offset_delta: int


def transcribe_alike(data: bytes, position: int, most: int, target: Target) -> Transcript | None:
    """Convert at most `most` records from `position` on; None if too few are similar."""
    if most < _FEWEST or abs(target.base_timestamp) > _MAX_BASE_TIMESTAMP:
        return None
    try:
        size, alike = count_alike(data, position, min(most, MOST))
        layout = _layout(data, position) if alike >= _FEWEST else None
    except CorruptMessageError:
        return None
    if layout is None:
        return None
    alike = min(alike, max(MOST_BYTES // size, 1))
    rows = np.frombuffer(data, dtype=np.uint8, count=alike * size, offset=position).reshape(alike, size)
    if not _are_alike(data, range(position, position + alike * size, size), layout):
        rows = rows[: _alike_inside(rows, layout)]
    timestamps, offsets = (_numbers(rows[:, begin:end]) for begin, end in _number_places(layout))
    sound = (offsets >= 0) & (offsets <= target.last_offset_delta)
    count = len(rows) if sound.all() else int(sound.argmin())
    if count < _FEWEST:
        return None
    messages = _write(rows[:count], timestamps[:count], offsets[:count], layout, target)
    return Transcript(messages, count, position + count * size, int(offsets[count - 1]))


def _layout(data: bytes, position: int) -> RecordLayout | None:
    """Return the layout of the record at `position`; None if it is invalid, or has headers or very wide numbers."""
    layout = record_layout(data, position)
    if layout is None:
        return None
    widest = max(layout.offset_at - layout.timestamp_at, layout.key_length_at - layout.offset_at)
    return layout if widest <= _MOST_NUMBER_BYTES else None


def _number_places(layout: RecordLayout) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where the timestamp delta and the offset delta begin and end."""
    return (layout.timestamp_at, layout.offset_at), (layout.offset_at, layout.key_length_at)


def _are_alike(data: bytes, begins: range, layout: RecordLayout) -> bool:
    """Whether all records have the lengths and number widths of the first one: the usual case, and quick to check."""
    start, stop, size = begins.start, begins.stop, begins.step
    for place in layout.length_places:
        column = data[start + place : stop : size]
        if column.count(column[0]) != len(column):
            return False
    for begin, end in _number_places(layout):
        for place in range(begin, end):
            column = data[start + place : stop : size]
            # The last byte of a number is ASCII (high bit clear); the bytes before it have the high bit set.
            if not column.isascii() if place + 1 == end else column.translate(None, _HIGH_BYTES):
                return False
    return True


def _alike_inside(rows: Octets, layout: RecordLayout) -> int:
    """Return how many rows from the first on have its field lengths and number widths."""
    alike = np.ones(len(rows), dtype=np.bool_)
    for place in layout.length_places:
        alike &= rows[:, place] == rows[0, place]
    for begin, end in _number_places(layout):
        for place in range(begin, end):
            alike &= (rows[:, place] >= 0x80) == (place + 1 < end)
    return len(rows) if alike.all() else int(alike.argmin())


def _numbers(columns: Octets) -> Integers:
    """Decode the varints that fill each row."""
    value = columns[:, 0].astype(np.int64)
    if columns.shape[1] > 1:
        value &= 0x7F
        for place in range(1, columns.shape[1]):
            value |= (columns[:, place] & 0x7F).astype(np.int64) << 7 * place
    return (value >> 1) ^ -(value & 1)


def _write(rows: Octets, timestamps: Integers, offsets: Integers, layout: RecordLayout, target: Target) -> bytes:
    key_bytes, value_bytes = max(layout.key_length, 0), max(layout.value_length, 0)
    table = np.empty(len(rows), dtype=message_type(target.magic, key_bytes, value_bytes))
    size = table.itemsize
    table["offset"] = offsets + target.base_offset
    table["size"] = size - BEFORE_CRC
    table["magic"] = target.magic
    table["attributes"] = target.attributes
    if target.magic:
        table["timestamp"] = timestamps * target.scale + target.base_timestamp
    table["key_length"] = layout.key_length
    table["key"] = rows[:, layout.key_at : layout.value_length_at]
    table["value_length"] = layout.value_length
    table["value"] = rows[:, layout.value_at : layout.headers_at]
    octets: Octets = table.view(np.uint8)
    table["crc"] = list(starmap(crc32, iter_unpack(f"{BEHIND_CRC}x{size - BEHIND_CRC}s", octets.data)))
    return table.tobytes()
