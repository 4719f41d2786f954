"""Blocking work of a broker's logs: flushes, checkpoints and removals.

Logs request it through `LogManager` (`LogHost`), schedules and moves directly. Blocking calls run on the worker of
their directory, and their results are applied on the loop. Invariants: a log has one flush at a time, and one job that
renames expired segments; no directory waits for another one; a log that was removed meanwhile does not change; a
checkpoint write or flush that fails, or a flush that cannot run, takes its directory offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Clock, Files
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.directories.background import Background
from odradek.log.directories.directory import LogDirectory, write_offsets
from odradek.log.directories.directory_worker import DirectoryWorkers
from odradek.log.directories.flush_queue import FlushQueue
from odradek.log.directories.log_table import LogTable
from odradek.log.file_names import OutdatedFlushError
from odradek.log.partition_log import PartitionLog
from odradek.metrics.quantiles import Quantiles

logger = logging.getLogger(__name__)

MARKS_WAIT_MS: Final = 1000.0
"""Time after which the checkpoint of high watermarks does not wait for a directory any more."""
NAMES_WAIT_MS: Final = 1000.0
"""Time after which the broker answers that a deletion is not durable yet."""


class _NewestJobs:
    """Runs one job of each directory at a time. Of those requested during a job, only the newest runs after it."""

    def __init__(self, attempt: Callable[[LogDirectory, Callable[[], bool | None], str], Awaitable[bool]]) -> None:
        self._attempt: Final = attempt
        self._next: Final[dict[str, tuple[Callable[[], bool | None], str]]] = {}
        self.tasks: Final[dict[str, asyncio.Task[None]]] = {}
        """The tasks that run jobs, by directory."""

    def request(self, directory: LogDirectory, work: Callable[[], bool | None], what: str) -> None:
        """Run blocking work for a directory soon; see `DiskWork.attempt`."""
        self._next[directory.path] = work, what
        if directory.path not in self.tasks:
            self.tasks[directory.path] = asyncio.ensure_future(self._run(directory))

    async def _run(self, directory: LogDirectory) -> None:
        try:
            while (job := self._next.pop(directory.path, None)) is not None:
                await self._attempt(directory, *job)
        finally:
            del self.tasks[directory.path]

    async def ended(self, timeout_ms: float) -> None:
        """Wait until no job waits or runs, at most `timeout_ms`."""
        if self.tasks:
            await asyncio.wait(self.tasks.values(), timeout=timeout_ms / 1000)


class DiskWork:
    """Blocking work of one broker's logs."""

    def __init__(
        self,
        files: Files,
        table: LogTable,
        background: Background,
        *,
        workers: DirectoryWorkers,
        fail: Callable[[LogDirectory, StorageError], None],
        clock: Clock,
        on_flushed: Callable[[TopicPartition], None],
        flush_ms: Quantiles,
    ) -> None:
        """`fail` takes a directory offline; `on_flushed` is called after each flush that did not fail.

        `flush_ms` collects the durations of flushes.
        """
        self._clock = clock
        self._flush_ms = flush_ms
        self._files = files
        self._table = table
        self._background = background
        self._workers = workers
        self._fail = fail
        self._on_flushed = on_flushed
        self._flushes: Final[dict[str, FlushQueue]] = {}
        self._to_checkpoint: set[str] = set()
        self._checkpointing: set[str] = set()
        """Directories whose requested checkpoints are being written."""
        self._marks: Final = _NewestJobs(self.attempt)
        """Writes of high watermarks."""
        self._names: Final = _NewestJobs(self._sync_names)
        """Syncs of directories with renamed logs."""

    def forget(self, directory: LogDirectory) -> None:
        """Drop the pending flushes of a directory that went offline."""
        queue = self._flushes.get(directory.path)
        if queue is not None:
            queue.clear()

    # Flush

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log on a thread, several logs of a directory at a time, in the order of the first requests.

        A request during a flush of the log is followed by another flush, which covers all requests until it begins.
        """
        directory = self._table.home(log)
        if directory is None or self._background.is_closed:
            return
        queue = self._flushes.setdefault(directory.path, FlushQueue())
        queue.request(log)
        following = queue.take()
        if following is not None:
            self._background.spawn(self._flush_from(queue, following))

    async def _flush_from(self, queue: FlushQueue, first: PartitionLog) -> None:
        """Flush one log of a directory after the other, as long as one may begin."""
        log: PartitionLog | None = first
        while log is not None:
            path = log.directory
            try:
                await self._flush(log)
            finally:
                queue.ended(path)
            log = queue.take()

    async def _flush(self, log: PartitionLog) -> None:
        """Make a log durable. If that fails, its directory goes offline."""
        directory = self._table.home(log)
        if directory is None:
            return
        try:
            ticket = log.begin_flush()
            if ticket is None:
                self._on_flushed(log.topic_partition)
                return
            began_ms = self._clock.monotonic_ms()
            try:
                work = partial(ticket.run, self._files)
                await self._workers.at(directory.path).sync(f"sync of {log.directory}", work)
            except OutdatedFlushError:
                self.flush_soon(log)  # does nothing if the log was deleted or moved
                return
            except StorageError as error:
                if self._table.home(log) is not None:
                    log.flush_failed(error)
                return
            except Exception as error:
                # For example, the system refuses another thread. The records that wait must not wait for ever.
                logger.exception("%s cannot be flushed", log.directory)
                log.flush_failed(StorageError(f"{log.directory} cannot be flushed: {error}", path=log.directory))
                return
            if self._table.home(log) is None:
                return  # another flush of the directory failed first, or the log was deleted or moved
            log.end_flush(ticket)
            self._flush_ms.observe(self._clock.monotonic_ms() - began_ms)
            self._on_flushed(log.topic_partition)
        except KafkaStorageError as error:
            logger.error("%s", error)

    # Checkpoints

    def checkpoint_soon(self, directory: LogDirectory) -> None:
        """Write a directory's checkpoints of recovery points and log start offsets soon."""
        if directory.path in self._to_checkpoint or self._background.is_closed:
            return
        self._to_checkpoint.add(directory.path)
        if directory.path not in self._checkpointing:
            self._checkpointing.add(directory.path)
            self._background.spawn(self._write_requested(directory))

    async def _write_requested(self, directory: LogDirectory) -> None:
        """Write checkpoints until none is requested. On a slow disk, one write serves all requests during another."""
        try:
            while directory.path in self._to_checkpoint:
                await self.write_checkpoints(directory)
        finally:
            self._checkpointing.discard(directory.path)

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write the current recovery points and log start offsets of a directory."""
        self._to_checkpoint.discard(directory.path)
        if directory.failure is not None:
            return
        points, write = self._checkpoint(directory)
        work = partial(directory.point_turns.take, directory.point_turns.draw(), write)
        if await self.attempt(directory, work, f"write of the checkpoints of {directory.path}"):
            _tell(points)

    def checkpoint_now(self, directory: LogDirectory) -> None:
        """Write the checkpoints before this returns. Blocks the loop. A failure takes the directory offline."""
        if directory.failure is not None:
            return
        points, write = self._checkpoint(directory)
        try:
            written = directory.point_turns.take_now(directory.point_turns.draw(), write)
        except StorageError as error:
            self._fail(directory, error)
        else:
            if written:
                _tell(points)

    def _checkpoint(self, directory: LogDirectory) -> tuple[dict[PartitionLog, int], Callable[[], None]]:
        """Return the current recovery points, and the function that writes them and the log start offsets."""
        logs = self._table.within(directory)
        points = {log: log.recovery_point for log in logs}
        by_name = {log.topic_partition: point for log, point in points.items()}
        # Include starts that equal a segment's base offset: a power failure may bring removed segments back.
        starts = {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > 0}

        def write() -> None:
            write_offsets(self._files, directory, checkpoints.RECOVERY_POINT_FILE, by_name)
            write_offsets(self._files, directory, checkpoints.LOG_START_FILE, starts)
            directory.log_start_offsets = starts

        return points, write

    async def write_high_watermarks(self, marks: Mapping[TopicPartition, int]) -> None:
        """Checkpoint each high watermark in its log's directory.

        Returns when all are written, at the latest after `MARKS_WAIT_MS`: a slow directory gets its checkpoint later.
        """
        for directory, of_directory in self.by_directory(marks):
            work = self.high_watermark_work(directory, of_directory)
            self._marks.request(directory, work, f"write of the high watermarks of {directory.path}")
        await self._marks.ended(MARKS_WAIT_MS)

    async def settle(self) -> None:
        """Wait for the checkpoints of high watermarks that are being written, and for the syncs of names."""
        await asyncio.gather(*self._marks.tasks.values(), *self._names.tasks.values())

    def high_watermark_work(self, directory: LogDirectory, marks: Mapping[TopicPartition, int]) -> Callable[[], bool]:
        """Return the function that writes the high watermarks of one directory; it raises `StorageError`."""
        write = partial(write_offsets, self._files, directory, checkpoints.HIGH_WATERMARK_FILE, marks)
        return partial(directory.mark_turns.take, directory.mark_turns.draw(), write)

    def by_directory(
        self, offsets: Mapping[TopicPartition, int]
    ) -> list[tuple[LogDirectory, dict[TopicPartition, int]]]:
        """Group offsets by the directory of the partition's current log; partitions without a log are omitted."""
        table = self._table
        split: dict[str, dict[TopicPartition, int]] = {path: {} for path in table.directories}
        for topic_partition, offset in offsets.items():
            log = table.current.get(topic_partition)
            home = None if log is None else table.home(log)
            if home is not None:
                split[home.path][topic_partition] = offset
        return [(table.directories[path], of_directory) for path, of_directory in split.items()]

    async def attempt(self, directory: LogDirectory, work: Callable[[], bool | None], what: str) -> bool:
        """Run blocking work for a directory, which goes offline if it fails. Returns whether the work was done."""
        try:
            return await self._workers.at(directory.path).run(what, work) is not False
        except StorageError as error:
            self._fail(directory, error)
            return False

    # Removals

    def sync_names_soon(self, directory: LogDirectory) -> None:
        """Make renames in a directory durable. Several renames share a sync."""
        if not self._background.is_closed:
            work = partial(self._files.sync_directory, directory.path)
            self._names.request(directory, work, f"sync of the names in {directory.path}")

    async def _sync_names(self, directory: LogDirectory, work: Callable[[], bool | None], what: str) -> bool:
        # Renames during the sync are made durable by the next one.
        begun = self._table.deletions
        is_done = await self.attempt(directory, work, what)
        if is_done:
            self._table.deletions_are_durable(directory.path, begun)
        return is_done

    async def names_synced(self) -> None:
        """Wait until no rename is left to sync, at most `NAMES_WAIT_MS`: a slow disk must not hold up other ones."""
        await self._names.ended(NAMES_WAIT_MS)

    def rename_expired_soon(self, log: PartitionLog) -> None:
        """Rename the files of a log's expired segments on a thread, in order, and remove them later."""
        expired = log.expired
        if not (expired.has_job or self._background.is_closed):
            expired.has_job = True
            self._background.spawn(self._rename_expired(log))

    async def _rename_expired(self, log: PartitionLog) -> None:
        expired = log.expired
        try:
            # One job at a time renames all that waits; more may be added while it ends.
            while expired.is_waiting and (directory := self._table.home(log)) is not None:
                what = f"rename of expired segments of {log.directory}"
                await self._workers.at(directory.path).run(what, expired.run, patience=None)
                log.remove_renamed()
        except StorageError as error:
            if self._table.home(log) is not None:
                logger.error("%s", log.rename_failed(error))
        finally:
            expired.has_job = False

    async def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files of one log; those that cannot be removed are removed at the next start."""

        def remove() -> None:
            for path in paths:
                self._files.remove(path)

        if not paths:
            return
        try:
            await self._workers.holding(paths[0]).run(f"removal of {paths[0]}", remove, patience=None)
        except StorageError as error:
            logger.warning("%s; the next start removes it", error)

    async def remove_tree(self, directory: LogDirectory, path: str) -> None:
        """Remove a deleted log's directory; if that fails, the next start removes it."""
        if directory.failure is not None:
            return
        try:
            work = partial(self._files.remove_tree, path)
            await self._workers.at(directory.path).run(f"removal of {path}", work, patience=None)
        except StorageError as error:
            logger.warning("%s; the next start removes it", error)

    # Stop

    async def close_directory(self, directory: LogDirectory) -> None:
        """Close every log of a directory cleanly, and write the clean-shutdown file."""
        for log in self._table.within(directory):
            try:
                await self._workers.at(directory.path).sync(f"sync of {log.directory}", log.close)
            except (KafkaStorageError, StorageError) as error:
                logger.error("%s", error)
                return
        await self.write_checkpoints(directory)
        mark = f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
        work = partial(self._files.write_atomically, mark, checkpoints.clean_shutdown_mark())
        await self.attempt(directory, work, f"write of {mark}")


def _tell(points: Mapping[PartitionLog, int]) -> None:
    for log, point in points.items():
        log.checkpointed(point)
