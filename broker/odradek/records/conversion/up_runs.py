"""Converts runs of similar messages of formats 0 and 1 to format 2 records, all at once, and checks every CRC.

`conversion/up` uses it, and converts unusual messages one by one itself. Invariant: the result is identical to a
conversion message by message; invalid or compressed messages are never part of a run.

It is the inverse of `conversion/down_runs` and uses the same table of messages. Messages are similar if they have the
same lengths and no attributes. The numbers in a record are of variable width, so records with equal widths are written
together. Only the CRC is computed message by message.
"""

from __future__ import annotations

from itertools import starmap
from struct import Struct, iter_unpack
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from odradek.records.legacy.checksum import crc32
from odradek.records.legacy.message_set import KEY_LENGTH_AT, MAX_OFFSET, MIN_MESSAGE_SIZE, MIN_OFFSET, SIZE_AT
from odradek.records.v2.varint import encode_varint

FEWEST: Final = 24
"""Minimum length of a run: the fixed steps cost as much as converting this many messages one by one."""

_FEWEST_TOGETHER: Final = 8
"""Minimum average length of runs with equal number widths; with shorter ones, the conversion one by one is cheaper."""
_MAX_TIMESTAMP: Final = 1 << 61
"""Differences of timestamps up to this fit into 64 bits, even zigzag-encoded, which doubles them."""
_MOST_NUMBER_BYTES: Final = 5
"""Longer timestamp deltas, beyond half a year, are left to the conversion one by one."""
_STEPS: Final = tuple(1 << 7 * count for count in range(1, _MOST_NUMBER_BYTES))
"""From each of these values on, a number takes one more byte."""

_SIZE: Final = Struct(">i")


class MessageSet(NamedTuple):
    """The messages, their format, and the base timestamp of the records."""

    data: bytes
    magic: int
    base_timestamp_ms: int


class Raised(NamedTuple):
    """Records, their number, where their messages end, and the newest timestamp."""

    records: bytes
    number: int
    end: int
    newest_ms: int


def raise_alike(messages: MessageSet, position: int, number: int) -> Raised | None:
    """Convert the messages from `position` on, numbered from `number`; None if too few are similar.

    Also None if one of them is invalid or unusual: the check message by message then reports the error.
    """
    data, magic, base_timestamp_ms = messages
    if not -1 <= base_timestamp_ms <= _MAX_TIMESTAMP:
        return None
    table = _alike(data, position, magic)
    if table is None:
        return None
    offsets = table["offset"]
    if int(offsets.min()) < MIN_OFFSET or int(offsets.max()) > MAX_OFFSET or not _crcs_fit(table):
        return None
    count = len(table)
    numbers = np.arange(number, number + count, dtype=np.int64)
    if magic:
        timestamps = table["timestamp"].astype(np.int64)
        newest = int(timestamps.max())
        if int(timestamps.min()) < -1 or newest > _MAX_TIMESTAMP:
            return None
        deltas = timestamps - base_timestamp_ms
    else:
        newest, deltas = -1, np.zeros(count, dtype=np.int64)
    pieces = _write(table, _zigzag(deltas), numbers << 1)
    end = position + count * table.itemsize
    return None if pieces is None else Raised(b"".join(pieces), count, end, newest)


