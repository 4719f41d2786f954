"""Finds the timestamp of the first record at or after an offset in fetched bytes, for the time lag of consumer groups.

ListOffsets finds an offset by timestamp, but not the reverse, so the batch with the record is fetched. A request has
several partitions with a small limit of bytes each. The leader returns a batch of the first one, whatever its size, and
nothing of another whose batch does not fit; that is requested again with a higher limit. `client/record_times` and
`coordinator/lag` send the requests. Only the batch with the record is decompressed, and only if its header lacks the
answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.base.ports import Buffer
from odradek.base.types import NO_TIMESTAMP
from odradek.records import formats
from odradek.records.v2.batch import MAGIC, BatchHeader, TimestampType
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES

FIRST_LIMIT_BYTES: Final = 1 << 15
"""Bytes of one partition in the first request: two batches of the producers' default `batch.size`."""
MAX_LIMIT_BYTES: Final = 1 << 20
ANSWERS: Final = 8
"""After so many answers with transaction markers only, a search ends without a result."""


class RecordSearch:
    """The search for the first record at or after an offset in one partition."""

    __slots__ = ("answers", "is_found", "limit_bytes", "offset", "timestamp")

    def __init__(self, offset: int) -> None:
        """`offset`: where the search begins."""
        self.offset = offset
        """The offset to fetch next."""
        self.limit_bytes = FIRST_LIMIT_BYTES
        """The maximum size of the next answer."""
        self.answers = 0
        self.is_found = False
        """Whether the result is known. It is not if the search ends without it."""
        self.timestamp: int | None = None
        """The result: the record's timestamp in milliseconds, -1 if it has none, None if there is no such record."""

    def take(self, data: Buffer, high_watermark: int, *, was_first: bool) -> bool:
        """Examine the fetched bytes of the partition; return whether the search is over.

        `was_first`: whether the partition was the first one of its request, so that a batch had to be in the answer.
        Raises `CorruptMessageError` and `InvalidRecordError`.
        """
        result = first_record(data, self.offset)
        if result.timestamp is not None or result.next_offset >= high_watermark:
            self.timestamp = result.timestamp
            self.is_found = True
            return True
        if result.next_offset == self.offset:
            self.limit_bytes = min(4 * self.limit_bytes, MAX_LIMIT_BYTES)
        if was_first or result.next_offset > self.offset:
            self.answers += 1
        self.offset = result.next_offset
        return self.answers >= ANSWERS


class FirstRecord(NamedTuple):
    """The result of `first_record`."""

    timestamp: int | None
    """Milliseconds since 1970 UTC; -1 if the record has no timestamp. None if the bytes have no such record."""
    next_offset: int
    """The offset after the last batch that was examined; the given offset if the bytes have no whole batch."""


def first_record(buffer: Buffer, offset: int) -> FirstRecord:
    """Return the timestamp of the first record at or after `offset`. Transaction markers are not records.

    Records of aborted transactions count, because the bytes do not say which these are. Raises `CorruptMessageError`
    and `InvalidRecordError`.
    """
    next_offset = offset
    for position, header in formats.iterate_entries(buffer):
        if header.last_offset >= offset and not header.is_control:
            timestamp = _from_header(header, offset)
            if timestamp is None:
                timestamp = _from_records(buffer, position, header, offset)
            if timestamp is not None:
                return FirstRecord(timestamp, max(next_offset, header.next_offset))
        next_offset = max(next_offset, header.next_offset)
    return FirstRecord(None, next_offset)


def _from_header(header: BatchHeader, offset: int) -> int | None:
    """Return the timestamp if the record is certainly in the batch and its header has its timestamp."""
    is_whole = header.record_count == header.last_offset_delta + 1
    if header.magic != MAGIC or not is_whole:
        return None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    if offset <= header.base_offset and header.delete_horizon_ms is None:
        return header.base_timestamp
    return None


def _from_records(buffer: Buffer, position: int, header: BatchHeader, offset: int) -> int | None:
    for record in formats.iterate_records(buffer, position, header, limit=UNPACKED_LIMIT_BYTES):
        if record.offset >= offset:
            return max(record.timestamp, NO_TIMESTAMP)
    return None
