"""Decodes many batches at once into numpy columns (keys, values, offsets, timestamps), without an object per record.

The Spark source, the batch interface of the clients and compaction use it. The result is one contiguous buffer and
arrays of positions in it. Invariant: every returned position and length is inside the buffer and inside its record; an
inconsistent set raises and yields nothing.

`records/v2/record_starts` follows the record lengths: only in this step, a record depends on the previous one. Then one
vectorized step per field reads it for all records; the first such step verifies the chain of lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.conversion.up import up_entry
from odradek.records.formats import iterate_entries
from odradek.records.v2.batch import MAGIC, BatchHeader, check_crc, read_header
from odradek.records.v2.record import record_bytes
from odradek.records.v2.record_starts import find_record_starts
from odradek.records.v2.transactions import AbortedTransactions
from odradek.records.v2.varint import decode_varint

Integers = NDArray[np.int64]
Unpacked = tuple[BatchHeader, bytes | memoryview]
"""A batch's header and its decompressed records section."""

_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_VARINT_BYTES: Final = 10
_PADDING: Final = bytes(_MAX_VARINT_BYTES)
"""Zeros after the last record. A number at the end can be read without a check of its bounds; it is rejected later."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records as columns of equal length; starts are positions in `buffer`, and a length of -1 means null."""

    buffer: bytes
    begin: Integers
    """Position of each record, at its length field."""
    offset: Integers
    timestamp_ms: Integers
    timestamp_type: Integers
    key_start: Integers
    key_length: Integers
    value_start: Integers
    value_length: Integers
    headers: HeaderColumns | None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offset)


class KeyColumns(NamedTuple):
    """Keys only: positions in `buffer`; a length of -1 means null."""

    buffer: bytes
    offset: Integers
    start: Integers
    length: Integers


def unpack(
    buffer: Buffer,
    *,
    limit: int,
    start_offset: int = 0,
    end_offset: int = _MAX_OFFSET,
    aborted: Iterable[tuple[int, int]] = (),
    check_crcs: bool = True,
) -> Iterator[Unpacked]:
    """Yield the batches in `buffer` that may have records in [start_offset, end_offset), decompressed.

    `limit` is the decompressed size of each. Control batches, batches of `aborted` transactions (producer id, first
    offset) and an incomplete batch at the end are omitted. Without `check_crcs` the CRCs of format 2 batches are not
    checked. Messages and wrappers of formats 0 and 1 are converted to batches. Raises `CorruptMessageError` for a wrong
    CRC or an invalid batch, `InvalidRecordError` for a wrapper that breaks the rules of its format.
    """
    transactions = AbortedTransactions(aborted)
    for position, header in iterate_entries(buffer):
        # A marker before the requested range still ends a transaction that is listed as aborted.
        if header.next_offset <= start_offset and not header.is_control:
            continue
        if header.magic < MAGIC:
            batch = up_entry(buffer, position, header, limit=limit)
            header = read_header(batch)
            if header.base_offset < end_offset:
                yield header, record_bytes(batch, 0, header, limit=len(batch))
                continue
        if header.base_offset >= end_offset:
            return
        if check_crcs:
            check_crc(buffer, position, header)
        covered = transactions.cover(header, buffer, position)
        if not (covered or header.is_control):
            yield header, record_bytes(buffer, position, header, limit=limit)


def decode(
    batches: Sequence[Unpacked],
    *,
    start_offset: int = 0,
    end_offset: int = _MAX_OFFSET,
    with_headers: bool = False,
) -> Columns:
    """Return the records of [start_offset, end_offset) in `batches` in order, without control batches.

    Raises `CorruptMessageError` if the records of a batch do not fill it exactly or a number in it is invalid.
    """
    wanted = [
        (header, payload)
        for header, payload in batches
        if not header.is_control and header.next_offset > start_offset and header.base_offset < end_offset
    ]
    data = b"".join([*(payload for _, payload in wanted), _PADDING])
    begin = _record_starts(data, wanted)
    reader = _Reader(data, begin)
    end = reader.read_record_lengths()
    timestamp_delta, offset_delta = reader.read_deltas(end)
    key_start, key_length = reader.read_field(end)
    value_start, value_length = reader.read_field(end)
    headers = _read_headers(reader, end, collect=with_headers)
    offset, timestamp_ms, timestamp_type = _add_bases(wanted, offset_delta, timestamp_delta)
    columns = Columns(
        buffer=data,
        begin=begin,
        offset=offset,
        timestamp_ms=timestamp_ms,
        timestamp_type=timestamp_type,
        key_start=key_start,
        key_length=key_length,
        value_start=value_start,
        value_length=value_length,
        headers=headers,
    )
    inside = (offset >= start_offset) & (offset < end_offset)
    return columns if bool(inside.all()) else _select(columns, inside)


