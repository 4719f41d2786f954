"""Loads all logs of a broker from its log directories, after a clean or an unclean shutdown.

`LogManager.start` uses it once to fill the `LogTable`. Directories are loaded in parallel, each by its worker with
`num.recovery.threads.per.data.dir` logs at a time. After an unclean shutdown the progress is logged every few seconds.
Invariant: a directory that fails affects only its own logs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import ConfigError, StorageError
from odradek.base.ports import Clock, Files
from odradek.base.types import TopicPartition
from odradek.log.checkpoints import MetaProperties
from odradek.log.directories.background import Background
from odradek.log.directories.directory import LogDirectory, open_directory
from odradek.log.directories.directory_worker import LONG, DirectoryWorkers
from odradek.log.directories.disk_work import DiskWork
from odradek.log.directories.interrupted_moves import InterruptedMoves
from odradek.log.directories.log_table import LogTable
from odradek.log.directories.moves import LogMoves
from odradek.log.directories.stall_watch import StallWatch
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.segments.segment import LOG_SUFFIX
from odradek.log.values import LogContext

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS: Final = 5000
"""Interval of the progress messages of a long recovery."""


class LogLoader:
    """Opens the log directories of one broker and loads their logs."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
        *,
        table: LogTable,
        context: LogContext[PartitionLog],
        moves: LogMoves,
        disk_work: DiskWork,
        background: Background,
        workers: DirectoryWorkers,
        watch: StallWatch,
        fail: Callable[[LogDirectory, StorageError], None],
    ) -> None:
        """`fail` takes a directory offline."""
        self._files = files
        self._clock = clock
        self._config = config
        self._table = table
        self._context = context
        self._moves = moves
        self._disk_work = disk_work
        self._background = background
        self._workers = workers
        self._watch = watch
        self._fail = fail

    async def open_directories(self, owner: MetaProperties) -> None:
        """Lock the directories and list their contents.

        Raises `ConfigError` if one is in use or belongs to another broker or cluster; the others are then released.
        """
        table = self._table
        for path in map(os.path.abspath, self._config.log_dirs):
            try:
                directory = await self._open(path, owner)
            except StorageError as error:
                logger.error("log directory %s is offline: %s", path, error)
                table.failed[path] = str(error)
            except ConfigError:
                for opened in table.directories.values():
                    opened.release()
                raise
            else:
                table.directories[path] = directory
                self._watch.add(path)
        moves = InterruptedMoves(
            self._files,
            table,
            workers=self._workers,
            fail=self._fail,
            unique=lambda: self._clock.token_bytes(16).hex(),
        )
        await moves.complete()

    async def _open(self, path: str, owner: MetaProperties) -> LogDirectory:
        worker = self._workers.at(path)

        def work() -> LogDirectory:
            directory = open_directory(self._files, path, owner)
            if worker.failure is not None:
                directory.release()  # the disk did not answer in time, and the broker starts without the directory
            return directory

        return await worker.run(f"opening of {path}", work, patience=LONG)

    async def load(self) -> None:
        """Load the logs of all directories."""
        async with asyncio.TaskGroup() as group:
            for directory in list(self._table.directories.values()):
                group.create_task(self._load_directory(directory))

    async def _load_directory(self, directory: LogDirectory) -> None:
        started_ms = self._clock.monotonic_ms()
        threads = asyncio.Semaphore(self._config.num_recovery_threads_per_data_dir)
        wanted = [(tp, directory.log_path(tp), False) for tp in directory.found]
        wanted += [(tp, f"{directory.path}/{name}", True) for tp, name in directory.futures]
        progress = RecoveryProgress(directory.path, len(wanted))
        if wanted and not directory.clean:
            self._background.spawn(self._log_progress(directory, progress, [path for _, path, _ in wanted]))
        async with asyncio.TaskGroup() as group:
            for topic_partition, path, is_future in wanted:
                request = self._request(directory, topic_partition, path)
                group.create_task(self._load(directory, request, threads, progress, is_future=is_future))
        progress.is_done = True
        if directory.failure is None:
            directory.found.clear()
        for path in directory.deleted:
            self._background.spawn(self._disk_work.remove_tree(directory, path))
        logger.info(
            "%s: %d logs after %s shutdown, loaded in %.0f ms",
            directory.path,
            len(wanted),
            "a clean" if directory.clean else "an unclean",
            self._clock.monotonic_ms() - started_ms,
        )

    def _request(self, directory: LogDirectory, topic_partition: TopicPartition, path: str) -> LoadRequest:
        return LoadRequest(
            topic_partition=topic_partition,
            directory=path,
            config=TopicConfig.of(self._config, {}),
            now_ms=self._clock.wall_ms(),
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
            clean=directory.clean,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
        )

    async def _load(
        self,
        directory: LogDirectory,
        request: LoadRequest,
        threads: asyncio.Semaphore,
        progress: RecoveryProgress,
        *,
        is_future: bool,
    ) -> None:
        topic_partition = request.topic_partition
        table = self._table
        async with threads:
            if directory.failure is not None:
                return
            try:
                work = partial(load, self._files, request)
                worker = self._workers.at(directory.path)
                loaded = await worker.run(f"loading of {request.directory}", work, patience=None)
                known = None if is_future else table.current.get(topic_partition)
                if known is not None:
                    raise StorageError(
                        f"{topic_partition} has two logs: in {directory.path} and in {known.directory}",
                        path=directory.path,
                    )
            except StorageError as error:
                self._fail(directory, error)
                return
        progress.loaded(request.directory)
        if directory.path not in table.directories:
            return  # the directory failed while another of its logs was loaded
        if is_future:
            context, host = self._moves.future_context()
            log = PartitionLog(context, loaded, request.config, loaded.topic_id)
            self._moves.hosts[log] = host
            table.add_future(directory, log)
            return
        log = PartitionLog(self._context, loaded, request.config, loaded.topic_id)
        table.add(directory, log)
        if not directory.clean:
            self._disk_work.flush_soon(log)

    async def _log_progress(self, directory: LogDirectory, progress: RecoveryProgress, paths: list[str]) -> None:
        """Log a progress message every few seconds until all logs are loaded."""
        await self._clock.sleep_ms(PROGRESS_INTERVAL_MS)
        if progress.is_done or directory.failure is not None:
            return
        try:
            worker, work = self._workers.at(directory.path), partial(_sizes, self._files, paths)
            progress.sizes = await worker.run(f"measurement of {directory.path}", work, patience=None)
        except StorageError as error:
            logger.warning("%s", error)
        while not progress.is_done and directory.failure is None:
            logger.info("%s", progress)
            await self._clock.sleep_ms(PROGRESS_INTERVAL_MS)


class RecoveryProgress:
    """Progress of the recovery of one directory."""

    __slots__ = ("_done", "_path", "_total", "is_done", "sizes")

    def __init__(self, path: str, total: int) -> None:
        """`total`: number of logs to load."""
        self._path = path
        self._total = total
        self._done: set[str] = set()
        self.is_done = False
        self.sizes: dict[str, int] = {}
        """Size of each log in bytes, by path."""

    def loaded(self, path: str) -> None:
        """Count the log at `path` as loaded."""
        self._done.add(path)

    def __str__(self) -> str:
        """Return the progress message."""
        done_bytes = sum(size for path, size in self.sizes.items() if path in self._done)
        return (
            f"{self._path}: {len(self._done)} of {self._total} logs are recovered, "
            f"{done_bytes >> 20} of {sum(self.sizes.values()) >> 20} MiB"
        )


def _sizes(files: Files, paths: Iterable[str]) -> dict[str, int]:
    """Return the total size of each log's `.log` files in bytes. Blocks. Raises `StorageError`."""
    return {
        path: sum(files.size(f"{path}/{name}") for name in files.list(path) if name.endswith(LOG_SUFFIX))
        for path in paths
    }
