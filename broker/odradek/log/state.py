"""The state of one partition's log, and the operations that do not touch its records.

It is built from what `log/recovery/log_recovery` loaded. `PartitionLog` is the only subclass and adds the operations on
records: append, read, truncate. Invariant: the offsets are those of `PartitionLog`.
"""

from __future__ import annotations

from typing import Generic
from uuid import UUID

from odradek.base.config import TopicConfig
from odradek.base.errors import StorageError
from odradek.log.epoch_cache import EpochCache, EpochEndOffset
from odradek.log.flush import NO_LIMIT, Durability, FlushTicket, decided_below
from odradek.log.producers.producer_state import ActiveProducer
from odradek.log.producers.verification import VerificationGuard
from odradek.log.recovery.log_recovery import LoadedLog
from odradek.log.segments.expired_files import ExpiredFiles
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_lookups import SegmentLookup, TimestampLookup
from odradek.log.storage import LogStorage
from odradek.log.values import LogContext, LogHost, LogT
from odradek.log.write_group import WriteGroup, WriteQueue
from odradek.records.checks.plain_batch import take_plain
from odradek.records.checks.validate import rules_of_topic
from odradek.records.v2.batch import TimestampType


class LogState(Generic[LogT]):
    """The parts of one partition's log; see `PartitionLog`."""

    __slots__ = (
        "_clock",
        "_durability",
        "_epochs",
        "_failure",
        "_files",
        "_flush_ms",
        "_host",
        "_is_abandoned",
        "_producers",
        "_rules",
        "_segments",
        "_storage",
        "_takes_plain",
        "_timestamp_type",
        "_validate_records",
        "config",
        "directory",
        "durable_limit",
        "has_debris",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "topic_id",
        "topic_partition",
        "write_queue",
        "writing",
    )

    def __init__(
        self, context: LogContext[LogT], loaded: LoadedLog, config: TopicConfig, topic_id: UUID | None
    ) -> None:
        """Continue the log where `loaded` ends. `topic_id` is None if it is unknown."""
        self._files = context.files
        self._clock = context.clock
        self._host: LogHost[LogT] = context.host
        self._flush_ms = context.flush_ms
        self._validate_records = context.validate_records
        self.topic_partition = loaded.topic_partition
        self.topic_id = topic_id
        self.directory = loaded.directory
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.next_offset
        self.high_watermark = loaded.log_start_offset
        """Set by replication."""
        self.durable_limit = NO_LIMIT
        """Records at and above this offset wait for a flush that `flush.messages` requires: until it is complete, this
        replica neither acknowledges nor reports them. `NO_LIMIT` if none wait."""
        self.write_queue: WriteQueue[LogT] | None = None
        """Where appends wait, because the log's directory is slow, or was until the queue is empty. None if appends are
        written at once. Set by the log manager."""
        self.writing: WriteGroup | None = None
        """The group that a thread writes."""
        self.has_debris = False
        """Whether bytes of a write that is not part of the log may follow the records of the active segment."""
        # If the recovery point is below the log end, the first flush finds out which transactions are decided.
        is_durable = loaded.recovery_point == loaded.next_offset
        self._durability = Durability(
            loaded.recovery_point,
            decided_below=decided_below(loaded.next_offset, loaded.producers.first_open_offset()) if is_durable else 0,
            checkpointed=loaded.checkpointed,
            now_ms=context.clock.monotonic_ms(),
        )
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._failure: StorageError | None = None
        self._is_abandoned = False
        self._storage = LogStorage(context, loaded.directory, loaded.segments, config)
        self._segments = self._storage.segments
        self._apply(config)

    def __repr__(self) -> str:
        """Show name, start, high watermark and end, for assertions."""
        return (
            f"{type(self).__name__}({self.topic_partition}, {self.log_start_offset}..{self.high_watermark}"
            f"..{self.log_end_offset}, {len(self._segments.all)} segments)"
        )

    # State

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments.active

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order, as a snapshot."""
        return self._segments.all

    def segments_with_aborted(self, offset: int) -> list[Segment]:
        """Return the segments that may have aborted transactions of records from `offset` on, in order."""
        return self._segments.with_aborted(offset)

    @property
    def size_bytes(self) -> int:
        """Total size of the `.log` files in bytes."""
        return self._segments.size_bytes

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp of the records; -1 if there is none."""
        return self._segments.newest_timestamp()

    def holds(self, segment: Segment, generation: int) -> bool:
        """Whether the log is in use, was not truncated since `generation`, and still has this segment.

        If so, what a lookup found in the segment meanwhile is right.
        """
        return (
            self._failure is None
            and not self._is_abandoned
            and generation == self._durability.generation
            and self._segments.contains(segment)
        )

    def adopt(self, lookup: SegmentLookup | TimestampLookup) -> SegmentLookup | None:
        """Use the result of a lookup in a segment that the log still `holds`.

        Returns the lookup that continues in the next segment if this one has nothing at or above the offset.
        """
        return self._segments.adopt(lookup)

    def is_sealed_below(self, offset: int, upper_offset: int) -> bool:
        """Whether a read at `offset` ends in an older segment than `upper_offset`, so that it never returns more."""
        return self._segments.is_older(offset, upper_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or whose marker is not replicated; None if none.

        Never below the log start, even if the transaction began there.
        """
        first = self._producers.first_unstable_offset(self.high_watermark)
        return None if first is None else max(first, self.log_start_offset)

    @property
    def recovery_point(self) -> int:
        """Every batch below this offset is durable."""
        return self._durability.recovery_point

    @property
    def last_flush_ms(self) -> float:
        """Monotonic time at which the last flush began."""
        return self._durability.last_flush_ms

    @property
    def generation(self) -> int:
        """Number of truncations: what was planned for the log's content in an earlier generation is void."""
        return self._durability.generation

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 if there is none."""
        return self._epochs.latest_epoch

    @property
    def is_offline(self) -> bool:
        """Whether the log's directory failed."""
        return self._failure is not None

    @property
    def is_gone(self) -> bool:
        """Whether the log is offline, deleted, closed, or replaced by a move."""
        return self._failure is not None or self._is_abandoned

    def take_over(self, current: LogState[LogT], directory: str) -> None:
        """Replace `current`, whose records this log has, at the end of a move to `directory`.

        This log's directory was just renamed to that path. State that the records do not contain is copied: the host,
        the high watermark, producers, and epochs without records.
        """
        assert self.log_end_offset == current.log_end_offset, f"{self} is not a copy of {current}"
        self._host = self._storage.host = current._host
        self.directory = directory
        self._storage.move_to(directory)
        self.topic_id = current.topic_id
        self.high_watermark = max(min(current.high_watermark, self.log_end_offset), self.log_start_offset)
        self._producers = current._producers
        self._epochs = EpochCache(current._epochs.entries())
        self._epochs.truncate_from_start(self.log_start_offset)
        self._epochs.version += 1
        self._durability.note_rename()
        self._apply(current.config)

    def active_producers(self) -> list[ActiveProducer]:
        """Return the known producers, sorted by id."""
        return self._producers.active()

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard | None:
        """Return the guard that a batch needs to open a transaction (KIP-890): that of the verification in progress, or
        a new one. None if the producer's transaction is already open in this log, so that nothing must be verified. A
        transaction of an earlier epoch is another one, whose marker has not arrived yet.

        A verification that begins after the call proves that the transaction includes this partition; the append then
        fails if the transaction has ended meanwhile. `base_sequence` is -1 for a batch of a coordinator.
        """
        if self._producers.is_open(producer_id, producer_epoch):
            return None
        now_ms = self._clock.wall_ms()
        return self._producers.verifications.begin(producer_id, producer_epoch, base_sequence, now_ms)

    @property
    def producer_count(self) -> int:
        """Number of known producers."""
        return len(self._producers)

    def oldest_transaction_ms(self) -> int:
        """Return the time of the last batch of the producer whose open transaction began first; -1 if none is open."""
        return self._producers.oldest_transaction_ms()

    def _apply(self, config: TopicConfig) -> None:
        self.config = config
        self._timestamp_type = (
            TimestampType.LOG_APPEND_TIME
            if config.message_timestamp_type == "LogAppendTime"
            else TimestampType.CREATE_TIME
        )
        self._set_rules()
        self._storage.update_config(config)

    def validate_records(self, wanted: bool) -> None:
        """Set whether each record that clients produce is validated, or only batches (`log.record.validation`)."""
        self._validate_records = wanted
        self._set_rules()

    def _set_rules(self) -> None:
        self._rules = rules_of_topic(self.config, validate_records=self._validate_records)
        self._takes_plain = take_plain(self._rules)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Drop idle producers (`producer.id.expiration.ms`). Returns their number."""
        return self._producers.expire(now_ms, expiration_ms)

    # Leader epochs

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return where a leader epoch ends in this log; (-1, -1) if it is unknown (KIP-279)."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Record that this broker leads in `leader_epoch` from `start_offset` on. Durable with the next flush."""
        self._epochs.assign(leader_epoch, start_offset)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; -1 if unknown."""
        return self._epochs.epoch_of(offset)

    # Flush

    def end_flush(self, ticket: FlushTicket) -> None:
        """Record that a flush is complete, and raise the durable limit."""
        self._durability.end(ticket, self._segments, self._epochs, self.log_end_offset)
        self.durable_limit = self._durability.limit(self.durable_limit)

    def checkpointed(self, recovery_point: int) -> None:
        """Record that the recovery point checkpoint on disk now contains `recovery_point` for this log."""
        self._durability.note_checkpoint(recovery_point)

    def abandon(self) -> None:
        """Release all files without a flush; a file stays open until its readers are done."""
        self._is_abandoned = True
        if self.writing is not None:
            self.writing.cancel()
        self._segments.forget()
        for segment in self._segments.all:
            segment.release()

    # Expired segments

    @property
    def expired(self) -> ExpiredFiles:
        """The files of segments that retention has removed, which a thread has to rename."""
        return self._storage.expired

    def remove_renamed(self) -> None:
        """Schedule the removal of expired segments whose files were renamed."""
        self._storage.remove_renamed()

    def release_names(self) -> None:
        """Leave the names of the log's files as they are from now on, so that its directory can be renamed.

        Blocks the loop while a thread changes one. Raises `StorageError` if that takes too long.
        """
        self._storage.release_names()