def decode_keys(batches: Sequence[Unpacked]) -> KeyColumns:
    """Return the keys of all records in `batches`, none of which is a control batch; the rest is not checked.

    Raises `CorruptMessageError`: see `decode`.
    """
    data = b"".join([*(payload for _, payload in batches), _PADDING])
    reader = _Reader(data, _record_starts(data, batches))
    end = reader.read_record_lengths()
    _, offset_delta = reader.read_deltas(end)
    start, length = reader.read_field(end)
    return KeyColumns(data, _offsets(batches, offset_delta), start, length)


def _record_starts(data: bytes, batches: Sequence[Unpacked]) -> Integers:
    """Return where each record begins. The sign of a length is ignored here; `read_record_lengths` checks it."""
    parts: list[Integers] = [np.zeros(0, dtype=np.int64)]
    position = end = 0
    for header, payload in batches:
        end += len(payload)
        begins, position = find_record_starts(data, position, header.record_count)
        parts += begins
        if position != end:
            raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return np.concatenate(parts)


class _Reader:
    """One cursor per record; all advance together."""

    __slots__ = ("array", "data", "position")

    def __init__(self, data: bytes, position: Integers) -> None:
        self.data = data
        self.array = np.frombuffer(data, dtype=np.uint8)
        self.position = position

    def check(self, sound: NDArray[np.bool_]) -> None:
        """Raise `CorruptMessageError` unless all are true."""
        if not sound.all():
            raise CorruptMessageError("the fields of a record do not match its length")

    def read_record_lengths(self) -> Integers:
        """Return the end of each record, after checking that it ends where the next begins, or where the data ends."""
        following = np.append(self.position[1:], len(self.data) - len(_PADDING))
        length = self.read_numbers()
        end = self.position + length
        self.check(length > 0)
        self.check(end == following[: len(end)])
        return end

    def read_deltas(self, end: Integers) -> tuple[Integers, Integers]:
        """Return timestamp and offset deltas, which must end before `end`; the cursors are after the lengths."""
        self.position += 1  # The attributes of a record are not used.
        timestamp_delta, offset_delta = self.read_numbers(), self.read_numbers()
        self.check(self.position <= end)
        return timestamp_delta, offset_delta

    def read_numbers(self) -> Integers:
        """Return the varint at each cursor; it may start up to ten bytes before the end of the padding."""
        value, self.position = _varints(self.array, self.position)
        return value

    def read_field(self, end: Integers) -> tuple[Integers, Integers]:
        """Return start and length (-1: null) of the field at each cursor, and move the cursors after it."""
        length = self.read_numbers()
        start = self.position
        # Compare by subtraction: a huge length must not wrap around.
        self.check((length >= -1) & (length <= end - start))
        self.position = start + np.maximum(length, 0)
        return start, length


def _varints(data: NDArray[np.uint8], position: Integers) -> tuple[Integers, Integers]:
    byte = data[position]
    position = position + 1
    longer = byte >= 0x80
    if longer.all():
        following = data[position]
        if not (following >= 0x80).any():
            value = (following.astype(np.int64) << 7) + (byte & 0x7F)
            return (value >> 1) ^ -(value & 1), position + 1
    elif not longer.any():
        value = byte.astype(np.int64)
        return (value >> 1) ^ -(value & 1), position
    return _long_varints(data, byte, position, np.flatnonzero(longer))


def _long_varints(
    data: NDArray[np.uint8], byte: NDArray[np.uint8], position: Integers, going_on: Integers
) -> tuple[Integers, Integers]:
    """Decode numbers of any width: `position` is after the first `byte` of each."""
    value = (byte & 0x7F).astype(np.uint64)
    shift = 7
    while going_on.size:
        byte = data[position[going_on]]
        if shift > 63 or (shift == 63 and bool((byte > 1).any())):
            raise CorruptMessageError("a number in a record is longer than 64 bits")
        value[going_on] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[going_on] += 1
        going_on = going_on[byte >= 0x80]
        shift += 7
    magnitude = (value >> np.uint64(1)).view(np.int64)
    sign = (value & np.uint64(1)).view(np.int64)
    return magnitude ^ -sign, position


