"""Reads ahead of a sequential reader, so that the disk works while the socket sends.

An `Outflow` reports each piece of a file before it sends it, and a thread requests the pages that follow. There is one
object per connection, which tracks the position in each file. Nothing waits for it: the outflow reads pages that are
not resident in time.

Invariants: only a reader that continues where it stopped gets read-ahead; resident pages need no thread; memory is
bounded by `MOST_FILES` paths.

The kernel's read-ahead does not suffice: its size is a setting of the device, usually 128 KiB, less than the share of
a partition in one response, so disk and socket would work alternately.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from odradek.base.ports import File
from odradek.network.pages import FileAccess

logger = logging.getLogger(__name__)

MOST_FILES: Final = 4096
"""Above this number of files, all are forgotten; their next pieces then count as the first."""


class ReadAhead:
    """Read-ahead for one reader."""

    __slots__ = ("_access", "_asked", "_until")

    def __init__(self, access: FileAccess) -> None:
        """`access.read_ahead_bytes`, which must be above 0, is the distance."""
        self._access: Final = access
        self._until: Final[dict[str, int]] = {}
        """End of the range that was read or requested, by path."""
        self._asked: Final[set[asyncio.Future[None]]] = set()

    def reads(self, file: File, descriptor: int, position: int, length: int) -> None:
        """These bytes are read next. Request the bytes after them if less than half of the distance was requested
        already.

        Raises `OSError`.
        """
        path, end, most = file.path, position + length, self._access.read_ahead_bytes
        until = self._until.get(path)
        if until is None or not position <= until <= end + most:
            if len(self._until) >= MOST_FILES:
                self._until.clear()
            self._until[path] = end
        elif 2 * (until - end) < most:
            self._until[path] = end + most
            start = max(until, end)
            self._ask(path, descriptor, start, end + most - start)

    def _ask(self, path: str, descriptor: int, position: int, length: int) -> None:
        access = self._access
        if access.is_resident(descriptor, position, length):
            return
        work = partial(access.will_need, descriptor, position, length)
        asked = asyncio.ensure_future(access.read(path, work))
        self._asked.add(asked)
        asked.add_done_callback(self._have_asked)

    def _have_asked(self, asked: asyncio.Future[None]) -> None:
        self._asked.discard(asked)
        if not asked.cancelled() and (error := asked.exception()) is not None:
            # The file was closed meanwhile, or the broker stops. The reader gets the error when it reads.
            logger.debug("nothing is read ahead: %s", error)
