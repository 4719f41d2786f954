"""Decodes many batches at once into numpy columns (keys, values, offsets, timestamps), without an object per record.

Compaction uses it; `frame_columns` is the form for whole fetch responses. The result is one contiguous buffer and
arrays of positions in it. Invariant: every returned position and length is inside the buffer and inside its record; an
inconsistent set raises and yields nothing.

`records/v2/record_starts` follows the record lengths: only in this step, a record depends on the previous one. Then one
vectorized step per field reads it for all records; the first such step verifies the chain of lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.record_cursors import (
    HeaderColumns,
    Integers,
    RecordCursors,
    absolute_offsets,
    absolute_timestamps,
    read_headers,
)
from odradek.records.v2.batch import BatchHeader
from odradek.records.v2.record_starts import find_record_starts

Unpacked = tuple[BatchHeader, bytes | memoryview]
"""A batch's header and its decompressed records section."""

_MAX_OFFSET: Final = (1 << 63) - 1
_PADDING: Final = bytes(10)
"""Zeros after the last record, so that users can read words of eight bytes at any key."""


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
    array = np.frombuffer(data, dtype=np.uint8)
    begin = _record_starts(data, wanted)
    cursors = RecordCursors(array, begin)
    end = cursors.read_record_lengths(_following(begin, len(data) - len(_PADDING)))
    timestamp_delta, offset_delta = cursors.read_deltas(end)
    key_start, key_length = cursors.read_field(end)
    value_start, value_length = cursors.read_field(end)
    headers = read_headers(cursors, end, collect=with_headers)
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
    begin = _record_starts(data, batches)
    cursors = RecordCursors(np.frombuffer(data, dtype=np.uint8), begin)
    end = cursors.read_record_lengths(_following(begin, len(data) - len(_PADDING)))
    _, offset_delta = cursors.read_deltas(end)
    start, length = cursors.read_field(end)
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


def _following(begin: Integers, end: int) -> Integers:
    return np.append(begin[1:], end)[: len(begin)]


def _add_bases(
    batches: Sequence[Unpacked], offset_delta: Integers, timestamp_delta: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return offsets, timestamps and their types, computed from the deltas and each batch's header."""
    headers = [header for header, _ in batches]
    counts = np.array([header.record_count for header in headers], dtype=np.int64)

    def spread(values: list[int]) -> Integers:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    timestamp = absolute_timestamps(spread([header.base_timestamp for header in headers]), timestamp_delta)
    timestamp_type = spread([header.timestamp_type for header in headers])
    if timestamp_type.any():
        timestamp = np.where(timestamp_type == 1, spread([header.max_timestamp for header in headers]), timestamp)
    return _offsets(batches, offset_delta), timestamp, timestamp_type


def _offsets(batches: Sequence[Unpacked], offset_delta: Integers) -> Integers:
    counts = np.array([header.record_count for header, _ in batches], dtype=np.int64)
    last_delta = np.array([header.last_offset_delta for header, _ in batches], dtype=np.int64)
    base_offset = np.array([header.base_offset for header, _ in batches], dtype=np.int64)
    return absolute_offsets(np.repeat(base_offset, counts), np.repeat(last_delta, counts), offset_delta)


def _select(columns: Columns, inside: NDArray[np.bool_]) -> Columns:
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
        headers=None if columns.headers is None else columns.headers.select(inside),
    )
