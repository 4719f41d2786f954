"""The log of one partition: append, read, roll, truncate, start and end offsets.

Record sets enter from producers, coordinators and leaders; positions in files leave to fetches. `LogManager` makes and
keeps logs; replication appends, reads and truncates; everything runs on the event loop, without waiting. What may
block for long (syncs, removals) is handed to the `LogHost`. `log.state` has the parts of a log, `log.storage` its
files, `log.flush` what of them is durable.

Invariants: log start <= high watermark <= log end; segments hold whole batches with rising offsets; a failed append
leaves the log as it was, or takes its directory offline. The tuple of segments is replaced, never changed, so a read
under way sees one state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

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
from odradek.log.producer_files import load_producers, write_snapshot
from odradek.log.producer_state import Duplicate, EndedTransaction, Marker
from odradek.log.retention import RetentionRules, expired_segments
from odradek.log.segment import INT32_MAX, whole_batches
from odradek.log.segment_list import ReadBounds
from odradek.log.stamping import markers_in, stamp_offsets, stamp_time
from odradek.log.state import LogState
from odradek.log.swapping import cleanable_segments
from odradek.log.transactions import AbortedTransaction
from odradek.log.values import AppendInfo, CleanedSwap, LogSlice, SegmentView, TimestampOffset
from odradek.records.admission import prepare
from odradek.records.batch import MAGIC, BatchHeader, TimestampType
from odradek.records.validate import AppendOrigin, AppendRules, check_append

_CLIENT = AppendOrigin.CLIENT
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
"""By names of their own: see `records.validate`."""

logger = logging.getLogger(__name__)


class PartitionLog(LogState):
    """One partition's log."""

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
    ) -> AppendInfo:
        """Check, rewrite if the topic asks for it, number, stamp and write record batches or message sets.

        What need not be rewritten is stamped in `records` itself, when it is writable. `zstd_allowed` and `any_format`:
        see `AppendRules`. Raises what `prepare` raises, the sequence errors of idempotence, `RecordListTooLargeError`
        above `segment.bytes`, `KafkaStorageError` when the disk refuses or has little room left.
        """
        self._host.check_room(self)
        config = self.config
        now_ms = self._clock.wall_ms()
        sequenced, first_offset = origin is _CLIENT, self.log_end_offset
        changing = (config.max_message_bytes, now_ms, origin, zstd_allowed, any_format)
        # Made so for every append, as is the result: calls with so many arguments take more than twice as long.
        rules = tuple.__new__(AppendRules, changing + self._rules_of_topic)
        records, headers, converted = prepare(records, rules, first_offset)
        size = len(records)
        if size > config.segment_bytes:
            raise RecordListTooLargeError(f"a record set of {size} bytes exceeds segment.bytes={config.segment_bytes}")
        markers = markers_in(records, headers)
        duplicate = self._producers.check(headers, sequenced=sequenced, unwritten=not first_offset, markers=markers)
        if duplicate is not None:
            return self._duplicate_info(duplicate, headers)
        log_append_time = NO_TIMESTAMP
        if records.readonly:
            records = memoryview(bytearray(records))
        if self._timestamp_type is _LOG_APPEND_TIME:
            log_append_time = now_ms
            headers = stamp_time(records, headers, now_ms)
        offset, max_timestamp = stamp_offsets(records, headers, first_offset, leader_epoch)
        self._make_room(size, first_offset, offset - 1, max_timestamp)
        try:
            self._segments.active.append(records, headers, first_offset, config.index_interval_bytes)
        except StorageError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = offset
        if headers[0].magic < MAGIC:
            self._epochs.clear()
        elif leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first_offset)
        if headers[0].producer_id >= 0 or len(headers) > 1:
            self._note_producers(headers, first_offset, markers)
        count = offset - first_offset
        self._count_unflushed(count)
        start = self.log_start_offset
        ends, times = (first_offset, offset - 1, count, size), (max_timestamp, log_append_time)
        return tuple.__new__(AppendInfo, (*ends, *times, start, leader_epoch, False, converted))

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Write batches with the offsets and epochs that the leader gave them; an incomplete last one is left out.

        An empty log then begins with the first batch, even if that begins below. Raises `CorruptMessageError` for a
        wrong batch, and for one that overlaps the log; `KafkaStorageError`.
        """
        self._host.check_room(self)
        records = records[: whole_batches(records)]
        config = self.config
        headers = check_append(records, AppendRules(INT32_MAX, 0, AppendOrigin.REPLICATION))
        first, last = headers[0], headers[-1]
        if first.base_offset < self.log_end_offset:
            if not self.log_start_offset == self.log_end_offset <= last.last_offset:
                raise CorruptMessageError(
                    f"{self.topic_partition} ends at {self.log_end_offset}, a batch at {first.base_offset} does not "
                    "follow"
                )
            # The leader's log begins within this batch (DeleteRecords), which can only be had as a whole. No checkpoint
            # of the lower start is needed: the batch reaches above the one on the disk, or nothing was written.
            self._begin_at(first.base_offset)
            self._restart_from(first.base_offset)
        markers = markers_in(records, headers)
        size = len(records)
        last_offset = last.last_offset
        max_timestamp = max(header.max_timestamp for header in headers)
        self._make_room(size, first.base_offset, last_offset, max_timestamp)
        try:
            self._segments.active.append_at(records, headers, config.index_interval_bytes)
        except StorageError as error:
            raise self._write_failed(error) from error
        count = last_offset + 1 - self.log_end_offset
        self.log_end_offset = last_offset + 1
        for place, header in enumerate(headers):
            if header.leader_epoch > self._epochs.latest_epoch:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            elif header.magic < MAGIC:
                # Its epoch is not in it: better none is known than a wrong one.
                self._epochs.clear()
            if header.producer_id >= 0:
                self._note_ended(self._producers.record(header, header.base_offset, markers.get(place)))
        self._count_unflushed(count)
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

    def _note_producers(self, headers: Sequence[BatchHeader], first_offset: int, markers: Mapping[int, Marker]) -> None:
        offset = first_offset
        for place, header in enumerate(headers):
            if header.producer_id >= 0:
                self._note_ended(self._producers.record(header, offset, markers.get(place)))
            offset += header.last_offset_delta + 1

    def _note_ended(self, ended: EndedTransaction | None) -> None:
        if ended is not None and ended.is_aborted:
            self._segments.active.add_aborted(AbortedTransaction(*ended[:4]))

    def _count_unflushed(self, records: int) -> None:
        durability = self._durability
        durability.unflushed_records += records
        if durability.unflushed_records >= self.config.flush_messages:
            self.flush()

    def _write_failed(self, error: StorageError) -> KafkaStorageError:
        """Undo a write that found no room: the log goes on when there is some again. Any other error ends it."""
        if not error.full:
            return self._fail(error)
        try:
            self._segments.active.cut_debris()
        except StorageError as second:
            return self._fail(second)
        return KafkaStorageError(f"{self.topic_partition}: {error}")

    def _fail(self, error: StorageError) -> KafkaStorageError:
        if self._failure is None:
            self._failure = error
            self._host.directory_failed(self, error)
        return KafkaStorageError(f"{self.topic_partition} is offline: {error}")

    def take_offline(self, error: StorageError) -> None:
        """The directory failed elsewhere: refuse everything from now on."""
        if self._failure is None:
            self._failure = error

    def _check_online(self) -> None:
        if self._failure is not None:
            raise KafkaStorageError(f"{self.topic_partition} is offline: {self._failure}")

    # Roll

    def _make_room(self, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Begin a new segment when the active one can not take the append, or is old enough."""
        if self._failure is not None:
            self._check_online()
        if self._storage.is_full(size, last_offset, max_timestamp):
            self._roll(first_offset, last_offset)
        if self._segments.active.indexes_vouch:
            self._withdraw_indexes()

    def _withdraw_indexes(self) -> None:
        """Remove the index files that vouch for the active segment as it was loaded; the next flush makes it durable.

        So it is before the recovery point gets beyond what is written now.
        """
        try:
            self._segments.active.remove_indexes()
        except StorageError as error:
            raise self._fail(error) from error
        self._durability.has_new_names = True

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one holds something and is older than `segment.ms` at `now_ms`."""
        self._check_online()
        if not self._segments.active.size or not self._storage.is_due(now_ms):
            return False
        self._roll(self.log_end_offset, self.log_end_offset)
        return True

    def _roll(self, first_offset: int, last_offset: int) -> None:
        if self._durability.is_checkpoint_stale:
            self._host.checkpoint_now(self)
            self._check_online()
        try:
            rolled = self._storage.roll(first_offset, last_offset, self._producers)
        except StorageError as error:
            if not error.full:
                raise self._fail(error) from error
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error
        if rolled:
            self._durability.has_new_names = True
            self._host.flush_soon(self)

    # Read

    def read(
        self, offset: int, *, max_bytes: int, max_offset: int | None = None, min_one_batch: bool = True
    ) -> LogSlice:
        """Batches from the one that holds `offset`, all below `max_offset` (default: the log end).

        At most `max_bytes`, but with `min_one_batch` at least the first batch. The last batch may be cut. Empty at
        and above `max_offset`. Raises `OffsetOutOfRangeError` outside of log start .. log end, `KafkaStorageError`.
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
            return self._segments.read(offset, ReadBounds(end, self.log_end_offset, max_bytes, min_one_batch))
        except StorageError as error:
            raise self._fail(error) from error

    def aborted_transactions(self, offset: int, upper_offset: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of the aborted transactions that overlap `offset` .. below `upper_offset`.

        In the order of their markers. Raises `KafkaStorageError`, `CorruptMessageError`.
        """
        self._check_online()
        try:
            return self._segments.aborted(offset, upper_offset)
        except StorageError as error:
            raise self._fail(error) from error

    def aborted_within(self, offset: int, found: LogSlice) -> tuple[tuple[int, int], ...]:
        """The same for what `read` gave for `offset`; some more, as the index is sparse. Raises the same."""
        end = self._segments.end_of(offset, found)
        return self.aborted_transactions(offset, self.log_end_offset if end is None else end)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time; None when there is none. May raise `CorruptMessageError`.

        Raises `UnsupportedForMessageFormatError` while the topic keeps format 0, whose records have no time.
        """
        self._check_online()
        if not self._rules_of_topic.magic:
            raise UnsupportedForMessageFormatError(
                f"{self.topic_partition} keeps message.format.version={self.config.message_format_version}: no times"
            )
        try:
            return self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        except StorageError as error:
            raise self._fail(error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (KIP-734); None for an empty log."""
        newest = self._segments.newest_timestamp()
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    # Truncate, start offset, retention

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; nothing above the log end.

        Whole batches go: `log_end_offset` comes to lie at the begin of the batch that holds `offset`. Raises
        `KafkaStorageError`.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            # An epoch that began but got no record here may be another leader's by now.
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
            # The first entry was an old wrapper that begins below its segment, as a follower's log may have it.
            self.truncate_fully_and_start_at(end)
        else:
            self._cut_to(end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`. Raises `KafkaStorageError`."""
        self._begin_at(offset)
        self._cut_to(offset)

    def _begin_at(self, offset: int) -> None:
        self._check_online()
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
            # After a crash everything below the log start of the checkpoint counts as deleted.
            self._host.checkpoint_now(self)

    def _restart_from(self, end: int) -> None:
        self.log_end_offset = end
        self._epochs.truncate_from_end(end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self._durability.restart_from(end, self._producers.first_open_offset())
        self._host.checkpoint_soon(self)
        self._host.flush_soon(self)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start; whether it changed. Raises `OffsetOutOfRangeError` above the high watermark."""
        self._check_online()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} can not start at {offset}, above its high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        self._host.checkpoint_soon(self)
        return True

    def delete_records_before(self, offset: int) -> int:
        """Let the log begin at `offset`, -1 for the high watermark; the log start then (KIP-107).

        It is durable with the next checkpoint, which is asked for. Segments that lie wholly below go with the next
        retention. Raises `OffsetOutOfRangeError` above the high watermark and below 0.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if wanted < 0:
            raise OffsetOutOfRangeError(f"{self.topic_partition} can not begin at {offset}")
        self.increment_log_start_offset(wanted)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._producers.start_at(offset)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the segments that retention lets go; how many. Raises `KafkaStorageError`."""
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
            self._roll(self.log_end_offset, self.log_end_offset)
        logger.info("%s: retention removes %s of %d segments", self.topic_partition, expired, len(self._segments.all))
        start_offset = self._segments.all[expired.total].base_offset
        if start_offset > self.log_start_offset:
            self._start_at(start_offset)
        try:
            self._storage.remove_oldest(expired.total)
        except StorageError as error:
            raise self._fail(error) from error
        return expired.total

    # Compaction

    def cleanable(self) -> tuple[SegmentView, ...]:
        """The segments that compaction may rewrite: sealed and durable, stable and replicated, from the begin on.

        They lie below the recovery point that is checkpointed, as compaction leaves gaps that recovery would take for
        lost batches above it. Transactions in them are over for good: a marker that a power cut may still take counts
        for nothing, as records would be gone that another marker decides on; a flush is asked for when it holds
        anything back. Empty for a log that is offline. Raises `KafkaStorageError`.
        """
        return self._cleanable(self._durability.checkpointed)

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether more segments were cleanable if the recovery point were checkpointed. Raises `KafkaStorageError`."""
        reached, checkpointed = self._durability.recovery_point, self._durability.checkpointed
        return reached > checkpointed and len(self._cleanable(reached)) > len(self._cleanable(checkpointed))

    def _cleanable(self, durable: int) -> tuple[SegmentView, ...]:
        if self._failure is not None or self._is_abandoned:
            return ()
        bound = min(self.high_watermark, durable)
        # Where it really begins, even if that is below the log start: a crash may bring back what was deleted.
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
        """Put cleaned segments in the place of old ones; False when the log changed meanwhile, and nothing was done.

        It changed when it was truncated, lost one of the segments to retention, was deleted or is offline; but for the
        last two the cleaned files are removed. Several swaps of one pass come in rising order: `.cleaned` files below
        are taken for those of a pass that failed, and removed. Readers, offsets and producers see no change. Raises
        `KafkaStorageError`, and `CorruptMessageError` for cleaned files that are not whole, with nothing done.
        """
        if self._failure is not None or self._is_abandoned:
            return False
        try:
            swapped = self._storage.swap(swap, is_current=swap.generation == self._durability.generation)
        except StorageError as error:
            raise self._fail(error) from error
        if swapped:
            self._durability.has_new_names = True
            self._host.flush_soon(self)
        return swapped

    # Flush, close

    def begin_flush(self) -> FlushTicket | None:
        """What a flush has to do now; None when everything is durable. The caller runs it and calls `end_flush`."""
        self._check_online()
        try:
            return self._durability.begin(
                self.directory,
                self._segments,
                self._epochs,
                end_offset=self.log_end_offset,
                first_open_offset=self._producers.first_open_offset(),
                now_ms=self._clock.monotonic_ms(),
            )
        except StorageError as error:
            raise self._fail(error) from error

    def flush_failed(self, error: StorageError) -> KafkaStorageError:
        """A sync failed: the kernel may have dropped the pages, so nothing unsynced can be trusted any more."""
        return self._fail(error)

    def flush(self) -> None:
        """Make everything durable. Blocks. Raises `KafkaStorageError`."""
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
        """Flush, write indexes and the producer snapshot, close the files; idempotent. Raises `KafkaStorageError`.

        A log that is offline only lets go of its files.
        """
        if self._failure is None:
            active = self._segments.active
            try:
                was_preallocated = active.is_preallocated
                active.seal()
                self.flush()
                if was_preallocated:
                    # The cut must be durable before index files vouch for the length, even if all batches were.
                    active.file.sync()
                if not active.indexes_written:
                    active.write_indexes()
                    active.indexes_written = True
                write_snapshot(self._files, self.directory, self._producers, self.log_end_offset)
                self._files.sync_directory(self.directory)
            except StorageError as error:
                raise self._fail(error) from error
        self.abandon()
