"""The log of one partition: append, read, roll, truncate, and its start and end offsets.

`LogManager` creates and keeps the logs; producers, coordinators and replication append and read. Reads return positions
in files. Everything runs on the event loop and does not wait; work that may block for long (syncs, removals) is handed
to the `LogHost`. `log.state` holds the parts of a log, `log.writes` puts records into segments, `log.storage` has the
files, and `log.flush` tracks durability.

Invariants: log start <= high watermark <= log end; segments hold whole batches with increasing offsets; a failed append
leaves the log unchanged or takes its directory offline. The tuple of segments is replaced, never modified, so that a
concurrent read sees one state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    CorruptMessageError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    StorageError,
    UnsupportedForMessageFormatError,
)
from odradek.base.types import NO_TIMESTAMP
from odradek.log.flush import FlushTicket
from odradek.log.producers.producer_files import load_producers, write_snapshot
from odradek.log.producers.producer_state import Duplicate
from odradek.log.producers.stamping import markers_in, stamp_offsets, stamp_time
from odradek.log.producers.verification import VerificationGuard
from odradek.log.retention import RetentionRules, expired_segments
from odradek.log.segments.entries import whole_batches
from odradek.log.segments.replacement import cleanable_segments
from odradek.log.segments.segment import INT32_MAX
from odradek.log.segments.segment_list import ReadBounds
from odradek.log.values import AppendInfo, CleanedSwap, LogSlice, SegmentView, TimestampOffset
from odradek.log.write_group import StagedAppend, WriteGroup
from odradek.log.writes import LogWrites
from odradek.records.admission import prepare
from odradek.records.checks.validate import AppendOrigin, AppendRules, check_append
from odradek.records.v2.batch import BatchHeader, TimestampType

_CLIENT = AppendOrigin.CLIENT
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
"""Module-level names are faster to look up; see `checks/validate`."""

logger = logging.getLogger(__name__)


class PartitionLog(LogWrites["PartitionLog"]):
    """The log of one partition."""

    __slots__ = ()

    # Append

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
        any_format: bool = False,
        group: WriteGroup | None = None,
        guard: VerificationGuard | None = None,
        needs_guard: bool = False,
    ) -> AppendInfo:
        """Validate record batches or message sets, convert them if the topic requires it, assign offsets and append.

        Batches that need no conversion are stamped in place if `records` is writable. For `zstd_allowed` and
        `any_format` see `AppendRules`. With `group`, the records are only added to it: `end_write` makes them part of
        the log, unless they are a duplicate. If it `needs_guard`, a batch of a transaction that is not open in this log
        needs the current `guard` of its producer (`begin_verification`). Raises what `prepare` and
        `ProducerState.check` raise, `RecordListTooLargeError` above `segment.bytes`, `KafkaStorageError` if the write
        fails or the disk is nearly full, and `GroupFullError`.
        """
        self._host.check_room(self)
        config = self.config
        now_ms = self._clock.wall_ms()
        sequenced, first_offset = origin is _CLIENT, self.log_end_offset if group is None else group.end_offset
        rules = self._rules
        rules.now_ms, rules.origin = now_ms, origin
        rules.zstd_allowed, rules.any_format = zstd_allowed, any_format
        records, headers, converted = prepare(records, rules, first_offset)
        size = len(records)
        if size > config.segment_bytes:
            raise RecordListTooLargeError(f"a record set of {size} bytes exceeds segment.bytes={config.segment_bytes}")
        markers = markers_in(records, headers)
        if group is not None:
            self._check_group(group, headers, size)
        duplicate = self._producers.check(
            headers,
            sequenced=sequenced,
            unwritten=not first_offset,
            markers=markers,
            guard=guard,
            needs_guard=needs_guard,
        )
        if duplicate is not None:
            return self._duplicate_info(duplicate, headers)
        append_ms = NO_TIMESTAMP
        if records.readonly:
            records = memoryview(bytearray(records))
        if self._timestamp_type is _LOG_APPEND_TIME:
            append_ms = now_ms
            headers = stamp_time(records, headers, now_ms)
        offset, newest = stamp_offsets(records, headers, first_offset, leader_epoch)
        if group is None:
            self._make_room(size, first_offset, offset - 1, newest)
            try:
                self._segments.active.append(records, headers, first_offset, config.index_interval_bytes)
            except StorageError as error:
                raise self._write_failed(error) from error
            self._note_led(headers, first_offset, offset, leader_epoch, markers)
        else:
            append = StagedAppend(records, headers, first_offset, offset, leader_epoch, markers)
            self._stage(group, append, newest)
        count, start = offset - first_offset, self.log_start_offset
        # `tuple.__new__`: a call of a NamedTuple with so many arguments takes over twice as long.
        fields = (first_offset, offset - 1, count, size, newest, append_ms, start, leader_epoch, False, converted)
        return tuple.__new__(AppendInfo, fields)

    def append_as_follower(self, records: memoryview, group: WriteGroup | None = None) -> AppendInfo:
        """Append batches with the offsets and epochs that the leader assigned; a truncated last batch is ignored.

        An empty log begins at the first batch, even if that is below the current log start. With `group`, which must
        be empty, the records are only added to it. Raises `CorruptMessageError` for an invalid batch or one that
        overlaps the log, `KafkaStorageError`, and `GroupFullError`.
        """
        self._host.check_room(self)
        records = records[: whole_batches(records)]
        config = self.config
        headers = check_append(records, AppendRules(INT32_MAX, 0, AppendOrigin.REPLICATION))
        first, last = headers[0], headers[-1]
        if first.base_offset < self.log_end_offset:
            if not self.log_start_offset == self.log_end_offset <= last.last_offset:
                raise CorruptMessageError(
                    f"{self.topic_partition} ends at {self.log_end_offset}, but the batch starts at {first.base_offset}"
                )
            # The leader's log starts inside this batch (DeleteRecords), and only whole batches can be fetched. The
            # lower start needs no checkpoint: either the batch ends above the checkpointed one, or nothing was written.
            self._begin_at(first.base_offset)
            self._restart_from(first.base_offset)
        markers = markers_in(records, headers)
        size = len(records)
        last_offset = last.last_offset
        max_timestamp = max(header.max_timestamp for header in headers)
        count = last_offset + 1 - self.log_end_offset
        if group is None:
            self._make_room(size, first.base_offset, last_offset, max_timestamp)
            try:
                self._segments.active.append_at(records, headers, config.index_interval_bytes)
            except StorageError as error:
                raise self._write_failed(error) from error
            self._note_copied(headers, last_offset + 1, markers)
        else:
            self._check_group(group, headers, size)
            group.is_copied = True
            append = StagedAppend(records, headers, first.base_offset, last_offset + 1, last.leader_epoch, markers)
            self._stage(group, append, max_timestamp)
        start, epoch = self.log_start_offset, last.leader_epoch
        return AppendInfo(first.base_offset, last_offset, count, size, max_timestamp, NO_TIMESTAMP, start, epoch)

    def _duplicate_info(self, duplicate: Duplicate, headers: Sequence[BatchHeader]) -> AppendInfo:
        by_append_time = self._timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendInfo(
            duplicate.first_offset,
            duplicate.last_offset,
            0,
            0,
            headers[-1].max_timestamp,
            duplicate.timestamp if by_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            self._epochs.epoch_of(duplicate.first_offset),
            duplicate=True,
        )

    def update_config(self, config: TopicConfig) -> None:
        """Apply new topic settings.

        Requires a flush if `flush.messages` records are not durable: after a start that was not clean, or because the
        setting was lowered.
        """
        self._apply(config)
        recovery_point = self._durability.recovery_point
        if self.log_end_offset - recovery_point >= config.flush_messages:
            self._require_flush(recovery_point)

    # Read

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        waits: bool = True,
    ) -> LogSlice:
        """Read batches from the one that contains `offset`, all below `max_offset` (default: the log end).

        Returns at most `max_bytes`, but with `min_one_batch` at least the first batch. The last batch may be
        incomplete. The result is empty at or above `max_offset`. Raises `OffsetOutOfRangeError` if `offset` is outside
        log start .. log end, and `KafkaStorageError`. Unless it `waits` for the disk, it raises `NotInMemoryError` if
        the records are not in memory: see `log/lookups`.
        """
        self._check_online()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} has offsets {self.log_start_offset} to {end}, not {offset}"
            )
        if max_offset is not None and max_offset < end:
            end = max_offset
        try:
            bounds = ReadBounds(end, self.log_end_offset, max_bytes, min_one_batch=min_one_batch, waits=waits)
            return self._segments.read(offset, bounds)
        except StorageError as error:
            raise self._fail(error) from error

    def aborted_transactions(
        self, offset: int, upper_offset: int, *, waits: bool = True
    ) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of the aborted transactions that overlap [`offset`, `upper_offset`).

        They are in the order of their markers. Raises `KafkaStorageError`, `CorruptMessageError`. For `waits` see
        `read`.
        """
        self._check_online()
        try:
            return self._segments.aborted(offset, upper_offset, waits=waits)
        except StorageError as error:
            raise self._fail(error) from error

    def aborted_within(self, offset: int, found: LogSlice, *, waits: bool = True) -> tuple[tuple[int, int], ...]:
        """Like `aborted_transactions`, for the slice that `read` returned; may return more, as the index is sparse."""
        end = self._segments.end_of(offset, found)
        return self.aborted_transactions(offset, self.log_end_offset if end is None else end, waits=waits)

    def read_failed(self, error: StorageError) -> KafkaStorageError:
        """Take the directory offline after a failed read."""
        return self._fail(error)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time; None if there is none. May raise `CorruptMessageError`.

        Raises `UnsupportedForMessageFormatError` if the topic uses format 0, whose records have no timestamps.
        """
        self.check_timestamps()
        try:
            return self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        except StorageError as error:
            raise self._fail(error) from error

    def check_timestamps(self) -> None:
        """Raise the errors of `offset_for_timestamp` that need no lookup."""
        self._check_online()
        if not self._rules.magic:
            raise UnsupportedForMessageFormatError(
                f"{self.topic_partition} has no timestamps: message.format.version={self.config.message_format_version}"
            )

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp (KIP-734); None for an empty log."""
        newest = self.newest_timestamp
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    # Truncate, start offset, retention

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on; does nothing above the log end.

        Only whole batches can be removed, so `log_end_offset` becomes the first offset of the batch that contains
        `offset`. Raises `KafkaStorageError`.
        """
        self._check_idle()
        if offset >= self.log_end_offset:
            # An epoch that began here but has no record may belong to another leader by now.
            self._epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._segments.start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            end = self._storage.cut(offset)
            before = self._producers
            self._producers = load_producers(self._files, self._segments.all, range(self.log_start_offset, end))
            self._producers.recall(before)
        except StorageError as error:
            raise self._fail(error) from error
        if end < self._segments.start_offset:
            # The first entry is an old wrapper that begins below its segment, as can happen in a follower's log.
            self.truncate_fully_and_start_at(end)
        else:
            self._cut_to(end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything and restart the log at `offset`. Raises `KafkaStorageError`."""
        self._begin_at(offset)
        self._cut_to(offset)

    def _begin_at(self, offset: int) -> None:
        self._check_idle()
        try:
            self._storage.restart_at(offset)
            self._producers = load_producers(self._files, self._segments.all, range(offset, offset))
        except StorageError as error:
            raise self._fail(error) from error
        self._epochs.clear()
        self.log_start_offset = max(self.log_start_offset, offset)
        self.high_watermark = offset

    def _cut_to(self, end: int) -> None:
        is_below_start = end < self.log_start_offset
        self._restart_from(end)
        if is_below_start:
            # After a crash, recovery treats everything below the checkpointed log start as deleted.
            self._host.checkpoint_now(self)

    def _restart_from(self, end: int) -> None:
        self.log_end_offset = end
        self._epochs.truncate_from_end(end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self._durability.restart_from(end, self._producers.first_open_offset())
        self.durable_limit = self._durability.limit(self.durable_limit)
        self._host.checkpoint_soon(self)
        self._host.flush_soon(self)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset. Returns whether it changed.

        Raises `OffsetOutOfRangeError` above the high watermark.
        """
        self._check_online()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} cannot start at {offset}, above its high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        self._host.checkpoint_soon(self)
        return True

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset`, -1 for the high watermark. Returns the new log start (KIP-107).

        The new start is durable with the next checkpoint, which is requested here. Segments wholly below it are removed
        by the next retention run. Raises `OffsetOutOfRangeError` above the high watermark and below 0.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if wanted < 0:
            raise OffsetOutOfRangeError(f"{self.topic_partition} cannot start at the negative offset {offset}")
        self.increment_log_start_offset(wanted)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._producers.start_at(offset)

    def delete_expired(self, now_ms: int) -> int:
        """Remove expired segments. Returns their number. Raises `KafkaStorageError`.

        Their files keep their names until a thread has renamed them. A crash before that brings the segments back, and
        the next retention run removes them again.
        """
        self._check_online()
        deletes = "delete" in self.config.cleanup_policy
        rules = RetentionRules(
            retention_ms=self.config.retention_ms if deletes else -1,
            retention_bytes=self.config.retention_bytes if deletes else -1,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        try:
            facts = self._segments.facts(self.log_end_offset)
        except StorageError as error:
            raise self._fail(error) from error
        expired = expired_segments(facts, rules, now_ms)
        if not expired.total:
            return 0
        if expired.total == len(self._segments.all):
            if self.writing is not None:
                return 0  # the group that is being written ends before the roll
            self._roll(self.log_end_offset, self.log_end_offset)
        logger.info("%s: retention removes %s of %d segments", self.topic_partition, expired, len(self._segments.all))
        start_offset = self._segments.all[expired.total].base_offset
        if start_offset > self.log_start_offset:
            self._start_at(start_offset)
        try:
            self._storage.remove_oldest(expired.total)
        except StorageError as error:
            raise self._fail(error) from error
        self._host.rename_expired_soon(self)
        return expired.total

    def rename_failed(self, error: StorageError) -> KafkaStorageError:
        """Take the directory offline after a failed rename of an expired segment."""
        return self._fail(error)

    # Compaction

    def cleanable(self) -> tuple[SegmentView, ...]:
        """Return the segments that compaction may rewrite: sealed, durable, replicated and stable, from the first on.

        They lie below the checkpointed recovery point, because compaction leaves gaps, which recovery takes for lost
        batches above it. Every transaction in them is decided by a durable marker: if a power failure took the
        marker, another marker could decide differently on records that compaction has already removed. If that holds
        segments back, a flush is requested. Empty for an offline log. Raises `KafkaStorageError`.
        """
        return self._cleanable(self._durability.checkpointed)

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether a checkpoint of the recovery point would make more segments cleanable. Raises `KafkaStorageError`."""
        reached, checkpointed = self._durability.recovery_point, self._durability.checkpointed
        return reached > checkpointed and len(self._cleanable(reached)) > len(self._cleanable(checkpointed))

    def _cleanable(self, durable: int) -> tuple[SegmentView, ...]:
        if self._failure is not None or self._is_abandoned:
            return ()
        bound = min(self.high_watermark, durable)
        # The true first offset of the transaction, even below the log start: a crash may bring deleted records back.
        unstable = self._producers.first_unstable_offset(self.high_watermark)
        if unstable is not None:
            bound = min(bound, unstable)
        if self._durability.decided_below < bound:
            bound = self._durability.decided_below
            self._host.flush_soon(self)
        try:
            return cleanable_segments(self._segments.all, bound)
        except StorageError as error:
            raise self._fail(error) from error

    def swap_cleaned(self, swap: CleanedSwap) -> bool:
        """Replace segments with cleaned ones. Returns False, and changes nothing, if the log has changed meanwhile.

        It has changed if it was truncated, lost one of the segments to retention, was deleted, or is offline. In the
        first two cases the cleaned files are removed. Several swaps of one pass must come in increasing order:
        `.cleaned` files below count as those of a failed pass and are removed. Readers, offsets and producers see no
        change. Raises `KafkaStorageError`, and `CorruptMessageError`, with nothing changed, if the cleaned files are
        not whole.
        """
        if self._failure is not None or self._is_abandoned:
            return False
        try:
            swapped = self._storage.swap(swap, is_current=swap.generation == self._durability.generation)
        except StorageError as error:
            raise self._fail(error) from error
        if swapped:
            self._durability.note_names()
            self._host.flush_soon(self)
        return swapped

    # Flush, close

    def begin_flush(self) -> FlushTicket | None:
        """Return what has to be flushed; None if everything is durable. The caller runs it and calls `end_flush`."""
        self._check_online()
        try:
            return self._durability.begin(
                self.directory,
                self._segments,
                self._epochs,
                end_offset=self.log_end_offset,
                first_open_offset=self._producers.first_open_offset(),
                now_ms=self._clock.monotonic_ms(),
                names=self._storage.names.begin_flush(self._files),
            )
        except StorageError as error:
            raise self._fail(error) from error

    def flush_failed(self, error: StorageError) -> KafkaStorageError:
        """Take the directory offline after a failed sync: the kernel may have dropped any data that was not synced."""
        return self._fail(error)

    def flush(self) -> None:
        """Sync everything to disk. Blocks. Raises `KafkaStorageError`."""
        ticket = self.begin_flush()
        if ticket is None:
            return
        began_ms = self._clock.monotonic_ms()
        try:
            ticket.run(self._files)
        except StorageError as error:
            raise self._fail(error) from error
        self.end_flush(ticket)
        self._flush_ms.observe(self._clock.monotonic_ms() - began_ms)

    def close(self) -> None:
        """Flush, write indexes and the producer snapshot, and close the files. Idempotent. Raises `KafkaStorageError`.

        An offline log only releases its files. May run on a thread if the log is not used any more.
        """
        if self._failure is None:
            active = self._segments.active
            try:
                self.expired.run()
                if self.has_debris:
                    active.cut_debris()
                was_preallocated = active.is_preallocated
                active.seal()
                self.flush()
                if was_preallocated:
                    # The truncation must be durable before index files are trusted with the length.
                    active.file.sync()
                if not active.indexes_written:
                    active.write_indexes()
                    active.indexes_written = True
                write_snapshot(self._files, self.directory, self._producers, self.log_end_offset)
                self._files.sync_directory(self.directory)
            except StorageError as error:
                raise self._fail(error) from error
        self.abandon()
