"""Who may change the names of a log's files: the event loop, or the thread of a flush that began before.

A flush writes index files and the epoch checkpoint by their names, on a slow disk long after it began. Meanwhile the
event loop may delete, move, truncate or restart the log, or replace segments, and other files get the same names.
Before it does, it voids the flushes that have begun (`FileNames.void`). `LogStorage` has the names of its log, and each
`FlushTicket` its `FlushNames`.

Invariant: once `void` has returned, no flush that began before creates, renames or removes a file of the log. The event
loop waits for a thread only while it makes one such call, never while it syncs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.ports import File, Files
from odradek.log.disk_lock import hold_on_loop


class OutdatedFlushError(StorageError):
    """The log's files got other names during its flush. If the log is still in use, it has to be flushed again."""


class FileNames:
    """The names of one log's files."""

    __slots__ = ("_lock", "_version")

    def __init__(self) -> None:
        """No flush has begun."""
        self._lock: Final = Lock()
        """Held during each change by a flush."""
        self._version = 0

    def begin_flush(self, files: Files) -> FlushNames:
        """Return the changes of names that a flush may make until the next call of `void`."""
        return FlushNames(files, self, self._version)

    def void(self) -> None:
        """Let flushes that have begun change no more names. Call it on the event loop before names change there.

        Blocks while a thread changes one. Raises `StorageError` if that takes too long (`disk_lock`).
        """
        with hold_on_loop(self._lock, "a change of the names of a log's files"):
            self._version += 1

    @contextmanager
    def changing(self, version: int, path: str) -> Iterator[None]:
        """Hold the names for one change by a flush that began at a version. Raises `OutdatedFlushError`."""
        with self._lock:
            self._check(version, path)
            yield

    def _check(self, version: int, path: str) -> None:
        if version != self._version:
            raise OutdatedFlushError(f"cannot write {path}: the names of the log changed during its flush", path=path)


class FlushNames:
    """The changes of names that one flush makes, on any thread. Its methods raise `StorageError`."""

    __slots__ = ("_files", "_names", "_version")

    def __init__(self, files: Files, names: FileNames, version: int) -> None:
        """They may be made while `names` has this version. `FileNames.begin_flush` creates these objects."""
        self._files: Final = files
        self._names: Final = names
        self._version: Final = version

    def create(self, path: str) -> File:
        """Open a file, and create it if it does not exist."""
        with self._names.changing(self._version, path):
            return self._files.open(path, create=True)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing one at `target`."""
        with self._names.changing(self._version, target):
            self._files.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with self._names.changing(self._version, path):
            self._files.remove(path)

    def replace(self, path: str, draft: str, content: bytes) -> None:
        """Replace a file's content: write the file `draft`, sync it, and rename it to `path` only then.

        Recovery would trust a torn index of the right size. The rename itself is not synced.
        """
        file = self.create(draft)
        try:
            file.pwritev((content,), 0)
            file.truncate(len(content))
            file.sync()
        finally:
            file.close()
        self.rename(draft, path)
