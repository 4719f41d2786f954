"""Reads of logs that do not make the event loop wait for a disk.

Replication, the coordinators and the handlers use them. What is in memory is read at once. Everything else is looked up
on a read thread of the log's directory; the result counts only if the log was not truncated meanwhile and still has the
same segment. Otherwise the lookup is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.base.errors import OdradekError, OffsetNotAvailableError, StorageError
from odradek.base.ports import Buffer
from odradek.log.directories.directory_worker import DirectoryWorker
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment_lookups import NotInMemoryError, SegmentLookup, TimestampLookup
from odradek.log.values import LogSlice, TimestampOffset

ATTEMPTS: Final = 10
"""Maximum number of lookups for one read. A second one is rare: the log changed, or the end of the read is in another
segment than its start."""


class LogLookups:
    """Reads on the event loop and on the read threads of the directories."""

    def __init__(self, worker_of: Callable[[PartitionLog], DirectoryWorker]) -> None:
        """`worker_of` returns the worker of a log's directory, or raises `KafkaStorageError`."""
        self._worker_of: Final = worker_of

    async def read(self, log: PartitionLog, offset: int, *, max_bytes: int, max_offset: int | None = None) -> LogSlice:
        """Read at least one batch; see `PartitionLog.read`.

        Also raises `KafkaStorageError` if the log is deleted, and `OffsetNotAvailableError` if it changes all the time.
        """
        for _ in range(ATTEMPTS):
            try:
                return log.read(offset, max_bytes=max_bytes, max_offset=max_offset, waits=False)
            except NotInMemoryError as missing:
                lookup = SegmentLookup(missing, log.generation)
            await self.run(log, lookup)
        raise OffsetNotAvailableError(
            f"{log.topic_partition} changed during each of {ATTEMPTS} lookups of offset {offset}; try again"
        )

    async def aborted_transactions(
        self, log: PartitionLog, offset: int, upper_offset: int
    ) -> tuple[tuple[int, int], ...]:
        """Return the aborted transactions of a range; see `PartitionLog.aborted_transactions`. Raises as `read`."""
        for _ in range(ATTEMPTS):
            try:
                return log.aborted_transactions(offset, upper_offset, waits=False)
            except NotInMemoryError:
                found = await self._collect_aborted(log, offset, upper_offset)
            if found is not None:
                return tuple(found)
        raise OffsetNotAvailableError(
            f"{log.topic_partition} changed during each of {ATTEMPTS} lookups of its transactions; try again"
        )

    async def _collect_aborted(self, log: PartitionLog, offset: int, upper_offset: int) -> list[tuple[int, int]] | None:
        """Read one transaction index after the other: there may be more than can be loaded. None if the log changed."""
        found: list[tuple[int, int]] = []
        generation = log.generation
        for segment in log.segments_with_aborted(offset):
            lookup = SegmentLookup(NotInMemoryError(segment, None), generation)
            if not await self.run(log, lookup):
                return None
            entries, is_complete = lookup.copy.transaction_index.collect(offset, upper_offset)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if is_complete:
                break
        return found

    async def load(self, log: PartitionLog, found: LogSlice) -> Buffer:
        """Return the bytes of a slice. Raises `StorageError`, and `KafkaStorageError` if the log is deleted.

        If the log was truncated meanwhile, the bytes may be others, or fewer.
        """
        if not found.length:
            return b""
        data = found.file.pread_now(found.length, found.position)
        if data is None:
            data = await self._worker_of(log).read(f"read of {found.file.path}", found.load)
        return data

    async def offset_for_timestamp(self, log: PartitionLog, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time; None if there is none.

        Raises as `PartitionLog.offset_for_timestamp`, and `OffsetNotAvailableError` if the log changes all the time.
        """
        for _ in range(ATTEMPTS):
            log.check_timestamps()
            generation, start = log.generation, log.log_start_offset
            for segment in log.segments:
                if segment.max_timestamp < timestamp_ms:
                    continue
                lookup = TimestampLookup(segment, generation, timestamp_ms, start)
                if not await self.run(log, lookup):
                    break
                found = lookup.found
                if found is not None:
                    if found.offset >= log.log_start_offset:
                        return found
                    break
            else:
                return None
        raise OffsetNotAvailableError(
            f"{log.topic_partition} changed during each of {ATTEMPTS} lookups of timestamp {timestamp_ms}; try again"
        )

    async def max_timestamp_offset(self, log: PartitionLog) -> TimestampOffset | None:
        """Return the first record with the largest timestamp (KIP-734); None for an empty log. Raises as above."""
        newest = log.newest_timestamp
        return await self.offset_for_timestamp(log, newest) if newest >= 0 else None

    async def run(self, log: PartitionLog, lookup: SegmentLookup | TimestampLookup) -> bool:
        """Run a lookup on a thread, and continue it in later segments until it finds the batch of its offset.

        Returns False if its result does not count, because the log has changed. Raises `KafkaStorageError`, and the
        errors of `lookup.run` other than `StorageError`.
        """
        step: SegmentLookup | TimestampLookup | None = lookup
        while step is not None:
            if not await self._run_in_segment(log, step):
                return False
            step = log.adopt(step)
        return True

    async def _run_in_segment(self, log: PartitionLog, lookup: SegmentLookup | TimestampLookup) -> bool:
        worker = self._worker_of(log)
        try:
            await worker.read(f"lookup in {lookup.segment.path()}", lookup.run)
        except OdradekError as error:
            if not log.holds(lookup.segment, lookup.generation):
                return False
            if isinstance(error, StorageError):
                raise log.read_failed(error) from error
            raise
        return log.holds(lookup.segment, lookup.generation)
