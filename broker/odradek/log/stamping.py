"""What a leader writes into batches before they are kept: offsets, leader epoch, time; and what markers say.

Record memory and headers enter; the memory is changed in place, new values leave. `PartitionLog` calls it on every
append, so nothing here looks at a record except in control batches. Invariant: only bytes outside of the CRC change,
or the CRC is made new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.base.types import NO_TIMESTAMP
from odradek.log.producer_state import NO_MARKERS, Marker
from odradek.log.recovery import read_marker
from odradek.records.batch import CONTROL_FLAG, BatchHeader, stamp, stamp_log_append_time

_LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count; added here, as a property call a batch would cost more."""


def markers_in(records: memoryview, headers: Sequence[BatchHeader]) -> Mapping[int, Marker]:
    """Content of the control batches, by their place in `headers`. Raises `CorruptMessageError`."""
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
    """Number the batches from `offset` on; the offset after the last record and the largest timestamp."""
    position = 0
    max_timestamp = NO_TIMESTAMP
    for header in headers:
        stamp(records, position, offset, leader_epoch)
        position += header.batch_length + _LENGTH_OVERHEAD
        offset += header.last_offset_delta + 1
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
    return offset, max_timestamp


def stamp_time(records: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> tuple[BatchHeader, ...]:
    """Give the batches log-append time; their headers as they are then."""
    position = 0
    for header in headers:
        stamp_log_append_time(records, position, header, now_ms)
        position += header.size
    return tuple(header._replace(max_timestamp=now_ms) for header in headers)
