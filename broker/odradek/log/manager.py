"""All logs of a broker: their directories, loading, schedules and directory failures.

`app/broker` builds it, starts it before anything that uses logs, and closes it last; replication creates and deletes
logs through it. It owns every task and timer that logs need: retention, flushes, checkpoints, removals. Blocking work
goes through `run_blocking`. Invariants: a partition has one log on one live directory; a directory that failed is not
touched again; retention leaves a log alone until its topic's settings are known.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import ConfigError, InconsistentTopicIdError, KafkaStorageError, StorageError
from odradek.base.ports import Clock, Files, Timer
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MetaProperties
from odradek.log.directory import (
    LogDirectory,
    deleted_name,
    open_directory,
    read_high_watermarks,
    write_offsets,
)
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery import LoadRequest, load
from odradek.log.values import LogContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_TASK_DELAY_MS: Final = 30_000
"""Schedules begin this long after the start, when the broker has taken up its partitions."""

PRODUCER_CHECK_INTERVAL_MS: Final = 600_000
"""How often idle producers are looked for (Kafka's producer.id.expiration.check.interval.ms)."""

YIELD_EVERY: Final = 64
"""Logs that a schedule goes through before it lets the loop do other things."""

NEVER_MS: Final = 2**63 - 1


class RunBlocking(Protocol):
    """Runs a function off the loop; the simulator's runs it at once."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Await the function's result."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """One log directory for DescribeLogDirs; `failure` is a sentence when it is offline."""

    path: str
    failure: str | None
    total_bytes: int
    free_bytes: int
    sizes: Mapping[TopicPartition, int]


def _ignore_failure(path: str, partitions: frozenset[TopicPartition]) -> None:
    logger.error("log directory %s is offline with %d logs", path, len(partitions))


def _ignore_fatal(reason: str) -> None:
    logger.critical("%s", reason)


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
        *,
        run_blocking: RunBlocking = asyncio.to_thread,
        on_directory_failure: Callable[[str, frozenset[TopicPartition]], None] = _ignore_failure,
        on_fatal: Callable[[str], None] = _ignore_fatal,
    ) -> None:
        """`on_directory_failure` gets a directory and its partitions, `on_fatal` a sentence when none is left."""
        self._files = files
        self._clock = clock
        self._config = config
        self._run_blocking = run_blocking
        self.on_directory_failure = on_directory_failure
        self.on_fatal = on_fatal
        self._context = LogContext(files=files, clock=clock, host=self)
        self._directories: dict[str, LogDirectory] = {}
        self._failed: dict[str, str] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._offline: set[TopicPartition] = set()
        self._configured: set[TopicPartition] = set()
        self._home: dict[str, LogDirectory] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[Timer] = set()
        self._to_flush: dict[str, dict[PartitionLog, None]] = {}
        self._to_checkpoint: set[str] = set()
        self._closed = False

    # Start

    async def start(self, cluster_id: str, broker_id: int) -> None:
        """Open the directories and load their logs.

        Raises `ConfigError` when a directory is in use or another's, `StorageError` when none of them works.
        """
        owner = MetaProperties(cluster_id=cluster_id, broker_id=broker_id)
        for path in map(os.path.abspath, self._config.log_dirs):
            try:
                directory = await self._run_blocking(partial(open_directory, self._files, path, owner))
            except StorageError as error:
                logger.error("log directory %s is offline: %s", path, error)
                self._failed[path] = str(error)
            except ConfigError:
                self._release_all()
                raise
            else:
                self._directories[path] = directory
        if not self._directories:
            raise StorageError(f"no log directory works: {'; '.join(self._failed.values())}")
        async with asyncio.TaskGroup() as group:
            for directory in list(self._directories.values()):
                group.create_task(self._load_directory(directory))
        if not self._directories:
            raise StorageError(f"no log directory works: {'; '.join(self._failed.values())}")
        self._schedule()

    async def _load_directory(self, directory: LogDirectory) -> None:
        started_ms = self._clock.monotonic_ms()
        threads = asyncio.Semaphore(self._config.num_recovery_threads_per_data_dir)
        config = TopicConfig.of(self._config, {})
        async with asyncio.TaskGroup() as group:
            for topic_partition in directory.found:
                group.create_task(self._load(directory, topic_partition, config, threads))
        for path in directory.deleted:
            self._spawn(self._remove_tree(directory, path))
        logger.info(
            "%s: %d logs after %s shutdown, loaded in %.0f ms",
            directory.path,
            len(directory.found),
            "a clean" if directory.clean else "an unclean",
            self._clock.monotonic_ms() - started_ms,
        )

    async def _load(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        config: TopicConfig,
        threads: asyncio.Semaphore,
    ) -> None:
        request = LoadRequest(
            topic_partition=topic_partition,
            directory=directory.log_path(topic_partition),
            config=config,
            now_ms=self._clock.wall_ms(),
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
            clean=directory.clean,
        )
        async with threads:
            if directory.failure is not None:
                return
            try:
                loaded = await self._run_blocking(partial(load, self._files, request))
                if topic_partition in self._logs:
                    raise StorageError(
                        f"{topic_partition} has a log in {directory.path} and one in "
                        f"{self._logs[topic_partition].directory}",
                        path=directory.path,
                    )
            except StorageError as error:
                self._fail_directory(directory, error)
                return
        log = PartitionLog(self._context, loaded, config, loaded.topic_id)
        self._add(directory, log)
        if not directory.clean:
            self.flush_soon(log)

    def _add(self, directory: LogDirectory, log: PartitionLog) -> None:
        self._logs[log.topic_partition] = log
        self._home[log.directory] = directory

    # Logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None when there is none, or its directory is offline (`is_offline`)."""
        return self._logs.get(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log lies in a directory that failed."""
        return topic_partition in self._offline

    def logs(self) -> Collection[PartitionLog]:
        """All logs that are online."""
        return self._logs.values()

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig, *, is_new: bool = False
    ) -> PartitionLog:
        """The partition's log with `config` in force; made in the emptiest directory when there is none.

        `is_new`: the partition is being created. Otherwise, while a directory is offline, its log may lie there, and
        `KafkaStorageError` is raised. Raises `InconsistentTopicIdError` when the log belongs to another topic.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._create(topic_partition, config, is_new=is_new)
        else:
            log.update_config(config)
        self._configured.add(topic_partition)
        if topic_id != ZERO_UUID and log.topic_id != topic_id:
            if log.topic_id is not None:
                raise InconsistentTopicIdError(
                    f"the log of {topic_partition} belongs to topic {log.topic_id}, not {topic_id}"
                )
            self._write_topic_id(log, topic_id)
        return log

    def _create(self, topic_partition: TopicPartition, config: TopicConfig, *, is_new: bool) -> PartitionLog:
        if topic_partition in self._offline or (self._failed and not is_new):
            raise KafkaStorageError(f"{topic_partition} may lie in an offline directory: {', '.join(self._failed)}")
        if not self._directories:
            raise KafkaStorageError("no log directory is online")
        counts = dict.fromkeys(self._directories, 0)
        for home in self._home.values():
            counts[home.path] += 1
        directory = self._directories[min(counts, key=lambda path: counts[path])]
        path = directory.log_path(topic_partition)
        request = LoadRequest(
            topic_partition=topic_partition, directory=path, config=config, now_ms=self._clock.wall_ms()
        )
        try:
            self._files.make_directories(path)
            loaded = load(self._files, request)
        except StorageError as error:
            self._fail_directory(directory, error)
            raise KafkaStorageError(f"{topic_partition}: {error}") from error
        log = PartitionLog(self._context, loaded, config, loaded.topic_id)
        self._add(directory, log)
        self.flush_soon(log)
        return log

    def _write_topic_id(self, log: PartitionLog, topic_id: UUID) -> None:
        """Not synced, as hundreds may be made at once; a torn file counts as none and is written again."""
        try:
            file = self._files.open(f"{log.directory}/{checkpoints.PARTITION_METADATA_FILE}", create=True)
            try:
                file.pwritev((checkpoints.encode_partition_metadata(topic_id),), 0)
            finally:
                file.close()
        except StorageError as error:
            self.directory_failed(log, error)
            raise KafkaStorageError(f"{log.topic_partition}: {error}") from error
        log.topic_id = topic_id

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget a log at once and remove its files later; nothing when there is none. Raises `KafkaStorageError`."""
        log = self._logs.pop(topic_partition, None)
        self._configured.discard(topic_partition)
        if log is None:
            return
        directory = self._home.pop(log.directory)
        log.abandon()
        self._to_flush.get(directory.path, {}).pop(log, None)
        target = f"{directory.path}/{deleted_name(topic_partition, self._clock.token_bytes(16).hex())}"
        try:
            self._files.rename(log.directory, target)
        except StorageError as error:
            self._fail_directory(directory, error)
            raise KafkaStorageError(f"{topic_partition}: {error}") from error
        self._checkpoint_soon(directory)
        self._later(self._config.log_segment_delete_delay_ms, partial(self._remove_tree, directory, target))

    # Directories

    @property
    def offline_directories(self) -> tuple[str, ...]:
        """Paths of the directories that failed."""
        return tuple(self._failed)

    def directories(self) -> list[DirectoryReport]:
        """Every directory with its logs' sizes."""
        sizes: dict[str, dict[TopicPartition, int]] = {path: {} for path in self._directories}
        for log in self._logs.values():
            sizes[self._home[log.directory].path][log.topic_partition] = log.size_bytes
        reports = [
            DirectoryReport(path=path, failure=reason, total_bytes=-1, free_bytes=-1, sizes={})
            for path, reason in self._failed.items()
        ]
        for path, of_directory in sizes.items():
            try:
                free_bytes, total_bytes = self._files.free_bytes(path)
            except StorageError as error:
                logger.warning("%s", error)
                free_bytes = total_bytes = -1
            reports.append(
                DirectoryReport(
                    path=path, failure=None, total_bytes=total_bytes, free_bytes=free_bytes, sizes=of_directory
                )
            )
        return reports

    def _fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        """Take a directory and its logs offline, and tell those who need to know, after the present call."""
        if directory.failure is not None:
            return
        directory.failure = error
        logger.error("log directory %s goes offline: %s", directory.path, error)
        self._failed[directory.path] = str(error)
        self._directories.pop(directory.path, None)
        self._to_flush.pop(directory.path, None)
        gone = [log for log in self._logs.values() if self._home[log.directory] is directory]
        for log in gone:
            log.take_offline(error)
            del self._logs[log.topic_partition], self._home[log.directory]
        partitions = frozenset(log.topic_partition for log in gone) | frozenset(directory.found)
        self._offline |= partitions
        directory.release()
        if self._closed:
            return
        self._call_later(0, partial(self.on_directory_failure, directory.path, partitions))
        if not self._directories:
            self._call_later(0, partial(self.on_fatal, f"all log directories are offline, at last {directory.path}"))

    # What logs ask for (LogHost)

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log on a thread, one log of a directory at a time."""
        directory = self._home.get(log.directory)
        if directory is None or self._closed:
            return
        waiting = self._to_flush.get(directory.path)
        if waiting is not None:
            waiting[log] = None
            return
        self._to_flush[directory.path] = {log: None}
        self._spawn(self._flush_waiting(directory))

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """Write the checkpoints of a log's directory soon."""
        directory = self._home.get(log.directory)
        if directory is not None:
            self._checkpoint_soon(directory)

    def _checkpoint_soon(self, directory: LogDirectory) -> None:
        if directory.path in self._to_checkpoint or self._closed:
            return
        self._to_checkpoint.add(directory.path)
        self._spawn(self._write_checkpoints(directory))

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay. Those that are left at a stop go at the next start."""
        self._later(delay_ms, partial(self._remove_files, tuple(paths)))

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """A log's directory can not be trusted any more."""
        directory = self._home.get(log.directory)
        if directory is not None:
            self._fail_directory(directory, error)

    # Blocking work

    async def _flush_waiting(self, directory: LogDirectory) -> None:
        waiting = self._to_flush[directory.path]
        while waiting:
            log = next(iter(waiting))
            del waiting[log]
            await self._flush(log)
        self._to_flush.pop(directory.path, None)

    async def _flush(self, log: PartitionLog) -> None:
        if self._logs.get(log.topic_partition) is not log:
            return
        try:
            ticket = log.begin_flush()
            if ticket is None:
                return
            try:
                await self._run_blocking(partial(ticket.run, self._files))
            except StorageError as error:
                if self._logs.get(log.topic_partition) is not log:
                    return
                if error.missing and not log.is_current(ticket):
                    self.flush_soon(log)
                    return
                log.flush_failed(error)
                return
            log.end_flush(ticket)
        except KafkaStorageError as error:
            logger.error("%s", error)

    async def _write_checkpoints(self, directory: LogDirectory) -> None:
        """Recovery points and log starts of a directory, as they are now."""
        self._to_checkpoint.discard(directory.path)
        if directory.failure is not None:
            return
        logs = [log for log in self._logs.values() if self._home[log.directory] is directory]
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        starts = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }

        def write() -> None:
            write_offsets(self._files, directory, checkpoints.RECOVERY_POINT_FILE, recovery_points)
            write_offsets(self._files, directory, checkpoints.LOG_START_FILE, starts)

        try:
            await self._run_blocking(write)
        except StorageError as error:
            self._fail_directory(directory, error)

    async def _remove_files(self, paths: Sequence[str]) -> None:
        def remove() -> None:
            for path in paths:
                self._files.remove(path)

        try:
            await self._run_blocking(remove)
        except StorageError as error:
            logger.warning("%s; it is removed at the next start", error)

    async def _remove_tree(self, directory: LogDirectory, path: str) -> None:
        if directory.failure is not None:
            return
        try:
            await self._run_blocking(partial(self._files.remove_tree, path))
        except StorageError as error:
            logger.warning("%s; it is removed at the next start", error)

    # High watermarks

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The checkpointed high watermarks of all directories. Blocks shortly; call it once, after `start`."""
        offsets: dict[TopicPartition, int] = {}
        for directory in list(self._directories.values()):
            try:
                offsets.update(read_high_watermarks(self._files, directory))
            except StorageError as error:
                self._fail_directory(directory, error)
        return offsets

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint high watermarks, each in its log's directory. Blocks; `checkpoint_high_watermarks` does not."""
        for directory, of_directory in self._by_directory(offsets):
            try:
                write_offsets(self._files, directory, checkpoints.HIGH_WATERMARK_FILE, of_directory)
            except StorageError as error:
                self._fail_directory(directory, error)

    async def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The same off the loop."""
        for directory, of_directory in self._by_directory(offsets):
            write = partial(write_offsets, self._files, directory, checkpoints.HIGH_WATERMARK_FILE, of_directory)
            try:
                await self._run_blocking(write)
            except StorageError as error:
                self._fail_directory(directory, error)

    def _by_directory(
        self, offsets: Mapping[TopicPartition, int]
    ) -> list[tuple[LogDirectory, dict[TopicPartition, int]]]:
        split: dict[str, dict[TopicPartition, int]] = {path: {} for path in self._directories}
        for topic_partition, offset in offsets.items():
            log = self._logs.get(topic_partition)
            if log is not None:
                split[self._home[log.directory].path][topic_partition] = offset
        return [(self._directories[path], of_directory) for path, of_directory in split.items()]

    # Schedules

    def _schedule(self) -> None:
        config = self._config
        first_ms = FIRST_TASK_DELAY_MS
        self._spawn(self._repeat(first_ms, config.log_retention_check_interval_ms, self.apply_retention))
        self._spawn(self._repeat(first_ms, PRODUCER_CHECK_INTERVAL_MS, self._expire_producers))
        self._spawn(self._repeat(first_ms, config.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints))
        if config.log_flush_scheduler_interval_ms < NEVER_MS:
            self._spawn(self._repeat(first_ms, config.log_flush_scheduler_interval_ms, self.flush_due))

    async def _repeat(self, first_ms: int, every_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        await self._clock.sleep_ms(first_ms)
        while True:
            await work()
            await self._clock.sleep_ms(every_ms)

    async def apply_retention(self) -> int:
        """Remove the segments that retention lets go, of every log whose settings are known; how many."""
        removed = 0
        for count, log in enumerate(list(self._logs.values()), 1):
            if log.topic_partition in self._configured and not log.is_offline:
                try:
                    removed += log.delete_expired(self._clock.wall_ms())
                except KafkaStorageError as error:
                    logger.error("%s", error)
            if count % YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)
        return removed

    async def _expire_producers(self) -> None:
        for count, log in enumerate(list(self._logs.values()), 1):
            log.expire_producers(self._clock.wall_ms(), self._config.producer_id_expiration_ms)
            if count % YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)

    async def write_checkpoints(self) -> None:
        """Checkpoint recovery points and log starts of all directories."""
        for directory in list(self._directories.values()):
            await self._write_checkpoints(directory)

    async def flush_due(self) -> None:
        """Flush the logs whose `flush.ms` has passed since their last flush."""
        now_ms = self._clock.monotonic_ms()
        for log in list(self._logs.values()):
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flush_soon(log)

    # Tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("a task of the log manager ended by a bug", exc_info=error)

    def _call_later(self, delay_ms: float, callback: Callable[[], object]) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._clock.call_later(delay_ms, fire)
        self._timers.add(timer)

    def _later(self, delay_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._closed:
            self._call_later(delay_ms, lambda: self._spawn(work()))

    # Stop

    async def close(self, clean: bool = True) -> None:
        """Stop all schedules; when `clean`, close every log in order and leave the clean-shutdown marks. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for timer in list(self._timers):
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if clean:
            async with asyncio.TaskGroup() as group:
                for directory in list(self._directories.values()):
                    group.create_task(self._close_directory(directory))
        for log in self._logs.values():
            log.abandon()
        self._release_all()

    async def _close_directory(self, directory: LogDirectory) -> None:
        logs = [log for log in self._logs.values() if self._home[log.directory] is directory]
        for log in logs:
            try:
                await self._run_blocking(log.close)
            except KafkaStorageError as error:
                logger.error("%s", error)
                return
        await self._write_checkpoints(directory)
        mark = f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
        try:
            await self._run_blocking(partial(self._files.write_atomically, mark, checkpoints.clean_shutdown_mark()))
        except StorageError as error:
            self._fail_directory(directory, error)

    def _release_all(self) -> None:
        for directory in self._directories.values():
            directory.release()
