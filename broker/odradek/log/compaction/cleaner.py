"""The log cleaner: picks the dirtiest log on a schedule, compacts it in a worker process, and swaps in the result.

`app/broker` builds it from the `LogManager` and the worker processes, and starts it after everything else that logs
need. Truncating, deleting or moving a log aborts the pass over it. Everything here runs on the event loop; long work
runs in a worker or on a thread. Invariants: at most one pass runs over a log; the result of a pass is swapped in only
if the log has not changed since the pass began; the checkpoint of clean offsets (`cleaner-offset-checkpoint`, Kafka's
file) is written after the swap, so a crash repeats work and loses nothing.

A partition is in one of Kafka's cleaner states: none, IN_PROGRESS, ABORTED (an abort is requested but the pass still
runs) or PAUSED (with a count of pauses). `abort_and_pause` leads to PAUSED, through ABORTED if a pass is running. The
partition leaves PAUSED with the last `resume`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from posixpath import dirname
from typing import Final, NamedTuple

from odradek.base.config import BrokerConfig
from odradek.base.errors import KafkaStorageError, OdradekError, OffsetNotAvailableError, StorageError, WorkerDiedError
from odradek.base.ports import Clock, Files, Timer, Workers
from odradek.base.types import TopicPartition
from odradek.log.compaction.clean_offsets import CleanOffsets, root_of
from odradek.log.compaction.cleaned_segment import remove_cleaned_files
from odradek.log.compaction.cleaning_decisions import (
    ABORT_FILE,
    CleaningAbortedError,
    CleaningRange,
    CleaningRequest,
    CleaningResult,
    CleaningStats,
    LastRecord,
    LogFacts,
    cleaning_range,
    dirtiest,
)
from odradek.log.log_manager import LogManager
from odradek.log.lookups import LogLookups
from odradek.log.partition_log import PartitionLog
from odradek.log.values import CleanedSwap, SegmentView
from odradek.records.formats import read_entry
from odradek.records.v2.batch import HEADER_SIZE

logger = logging.getLogger(__name__)

WATCH_INTERVAL_MS: Final = 1000
"""How often the cleaner checks, during a pass, whether its log has changed."""

LEAST_READ_BYTES: Final = 4 << 20
"""Minimum size of one read: numpy needs as many steps for a few records as for many."""

LONGEST_BACKOFF_MS: Final = 600_000
MOST_REMEMBERED: Final = 100_000
YIELD_EVERY: Final = 64
_MEBIBYTE: Final = 1 << 20


class PassState(Enum):
    """Cleaner state of a partition."""

    IN_PROGRESS = "a pass is running"
    ABORTED = "an abort of the pass is requested"
    PAUSED = "no pass may start"


@dataclass(slots=True)
class _Progress:
    state: PassState
    pauses: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


class _Failures(NamedTuple):
    """Number of consecutive failed passes over a log, and the monotonic time at which the next one may start."""

    times: int
    retry_ms: float


class _Choice(NamedTuple):
    log: PartitionLog
    generation: int
    segments: tuple[SegmentView, ...]
    found: CleaningRange


def _has_lost(choice: _Choice) -> bool:
    """Whether retention has removed segments that the pass read."""
    present = {segment.base_offset for segment in choice.log.segments}
    return any(segment.base_offset not in present for segment in choice.segments)


class Uncleanable(NamedTuple):
    """The logs of one directory that the cleaner skips after an error."""

    partitions: int
    size_bytes: int


def clean_in_worker(files: Files, request: CleaningRequest) -> CleaningResult:
    """Run one pass; called in a worker. The import is local because only workers may load numpy."""
    from odradek.log.compaction.compaction_pass import clean_log

    return clean_log(files, request)


class LogCleaner:
    """The compaction of all logs of a broker."""

    def __init__(
        self,
        logs: LogManager,
        workers: Workers,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        """`workers` runs `log.cleaner.threads` passes at once. `files` is pickled for the workers."""
        self._logs = logs
        self._lookups = LogLookups(logs.worker_of)
        self._workers = workers
        self._files = files
        self._clock = clock
        self._config = config
        self._progress: dict[TopicPartition, _Progress] = {}
        self._failures: dict[TopicPartition, _Failures] = {}
        self._uncleanable: dict[TopicPartition, str] = {}
        self._clean_offsets = CleanOffsets(logs, files)
        self._first_timestamps: dict[str, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._is_started = False
        self._last: dict[int, CleaningStats] = {}
        self._last_run_ms = clock.monotonic_ms()
        self._dead: set[int] = set()
        self._delays_ms: dict[int, int] = {}
        self._uncleanable_counts: Mapping[str, Uncleanable] = {}
        self.max_dirty_ratio = 0.0
        """Dirty ratio of the dirtiest log at the last check."""
        self.worker_deaths = 0
        """Number of passes whose worker died."""

    # Start and stop

    def start(self) -> None:
        """Start `log.cleaner.threads` cleaner tasks; does nothing if `log.cleaner.enable` is false."""
        self._is_started = self._config.log_cleaner_enable
        self._start_missing()

    def _start_missing(self) -> None:
        for number in range(self._config.log_cleaner_threads if self._is_started else 0):
            task = self._tasks.get(number)
            if task is None or task.done():
                self._tasks[number] = asyncio.create_task(self._repeat(number), name=f"log-cleaner-{number}")

    async def close(self) -> None:
        """Stop the cleaner. Running passes are cancelled but not awaited. Idempotent."""
        self._is_started = False
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    def update_config(self, config: BrokerConfig) -> None:
        """Apply new settings from the next pass on. Surplus cleaner tasks end after their current pass."""
        self._config = config
        self._start_missing()

    async def _repeat(self, number: int) -> None:
        while number < self._config.log_cleaner_threads:
            try:
                cleaned = await self.clean_dirtiest(number)
            except Exception:
                # A bug in one pass must not end compaction of every log: log it, count the task as dead, and continue.
                logger.exception("a log cleaner task failed unexpectedly")
                self._dead.add(number)
                cleaned = False
            if not cleaned:
                await self._clock.sleep_ms(self._config.log_cleaner_backoff_ms)
        self._dead.discard(number)

    # Pauses

    async def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        """Abort the pass over a log, if one runs, and start none until `resume` was called once for each call."""
        progress = self._progress.setdefault(topic_partition, _Progress(PassState.PAUSED))
        progress.pauses += 1
        if progress.state is PassState.PAUSED:
            return
        log = self._logs.get(topic_partition)
        progress.state = PassState.ABORTED
        if log is not None:
            path = _abort_path(log)
            await self._logs.worker_of(log).run(f"creation of {path}", partial(_make_file, self._files, path))
        await progress.stopped.wait()

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `abort_and_pause`. Raises `ValueError` if the partition is not paused."""
        progress = self._progress.get(topic_partition)
        if progress is None or not progress.pauses:
            raise ValueError(f"compaction of {topic_partition} is not paused")
        progress.pauses -= 1
        if not progress.pauses and progress.state is PassState.PAUSED:
            del self._progress[topic_partition]

    def _done(self, topic_partition: TopicPartition) -> None:
        progress = self._progress[topic_partition]
        if progress.pauses:
            progress.state = PassState.PAUSED
        else:
            del self._progress[topic_partition]
        progress.stopped.set()

    # One pass

    async def clean_dirtiest(self, number: int = 0) -> bool:
        """Clean the dirtiest log. Returns whether a log was cleaned. `number` is that of the cleaner task."""
        choice = await self._choose(number)
        if choice is None:
            return False
        topic_partition = choice.log.topic_partition
        self._progress[topic_partition] = _Progress(PassState.IN_PROGRESS)
        try:
            return await self._clean(choice, number)
        finally:
            self._done(topic_partition)

    async def _choose(self, number: int) -> _Choice | None:
        now_ms = self._clock.wall_ms()
        self._last_run_ms = self._clock.monotonic_ms()
        self._forget_gone()
        self._count_uncleanable()
        choices: dict[TopicPartition, _Choice] = {}
        candidates: dict[TopicPartition, tuple[CleaningRange, float]] = {}
        for count, log in enumerate(list(self._logs.logs()), 1):
            if self._may_clean(log):
                choice = await self._look(log, now_ms)
                if choice is not None:
                    choices[log.topic_partition] = choice
                    candidates[log.topic_partition] = (choice.found, log.config.min_cleanable_dirty_ratio)
            if count % YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)
        self.max_dirty_ratio = max((found.ratio for found, _ in candidates.values()), default=0.0)
        self._delays_ms[number] = max((found.delay_ms for found, _ in candidates.values()), default=0)
        # While this task yielded, other tasks may have started to clean a log, or a log may have been deleted.
        free = {key: value for key, value in candidates.items() if self._may_clean(choices[key].log)}
        chosen = dirtiest(free)
        return None if chosen is None else choices[chosen]

    def _may_clean(self, log: PartitionLog) -> bool:
        topic_partition = log.topic_partition
        if not log.config.compacted or log.is_offline or not self._logs.configured(topic_partition):
            return False
        if self._logs.get(topic_partition) is not log or topic_partition in self._progress:
            return False
        failures = self._failures.get(topic_partition)
        waits = failures is not None and self._clock.monotonic_ms() < failures.retry_ms
        return not waits and topic_partition not in self._uncleanable

    def _forget_gone(self) -> None:
        """Drop the state of partitions that no longer have a log."""
        self._failures = {each: known for each, known in self._failures.items() if self._logs.get(each) is not None}
        self._clean_offsets.forget_gone()
        self._uncleanable = {each: why for each, why in self._uncleanable.items() if self._logs.get(each) is not None}
        if len(self._first_timestamps) > MOST_REMEMBERED:
            self._first_timestamps.clear()

    async def _look(self, log: PartitionLog, now_ms: int) -> _Choice | None:
        """Return the range of a log that may be cleaned; None if the log is empty or cannot be read."""
        try:
            if log.awaits_checkpoint:
                # Checkpoints are written less often than the cleaner runs; dirty segments would wait for the next one.
                await self._logs.checkpoint(log)
            checkpointed = await self._clean_offsets.of(log)
            segments, found = self._range(log, checkpointed, now_ms)
        except (StorageError, KafkaStorageError) as error:
            logger.warning("%s: %s", log.topic_partition, error)
            return None
        if found.reset_reason:
            logger.warning(
                "%s: the clean offset %s is ignored because it %s; cleaning starts at %d",
                log.topic_partition,
                checkpointed,
                found.reset_reason,
                found.first_dirty_offset,
            )
        if checkpointed is not None and self._clean_offsets.written(log) != found.first_dirty_offset:
            await self._clean_offsets.write(log, found.first_dirty_offset)
        if not found.clean_bytes + found.cleanable_bytes:
            return None
        return _Choice(log, log.generation, segments, found)

    def _range(
        self, log: PartitionLog, checkpointed: int | None, now_ms: int
    ) -> tuple[tuple[SegmentView, ...], CleaningRange]:
        config = log.config
        segments = log.cleanable()
        facts = LogFacts(
            segments=segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            checkpointed_offset=checkpointed,
            min_dirty_ratio=config.min_cleanable_dirty_ratio,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            deletes="delete" in config.cleanup_policy,
        )
        return segments, cleaning_range(facts, now_ms, self._first_timestamp)

    def _first_timestamp(self, segment: SegmentView) -> int:
        """Return the timestamp of a segment's first batch. Cached, because every check needs it."""
        known = self._first_timestamps.get(segment.path)
        if known is None:
            file = self._files.open(segment.path, read_only=True)
            try:
                known = read_entry(file.pread(HEADER_SIZE, 0)).max_timestamp if segment.size else -1
            finally:
                file.close()
            self._first_timestamps[segment.path] = known
        return known

    async def _request(self, choice: _Choice) -> CleaningRequest:
        log, found, config = choice.log, choice.found, self._config
        segments = tuple(segment for segment in choice.segments if segment.base_offset < found.end_offset)
        return CleaningRequest(
            name=str(log.topic_partition),
            directory=log.directory,
            segments=segments,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            segment_index_bytes=log.config.segment_index_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            map_bytes=config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            read_bytes=max(LEAST_READ_BYTES, config.log_cleaner_io_buffer_size // config.log_cleaner_threads),
            io_bytes_per_second=config.log_cleaner_io_max_bytes_per_second / config.log_cleaner_threads,
            seed=self._clock.token_bytes(16),
            aborted=await self._lookups.aborted_transactions(log, segments[0].base_offset, found.end_offset),
            producers=_last_records(log),
        )

    async def _clean(self, choice: _Choice, number: int) -> bool:
        """Run a pass and swap in its result. Returns whether both succeeded."""
        log = choice.log
        logger.info(
            "%s: cleaning starts, dirty from %d to %d, %.0f %% of %.1f MiB",
            log.topic_partition,
            choice.found.first_dirty_offset,
            choice.found.end_offset,
            100 * choice.found.ratio,
            (choice.found.clean_bytes + choice.found.cleanable_bytes) / _MEBIBYTE,
        )
        try:
            request = await self._request(choice)
            await self._remove_abort_file(log)
            given_up = asyncio.get_running_loop().create_future()
            with _Watch(self._clock, partial(self._stop_if_void, choice, request, given_up)):
                result = await self._workers.run_until(given_up, clean_in_worker, self._files, request)
            self._dead.discard(number)
            if self._is_stale(choice) or not await self._swap(choice, result):
                raise CleaningAbortedError(f"{log.topic_partition} changed during the pass")
        except Exception as error:  # noqa: BLE001 - any error affects only this log, and the others continue
            await self._failed(choice, number, error)
            return False
        self._failures.pop(log.topic_partition, None)
        self._last[number] = result.stats
        _report(log, choice.found, result)
        await self._clean_offsets.write(log, result.end_offset)
        return True

    async def _swap(self, choice: _Choice, result: CleaningResult) -> bool:
        """Swap in the cleaned segments, group by group, so that each keeps its own time of last modification.

        Returns whether all groups were swapped in. If retention has removed a group meanwhile, the other groups are
        still valid, but the log does not count as clean. The loop serves clients between two groups, because the
        renames of one group take some milliseconds on a busy disk. Raises `KafkaStorageError`.
        """
        log, complete = choice.log, True
        for path in [path for path in self._first_timestamps if path.startswith(f"{log.directory}/")]:
            del self._first_timestamps[path]
        for group in result.groups:
            if self._is_stale(choice):
                return False
            swap = CleanedSwap(generation=choice.generation, replaced=group, cleaned=group[:1])
            complete = log.swap_cleaned(swap) and complete
            await self._clock.sleep_ms(0)
        return complete

    def _is_stale(self, choice: _Choice) -> bool:
        """Whether the log has changed since the pass began, or the pass is to be aborted."""
        log = choice.log
        progress = self._progress[log.topic_partition]
        gone = log.is_offline or self._logs.get(log.topic_partition) is not log
        return gone or log.generation != choice.generation or progress.state is PassState.ABORTED

    def _stop_if_void(self, choice: _Choice, request: CleaningRequest, given_up: asyncio.Future[None]) -> None:
        if dirname(request.directory) not in self._logs.online_directories:
            # The disk may never answer, so the pass may never see an abort file, whose creation might wait as well.
            if not given_up.done():
                given_up.set_result(None)
        elif self._is_stale(choice):
            try:
                _make_file(self._files, request.abort_path)
            except StorageError as error:
                # The directory of a deleted or moved log does not exist; the worker detects that itself.
                logger.debug("%s", error)

    # Failures

    async def _failed(self, choice: _Choice, number: int, error: Exception) -> None:
        log = choice.log
        name = log.topic_partition
        await self._tidy(log)
        if isinstance(error, CleaningAbortedError) or self._is_stale(choice) or _has_lost(choice):
            logger.info("%s: the result of the pass is discarded: %s", name, error)
            self._first_timestamps.clear()
        elif isinstance(error, WorkerDiedError):
            self.worker_deaths += 1
            self._dead.add(number)
            self._retry_later(name, error)
        elif isinstance(error, (KafkaStorageError, OffsetNotAvailableError)):
            # The code that raised the first has already taken the directory offline if necessary.
            self._retry_later(name, error)
        elif isinstance(error, StorageError) and error.full:
            self._retry_later(name, error)
        elif isinstance(error, StorageError):
            self._logs.directory_failed(log, error)
        else:
            self._uncleanable[name] = str(error)
            self._count_uncleanable()
            bug = None if isinstance(error, OdradekError) else error
            logger.error("%s cannot be cleaned and is skipped from now on: %s", name, error, exc_info=bug)

    def _retry_later(self, topic_partition: TopicPartition, error: Exception) -> None:
        known = self._failures.get(topic_partition)
        count = 1 if known is None else known.times + 1
        wait_ms = min(self._config.log_cleaner_backoff_ms << min(count - 1, 16), LONGEST_BACKOFF_MS)
        self._failures[topic_partition] = _Failures(count, self._clock.monotonic_ms() + wait_ms)
        logger.warning("%s: the pass failed and is retried in %d ms: %s", topic_partition, wait_ms, error)

    async def _tidy(self, log: PartitionLog) -> None:
        """Remove the files that a failed pass left in a log's directory."""
        if self._logs.get(log.topic_partition) is not log or log.is_offline:
            return
        try:
            work = partial(remove_cleaned_files, self._files, log.directory)
            await self._logs.worker_of(log).run(f"removal of cleaned segments in {log.directory}", work, patience=None)
            await self._remove_abort_file(log)
        except (StorageError, KafkaStorageError) as error:
            logger.warning("%s; the next pass removes it", error)

    async def _remove_abort_file(self, log: PartitionLog) -> None:
        path = _abort_path(log)
        await self._logs.worker_of(log).run(f"removal of {path}", partial(_remove_abort_file, self._files, path))

    # Metrics

    @property
    def recopy_percent(self) -> int:
        """Bytes written by the last passes as a percentage of the bytes read."""
        read = sum(stats.bytes_read for stats in self._last.values())
        return int(100 * sum(stats.bytes_written for stats in self._last.values()) / max(read, 1))

    @property
    def max_clean_time_seconds(self) -> int:
        """Duration of the longest of the last passes."""
        return int(max((stats.seconds for stats in self._last.values()), default=0.0))

    @property
    def max_buffer_utilization_percent(self) -> int:
        """Highest fill level of the offset map in the last passes."""
        return int(100 * max((stats.map_utilization for stats in self._last.values()), default=0.0))

    @property
    def max_compaction_delay_seconds(self) -> int:
        """How long the oldest record that is due for compaction (`max.compaction.lag.ms`) has been due."""
        return max(self._delays_ms.values(), default=0) // 1000

    @property
    def dead_threads(self) -> int:
        """Number of cleaner tasks whose last worker died and that have not completed a pass since."""
        return len(self._dead)

    @property
    def since_last_run_ms(self) -> float:
        """Time since the cleaner last checked the logs."""
        return self._clock.monotonic_ms() - self._last_run_ms

    @property
    def uncleanable(self) -> Mapping[str, Uncleanable]:
        """Uncleanable logs of each online log directory, as of the last check."""
        return self._uncleanable_counts or {path: Uncleanable(0, 0) for path in self._logs.online_directories}

    def _count_uncleanable(self) -> None:
        found = {path: Uncleanable(0, 0) for path in self._logs.online_directories}
        for topic_partition in self._uncleanable:
            log = self._logs.get(topic_partition)
            if log is not None and not log.is_offline:
                root = root_of(log)
                known = found.get(root, Uncleanable(0, 0))
                checkpointed = self._clean_offsets.written(log)
                dirty = self._range(log, checkpointed, self._clock.wall_ms())[1].cleanable_bytes
                found[root] = Uncleanable(known.partitions + 1, known.size_bytes + dirty)
        # Replace the mapping, never change it: metric scrapes read it on another thread.
        self._uncleanable_counts = found


class _Watch:
    """Calls a function periodically while a block runs."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._timer: Timer | None = None

    def __enter__(self) -> None:
        self._timer = self._clock.call_later(WATCH_INTERVAL_MS, self._fire)

    def _fire(self) -> None:
        self._callback()
        self.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


# Files


def _abort_path(log: PartitionLog) -> str:
    return f"{log.directory}/{ABORT_FILE}"


def _make_file(files: Files, path: str) -> None:
    files.open(path, create=True).close()


def _remove_abort_file(files: Files, path: str) -> None:
    if files.exists(path):
        files.remove(path)


def _last_records(log: PartitionLog) -> dict[int, LastRecord]:
    return {
        producer.producer_id: LastRecord(producer.producer_epoch, -1, producer.last_sequence)
        for producer in log.active_producers()
    }


def _report(log: PartitionLog, found: CleaningRange, result: CleaningResult) -> None:
    stats = result.stats
    logger.info(
        "%s: cleaned from %d to %d in %.1f s (%.1f s for the map, %.0f %% full): %d segments (%.1f MiB, %d "
        "records) were rewritten to %d segments (%.1f MiB, %d records), read at %.1f MiB/s",
        log.topic_partition,
        found.first_dirty_offset,
        result.end_offset,
        stats.seconds,
        stats.map_seconds,
        100 * stats.map_utilization,
        sum(map(len, result.groups)),
        stats.bytes_read / _MEBIBYTE,
        stats.records_read,
        len(result.groups),
        stats.bytes_written / _MEBIBYTE,
        stats.records_written,
        (stats.bytes_read + stats.map_bytes) / _MEBIBYTE / max(stats.seconds, 0.001),
    )
    if stats.keyless_records:
        logger.warning("%s: %d records without a key were dropped", log.topic_partition, stats.keyless_records)
