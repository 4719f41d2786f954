"""Whether the pages of a file are in memory, and how to bring them there.

Descriptors and positions enter; nothing is copied. Called by `outflow`: the first on the event loop, where a question
costs a microsecond, the second in a thread, where it may wait for a disk.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from odradek.base.ports import FileRegion

PROBE_STEP_BYTES: Final = 128 << 10
"""A page is asked for every so many bytes: what Linux reads ahead at once, and so mostly drops at once."""

READ_AHEAD_BYTES: Final = 4 << 20
"""How far behind what is brought in the disk is told to go on."""


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


def bring_in(region: FileRegion, start: int, length: int) -> bytes | None:
    """Read `length` bytes from `start` of the region into the page cache and have the disk go on behind them. Blocks.

    On a file system whose pages cannot be sent the rest of the region is returned, and nothing otherwise. Raises
    `StorageError`.
    """
    position, end = region.position + start, region.position + start + length
    descriptor = region.file.fileno()
    try:
        if descriptor is None:
            raise OSError(errno.EBADF, "closed")
        ahead = min(region.length - start, length + READ_AHEAD_BYTES)
        os.posix_fadvise(descriptor, position, ahead, os.POSIX_FADV_WILLNEED)
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