def _add_bases(
    batches: Sequence[Unpacked], offset_delta: Integers, timestamp_delta: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return offsets, timestamps and their types, computed from the deltas and each batch's header."""
    headers = [header for header, _ in batches]
    counts = np.array([header.record_count for header in headers], dtype=np.int64)

    def spread(values: list[int]) -> Integers:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    base_timestamp = spread([header.base_timestamp for header in headers])
    timestamp = base_timestamp + timestamp_delta
    # The sum has wrapped around if both terms have the opposite sign.
    if bool((((base_timestamp ^ timestamp) & (timestamp_delta ^ timestamp)) < 0).any()):
        raise CorruptMessageError("a record's timestamp is longer than 64 bits")
    timestamp_type = spread([header.timestamp_type for header in headers])
    if timestamp_type.any():
        timestamp = np.where(timestamp_type == 1, spread([header.max_timestamp for header in headers]), timestamp)
    return _offsets(batches, offset_delta), timestamp, timestamp_type


def _offsets(batches: Sequence[Unpacked], offset_delta: Integers) -> Integers:
    counts = np.array([header.record_count for header, _ in batches], dtype=np.int64)
    last_delta = np.array([header.last_offset_delta for header, _ in batches], dtype=np.int64)
    if not ((offset_delta >= 0) & (offset_delta <= np.repeat(last_delta, counts))).all():
        raise CorruptMessageError("a record's offset is outside its batch")
    base_offset = np.array([header.base_offset for header, _ in batches], dtype=np.int64)
    return np.repeat(base_offset, counts) + offset_delta


def _read_headers(reader: _Reader, end: Integers, *, collect: bool) -> HeaderColumns | None:
    """Read all headers, which must end where their record does; return them as columns if `collect`."""
    count = reader.read_numbers()
    # A header takes at least two bytes.
    reader.check((count >= 0) & (count <= (end - reader.position) // 2))
    rows = _walk_headers(reader, end, count)
    reader.check(reader.position == end)
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


def _walk_headers(reader: _Reader, end: Integers, count: Integers) -> list[Integers]:
    """Return record number, name start, name length, value start and value length of every header, by round."""
    rounds: list[tuple[Integers, ...]] = []
    position = reader.position
    active = np.flatnonzero(count)
    done = 0
    while active.size and done < _VECTORISED_HEADERS:
        cursor = _Reader(reader.data, position[active])
        name = cursor.read_field(end[active])
        cursor.check(name[1] >= 0)
        value = cursor.read_field(end[active])
        position[active] = cursor.position
        rounds.append((active, *name, *value))
        done += 1
        active = active[count[active] > done]
    rounds += [_walk_rest(reader, int(record), int(end[record]), int(count[record]) - done) for record in active]
    if not rounds:
        return [np.zeros(0, dtype=np.int64)] * 5
    return [np.concatenate(column) for column in zip(*rounds, strict=True)]


def _walk_rest(reader: _Reader, record: int, end: int, count: int) -> tuple[Integers, ...]:
    """Read the last `count` headers of one record."""
    data = reader.data
    position = int(reader.position[record])
    rows: list[tuple[int, int, int, int, int]] = []
    for _ in range(count):
        name_length, name_start = decode_varint(data, position)
        value_length, value_start = decode_varint(data, min(name_start + max(name_length, 0), end))
        position = value_start + max(value_length, 0)
        if name_length < 0 or value_length < -1 or position > end:
            raise CorruptMessageError("a header extends beyond its record")
        rows.append((record, name_start, name_length, value_start, value_length))
    reader.position[record] = position
    return tuple(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))


def _select(columns: Columns, inside: NDArray[np.bool_]) -> Columns:
    headers = columns.headers
    if headers is not None:
        of_record = np.repeat(inside, headers.count)
        headers = HeaderColumns(
            count=headers.count[inside],
            name_start=headers.name_start[of_record],
            name_length=headers.name_length[of_record],
            value_start=headers.value_start[of_record],
            value_length=headers.value_length[of_record],
        )
    return Columns(
        buffer=columns.buffer,
        begin=columns.begin[inside],
        offset=columns.offset[inside],
        timestamp_ms=columns.timestamp_ms[inside],
        timestamp_type=columns.timestamp_type[inside],
        key_start=columns.key_start[inside],
        key_length=columns.key_length[inside],
        value_start=columns.value_start[inside],
        value_length=columns.value_length[inside],
        headers=headers,
    )
