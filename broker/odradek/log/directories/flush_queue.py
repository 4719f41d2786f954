"""The logs of one log directory that wait for a flush, in order.

`DiskWork` has one queue for each directory. It takes logs out of it, flushes them on the worker of the directory, and
reports their ends. Flushes run at the same time, because a journaling file system commits the syncs of several threads
together.

Invariants: at most `SYNC_THREADS` flushes run, at most one of each log, and at most one of each path, so that the late
flush of a deleted log never meets that of a new log of its name. When a log waits and none of its flushes runs, each
other log begins at most one flush before it does.
"""

from __future__ import annotations

from typing import Final

from odradek.log.directories.directory_worker import SYNC_THREADS
from odradek.log.partition_log import PartitionLog


class FlushQueue:
    """The flushes of one log directory that wait or run."""

    __slots__ = ("_running", "_waiting")

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: Final[dict[PartitionLog, None]] = {}
        self._running: Final[set[str]] = set()
        """Paths of the logs that are being flushed."""

    def request(self, log: PartitionLog) -> None:
        """Let a log wait for a flush that has not begun. Does nothing if it waits already."""
        self._waiting[log] = None

    def take(self) -> PartitionLog | None:
        """Return the next log whose flush may begin now; `ended` has to follow. None if there is none."""
        if len(self._running) >= SYNC_THREADS:
            return None
        for log in self._waiting:
            if log.directory not in self._running:
                del self._waiting[log]
                self._running.add(log.directory)
                return log
        return None

    def ended(self, path: str) -> None:
        """Record that the flush of the log with this path has ended."""
        self._running.discard(path)

    def clear(self) -> None:
        """Let no log wait any more."""
        self._waiting.clear()
