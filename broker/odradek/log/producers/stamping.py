"""What a leader writes into batches before an append: offsets, leader epoch and log append time.

`PartitionLog` calls it on every append, so it reads records only in control batches, to return their markers. The
record memory is changed in place. Invariant: only bytes outside of the CRC change, or the CRC is recomputed.

Headers are those of `records/admission`: each entry, of any format, takes `last_offset_delta` + 1 offsets. A batch is
numbered by its first record, an old message by itself, and a wrapper of old messages by its last message. The offsets
of inner messages are already right: they are relative to the first (format 1) or were written as absolute offsets
(format 0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.base.types import NO_TIMESTAMP
from odradek.log.producers.producer_files import read_marker
from odradek.log.producers.producer_state import NO_MARKERS, Marker
from odradek.records.legacy.writing import stamp_offset, stamp_timestamp
from odradek.records.v2.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    stamp,
    stamp_log_append_time,
)

_LENGTH_OVERHEAD = 12
"""Bytes of an entry that its length field does not count; a constant, because a property call per entry costs more."""


def markers_in(records: memoryview, headers: Sequence[BatchHeader]) -> Mapping[int, Marker]:
    """Return the markers of the control batches by their index in `headers`. Raises `CorruptMessageError`."""
    if len(headers) == 1 and not headers[0].attributes & CONTROL_FLAG:
        return NO_MARKERS
    found: dict[int, Marker] | None = None
    position = 0
    for place, header in enumerate(headers):
        if header.attributes & CONTROL_FLAG:
            marker = read_marker(records, position, header)
            if marker is not None:
                found = found or {}
                found[place] = marker
        position += header.batch_length + _LENGTH_OVERHEAD
    return found if found is not None else NO_MARKERS


def stamp_offsets(
    records: memoryview, headers: Sequence[BatchHeader], offset: int, leader_epoch: int
) -> tuple[int, int]:
    """Assign offsets to the entries from `offset` on. Returns the offset after the last and the largest timestamp."""
    position = 0
    max_timestamp = NO_TIMESTAMP
    for header in headers:
        following = offset + header.last_offset_delta + 1
        if header.magic == MAGIC:
            stamp(records, position, offset, leader_epoch)
        else:
            stamp_offset(records, position, following - 1)
        position += header.batch_length + _LENGTH_OVERHEAD
        offset = following
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
    return offset, max_timestamp


def stamp_time(records: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> tuple[BatchHeader, ...]:
    """Set the log append time of all entries but those of format 0, which have no timestamp. Returns the new headers.

    An entry that already has this time, because it was converted before the append, is not changed.
    """
    position = 0
    stamped: list[BatchHeader] = []
    for header in headers:
        if header.magic == MAGIC:
            stamp_log_append_time(records, position, header, now_ms)
            header = header._replace(max_timestamp=now_ms)
        elif header.magic and not (header.attributes & LOG_APPEND_TIME_FLAG and header.max_timestamp == now_ms):
            stamp_timestamp(records, position, header, now_ms)
            attributes = header.attributes | LOG_APPEND_TIME_FLAG
            header = header._replace(attributes=attributes, base_timestamp=now_ms, max_timestamp=now_ms)
        position += header.size
        stamped.append(header)
    return tuple(stamped)
