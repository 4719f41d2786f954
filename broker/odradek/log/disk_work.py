"""What the logs of a broker have done off the loop: flushes, checkpoints, removals.

Logs ask for it through `LogManager` (`LogHost`), schedules and moves directly; blocking calls run in threads, and
their outcome is taken in on the loop. Invariants: one flush of a directory at a time; a log that was given up
meanwhile takes nothing in; a failed write of a checkpoint or a failed sync ends its directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Clock, Files, RunBlocking
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.background import Background
from odradek.log.directory import LogDirectory, write_offsets
from odradek.log.partition_log import PartitionLog
from odradek.log.table import LogTable
from odradek.metrics.quantiles import Quantiles

logger = logging.getLogger(__name__)


class DiskWork:
    """Blocking work of one broker's logs."""

    def __init__(
        self,
        files: Files,
        table: LogTable,
        background: Background,
        *,
        run_blocking: RunBlocking,
        fail: Callable[[LogDirectory, StorageError], None],
        clock: Clock,
        flush_ms: Quantiles,
    ) -> None:
        """`fail` takes a directory offline; `flush_ms` is told how long flushes take."""
        self._clock = clock
        self._flush_ms = flush_ms
        self._files = files
        self._table = table
        self._background = background
        self._run_blocking = run_blocking
        self._fail = fail
        self._to_flush: dict[str, dict[PartitionLog, None]] = {}
        self._to_checkpoint: set[str] = set()

    def forget(self, directory: LogDirectory) -> None:
        """The directory is offline: what waits for it is dropped."""
        self._to_flush.pop(directory.path, None)

    # Flush

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log on a thread, one log of a directory at a time."""
        directory = self._table.home(log)
        if directory is None or self._background.is_closed:
            return
        waiting = self._to_flush.get(directory.path)
        if waiting is not None:
            waiting[log] = None
            return
        self._to_flush[directory.path] = {log: None}
        self._background.spawn(self._flush_waiting(directory))

    async def _flush_waiting(self, directory: LogDirectory) -> None:
        waiting = self._to_flush[directory.path]
        while waiting:
            log = next(iter(waiting))
            del waiting[log]
            await self.flush(log)
        self._to_flush.pop(directory.path, None)

    async def flush(self, log: PartitionLog) -> None:
        """Make a log durable; its directory goes offline when that fails."""
        if self._table.home(log) is None:
            return
        try:
            ticket = log.begin_flush()
            if ticket is None:
                return
            began_ms = self._clock.monotonic_ms()
            try:
                await self._run_blocking(partial(ticket.run, self._files))
            except StorageError as error:
                if self._table.home(log) is None:
                    return
                if error.missing and not log.is_current(ticket):
                    self.flush_soon(log)
                    return
                log.flush_failed(error)
                return
            log.end_flush(ticket)
            self._flush_ms.observe(self._clock.monotonic_ms() - began_ms)
        except KafkaStorageError as error:
            logger.error("%s", error)

    # Checkpoints

    def checkpoint_soon(self, directory: LogDirectory) -> None:
        """Write a directory's checkpoints of recovery points and log starts soon."""
        if directory.path in self._to_checkpoint or self._background.is_closed:
            return
        self._to_checkpoint.add(directory.path)
        self._background.spawn(self.write_checkpoints(directory))

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Recovery points and log starts of a directory, as they are now."""
        self._to_checkpoint.discard(directory.path)
        if directory.failure is not None:
            return
        points, work = self._checkpoint(directory)
        if await self.attempt(directory, work):
            _tell(points)

    def checkpoint_now(self, directory: LogDirectory) -> None:
        """The same, done when this returns; blocks the loop. A failure takes the directory offline."""
        if directory.failure is not None:
            return
        points, work = self._checkpoint(directory)
        try:
            written = work()
        except StorageError as error:
            self._fail(directory, error)
        else:
            if written:
                _tell(points)

    def _checkpoint(self, directory: LogDirectory) -> tuple[dict[PartitionLog, int], Callable[[], bool]]:
        """The recovery points of this moment, and the work that writes them and the log starts.

        The work tells whether it wrote: what was put together later may have been written before.
        """
        turn = directory.point_turns.draw()
        logs = self._table.within(directory)
        points = {log: log.recovery_point for log in logs}
        by_name = {log.topic_partition: point for log, point in points.items()}
        # All of them, even where a segment begins there: removed segments come back when the power fails too soon.
        starts = {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > 0}

        def write() -> None:
            write_offsets(self._files, directory, checkpoints.RECOVERY_POINT_FILE, by_name)
            write_offsets(self._files, directory, checkpoints.LOG_START_FILE, starts)
            directory.log_start_offsets = starts

        return points, partial(directory.point_turns.take, turn, write)

    async def write_high_watermarks(self, marks: Mapping[TopicPartition, int]) -> None:
        """Checkpoint high watermarks, each in its log's directory."""
        for directory, of_directory in self.by_directory(marks):
            await self.attempt(directory, self.high_watermark_work(directory, of_directory))

    def high_watermark_work(self, directory: LogDirectory, marks: Mapping[TopicPartition, int]) -> Callable[[], bool]:
        """The work that writes the high watermarks of one directory; raises `StorageError`."""
        write = partial(write_offsets, self._files, directory, checkpoints.HIGH_WATERMARK_FILE, marks)
        return partial(directory.mark_turns.take, directory.mark_turns.draw(), write)

    def by_directory(
        self, offsets: Mapping[TopicPartition, int]
    ) -> list[tuple[LogDirectory, dict[TopicPartition, int]]]:
        """Offsets of partitions by the directory of their current log; those without one are left out."""
        table = self._table
        split: dict[str, dict[TopicPartition, int]] = {path: {} for path in table.directories}
        for topic_partition, offset in offsets.items():
            log = table.current.get(topic_partition)
            home = None if log is None else table.home(log)
            if home is not None:
                split[home.path][topic_partition] = offset
        return [(table.directories[path], of_directory) for path, of_directory in split.items()]

    async def attempt(self, directory: LogDirectory, work: Callable[[], bool | None]) -> bool:
        """Do blocking work in a directory, which goes offline when it fails; whether it was done."""
        try:
            return await self._run_blocking(work) is not False
        except StorageError as error:
            self._fail(directory, error)
            return False

    # Removals

    async def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files; what cannot be removed goes at the next start."""

        def remove() -> None:
            for path in paths:
                self._files.remove(path)

        try:
            await self._run_blocking(remove)
        except StorageError as error:
            logger.warning("%s; it is removed at the next start", error)

    async def remove_tree(self, directory: LogDirectory, path: str) -> None:
        """Remove a deleted log's directory; what cannot be removed goes at the next start."""
        if directory.failure is not None:
            return
        try:
            await self._run_blocking(partial(self._files.remove_tree, path))
        except StorageError as error:
            logger.warning("%s; it is removed at the next start", error)

    # Stop

    async def close_directory(self, directory: LogDirectory) -> None:
        """Close every log of a directory in order, and leave the clean-shutdown mark."""
        for log in self._table.within(directory):
            try:
                await self._run_blocking(log.close)
            except KafkaStorageError as error:
                logger.error("%s", error)
                return
        await self.write_checkpoints(directory)
        mark = f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
        await self.attempt(directory, partial(self._files.write_atomically, mark, checkpoints.clean_shutdown_mark()))


def _tell(points: Mapping[PartitionLog, int]) -> None:
    for log, point in points.items():
        log.checkpointed(point)
