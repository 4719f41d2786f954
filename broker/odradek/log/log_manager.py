"""All logs of a broker: where they are, how they are created and deleted, and how a failed directory is handled.

`app/broker` builds the manager, starts it before anything that uses logs, and closes it last. Replication creates,
moves and deletes logs through it. The manager owns all tasks and timers of the logs; `loading`, `disk_work`,
`schedules`, `moves` and `space` each do one part of its work. Invariants: a partition has one current log, in one
online directory; a directory that failed is not touched again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    LogDirNotFoundError,
    ProtocolError,
    StorageError,
)
from odradek.base.ports import Clock, DiskThreadsMaker, Files
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.log.checkpoints import MetaProperties
from odradek.log.directories.background import Background
from odradek.log.directories.directory import LogDirectory, deleted_name, read_high_watermarks
from odradek.log.directories.directory_worker import DirectoryWorker, DirectoryWorkers
from odradek.log.directories.disk_work import DiskWork
from odradek.log.directories.loading import LogLoader
from odradek.log.directories.log_table import LogTable
from odradek.log.directories.moves import FutureHost, LogMoves, write_topic_id
from odradek.log.directories.reports import DirectoryReport, directory_reports
from odradek.log.directories.schedules import LogSchedules
from odradek.log.directories.space import DiskSpace
from odradek.log.directories.stall_watch import StallWatch
from odradek.log.directories.write_queue import WriteQueues
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.values import LogContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

SEALED_SHARE: Final = 4
"""At most 1/4 of the process's file descriptors hold sealed segments open; active segments and connections need the
others."""

LONG_THREADS: Final = 2
"""Least number of threads of a directory for loading, removals and moves."""


def _ignore_failure(path: str, partitions: frozenset[TopicPartition]) -> None:
    logger.error("log directory %s is offline with %d logs", path, len(partitions))


def _nothing() -> None:
    """Do nothing."""


def _ignore_fatal(reason: str) -> None:
    logger.critical("%s", reason)


def _ignore_flush(topic_partition: TopicPartition) -> None:
    """Nothing waits for flushes."""


class LogManager:
    """The logs of one broker; the `LogHost` of each of them."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
        *,
        disk_threads: DiskThreadsMaker,
        max_open_files: int = 4096,
        on_directory_failure: Callable[[str, frozenset[TopicPartition]], None] = _ignore_failure,
        on_fatal: Callable[[str], None] = _ignore_fatal,
    ) -> None:
        """`disk_threads` creates the threads of each directory; `max_open_files` is the process's limit of open files.

        `on_directory_failure` gets a failed directory and its partitions; `on_fatal` the reason when all failed.
        """
        self._files = files
        self._clock = clock
        self._config = config
        self.on_directory_failure = on_directory_failure
        self.on_fatal = on_fatal
        self._workers = workers = DirectoryWorkers(
            clock, disk_threads, long_threads=max(config.num_recovery_threads_per_data_dir, LONG_THREADS)
        )
        self.on_flushed: Callable[[TopicPartition], None] = _ignore_flush
        """Called on the loop after each flush in the background, and after writes of slow directories."""
        self._table = table = LogTable()
        self.writes = WriteQueues(table, workers, max_bytes=self._queue_bytes, on_written=self._flushed)
        """The appends of slow directories."""
        self._watch = StallWatch(
            files, clock, config, workers=workers, fail=self._disk_failed, set_slow=self.writes.set_slow
        )
        self._background = background = Background(clock)
        self.segment_cache = SegmentCache(
            max_bytes=config.log_index_cache_bytes, max_files=max_open_files // SEALED_SHARE
        )
        """The loaded sealed segments of all logs."""
        self._context = LogContext(
            files=files,
            clock=clock,
            host=self,
            validate_records=config.log_record_validation == "full",
            segment_cache=self.segment_cache,
        )
        self._space = DiskSpace(files, lambda: self._config.log_dir_min_free_bytes, workers=workers)
        self.flush_ms = self._context.flush_ms
        """Durations of flushes in milliseconds."""
        self._disk_work = DiskWork(
            files,
            table,
            background,
            workers=workers,
            fail=self._fail_directory,
            on_flushed=self._flushed,
            clock=clock,
            flush_ms=self.flush_ms,
        )
        self._schedules = LogSchedules(
            table, clock, config, disk_work=self._disk_work, space=self._space, workers=workers
        )
        self._moves = LogMoves(
            files,
            clock,
            config,
            table=table,
            context=self._context,
            disk_work=self._disk_work,
            background=background,
            fail=self._fail_directory,
        )

    def _queue_bytes(self) -> int:
        return self._config.log_dir_queue_max_bytes

    def _flushed(self, topic_partition: TopicPartition) -> None:
        self.on_flushed(topic_partition)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply new broker settings; settings that topics set or inherit arrive through each log's `update_config`."""
        self._config = config
        self.segment_cache.max_bytes = config.log_index_cache_bytes
        validates = config.log_record_validation == "full"
        if validates != self._context.validate_records:
            self._context = replace(self._context, validate_records=validates)
            for log in (*self._table.current.values(), *self._table.future.values()):
                log.validate_records(validates)
        self._schedules.reconfigure(config)
        self._moves.reconfigure(config, self._context)

    # Start

    async def start(self, cluster_id: str, broker_id: int) -> None:
        """Open the log directories and load their logs.

        Raises `ConfigError` if a directory is in use or belongs to another broker or cluster, `StorageError` if no
        directory works.
        """
        self._watch.start()
        try:
            await self._open_and_load(MetaProperties(cluster_id=cluster_id, broker_id=broker_id))
        except BaseException:
            await self._watch.close()
            raise
        self._schedules.start(self._background)

    async def _open_and_load(self, owner: MetaProperties) -> None:
        loader = LogLoader(
            self._files,
            self._clock,
            self._config,
            table=self._table,
            context=self._context,
            moves=self._moves,
            disk_work=self._disk_work,
            background=self._background,
            workers=self._workers,
            watch=self._watch,
            fail=self._fail_directory,
        )
        await loader.open_directories(owner)
        self._check_some_work()
        for directory in self._table.directories.values():
            if directory.remote_type is not None:
                self.writes.set_remote(directory)
        await loader.load()
        self._check_some_work()
        await self._space.look(self._table.directories)

    def _check_some_work(self) -> None:
        if not self._table.directories:
            raise StorageError(f"no log directory works: {'; '.join(self._table.failed.values())}")

    # Logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it does not exist or its directory is offline (`is_offline`)."""
        return self._table.current.get(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log is in a directory that failed."""
        return topic_partition in self._table.offline

    def logs(self) -> Collection[PartitionLog]:
        """Return all online logs, except future logs that a move is filling."""
        return self._table.current.values()

    def configured(self, topic_partition: TopicPartition) -> bool:
        """Whether the settings of the partition's topic apply, rather than only the broker's defaults."""
        return topic_partition in self._table.configured

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig, *, is_new: bool = False
    ) -> PartitionLog:
        """Return the partition's log with `config` applied; create it in the emptiest directory if it does not exist.

        `is_new`: the partition is being created. Otherwise a missing log may be in an offline directory, so
        `KafkaStorageError` is raised while one is offline. Raises `InconsistentTopicIdError` if the log
        belongs to another topic.
        """
        log = self._table.current.get(topic_partition)
        if log is None:
            log = self._create(topic_partition, config, is_new=is_new)
        else:
            log.update_config(config)
        self._table.configured.add(topic_partition)
        if topic_id != ZERO_UUID and log.topic_id != topic_id:
            if log.topic_id is not None:
                raise InconsistentTopicIdError(
                    f"the log of {topic_partition} belongs to topic {log.topic_id}, not {topic_id}"
                )
            self._write_topic_id(log, topic_id)
        return log

    def _create(self, topic_partition: TopicPartition, config: TopicConfig, *, is_new: bool) -> PartitionLog:
        table = self._table
        if topic_partition in table.offline or (table.failed and not is_new):
            raise KafkaStorageError(
                f"{topic_partition} may have a log in an offline directory: {', '.join(table.failed)}"
            )
        directory = table.choose(topic_partition)
        path = directory.log_path(topic_partition)
        request = LoadRequest(
            topic_partition=topic_partition, directory=path, config=config, now_ms=self._clock.wall_ms()
        )
        if topic_partition in directory.log_start_offsets:
            # A deleted log of this name may have started above the end of the new one, which would then be dropped.
            self._disk_work.checkpoint_now(directory)
        try:
            self._files.make_directories(path)
            loaded = load(self._files, request)
        except StorageError as error:
            self._fail_unless_full(directory, error)
            raise KafkaStorageError(f"{topic_partition}: {error}") from error
        log = PartitionLog(self._context, loaded, config, loaded.topic_id)
        table.preferred.pop(topic_partition, None)
        table.add(directory, log)
        self.flush_soon(log)
        return log

    def _write_topic_id(self, log: PartitionLog, topic_id: UUID) -> None:
        """Write `partition.metadata` without a sync, as hundreds may be created at once. A torn file is rewritten."""
        try:
            write_topic_id(self._files, log.directory, topic_id)
        except StorageError as error:
            if not error.full:
                self.directory_failed(log, error)
            raise KafkaStorageError(f"{log.topic_partition}: {error}") from error
        log.topic_id = topic_id

    def delete(self, topic_partition: TopicPartition) -> None:
        """Remove a log at once and its files later; does nothing if there is none. Raises `KafkaStorageError`."""
        table = self._table
        # Delete the future log first: if it alone were left, the next start would take it for the partition's log.
        self._moves.drop(topic_partition)
        table.configured.discard(topic_partition)
        table.preferred.pop(topic_partition, None)
        log = table.current.get(topic_partition)
        directory = None if log is None else table.remove(log)
        if log is None or directory is None:
            return
        log.abandon()
        target = f"{directory.path}/{deleted_name(topic_partition, self._clock.token_bytes(16).hex())}"
        try:
            log.release_names()
            self._files.rename(log.directory, target)
        except StorageError as error:
            self._fail_directory(directory, error)
            raise KafkaStorageError(f"{topic_partition}: {error}") from error
        table.note_deleted(topic_partition, directory.path)
        self._disk_work.sync_names_soon(directory)
        self._disk_work.checkpoint_soon(directory)
        self._background.spawn_later(
            self._config.log_segment_delete_delay_ms, partial(self._disk_work.remove_tree, directory, target)
        )

    async def undurable_deletions(
        self, topic_partitions: Iterable[TopicPartition], *, waits: bool = True
    ) -> dict[TopicPartition, ProtocolError]:
        """Wait until a power failure cannot bring deleted logs back, at most a second for a slow disk, if it `waits`.

        Returns an error for each log that may still come back: `RequestTimedOutError`, or `KafkaStorageError` if its
        directory failed before the deletion was durable.
        """
        if waits:
            await self._disk_work.names_synced()
        errors = {
            topic_partition: self._table.undurable_deletion(topic_partition) for topic_partition in topic_partitions
        }
        return {topic_partition: error for topic_partition, error in errors.items() if error is not None}

    # Moves between directories

    def directory_of(self, topic_partition: TopicPartition) -> str | None:
        """Return the directory of the partition's log; None if there is no online log."""
        log = self._table.current.get(topic_partition)
        home = None if log is None else self._table.home(log)
        return None if home is None else home.path

    def online_directory(self, path: str) -> str:
        """Return the normalized path of an online log directory.

        Raises `LogDirNotFoundError` if this broker has no such directory, `KafkaStorageError` if it is offline.
        """
        known = os.path.abspath(path)
        if known in self._table.failed:
            raise KafkaStorageError(f"log directory {known} is offline: {self._table.failed[known]}")
        if known not in self._table.directories:
            raise LogDirNotFoundError(f"{path} is not a log directory of this broker")
        return known

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Set the directory in which the partition's log is created, if it is created later."""
        self._table.preferred[topic_partition] = path

    def future(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the future log, which is to replace the partition's log; None if no move is in progress."""
        return self._table.future.get(topic_partition)

    def future_directory(self, topic_partition: TopicPartition) -> str | None:
        """Return the directory that the partition moves to; None if no move is in progress."""
        log = self._table.future.get(topic_partition)
        home = None if log is None else self._table.home(log)
        return None if home is None else home.path

    def future_host(self, log: PartitionLog) -> FutureHost:
        """Return the host of a future log, for the mover that fills it."""
        return self._moves.hosts[log]

    def create_future(self, topic_partition: TopicPartition, path: str) -> PartitionLog:
        """Begin a move: create an empty log in another directory. Raises `InvalidTopicError`, `KafkaStorageError`."""
        return self._moves.create(topic_partition, path)

    def drop_future(self, topic_partition: TopicPartition) -> None:
        """Cancel a move; does nothing if there is none."""
        self._moves.drop(topic_partition)

    def mark_future(self, log: PartitionLog) -> None:
        """Prepare the swap. Blocks, so call it off the loop. Raises `StorageError`."""
        self._moves.mark(log)

    def swap_future(self, topic_partition: TopicPartition) -> PartitionLog:
        """Complete a move; see `LogMoves.swap`."""
        return self._moves.swap(topic_partition)

    # Directories

    @property
    def offline_directories(self) -> tuple[str, ...]:
        """Paths of the directories that failed."""
        return tuple(self._table.failed)

    @property
    def stopped_in_order(self) -> bool:
        """Whether the last broker on these directories shut down cleanly; after a crash records may be missing."""
        return all(directory.clean for directory in self._table.directories.values())

    @property
    def online_directories(self) -> tuple[str, ...]:
        """Paths of the online directories."""
        return tuple(self._table.directories)

    @property
    def space(self) -> DiskSpace:
        """Free space of the directories as of the last measurement."""
        return self._space

    def directories(self) -> list[DirectoryReport]:
        """Return a report for each directory: the sizes of its logs, and free space as of the last measurement."""
        return directory_reports(self._table, self._space)

    def _fail_unless_full(self, directory: LogDirectory, error: StorageError) -> None:
        if not error.full:
            self._fail_directory(directory, error)

    def _fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        """Take a directory and its logs offline. The failure callbacks run after the current call."""
        if directory.failure is not None:
            return
        directory.failure = error
        logger.error("log directory %s goes offline: %s", directory.path, error)
        table = self._table
        table.failed[directory.path] = str(error)
        table.directories.pop(directory.path, None)
        self._disk_work.forget(directory)
        self._space.forget(directory.path)
        gone = set(directory.found)
        for log in table.within(directory):
            log.take_offline(error)
            self._context.segment_cache.forget(log.segments)
            if not table.is_future(log):
                gone.add(log.topic_partition)
            self._moves.hosts.pop(log, None)
            table.remove(log)
        for topic_partition in gone:
            # A move ends with the log that it copies. The copied files stay in place for the next start.
            future = table.future.get(topic_partition)
            if future is not None:
                table.remove(future)
                self._moves.hosts.pop(future, None)
                future.abandon()
        table.offline |= gone
        # While a stalled job may still write, no other process may use the directory.
        self._workers.at(directory.path).retire(error, directory.release)
        self._background.call_later(0, partial(self.on_directory_failure, directory.path, frozenset(gone)))
        if not table.directories:
            reason = f"all log directories are offline; {directory.path} failed last"
            self._background.call_later(0, partial(self.on_fatal, reason))

    def _disk_failed(self, path: str, error: StorageError) -> None:
        """Take a directory offline whose disk does not answer, perhaps while the broker starts."""
        directory = self._table.directories.get(path)
        if directory is not None:
            self._fail_directory(directory, error)
        else:
            self._workers.at(path).retire(error, _nothing)

    # Blocking calls

    def worker_of(self, log: PartitionLog) -> DirectoryWorker:
        """Return the worker of a log's directory. Raises `KafkaStorageError` if the log is deleted or offline."""
        directory = self._table.home(log)
        if directory is None:
            raise KafkaStorageError(f"{log.topic_partition} has no log in an online directory any more")
        return self._workers.at(directory.path)

    def worker_at(self, directory: str) -> DirectoryWorker:
        """Return the worker of a log directory."""
        return self._workers.at(directory)

    async def read(self, path: str, function: Callable[[], T]) -> T:
        """Run a read of a log's file on the worker of its directory. Raises `StorageError` if it is offline."""
        return await self._workers.holding(path).read(f"read of {path}", function)

    # LogHost

    def sync_soon(self, log: PartitionLog) -> None:
        """Flush a log on a thread, because records wait until they are durable."""
        self._disk_work.flush_soon(log)

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log on a thread, and measure the free space; usually called after a roll."""
        self._disk_work.flush_soon(log)
        directory = self._table.home(log)
        if directory is not None:
            self._space_soon(directory)

    def _space_soon(self, directory: LogDirectory) -> None:
        if directory.path in self._space.by_path:
            self._background.spawn(self._space.look((directory.path,)))

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """Write the checkpoints of the log's directory soon."""
        directory = self._table.home(log)
        if directory is not None:
            self._disk_work.checkpoint_soon(directory)

    def checkpoint_now(self, log: PartitionLog) -> None:
        """Write the checkpoints of the log's directory before this returns."""
        directory = self._table.home(log)
        if directory is not None:
            self._disk_work.checkpoint_now(directory)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay. The next start removes those that are left at a shutdown."""
        self._background.spawn_later(delay_ms, partial(self._disk_work.remove_files, tuple(paths)))

    def rename_expired_soon(self, log: PartitionLog) -> None:
        """Rename the files of a log's expired segments on a thread."""
        self._disk_work.rename_expired_soon(log)

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """Take the directory of a log offline."""
        directory = self._table.home(log)
        if directory is not None:
            self._fail_directory(directory, error)

    def check_room(self, log: PartitionLog) -> None:
        """Raise `KafkaStorageError` while the log's directory has less free space than its reserve."""
        if self._space.refusals:
            directory = self._table.home(log)
            if directory is not None:
                self._space.check(directory.path)

    # High watermarks

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Read the checkpointed high watermarks of all directories. Blocks briefly; call it once, after `start`.

        Shortly after a move two directories may list a partition: the one with its log has the newer high watermark.
        """
        offsets: dict[TopicPartition, int] = {}
        for directory in list(self._table.directories.values()):
            try:
                marks = read_high_watermarks(self._files, directory)
            except StorageError as error:
                self._fail_directory(directory, error)
                continue
            offsets.update(
                (topic_partition, mark)
                for topic_partition, mark in marks.items()
                if topic_partition not in offsets or self.directory_of(topic_partition) == directory.path
            )
        return offsets

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint each high watermark in its log's directory. Blocks; `checkpoint_high_watermarks` does not."""
        for directory, of_directory in self._disk_work.by_directory(offsets):
            try:
                self._disk_work.high_watermark_work(directory, of_directory)()
            except StorageError as error:
                self._fail_directory(directory, error)

    async def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint high watermarks off the loop."""
        await self._disk_work.write_high_watermarks(offsets)

    # Schedules

    async def apply_retention(self) -> int:
        """Remove expired segments of all logs whose topic settings are known. Returns their number."""
        return await self._schedules.apply_retention()

    async def write_checkpoints(self) -> None:
        """Checkpoint recovery points and log start offsets of all directories."""
        await self._schedules.write_checkpoints()

    async def checkpoint(self, log: PartitionLog) -> None:
        """Checkpoint the recovery points of the log's directory, off the loop."""
        directory = self._table.home(log)
        if directory is not None:
            await self._disk_work.write_checkpoints(directory)

    async def flush_due(self) -> None:
        """Flush the logs whose last flush is at least `flush.ms` ago."""
        await self._schedules.flush_due()

    # Stop

    async def close(self, clean: bool = True) -> None:
        """Stop all schedules. If `clean`, close every log and write the clean-shutdown files. Idempotent.

        A directory whose disk does not answer goes offline after the stall timeout, and is not waited for.
        """
        if self._background.is_closed:
            return
        await self._background.close()
        await self._watch.end_checks()
        self.writes.close()
        await self._disk_work.settle()
        await self._workers.settle()
        table = self._table
        if clean:
            async with asyncio.TaskGroup() as group:
                for directory in list(table.directories.values()):
                    group.create_task(self._disk_work.close_directory(directory))
        for log in (*table.current.values(), *table.future.values()):
            log.abandon()
        for directory in table.directories.values():
            directory.release()
        await self._watch.close()
        self._workers.close()
