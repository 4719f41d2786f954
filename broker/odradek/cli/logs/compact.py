"""`odradek log compact`: one compaction pass over one partition's directory, while no broker uses it.

The steps are the same as in the broker: the log is loaded as at a start, its recovery point is checkpointed,
`log/compaction/compaction_pass` rewrites the cleanable segments, `PartitionLog.swap_cleaned` replaces them, and the
clean offset is checkpointed. Invariants: the lock of the log directory is held throughout, so that a broker does not
start meanwhile; after a crash at any point, the next load of the log by this tool or a broker repairs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from odradek.base.config import TopicConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Clock, File
from odradek.base.system_ports import SystemClock, SystemFiles
from odradek.base.types import TopicPartition
from odradek.cli.logs.files import FILES, OFFSET_CHECKPOINTS, LogToolError, read_whole
from odradek.log import checkpoints
from odradek.log.compaction.cleaning_decisions import (
    BYTES_PER_KEY,
    INT64_MAX,
    CleaningRange,
    CleaningRequest,
    CleaningResult,
    LastRecord,
    LogFacts,
    cleaning_range,
)
from odradek.log.compaction.compaction_pass import clean_log
from odradek.log.directories.directory import parse_log_name
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.segments.segment import LOG_SUFFIX
from odradek.log.values import CleanedSwap, LogContext, SegmentView

CLEANER_FILE: Final = OFFSET_CHECKPOINTS[-1]
_UNLIMITED: Final = 1e300
_READ_BYTES: Final = 4 << 20
_LOAD_FACTOR: Final = 0.9

Progress = Callable[[int, int], None]
"""Called with the number of bytes read and the estimated total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """Settings of the topic and the broker that compaction uses; the defaults are Kafka's."""

    dirty_from: int | None = None
    """First offset that was not compacted yet; None to use the checkpoint."""
    up_to: int | None = None
    """Offset below which records are replicated; None to use the checkpointed high watermark."""
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    map_bytes: int = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The result of a pass. If nothing could be cleaned, `reason` is not empty and the numbers are 0."""

    path: str
    reason: str = ""
    dirty_from: int = 0
    clean_up_to: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keyless_records: int = 0
    """Number of dropped records without a key."""
    seconds: float = 0.0

    def plain(self) -> dict[str, object]:
        """The report as JSON."""
        if self.reason:
            return {"path": self.path, "compacted": False, "reason": self.reason}
        return {
            "path": self.path,
            "compacted": True,
            "dirtyFrom": self.dirty_from,
            "cleanUpTo": self.clean_up_to,
            "segments": [self.segments_before, self.segments_after],
            "bytes": [self.bytes_before, self.bytes_after],
            "records": [self.records_before, self.records_after],
            "keylessRecords": self.keyless_records,
            "seconds": round(self.seconds, 3),
        }


def compact(directory: Path, settings: CompactSettings, progress: Progress) -> CompactReport:
    """Compact the log in a partition's directory.

    Raises `LogToolError` if it is not the directory of a partition, if it is in use, or if a setting is missing. Raises
    `CorruptMessageError` for a corrupt log, and `StorageError`; the log is then unchanged.
    """
    path = directory.resolve()
    topic_partition = parse_log_name(path.name)
    if topic_partition is None or not path.is_dir():
        raise LogToolError(
            f"{directory} is not the directory of a partition; such a directory has a name like orders-0"
        )
    if not any(name.endswith(LOG_SUFFIX) for name in FILES.list(str(path))):
        raise LogToolError(f"{directory} contains no segment")
    root = path.parent
    try:
        release = FILES.lock(f"{root}/{checkpoints.LOCK_FILE}")
    except StorageError as error:
        raise LogToolError(f"{root} is in use: stop its broker first: {error}") from error
    try:
        report = _Compaction(root, path, topic_partition, settings).run(progress)
    finally:
        release()
    return replace(report, path=str(directory))


class _Compaction:
    """One compaction pass, with the lock held."""

    def __init__(self, root: Path, path: Path, topic_partition: TopicPartition, settings: CompactSettings) -> None:
        self._root = root
        self._path = path
        self._topic_partition = topic_partition
        self._settings = settings
        self._clock: Clock = SystemClock()
        self._host = _Host()

    def run(self, progress: Progress) -> CompactReport:
        mark, _ = self._high_watermark(), self._dirty_from()
        log = self._open()
        try:
            log.high_watermark = min(mark, log.log_end_offset)
            log.flush()
            self._checkpoint(checkpoints.RECOVERY_POINT_FILE, log.recovery_point)
            log.checkpointed(log.recovery_point)
            report = self._clean(log, progress)
        finally:
            log.close()
        # Only now: until the new names are durable, recovery from a crash may need the old files.
        for path in self._host.to_remove:
            FILES.remove(path)
        if not report.reason:
            self._checkpoint(CLEANER_FILE, report.clean_up_to)
        return report

    def _high_watermark(self) -> int:
        if self._settings.up_to is not None:
            return self._settings.up_to
        known = self._offsets(checkpoints.HIGH_WATERMARK_FILE).get(self._topic_partition)
        if known is None:
            raise LogToolError(
                f"{self._root / checkpoints.HIGH_WATERMARK_FILE} has no high watermark of {self._topic_partition}: "
                "give it with --up-to OFFSET"
            )
        return known

    def _open(self) -> PartitionLog:
        settings = self._settings
        config = replace(
            TopicConfig(),
            cleanup_policy=("compact",),
            segment_bytes=settings.segment_bytes,
            segment_index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
        )
        request = LoadRequest(
            topic_partition=self._topic_partition,
            directory=str(self._path),
            config=config,
            now_ms=self._clock.wall_ms(),
            recovery_point=self._offsets(checkpoints.RECOVERY_POINT_FILE).get(self._topic_partition, 0),
            log_start_offset=self._offsets(checkpoints.LOG_START_FILE).get(self._topic_partition, 0),
            clean=FILES.exists(f"{self._root}/{checkpoints.CLEAN_SHUTDOWN_FILE}"),
        )
        loaded = load(FILES, request)
        context = LogContext(files=FILES, clock=self._clock, host=self._host)
        return PartitionLog(context, loaded, config, loaded.topic_id)

    def _clean(self, log: PartitionLog, progress: Progress) -> CompactReport:
        cleanable = log.cleanable()
        found = self._range(log, cleanable)
        if not found.cleanable_bytes:
            return CompactReport(path=str(self._path), reason=self._reason(log, found))
        sources = tuple(segment for segment in cleanable if segment.base_offset < found.end_offset)
        before = len(log.segments), log.size_bytes
        files = _CountingFiles(progress, sum(segment.size for segment in sources) + found.cleanable_bytes)
        result = clean_log(files, self._request(log, sources, found))
        self._swap(log, result)
        return CompactReport(
            path=str(self._path),
            dirty_from=found.first_dirty_offset,
            clean_up_to=result.end_offset,
            segments_before=before[0],
            segments_after=len(log.segments),
            bytes_before=before[1],
            bytes_after=log.size_bytes,
            records_before=result.stats.records_read,
            records_after=result.stats.records_written,
            keyless_records=result.stats.keyless_records,
            seconds=result.stats.seconds,
        )

    def _range(self, log: PartitionLog, cleanable: tuple[SegmentView, ...]) -> CleaningRange:
        facts = LogFacts(
            segments=cleanable,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            checkpointed_offset=self._dirty_from(),
            min_dirty_ratio=0.0,
            min_lag_ms=self._settings.min_compaction_lag_ms,
            max_lag_ms=INT64_MAX,
            deletes=True,
        )
        return cleaning_range(facts, self._clock.wall_ms(), lambda _segment: -1)

    def _dirty_from(self) -> int:
        if self._settings.dirty_from is not None:
            return self._settings.dirty_from
        known = self._offsets(CLEANER_FILE).get(self._topic_partition)
        if known is None:
            # The topic may have another cleanup policy. The policy is in ZooKeeper, not in these files.
            raise LogToolError(
                f"{self._topic_partition} was never compacted. If its topic has cleanup.policy=compact, run again with "
                "--dirty-from 0. For any other topic, compaction would delete records that must be kept"
            )
        return known

    def _reason(self, log: PartitionLog, found: CleaningRange) -> str:
        active = log.active_segment.base_offset
        if found.first_dirty_offset >= active:
            return f"it is compacted up to the active segment, which begins at {active}"
        unstable = log.first_unstable_offset
        bound = f"it is replicated up to {log.high_watermark}"
        bound += "" if unstable is None else f", a transaction is open since offset {unstable}"
        return (
            f"no record from offset {found.first_dirty_offset} on can be compacted: {bound}, "
            f"its active segment begins at {active}"
        )

    def _request(self, log: PartitionLog, sources: tuple[SegmentView, ...], found: CleaningRange) -> CleaningRequest:
        settings = self._settings
        return CleaningRequest(
            name=str(self._topic_partition),
            directory=str(self._path),
            segments=sources,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=settings.delete_retention_ms,
            segment_bytes=settings.segment_bytes,
            segment_index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            map_bytes=max(settings.map_bytes, 1024 * BYTES_PER_KEY),
            load_factor=_LOAD_FACTOR,
            read_bytes=_READ_BYTES,
            io_bytes_per_second=_UNLIMITED,
            seed=self._clock.token_bytes(16),
            aborted=log.aborted_transactions(sources[0].base_offset, found.end_offset),
            producers={
                producer.producer_id: LastRecord(producer.producer_epoch, -1, producer.last_sequence)
                for producer in log.active_producers()
            },
        )

    def _swap(self, log: PartitionLog, result: CleaningResult) -> None:
        for group in result.groups:
            swap = CleanedSwap(generation=log.generation, replaced=group, cleaned=group[:1])
            if not log.swap_cleaned(swap):
                raise LogToolError(f"the segments {group} of {self._path} no longer exist")

    # Checkpoints

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        content = read_whole(self._root / name)
        # Kafka leaves the file empty until it writes the first offset.
        return checkpoints.decode_offsets(content, f"{self._root}/{name}") if content else {}

    def _checkpoint(self, name: str, offset: int) -> None:
        offsets: Mapping[TopicPartition, int] = {**self._offsets(name), self._topic_partition: offset}
        FILES.write_atomically(f"{self._root}/{name}", checkpoints.encode_offsets(offsets))


class _Host:
    """The `LogHost` of a log that no broker uses. It defers no work."""

    def __init__(self) -> None:
        self.to_remove: list[str] = []

    def flush_soon(self, log: PartitionLog) -> None:
        """Do nothing: `close` flushes."""

    def sync_soon(self, log: PartitionLog) -> None:
        """Do nothing: nothing is appended."""

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """Nothing: no write depends on it."""

    def checkpoint_now(self, log: PartitionLog) -> None:
        """Nothing: no write depends on it."""

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Record the files; they are removed once the log is closed."""
        self.to_remove += paths

    def rename_expired_soon(self, log: PartitionLog) -> None:
        """Do nothing: there is no retention."""

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """Do nothing: the log raises the error."""

    def check_room(self, log: PartitionLog) -> None:
        """Reject appends."""
        raise KafkaStorageError(f"{log.topic_partition} is only open for compaction")


class _CountingFiles(SystemFiles):
    """Like `SystemFiles`, but counts the bytes that are read from logs."""

    __slots__ = ("_done", "_progress", "_total")

    def __init__(self, progress: Progress, total: int) -> None:
        super().__init__()
        self._progress = progress
        self._total = total
        self._done = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file as `SystemFiles` does, and count its reads."""
        file = super().open(path, create=create, read_only=read_only)
        return cast("File", _CountedFile(file, self._count)) if path.endswith(LOG_SUFFIX) else file

    def _count(self, size: int) -> None:
        self._done = min(self._done + size, self._total)
        self._progress(self._done, self._total)


class _CountedFile:
    """An open file that counts its reads."""

    __slots__ = ("_count", "_file")

    def __init__(self, file: File, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def pread(self, length: int, position: int) -> bytes:
        """Read from the file, and count the bytes."""
        content = self._file.pread(length, position)
        self._count(len(content))
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
