"""Protocols for time, randomness, files and processes, which pure code depends on.

`base/system_ports` implements them with the operating system, and only `app` creates those; the test kit has
deterministic implementations. Nothing blocks except `File.sync` and the directory operations; the caller chooses the
thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from odradek.base.errors import StorageError

Buffer = bytes | bytearray | memoryview

T = TypeVar("T")


class Workers(Protocol):
    """Worker processes for CPU-bound work that would block this interpreter: compaction, conversion of old records."""

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of a module-level function; arguments, result and errors are pickled.

        Raises what the function raises, and `WorkerDiedError` if its process ended. If the call is cancelled, the
        function runs to its end and its result is dropped.
        """
        ...

    async def run_until(self, given_up: Awaitable[None], function: Callable[..., T], /, *arguments: Any) -> T:
        """Do the same, but when `given_up` completes first, kill the process and raise `WorkerDiedError` at once.

        Another function may then use its place, although a process that waits for a disk ends later.
        """
        ...


class RunBlocking(Protocol):
    """Runs a function that may wait for a disk outside the event loop. The simulator runs it immediately."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Return the function's result."""
        ...


class DiskThreads(RunBlocking, Protocol):
    """Threads for blocking calls on one log directory. Calls start in the order in which they were passed."""

    def close(self) -> None:
        """End the threads when all earlier calls have ended. Does not wait for them. Idempotent."""
        ...


class DiskThreadsMaker(Protocol):
    """Creates the threads of a log directory."""

    def __call__(self, directory: str, count: int) -> DiskThreads:
        """Create at most `count` threads. None starts before it is needed."""
        ...


class Timer(Protocol):
    """A pending call. Cancelling it again, or after it ran, does nothing."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """Time and randomness. Monotonic time orders events; wall time is for timestamps in files and for people."""

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary fixed point; never decreases."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop after at least `delay_ms`."""
        ...

    async def sleep_ms(self, delay_ms: float) -> None:
        """Suspend the calling task for at least `delay_ms`."""
        ...

    def random(self) -> float:
        """A number from [0, 1)."""
        ...

    def token_bytes(self, length: int) -> bytes:
        """Unpredictable bytes for ids and nonces."""
        ...


class File(Protocol):
    """An open file that is accessed by position and has no cursor."""

    @property
    def path(self) -> str:
        """The path that it was opened with, or that of the last `renamed_to`."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether every call may wait for a server, because the file is on a remote file system. Nothing then counts
        as being in memory."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Read at most `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """Read exactly `length` bytes from `position` if they are in memory. Returns None if the file ends before, or
        if the read would have to wait for a disk."""
        ...

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        """Like `pread_now`, into the first `length` bytes of `buffer`. Returns whether they were read; if not, the
        content of the buffer is undefined. This costs no more than `pread`."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers consecutively from `position`. Returns the number of bytes written.

        Raises `StorageError` if not everything was written; how much of it is on disk is then unknown.
        """
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros, to `size` bytes."""
        ...

    def allocate(self, size: int) -> None:
        """Extend the file with zeros to at least `size` bytes and allocate the disk space for them.

        Raises a `StorageError` with `full` if there is not enough space; the file may be longer than before.
        """
        ...

    def sync(self) -> None:
        """Return when all bytes written before are durable (fdatasync). Blocks."""
        ...

    def renamed_to(self, path: str) -> None:
        """Record that `Files.rename` moved this open file to `path`."""
        ...

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None if there is none (memory), or if the file is closed."""
        ...

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        ...


class FileRegion:
    """Bytes of an open file that are read only when the socket accepts them.

    It can replace a `Buffer` in a response, and has its length. It keeps the file open unless the owner of the file
    closes it. A file that is closed, or truncated below the end of the region, can no longer be sent.
    """

    __slots__ = ("file", "length", "on_failure", "position")

    def __init__(
        self, file: File, position: int, length: int, on_failure: Callable[[StorageError], None] = lambda _error: None
    ) -> None:
        """`on_failure` is called on the event loop if the file is complete but its disk does not return the bytes."""
        self.file: Final = file
        self.position: Final = position
        self.length: Final = length
        self.on_failure: Final = on_failure

    def __len__(self) -> int:
        """Length in bytes."""
        return self.length

    def load(self, start: int = 0) -> bytes:
        """Read the region from byte `start` on; fewer bytes if the file was truncated. Blocks. Raises
        `StorageError`."""
        return self.file.pread(self.length - start, self.position + start)


Part = Buffer | FileRegion
"""A part of a response."""


class Files(Protocol):
    """A file system. Paths are absolute strings with `/`. Every failure is a `StorageError` with the path."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file; with `create`, create it if it does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content. Raises `StorageError` if the file does not exist."""
        ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content, durably. After a crash the file has the old or the new content."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory with this path exists."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        ...

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents if they do not exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory to `target` atomically, replacing a file there."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its contents if it exists."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make renames, creations and removals in a directory durable. Blocks."""
        ...

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall time in milliseconds of the last write to a file, or the value set by `set_modified_ms`."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(available to this user, total) bytes of the file system that contains `path`."""
        ...

    def remote_type(self, path: str) -> str | None:
        """Return the type of the remote file system (`base/mounts`) that contains a directory, such as `nfs4`.

        None if it is a local one, or unknown. Files opened in the same file system from now on are `is_remote`. Blocks.
        Raises `StorageError` if the directory does not exist.
        """
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock file and return a function to release it. Raises `StorageError` if it is held
        elsewhere."""
        ...
