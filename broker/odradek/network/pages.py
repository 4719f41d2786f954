"""Whether the pages of a file are in memory, and how to bring them there.

Descriptors and positions enter; nothing is copied. Called by `outflow` and `read_ahead`: the question on the event
loop, where it costs a microsecond, the others in a thread, where they may wait for a disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.base.ports import FileRegion, RunBlocking

PROBE_STEP_BYTES: Final = 128 << 10
"""A page is asked for every so many bytes: what Linux reads ahead at once, and so mostly drops at once."""


def is_resident(descriptor: int, position: int, length: int) -> bool:
    """Whether reading `length` bytes from `position` will hardly wait for a disk, by a sample that has both ends.

    The end of the file counts as resident, and so does everything on file systems that cannot tell. Raises `OSError`.
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
    """Have the disk begin to read, and do not wait until it has. May block nevertheless, when much is under way.

    Raises `OSError`.
    """
    os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)


def bring_in(region: FileRegion, start: int, length: int) -> bytes | None:
    """Read `length` bytes from `start` of the region into the page cache. Blocks.

    On a file system whose pages cannot be sent the rest of the region is returned, and nothing otherwise. Raises
    `StorageError`.
    """
    position, end = region.position + start, region.position + start + length
    descriptor = region.file.fileno()
    try:
        if descriptor is None:
            raise OSError(errno.EBADF, "closed")
        will_need(descriptor, position, length)
        # Sent to nowhere, pages are waited for and not copied.
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while position < end and (count := os.sendfile(nowhere, descriptor, position, end - position)):
                position += count
        finally:
            os.close(nowhere)
    except OSError:
        # A plain read works wherever one can, and says what is wrong where none does.
        return region.load(start)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """How files are read for who sends them.

    `read_ahead_bytes`: how far ahead of a reader in order, 0 for not at all. `is_resident(descriptor, position,
    length)`: without waiting for a disk. `will_need` has the same arguments.
    """

    run_blocking: RunBlocking = asyncio.to_thread
    read_ahead_bytes: int = 8 << 20
    is_resident: Callable[[int, int, int], bool] = is_resident
    will_need: Callable[[int, int, int], None] = will_need
