"""Lookups in one segment that may wait for the disk, so they run on a thread.

`SegmentList` raises `NotInMemoryError` instead of waiting. `log/lookups` then runs a lookup on a read thread of the
directory, and `PartitionLog.adopt` takes its result over if neither the segment nor the log's generation has changed.
Invariant: `run` uses a copy of the segment and changes nothing that the event loop uses.
"""

from __future__ import annotations

from typing import Final

from odradek.log.segments.entries import BatchPlace
from odradek.log.segments.segment import Segment
from odradek.log.values import TimestampOffset
from odradek.records.formats import iterate_records
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES


class NotInMemoryError(Exception):
    """A read needs bytes of a segment that are not in memory. Never leaves the broker's process as an answer."""

    def __init__(self, segment: Segment, offset: int | None) -> None:
        """`offset`: what was looked up; None if the transaction index is needed."""
        super().__init__(f"{segment} is not in memory")
        self.segment: Final = segment
        self.offset: Final = offset


class SegmentLookup:
    """Opens and loads a segment, and finds the batch of an offset."""

    def __init__(self, missing: NotInMemoryError, generation: int) -> None:
        """`generation`: that of the log."""
        self.segment: Final = missing.segment
        self.generation: Final = generation
        self.offset: Final = missing.offset
        self.copy: Final = missing.segment.copy()
        self.place: BatchPlace | None = None
        """Result: see `Segment.locate`."""

    def run(self) -> None:
        """Load and search. Blocks. Raises `StorageError` and `CorruptMessageError`.

        It may also raise them, or find something that does not exist, because the segment changes meanwhile.
        """
        self.copy.load()
        if self.offset is None:
            _ = self.copy.transaction_index
        else:
            self.place = self.copy.locate(self.offset)


class TimestampLookup:
    """Finds the first record of a segment at or after a time and an offset."""

    def __init__(self, segment: Segment, generation: int, timestamp_ms: int, start_offset: int) -> None:
        """`generation`: that of the log."""
        self.segment: Final = segment
        self.generation: Final = generation
        self.copy: Final = segment.copy()
        self.found: TimestampOffset | None = None
        """Result: the record; None if there is none."""
        self._timestamp_ms: Final = timestamp_ms
        self._start_offset: Final = start_offset

    def run(self) -> None:
        """Load and search. Blocks. Raises as `SegmentLookup.run`, and `InvalidRecordError`."""
        self.copy.load(time_index=True)
        self.found = search(self.copy, self._timestamp_ms, self._start_offset)


def search(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    """Return the first record at or after a time and an offset. Raises `StorageError`, `CorruptMessageError`."""
    for position, header in segment.batches_for_timestamp(timestamp_ms, start_offset):
        batch = segment.read_batch(position, header)
        for record in iterate_records(batch, 0, header, limit=UNPACKED_LIMIT_BYTES):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None
