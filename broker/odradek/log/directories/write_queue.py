"""The appends of slow log directories, in the order of their arrival, and the threads that write them.

`log/directories/stall_watch` decides which directories are slow, and `LogManager` passes that on. While a directory is
slow, each of its logs has the queue of the directory (`PartitionLog.write_queue`), and replication passes appends to it
instead of writing them. The logs of a directory on a remote file system always have it. A queue runs one job at a time:
it stages the waiting appends of each log in a group, and a thread writes the groups. The more appends wait, the more
share a job.

Invariants: appends of one log are staged in the order of `submit`, and only while no group of the log is being written;
a log keeps its queue until the last append that waited is in it, so that no later append overtakes one; each append is
answered once: by `stage`, `written` or `failed`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from odradek.base.errors import KafkaStorageError, NotLeaderOrFollowerError, ProtocolError, StorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.directory import LogDirectory
from odradek.log.directories.directory_worker import DirectoryWorker, DirectoryWorkers
from odradek.log.directories.log_table import LogTable
from odradek.log.partition_log import PartitionLog
from odradek.log.write_group import GroupFullError, QueuedAppend, WriteGroup

logger = logging.getLogger(__name__)

JOB_BYTES: Final = 8 << 20
"""Size above which a job takes no further log."""


class _Write:
    """The group of one log in a job, and the appends that it consists of."""

    __slots__ = ("appends", "group", "log")

    def __init__(self, log: PartitionLog, group: WriteGroup, appends: Sequence[QueuedAppend]) -> None:
        self.log: Final = log
        self.group: Final = group
        self.appends: Final = appends


class DirectoryQueue:
    """The queue of one log directory. Used on the event loop only."""

    def __init__(
        self,
        worker: DirectoryWorker,
        *,
        max_bytes: Callable[[], int],
        on_written: Callable[[TopicPartition], None],
    ) -> None:
        """`max_bytes`: `log.dir.queue.max.bytes`. `on_written` is called for each log whose appends were answered."""
        self._worker: Final = worker
        self._max_bytes: Final = max_bytes
        self._on_written: Final = on_written
        self.is_slow = False
        """Whether the disk does not answer in time."""
        self.is_remote = False
        """Whether the directory is on a remote file system."""
        self.size_bytes = 0
        """Bytes of the appends that wait or are being written."""
        self._waiting: Final[dict[PartitionLog, deque[QueuedAppend]]] = {}
        self._repairs: Final[dict[PartitionLog, None]] = {}
        """Logs whose last segment has to be truncated before the next write."""
        self._paused: Final[set[PartitionLog]] = set()
        self._running: Sequence[_Write] = ()
        self._is_woken = False
        self._is_closed = False
        self._turns: list[asyncio.Future[None]] = []
        """Wait for the end of the job that runs."""

    @property
    def is_in_use(self) -> bool:
        """Whether appends have to wait here. If not, the queue is being emptied."""
        return self.is_slow or self.is_remote

    def submit(self, log: PartitionLog, append: QueuedAppend) -> None:
        """Write an append after all earlier ones of the log. Raises `KafkaStorageError` if the queue is full."""
        limit = self._max_bytes()
        if self.size_bytes and self.size_bytes + append.size_bytes > limit:
            raise KafkaStorageError(
                f"log directory {self._worker.path} is slow, and {self.size_bytes} bytes wait to be written there "
                f"(log.dir.queue.max.bytes={limit}); repeat the request later, and check the disk"
            )
        if self._is_closed:
            raise KafkaStorageError("the broker stops")
        self.size_bytes += append.size_bytes
        self._waiting.setdefault(log, deque()).append(append)
        self._wake()

    def _wake(self) -> None:
        """Start a job in the next iteration of the loop, so that all appends of this one share it."""
        if not self._is_woken and not self._running and not self._is_closed:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._start)

    # Jobs

    def _start(self) -> None:
        self._is_woken = False
        if self._running or self._is_closed:
            return
        writes = list(self._staged())
        if not writes:
            return
        self._running = writes
        for write in writes:
            write.log.begin_write(write.group)
        work = partial(_run, [write.group for write in writes])
        if self.is_in_use or self._waiting:
            what = f"write of {len(writes)} logs, first {writes[0].log.directory}"
            self._worker.write(what, work).add_done_callback(self._ended)
        else:
            # The disk answers again, and nothing else waits. A thread would let further appends arrive meanwhile, so
            # that busy logs kept their queue for ever.
            work()
            self._finish(None)

    def _staged(self) -> Iterator[_Write]:
        """Yield the next group of each log that has something to write."""
        left_bytes = JOB_BYTES
        for log in [log for log in self._repairs if log.is_gone]:
            del self._repairs[log]
        for log in [*self._repairs, *(log for log in self._waiting if log not in self._repairs)]:
            if log in self._paused:
                continue
            group = log.open_group()
            appends = self._stage(log, group)
            if appends or log in self._repairs:
                yield _Write(log, group, appends)
            else:
                self._release(log)
            left_bytes -= group.size
            if left_bytes <= 0:
                return

    def _stage(self, log: PartitionLog, group: WriteGroup) -> list[QueuedAppend]:
        staged: list[QueuedAppend] = []
        waiting = self._waiting.get(log, deque())
        while waiting:
            append = waiting[0]
            try:
                is_staged = append.stage(group)
            except GroupFullError:
                break
            waiting.popleft()
            if is_staged:
                staged.append(append)
            else:
                self.size_bytes -= append.size_bytes
        if self._waiting.pop(log, None):
            # Move the log to the end: its next group comes after those of the other logs.
            self._waiting[log] = waiting
        return staged

    def _ended(self, job: asyncio.Future[None]) -> None:
        self._finish(job.exception())

    def _finish(self, error: BaseException | None) -> None:
        """End a job: answer its appends, and start the next one."""
        writes, self._running = self._running, ()
        if error is None:
            for write in writes:
                self._end(write)
        else:
            self._fail_all(writes, error)
        turns, self._turns = self._turns, []
        for turn in turns:
            if not turn.done():
                turn.set_result(None)
        self._wake()

    def _end(self, write: _Write) -> None:
        log, appends = write.log, write.appends
        is_current = all(append.is_current for append in appends)
        try:
            if is_current:
                log.end_write(write.group)
            else:
                log.drop_write(write.group)
        except ProtocolError as error:
            # What waits behind a failed write is not written either, so that the order of a producer is kept.
            self._fail([*appends, *self._waiting.pop(log, ())], error)
        else:
            if is_current:
                self.size_bytes -= sum(append.size_bytes for append in appends)
                for append in appends:
                    append.written()
            else:
                self._fail(appends, NotLeaderOrFollowerError(f"the leader of {log.topic_partition} has changed"))
        self._repairs.pop(log, None)
        if log.has_debris and not log.is_gone:
            self._repairs[log] = None
        self._release(log)
        self._on_written(log.topic_partition)

    def _fail_all(self, writes: Sequence[_Write], error: BaseException) -> None:
        """Fail everything, because the directory is offline, the broker stops, or no thread can be started."""
        if not isinstance(error, StorageError | RuntimeError):
            logger.error("%s: a job failed", self._worker.path, exc_info=error)
        failure = KafkaStorageError(f"nothing can be written to {self._worker.path}: {error}")
        for write in writes:
            write.log.writing = None
            write.log.has_debris = True
            self._fail(write.appends, failure)
            self._on_written(write.log.topic_partition)
        self._fail_waiting(failure)
        for write in writes:
            self._repairs[write.log] = None

    def _fail(self, appends: Sequence[QueuedAppend], error: ProtocolError) -> None:
        self.size_bytes -= sum(append.size_bytes for append in appends)
        for append in appends:
            append.failed(error)

    def _fail_waiting(self, error: ProtocolError) -> None:
        waiting = list(self._waiting.items())
        self._waiting.clear()
        self._repairs.clear()
        for log, appends in waiting:
            self._fail(list(appends), error)
            self._on_written(log.topic_partition)

    # State of the directory

    def set_slow(self, logs: Sequence[PartitionLog], *, is_slow: bool) -> None:
        """Set whether the directory of these logs is slow. Logs with waiting appends keep the queue until then."""
        self.is_slow = is_slow
        for log in logs:
            if self.is_in_use:
                log.write_queue = self
            else:
                self._release(log)

    def _release(self, log: PartitionLog) -> None:
        """Let the log write on the event loop again, if nothing keeps it here."""
        if (
            not self.is_in_use
            and log.writing is None
            and log not in self._waiting
            and log not in self._repairs
            and log not in self._paused
        ):
            log.write_queue = None

    # Moves

    async def pause(self, log: PartitionLog) -> None:
        """Start no further write of a log, and wait for the end of the current one."""
        self._paused.add(log)
        while log.writing is not None:
            turn = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            await turn

    def resume(self, log: PartitionLog) -> None:
        """Continue the writes of a paused log."""
        self._paused.discard(log)
        self._release(log)
        self._wake()

    def hand_over(self, log: PartitionLog, successor: PartitionLog, queue: DirectoryQueue) -> None:
        """Pass the waiting appends of a paused log, which has moved, to its successor in another directory."""
        self._paused.discard(log)
        self._repairs.pop(log, None)
        waiting = self._waiting.pop(log, None)
        if waiting is None:
            return
        size_bytes = sum(append.size_bytes for append in waiting)
        self.size_bytes -= size_bytes
        queue.size_bytes += size_bytes
        queue._waiting[successor] = waiting
        successor.write_queue = queue
        queue._wake()

    def close(self) -> None:
        """Fail the appends that wait. A write that runs still ends. Idempotent."""
        self._is_closed = True
        self._fail_waiting(KafkaStorageError("the broker stops"))


class WriteQueues:
    """The queues of all log directories of a broker."""

    def __init__(
        self,
        table: LogTable,
        workers: DirectoryWorkers,
        *,
        max_bytes: Callable[[], int],
        on_written: Callable[[TopicPartition], None],
    ) -> None:
        """For the parameters see `DirectoryQueue`."""
        self._table: Final = table
        self._workers: Final = workers
        self._max_bytes: Final = max_bytes
        self._on_written: Final = on_written
        self._by_path: Final[dict[str, DirectoryQueue]] = {}

    def at(self, path: str) -> DirectoryQueue:
        """Return the queue of a log directory; creates it at the first call."""
        queue = self._by_path.get(path)
        if queue is None:
            worker = self._workers.at(path)
            queue = DirectoryQueue(worker, max_bytes=self._max_bytes, on_written=self._on_written)
            self._by_path[path] = queue
        return queue

    def set_slow(self, path: str, *, is_slow: bool) -> None:
        """Set whether a directory is slow: the appends of its logs then wait in its queue."""
        directory = self._table.directories.get(path)
        if directory is None:
            return
        queue = self.at(path)
        directory.write_queue = queue if is_slow or queue.is_remote else None
        queue.set_slow(self._table.within(directory), is_slow=is_slow)

    def set_remote(self, directory: LogDirectory) -> None:
        """Let the appends of a directory always wait in its queue. Call it before the directory's logs are loaded."""
        logger.info(
            "log directory %s is on a remote file system (%s): threads write and read all its records, because each "
            "call may wait for a server",
            directory.path,
            directory.remote_type,
        )
        directory.write_queue = queue = self.at(directory.path)
        queue.is_remote = True

    async def pause(self, log: PartitionLog) -> DirectoryQueue | None:
        """Let nothing write to a log until `resume`, which gets the result: appends wait.

        Returns None, and does nothing, for a log that writes on the event loop.
        """
        directory = self._table.home(log)
        if directory is None or log.write_queue is None:
            return None
        queue = self.at(directory.path)
        await queue.pause(log)
        return queue

    def resume(self, queue: DirectoryQueue, log: PartitionLog, successor: PartitionLog) -> None:
        """Continue after `pause`. If the log has moved meanwhile, `successor` gets the appends that wait."""
        directory = self._table.home(successor)
        if successor is log or directory is None:
            queue.resume(log)
        else:
            queue.hand_over(log, successor, self.at(directory.path))

    def readings(self) -> dict[str, DirectoryQueue]:
        """Return the queue of each online directory, for metrics."""
        return {path: self.at(path) for path in self._table.directories}

    def close(self) -> None:
        """Fail the appends that wait. Idempotent."""
        for queue in self._by_path.values():
            queue.close()


def _run(groups: Sequence[WriteGroup]) -> None:
    for group in groups:
        group.run()