def _alike(data: bytes, position: int, magic: int) -> NDArray[np.void] | None:
    """Return the plain messages from `position` on that have the lengths of the first one."""
    key_length_at = position + KEY_LENGTH_AT[magic]
    if len(data) - position < FEWEST * MIN_MESSAGE_SIZE:
        return None
    size = BEFORE_CRC + _SIZE.unpack_from(data, position + SIZE_AT)[0]
    (key_length,) = _SIZE.unpack_from(data, key_length_at)
    value_at = key_length_at + _SIZE.size + max(key_length, 0) + _SIZE.size
    value_bytes = position + size - value_at
    most = min((len(data) - position) // max(size, 1), MOST, max(MOST_BYTES // max(size, 1), 1))
    if key_length < -1 or value_bytes < 0 or most < FEWEST:
        return None
    (value_length,) = _SIZE.unpack_from(data, value_at - _SIZE.size)
    if value_length != value_bytes and (value_length != -1 or value_bytes):
        return None
    kind = message_type(magic, max(key_length, 0), value_bytes)
    table: NDArray[np.void] = np.frombuffer(data, dtype=kind, count=most, offset=position)
    alike = (table["size"] == size - BEFORE_CRC) & (table["magic"] == magic) & (table["attributes"] == 0)
    alike &= (table["key_length"] == key_length) & (table["value_length"] == value_length)
    count = most if alike.all() else int(alike.argmin())
    return table[:count] if count >= FEWEST else None


def _crcs_fit(table: NDArray[np.void]) -> bool:
    covered = iter_unpack(f"{BEHIND_CRC}x{table.itemsize - BEHIND_CRC}s", table.view(np.uint8).data)
    expected: list[int] = table["crc"].tolist()
    return list(starmap(crc32, covered)) == expected


def _zigzag(values: Integers) -> Integers:
    return (values << 1) ^ (values >> 63)


def _widths(numbers: Integers) -> Integers:
    """Return the number of bytes of each; at most `_MOST_NUMBER_BYTES`, which `_write` ensures."""
    widths = np.ones(len(numbers), dtype=np.int64)
    for step in _STEPS:
        if int(numbers.max()) < step:
            break
        widths += numbers >= step
    return widths


def _write(table: NDArray[np.void], deltas: Integers, numbers: Integers) -> list[Buffer] | None:
    """Return the records, one piece per run of equal widths; None if widths change too often or are too large."""
    if int(deltas.max()) >= _STEPS[-1] << 7:
        return None
    delta_widths, number_widths = _widths(deltas), _widths(numbers)
    changes = np.flatnonzero(np.diff(delta_widths * 8 + number_widths)) + 1
    if len(changes) * _FEWEST_TOGETHER > len(table):
        return None
    begins = [0, *changes.tolist()]
    return [
        _write_run(
            table[begin:end], deltas[begin:end], int(delta_widths[begin]), numbers[begin:end], int(number_widths[begin])
        )
        for begin, end in zip(begins, [*begins[1:], len(table)], strict=True)
    ]


def _write_run(
    table: NDArray[np.void], deltas: Integers, delta_width: int, numbers: Integers, number_width: int
) -> memoryview:
    first = table[0]
    keys, values = table["key"], table["value"]
    key_length, value_length = encode_varint(int(first["key_length"])), encode_varint(int(first["value_length"]))
    lead = bytes(1 + delta_width + number_width)
    body = b"".join((lead, key_length, bytes(keys.shape[1]), value_length, bytes(values.shape[1]), b"\x00"))
    length = encode_varint(len(body))
    rows = np.empty((len(table), len(length) + len(body)), dtype=np.uint8)
    rows[:] = np.frombuffer(length + body, dtype=np.uint8)
    delta_at = len(length) + 1
    number_at = delta_at + delta_width
    _put(rows[:, delta_at:number_at], deltas)
    _put(rows[:, number_at : number_at + number_width], numbers)
    key_at = number_at + number_width + len(key_length)
    value_at = key_at + keys.shape[1] + len(value_length)
    rows[:, key_at : key_at + keys.shape[1]] = keys
    rows[:, value_at : value_at + values.shape[1]] = values
    return rows.reshape(-1).data


def _put(columns: Octets, numbers: Integers) -> None:
    """Write each zigzag-encoded number over the width of the columns."""
    last = columns.shape[1] - 1
    for place in range(last):
        columns[:, place] = (numbers >> 7 * place) & 0x7F | 0x80
    columns[:, last] = numbers >> 7 * last
