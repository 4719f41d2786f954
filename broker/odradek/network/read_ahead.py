"""What the disk brings into memory before a reader asks for it.

An `Outflow` tells each piece of a file that it is about to send; in a thread the disk is told of what follows. One
object for each connection, which knows how far that reader is in each file. Nothing here is waited for, and nothing is
promised: a page that is not there in time is brought in by the outflow.

Invariants: only who reads on where it stopped is read ahead for; what is in memory costs no thread; memory is bounded
by `MOST_FILES` paths.

Why not the kernel alone: how far it reads ahead is a setting of the device, 128 KiB mostly, less than a partition's
share of one answer, so that disk and socket would work in turn.
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
"""Of more files all are forgotten: their next pieces then count as first ones."""


class ReadAhead:
    """Of one reader."""

    __slots__ = ("_access", "_asked", "_until")

    def __init__(self, access: FileAccess) -> None:
        """`access.read_ahead_bytes`, above 0, is how far."""
        self._access: Final = access
        self._until: Final[dict[str, int]] = {}
        """Up to where each file was read or asked for."""
        self._asked: Final[set[asyncio.Future[None]]] = set()

    def reads(self, file: File, descriptor: int, position: int, length: int) -> None:
        """So many bytes are read next: have what follows them read when less than half of it was asked for already.

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
            self._ask(descriptor, start, end + most - start)

    def _ask(self, descriptor: int, position: int, length: int) -> None:
        access = self._access
        if access.is_resident(descriptor, position, length):
            return
        asked = asyncio.ensure_future(access.run_blocking(partial(access.will_need, descriptor, position, length)))
        self._asked.add(asked)
        asked.add_done_callback(self._have_asked)

    def _have_asked(self, asked: asyncio.Future[None]) -> None:
        self._asked.discard(asked)
        if not asked.cancelled() and (error := asked.exception()) is not None:
            # The file was closed meanwhile, or the broker stops. Who needs the bytes is told what is wrong with them.
            logger.debug("nothing is read ahead: %s", error)
