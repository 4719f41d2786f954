"""The files of the segments that retention has removed from a log, until they are renamed to `.deleted`.

`LogStorage` adds the segments. A thread renames their files (`run`, a job of `log/directories/disk_work`), because each
rename may wait for the disk. The event loop does the rest itself (`finish`) before it changes other names in a way that
depends on theirs, and cancels it when the log is deleted, moved or offline.

Invariants: segments are renamed in the order of their offsets, one at a time, so that a crash leaves the newest ones;
each waiting segment is below the first segment of the log; after `finish` no file waits, and after `cancel_and_wait` no
thread renames a file of the log any more, so that a new log may have its directory's name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Final

from odradek.base.errors import StorageError
from odradek.log.disk_lock import hold_on_loop
from odradek.log.segments.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, Segment


def mark_deleted(segment: Segment, *, keep_snapshot: bool = False) -> list[str]:
    """Rename a segment's files, and its producer snapshot unless kept, to `.deleted`. Returns the new paths.

    Changes nothing in memory, so it may run on any thread; the caller releases the segment. A reader that has opened
    the `.log` file can continue. Raises `StorageError`.
    """
    paths = []
    for suffix in SEGMENT_SUFFIXES if keep_snapshot else (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
        path = segment.path(suffix)
        try:
            segment.files.rename(path, path + DELETED_SUFFIX)
        except StorageError as error:
            if suffix == LOG_SUFFIX or not error.missing:
                raise
        else:
            paths.append(path + DELETED_SUFFIX)
    return paths


class ExpiredFiles:
    """The expired segments of one log whose files have to be renamed. Only `run` may be called on a thread."""

    __slots__ = ("_is_cancelled", "_lock", "_renamed", "_waiting", "has_job")

    def __init__(self) -> None:
        """No segment waits."""
        self._waiting: Final[deque[Segment]] = deque()
        self._renamed: list[str] = []
        self._lock: Final = Lock()
        """Held while the files of one segment are renamed."""
        self._is_cancelled = False
        self.has_job = False
        """Whether the host runs a job for these files, or is about to."""

    @property
    def is_waiting(self) -> bool:
        """Whether files have to be renamed."""
        return bool(self._waiting) and not self._is_cancelled

    def add(self, segments: Iterable[Segment]) -> None:
        """Let the files of segments be renamed, which the log has removed from its list in increasing order."""
        self._waiting.extend(segments)

    def run(self) -> None:
        """Rename the files that wait, until none is left or `cancel` is called. Blocks. Raises `StorageError`."""
        while True:
            with self._lock:
                if not self._rename_next():
                    return

    def finish(self) -> None:
        """Rename the files that wait before this returns. Raises `StorageError`, also if a thread is stuck."""
        if self._waiting:
            with hold_on_loop(self._lock, "the rename of an expired segment"):
                while self._rename_next():
                    pass

    def _rename_next(self) -> bool:
        if not self.is_waiting:
            return False
        self._renamed += mark_deleted(self._waiting[0])
        self._waiting.popleft()
        return True

    def take_renamed(self) -> list[str]:
        """Return the new paths of the files that were renamed since the last call. Call it after a job or `finish`."""
        renamed, self._renamed = self._renamed, []
        return renamed

    def cancel(self) -> None:
        """Leave the names of all files that wait as they are. A thread may still complete those of one segment."""
        self._is_cancelled = True

    def cancel_and_wait(self) -> None:
        """Do the same, and wait for the thread. Raises `StorageError` if it is stuck."""
        self.cancel()
        if self._waiting:
            with hold_on_loop(self._lock, "the rename of an expired segment"):
                pass
