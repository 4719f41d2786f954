"""What the pure parts need of the outside: time, randomness and files, as protocols.

`base/system` has the operating system's forms, which only `app` builds; the test kit has deterministic ones.
Nothing here blocks except `File.sync` and the directory operations; the caller decides on which thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from odradek.base.errors import StorageError

Buffer = bytes | bytearray | memoryview

T = TypeVar("T")


class Workers(Protocol):
    """Other processes for work that would hold this one's interpreter: compaction, conversion of old records."""

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """The result of a module-level function; arguments, result and errors are pickled.

        Raises what the function raises, and `WorkerDiedError` when its process ended under it. Cancelling the call
        lets the function run to its end unheard.
        """
        ...


class RunBlocking(Protocol):
    """Runs a function that may wait for a disk off the event loop; the simulator's runs it at once."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Await the function's result."""
        ...


class Timer(Protocol):
    """A pending call; cancelling twice, or after it ran, does nothing."""

    def cancel(self) -> None:
        """Forget the call."""
        ...


class Clock(Protocol):
    """Time and randomness. Monotonic time orders events; wall time is for stamps that people and files see."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed point; never falls."""
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
    """An open file that is addressed by position; it has no cursor."""

    @property
    def path(self) -> str:
        """The path that it was opened by; follows a `Files.rename` made through `renamed_to`."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """At most `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """Exactly `length` bytes from `position` if they are in memory; None when they end before, or when reading them
        would have to wait for a disk."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after the other from `position`; the number of bytes written.

        Raises `StorageError` when not everything could be written; how much of it is then on disk is unknown.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut, or lengthen with zeros, to `size` bytes."""
        ...

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long, of zeros, with the room for them taken on the disk.

        A `StorageError` that says `full` when the disk has no room; the file may then be longer than it was.
        """
        ...

    def sync(self) -> None:
        """Return when every byte written before is durable (fdatasync). Blocks."""
        ...

    def renamed_to(self, path: str) -> None:
        """Note that `Files.rename` moved this open file."""
        ...

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None where there is none (memory), and when the file is closed."""
        ...

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        ...


class FileRegion:
    """Bytes of an open file that are to be sent as they are when the socket takes them.

    It stands where a `Buffer` may stand in an answer, and has its length. It keeps the file open unless its owner
    closes it; a file that is closed, or cut below the region's end, cannot be sent any more.
    """

    __slots__ = ("file", "length", "on_failure", "position")

    def __init__(
        self, file: File, position: int, length: int, on_failure: Callable[[StorageError], None] = lambda _error: None
    ) -> None:
        """`on_failure` is told, on the event loop, when the file is whole and its disk does not give the bytes."""
        self.file: Final = file
        self.position: Final = position
        self.length: Final = length
        self.on_failure: Final = on_failure

    def __len__(self) -> int:
        """Bytes that it stands for."""
        return self.length

    def load(self, start: int = 0) -> bytes:
        """The bytes from `start` of the region; fewer when the file was cut. Blocks. Raises `StorageError`."""
        return self.file.pread(self.length - start, self.position + start)


Part = Buffer | FileRegion
"""What an answer is made of."""


class Files(Protocol):
    """A file system. Paths are absolute strings with `/`. Every failure is a `StorageError` that names the path."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file, or make it when `create`."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content; `StorageError` when there is no such file."""
        ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content so that a crash leaves the old or the new one, durable on return."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name is there."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        ...

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents; existing ones are fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory over `target` in one step."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all below it; a missing one is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make renames, creations and removals in a directory durable. Blocks."""
        ...

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall time in milliseconds of the last write to a file, or what `set_modified_ms` made of it."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Make a file look as if it was written last at a wall time."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(free for this user, total) of the file system that holds `path`."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock file and return its release; `StorageError` when another process holds it."""
        ...
