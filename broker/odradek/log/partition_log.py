"""The log of one partition: append, read, roll, truncate, start and end offsets.

Record sets enter from producers, coordinators and leaders; positions in files leave to fetches. `LogManager` makes and
keeps logs; replication appends, reads and truncates; everything runs on the event loop, without waiting. What may
block for long (syncs, removals) is handed to the `LogHost`.

Invariants: log start <= high watermark <= log end; segments hold whole batches with rising offsets; a failed append
leaves the log as it was, or takes its directory offline. The tuple of segments is replaced, never changed, so a read
under way sees one state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    CorruptMessageError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    StorageError,
)
from odradek.base.types import NO_TIMESTAMP
from odradek.log import checkpoints
from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.flush import FlushTicket
from odradek.log.producer_state import ActiveProducer, Duplicate, Marker
from odradek.log.recovery import LoadedLog, load_producers, write_snapshot
from odradek.log.retention import RetentionRules, expired_segments
from odradek.log.segment import INT32_MAX, Segment, whole_batches
from odradek.log.segment_list import ReadBounds, SegmentList
from odradek.log.stamping import markers_in, stamp_offsets, stamp_time
from odradek.log.values import AppendInfo, LogContext, LogSlice, TimestampOffset
from odradek.records.admission import prepare
from odradek.records.batch import BatchHeader, TimestampType
from odradek.records.validate import AppendOrigin, AppendRules, check_append

logger = logging.getLogger(__name__)


class PartitionLog:
    """One partition's log."""

    __slots__ = (
        "_clock",
        "_epochs",
        "_failure",
        "_files",
        "_generation",
        "_host",
        "_jitter_ms",
        "_new_names",
        "_producers",
        "_segments",
        "_timestamp_type",
        "_unflushed_records",
        "config",
        "directory",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, context: LogContext, loaded: LoadedLog, config: TopicConfig, topic_id: UUID | None) -> None:
        """A log that goes on where `loaded` ends. `topic_id` is None where none is known."""
        self._files = context.files
        self._clock = context.clock
        self._host = context.host
        self.topic_partition = loaded.topic_partition
        self.topic_id = topic_id
        self.directory = loaded.directory
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.next_offset
        self.recovery_point = loaded.recovery_point
        """Every batch below is durable."""
        self.high_watermark = loaded.log_start_offset
        """Set by replication."""
        self.last_flush_ms = context.clock.monotonic_ms()
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._unflushed_records = 0
        self._generation = 0
        self._failure: StorageError | None = None
        self._new_names = True
        self._jitter_ms = 0
        self._segments = SegmentList(loaded.segments)
        self.update_config(config)
        self._draw_jitter()

    def __repr__(self) -> str:
        """For assertions: name, start, high watermark, end."""
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.high_watermark}"
            f"..{self.log_end_offset}, {len(self._segments.all)} segments)"
        )

    # State

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments.active

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order; a snapshot."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without indexes."""
        return self._segments.size_bytes

    @property
    def first_unstable_offset(self) -> int | None:
        """Begin of the earliest transaction that is open or whose end is not replicated; None when there is none."""
        return self._producers.first_unstable_offset(self.high_watermark)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 when there is none."""
        return self._epochs.latest_epoch

    @property
    def is_offline(self) -> bool:
        """Whether the log's directory failed."""
        return self._failure is not None

    def active_producers(self) -> list[ActiveProducer]:
        """The producers that are remembered, by id."""
        return self._producers.active()

    def update_config(self, config: TopicConfig) -> None:
        """Put other settings in force."""
        self.config = config
        self._timestamp_type = (
            TimestampType.LOG_APPEND_TIME
            if config.message_timestamp_type == "LogAppendTime"
            else TimestampType.CREATE_TIME
        )
        self._segments.active.limit_indexes(config.segment_index_bytes)

    # Append

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
    ) -> AppendInfo:
        """Check, number, stamp (in `records` itself, when it is writable) and write record batches.

        Raises what `check_append` raises, the sequence errors of idempotence, `RecordListTooLargeError` above
        `segment.bytes`, `KafkaStorageError` when the disk refuses.
        """
        config = self.config
        now_ms = self._clock.wall_ms()
        sequenced, first_offset = origin is AppendOrigin.CLIENT, self.log_end_offset
        records, headers = prepare(records, self._rules(now_ms, origin, zstd_allowed=zstd_allowed), first_offset)
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
        if self._timestamp_type is TimestampType.LOG_APPEND_TIME:
            log_append_time = now_ms
            headers = stamp_time(records, headers, now_ms)
        offset, max_timestamp = stamp_offsets(records, headers, first_offset, leader_epoch)
        self._make_room(size, first_offset, offset - 1, max_timestamp)
        try:
            self._segments.active.append(records, headers, first_offset, config.index_interval_bytes)
        except StorageError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = offset
        if leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first_offset)
        self._note_producers(headers, first_offset, markers)
        count = offset - first_offset
        self._count_unflushed(count)
        return AppendInfo(
            first_offset, offset - 1, count, size, max_timestamp, log_append_time, self.log_start_offset, leader_epoch
        )

    def _rules(self, now_ms: int, origin: AppendOrigin, *, zstd_allowed: bool) -> AppendRules:
        config = self.config
        return AppendRules(
            config.max_message_bytes,
            now_ms,
            origin,
            self._timestamp_type,
            config.timestamp_before_max_ms,
            config.timestamp_after_max_ms,
            config.compacted,
            zstd_allowed,
        )

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Write batches with the offsets and epochs that the leader gave them; an incomplete last one is left out.

        Raises `CorruptMessageError` for a wrong batch, and for one that overlaps the log; `KafkaStorageError`.
        """
        records = records[: whole_batches(records)]
        config = self.config
        headers = check_append(records, AppendRules(INT32_MAX, 0, AppendOrigin.REPLICATION))
        first, last = headers[0], headers[-1]
        if first.base_offset < self.log_end_offset:
            raise CorruptMessageError(
                f"{self.topic_partition} ends at {self.log_end_offset}, a batch at {first.base_offset} does not follow"
            )
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
            self._producers.record(header, header.base_offset, markers.get(place))
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
                self._producers.record(header, offset, markers.get(place))
            offset += header.last_offset_delta + 1

    def _count_unflushed(self, records: int) -> None:
        self._unflushed_records += records
        if self._unflushed_records >= self.config.flush_messages:
            self.flush()

    def _write_failed(self, error: StorageError) -> KafkaStorageError:
        """Undo a write that failed; the log goes on (a full disk may get room again) unless that fails too."""
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
        self._check_online()
        active = self._segments.active
        if (
            active.size + size > self.config.segment_bytes
            or active.index_full
            or last_offset - active.base_offset > INT32_MAX
            or (active.size and self._is_due(active, max_timestamp))
        ):
            self._roll(first_offset, last_offset)

    def _is_due(self, active: Segment, timestamp: int) -> bool:
        """Whether the segment is older than `segment.ms`: by the records' own time, if they have one."""
        return active.age_ms(timestamp, self._clock.wall_ms()) > self.config.segment_ms - self._jitter_ms

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one holds something and is older than `segment.ms` at `now_ms`."""
        self._check_online()
        active = self._segments.active
        if not active.size or not self._is_due(active, now_ms):
            return False
        self._roll(self.log_end_offset, self.log_end_offset)
        return True

    def _draw_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = int(self._clock.random() * bound) if bound > 0 else 0

    def _roll(self, first_offset: int, last_offset: int) -> None:
        """Begin a segment that can hold the offsets from `first_offset` to `last_offset`.

        It begins where the last batch ends, even if the next one leaves a gap: recovery then knows by a gap between
        two segments that a crash took batches.
        """
        active = self._segments.active
        try:
            base_offset = active.next_offset()
            if last_offset - base_offset > INT32_MAX:
                base_offset = first_offset
            if active.size == 0 and active.base_offset == base_offset:
                return
            write_snapshot(self._files, self.directory, self._producers, base_offset)
            segment = self._new_segment(base_offset)
        except StorageError as error:
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error
        if active.size:
            active.seal()
            self._segments.replace((*self._segments.all, segment))
        else:
            self._segments.replace((*self._segments.all[:-1], segment))
            self._discard((active,), 0)
        self._draw_jitter()
        self._host.flush_soon(self)

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._files, self.directory, base_offset, created_ms=self._clock.wall_ms())
        segment.create()
        segment.limit_indexes(self.config.segment_index_bytes)
        self._new_names = True
        return segment

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

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time; None when there is none. May raise `CorruptMessageError`."""
        self._check_online()
        try:
            return self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        except StorageError as error:
            raise self._fail(error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (KIP-734); None for an empty log."""
        newest = self._segments.newest_timestamp()
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    # Leader epochs

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends in this log; (-1, -1) when it is not known (KIP-279)."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Note that this broker leads in `leader_epoch` from `start_offset` on. Durable with the next flush."""
        self._epochs.assign(leader_epoch, start_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 when unknown."""
        return self._epochs.epoch_of(offset)

    # Truncate, start offset, retention

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; nothing above the log end.

        Whole batches go: `log_end_offset` comes to lie at the begin of the batch that holds `offset`. Raises
        `KafkaStorageError`.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        place = self._segments.holding(offset) + 1
        kept, dropped = self._segments.all[:place], self._segments.all[place:]
        try:
            if dropped:
                # Before the cut: a crash that brought later segments back would leave a gap before them, and index
                # files would vouch for batches that are not synced.
                self._discard(reversed(dropped), 0)
                kept[-1].remove_indexes()
                self._files.sync_directory(self.directory)
            cut = kept[-1].truncate(offset)
            end = offset if cut is None else min(offset, cut.base_offset)
            kept[-1].limit_indexes(self.config.segment_index_bytes)
            self._producers = load_producers(self._files, self.directory, kept, self.log_start_offset, end)
        except StorageError as error:
            raise self._fail(error) from error
        self._segments.replace(kept)
        self._restart_from(end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`. Raises `KafkaStorageError`."""
        self._check_online()
        try:
            self._discard(reversed(self._segments.all), 0)
            # The old files must be gone before new ones come: a crash that brings them back would mix two logs.
            self._files.sync_directory(self.directory)
            segment = self._new_segment(offset)
            self._producers = load_producers(self._files, self.directory, (), offset, offset)
        except StorageError as error:
            raise self._fail(error) from error
        self._segments.replace((segment,))
        self._epochs.clear()
        self.log_start_offset = offset
        self.high_watermark = offset
        self._restart_from(offset)

    def _restart_from(self, end: int) -> None:
        self.log_end_offset = end
        self._epochs.truncate_from_end(end)
        self.recovery_point = min(self.recovery_point, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self._generation += 1
        self._new_names = True
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
        expired = expired_segments(self._segments.facts(self.log_end_offset), rules, now_ms)
        if not expired.total:
            return 0
        if expired.total == len(self._segments.all):
            self._roll(self.log_end_offset, self.log_end_offset)
        logger.info("%s: retention removes %s of %d segments", self.topic_partition, expired, len(self._segments.all))
        gone, kept = self._segments.all[: expired.total], self._segments.all[expired.total :]
        self._segments.replace(kept)
        if kept[0].base_offset > self.log_start_offset:
            self._start_at(kept[0].base_offset)
        try:
            self._discard(gone, self.config.file_delete_delay_ms)
        except StorageError as error:
            raise self._fail(error) from error
        return expired.total

    def _discard(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Mark the files of segments deleted, at once, and have them removed. Raises `StorageError`.

        In the order given: from the side that is cut off inwards, so that a crash in between leaves no gap.
        """
        paths = [path for segment in segments for path in segment.mark_deleted()]
        if paths:
            self._host.remove_later(paths, delay_ms)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers (`producer.id.expiration.ms`); how many."""
        return self._producers.expire(now_ms, expiration_ms)

    # Flush, close

    def begin_flush(self) -> FlushTicket | None:
        """What a flush has to do now; None when everything is durable. The caller runs it and calls `end_flush`."""
        self._check_online()
        segments, first = self._segments.all, self._segments.holding(self.recovery_point)
        unwritten = tuple(segment for segment in segments[:-1] if not segment.indexes_written)
        if self.recovery_point == self.log_end_offset and not (unwritten or self._new_names or self._epochs.changed):
            return None
        epochs = None
        if self._epochs.changed:
            path = f"{self.directory}/{checkpoints.LEADER_EPOCH_FILE}"
            epochs = (path, checkpoints.encode_epochs(self._epochs.entries()))
            self._epochs.changed = False
        directories, self._new_names = (self.directory,) if self._new_names else (), False
        self._unflushed_records = 0
        self.last_flush_ms = self._clock.monotonic_ms()
        try:
            return FlushTicket(
                offset=self.log_end_offset,
                generation=self._generation,
                data=tuple(segment.file for segment in segments[first:]),
                sealed=unwritten,
                epochs=epochs,
                directories=directories,
            )
        except StorageError as error:
            raise self._fail(error) from error

    def end_flush(self, ticket: FlushTicket) -> None:
        """Take note of a flush that is done."""
        if ticket.generation != self._generation:
            return
        for segment in ticket.sealed:
            segment.indexes_written = True
            self._segments.cool(segment)
        self.recovery_point = max(self.recovery_point, min(ticket.offset, self.log_end_offset))

    def is_current(self, ticket: FlushTicket) -> bool:
        """Whether the log was not truncated since the flush began."""
        return ticket.generation == self._generation

    def flush_failed(self, error: StorageError) -> KafkaStorageError:
        """A sync failed: the kernel may have dropped the pages, so nothing unsynced can be trusted any more."""
        return self._fail(error)

    def flush(self) -> None:
        """Make everything durable. Blocks. Raises `KafkaStorageError`."""
        ticket = self.begin_flush()
        if ticket is None:
            return
        try:
            ticket.run(self._files)
        except StorageError as error:
            raise self._fail(error) from error
        self.end_flush(ticket)

    def close(self) -> None:
        """Flush, write indexes and the producer snapshot, close the files; idempotent. Raises `KafkaStorageError`.

        A log that is offline only lets go of its files.
        """
        if self._failure is None:
            active = self._segments.active
            try:
                active.seal()
                self.flush()
                if not active.indexes_written:
                    active.write_indexes()
                    active.indexes_written = True
                write_snapshot(self._files, self.directory, self._producers, self.log_end_offset)
                self._files.sync_directory(self.directory)
            except StorageError as error:
                raise self._fail(error) from error
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files without a flush; those in use by a reader stay open until it is done."""
        for segment in self._segments.all:
            segment.release()
