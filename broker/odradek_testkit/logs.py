"""Creates a partition's log on any `Files`, with a host that does at once what a log manager does later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from odradek.base.config import TopicConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Clock, Files
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.log.flush import FlushTicket
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.values import LogContext
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch

TP = TopicPartition("events", 0)
DIRECTORY = "/data/events-0"


def is_flush(function: Callable[[], object]) -> bool:
    """Whether a function that a log manager runs off the loop flushes a log."""
    return isinstance(function, partial) and isinstance(getattr(function.func, "__self__", None), FlushTicket)


class RecordingHost:
    """A `LogHost` that records all requests, removes files at once and flushes on `run_flushes`."""

    def __init__(self, files: Files) -> None:
        """`files` are where it removes files."""
        self._files = files
        self.flushes: list[PartitionLog] = []
        self.checkpoints = 0
        self.forced_checkpoints = 0
        self.refusal: KafkaStorageError | None = None
        self.removed: list[tuple[tuple[str, ...], int]] = []
        self.failures: list[StorageError] = []
        self.holds_renames = False
        """Whether the files of expired segments keep their names until `run_renames`."""
        self.renames: list[PartitionLog] = []

    def flush_soon(self, log: PartitionLog) -> None:
        """Record the request; `run_flushes` carries it out."""
        self.flushes.append(log)

    def sync_soon(self, log: PartitionLog) -> None:
        """Record the request like `flush_soon`."""
        self.flushes.append(log)

    def run_flushes(self) -> None:
        """Carry out the requested flushes."""
        waiting, self.flushes = self.flushes, []
        for log in waiting:
            log.flush()

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """Noted."""
        self.checkpoints += 1

    def checkpoint_now(self, log: PartitionLog) -> None:
        """Record the request and treat it as done."""
        self.forced_checkpoints += 1
        log.checkpointed(log.recovery_point)

    def check_room(self, log: PartitionLog) -> None:
        """Raise `refusal` if it is set."""
        if self.refusal is not None:
            raise self.refusal

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove the files at once."""
        self.removed.append((tuple(paths), delay_ms))
        for path in paths:
            self._files.remove(path)

    def rename_expired_soon(self, log: PartitionLog) -> None:
        """Rename the files at once, unless `holds_renames`."""
        self.renames.append(log)
        if not self.holds_renames:
            self.run_renames()

    def run_renames(self) -> None:
        """Carry out the requested renames, and remove the files."""
        waiting, self.renames = self.renames, []
        for log in waiting:
            log.expired.run()
            log.remove_renamed()

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """Noted."""
        self.failures.append(error)


def open_log(
    files: Files,
    clock: Clock,
    *,
    host: RecordingHost | None = None,
    config: TopicConfig | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    topic_id: UUID | None = None,
    directory: str = DIRECTORY,
    segment_cache: SegmentCache | None = None,
) -> PartitionLog:
    """Load the log in `directory` as a broker does at its start; create it if there is none."""
    files.make_directories(directory)
    settings = config or TopicConfig()
    loaded = load(
        files,
        LoadRequest(
            topic_partition=TP,
            directory=directory,
            config=settings,
            now_ms=clock.wall_ms(),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
        ),
    )
    if segment_cache is None:
        segment_cache = SegmentCache()
    context = LogContext(files=files, clock=clock, host=host or RecordingHost(files), segment_cache=segment_cache)
    return PartitionLog(context, loaded, settings, topic_id)


def small_segments(**settings: object) -> TopicConfig:
    """Return settings with which a few hundred bytes fill a segment and every batch is indexed."""
    return replace(TopicConfig(), **{"segment_bytes": 600, "index_interval_bytes": 0, **settings})  # type: ignore[arg-type]


def batch(
    *values: bytes,
    timestamp_ms: int = 1_700_000_000_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_transactional: bool = False,
) -> memoryview:
    """Return a writable batch of values (default: one), a millisecond apart."""
    builder = BatchBuilder(limit_bytes=1 << 30)
    for place, value in enumerate(values or (b"value",)):
        builder.append(None, value, timestamp_ms=timestamp_ms + place)
    content = builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    return memoryview(bytearray(content))


def old_set(
    *values: bytes, magic: int, codec: Codec = Codec.NONE, base_offset: int = 0, timestamp_ms: int = 1_700_000_000_000
) -> memoryview:
    """Return a writable message set of format 0 or 1, a wrapper if there is a codec; see `batch`."""
    messages = [
        (base_offset + place, timestamp_ms + place if magic else -1, None, value)
        for place, value in enumerate(values or (b"value",))
    ]
    return memoryview(bytearray(encode_set(messages, magic=magic, codec=codec)))


def marker(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """Return a writable batch that ends a transaction."""
    content = marker_batch(
        kind,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return memoryview(bytearray(content))


def roll(log: PartitionLog) -> None:
    """Roll the log if its active segment has records, as the next append would after `segment.ms`."""
    if log.segments[-1].size:
        log._roll(log.log_end_offset, log.log_end_offset)
