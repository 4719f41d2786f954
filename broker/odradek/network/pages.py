"""Checks whether pages of a file are in the page cache, and reads them into it.

Nothing is copied. `outflow` and `read_ahead` use it: they call `is_resident` on the event loop, where it costs a
microsecond, and the others in a thread, because they may wait for a disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from odradek.base.ports import FileRegion

T = TypeVar("T")

PROBE_STEP_BYTES: Final = 128 << 10
"""Distance between requested pages: what Linux reads ahead at a time, and usually discards together."""


def is_resident(descriptor: int, position: int, length: int) -> bool:
    """Whether reading `length` bytes from `position` will hardly wait for a disk; checks a sample that includes both
    ends.

    The end of the file counts as resident, and so does everything on a file system that cannot tell. Raises `OSError`.
    """
    byte = (bytearray(1),)
    last = position + length - 1
    try:
        for at in range(position, last, PROBE_STEP_BYTES):
            os.preadv(descriptor, byte, at, os.RWF_NOWAIT)
        os.preadv(descriptor, byte, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def will_need(descriptor: int, position: int, length: int) -> None:
    """Request that the disk start reading, without waiting for it. May block if much is being read already.

    Raises `OSError`.
    """
    os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)


def bring_in(region: FileRegion, start: int, length: int) -> bytes | None:
    """Read `length` bytes from `start` of the region into the page cache. Blocks.

    Returns the rest of the region on a file system without sendfile, and None otherwise. Raises `StorageError`.
    """
    position, end = region.position + start, region.position + start + length
    descriptor = region.file.fileno()
    try:
        if descriptor is None:
            raise OSError(errno.EBADF, "closed")
        will_need(descriptor, position, length)
        # Sending pages to /dev/null waits for them without a copy.
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while position < end and (count := os.sendfile(nowhere, descriptor, position, end - position)):
                position += count
        finally:
            os.close(nowhere)
    except OSError:
        # A plain read works on every file system, and reports what is wrong with the file.
        return region.load(start)
    return None


class ReadFile(Protocol):
    """Runs a function that reads a file and may wait for its disk, outside the event loop."""

    def __call__(self, path: str, function: Callable[[], T], /) -> Awaitable[T]:
        """Return the function's result. Raises `StorageError` if the file's directory is offline."""
        ...


def _read_in_a_thread(path: str, function: Callable[[], T], /) -> Awaitable[T]:
    return asyncio.to_thread(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """How files are read for sending.

    `read(path, function)` runs a function that may wait for the disk of this file outside the event loop.
    `read_ahead_bytes`: how far to read ahead of a sequential reader, 0 to disable it. `is_resident(descriptor,
    position, length)` must not wait for a disk. `will_need` has the same arguments.
    """

    read: ReadFile = _read_in_a_thread
    read_ahead_bytes: int = 8 << 20
    is_resident: Callable[[int, int, int], bool] = is_resident
    will_need: Callable[[int, int, int], None] = will_need
