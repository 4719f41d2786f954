"""The free bytes of each log directory, and whether it still takes writes.

Measurements enter from a thread every few seconds and with every roll; a refusal in one sentence leaves, which a log
raises before it writes anything. Reads, retention and removals go on, so that the directory heals by itself. What a
burst writes between two looks may still fill the disk: then the write itself fails and is undone (`PartitionLog`).

Invariant: `refusals` holds exactly the directories whose last measurement was below their reserve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Files, RunBlocking

logger = logging.getLogger(__name__)

LARGEST_SHARE: Final = 20
"""The reserve is at most one of this many parts of the file system, so that small disks are of use."""


class Room(NamedTuple):
    """One directory's last measurement, in bytes; `free_bytes` and `total_bytes` are -1 when it failed."""

    free_bytes: int
    total_bytes: int
    reserve_bytes: int

    @property
    def is_short(self) -> bool:
        """Whether writes are to be refused; never on a measurement that failed."""
        return 0 <= self.free_bytes < self.reserve_bytes


UNKNOWN: Final = Room(-1, -1, 0)


def reserve_of(min_free_bytes: int, total_bytes: int) -> int:
    """What `log.dir.min.free.bytes` comes to on a file system of this size; 0: nothing is kept free."""
    return max(min(min_free_bytes, total_bytes // LARGEST_SHARE), 0)


class DiskSpace:
    """Free space of the directories of one broker."""

    def __init__(self, files: Files, min_free_bytes: Callable[[], int], *, run_blocking: RunBlocking) -> None:
        """`min_free_bytes` is asked at each look, since the setting may change."""
        self._files = files
        self._min_free_bytes = min_free_bytes
        self._run_blocking = run_blocking
        self.rooms: dict[str, Room] = {}
        self.refusals: dict[str, str] = {}
        """Sentence of each directory that refuses writes; mostly empty, so that an append asks in no time."""

    async def look(self, paths: Iterable[str]) -> None:
        """Measure directories off the loop; one that cannot be measured keeps its last answer."""
        measured = await self._run_blocking(partial(measure, self._files, tuple(paths)))
        for path, found in measured.items():
            self._note(path, *found)

    def _note(self, path: str, free_bytes: int, total_bytes: int) -> None:
        room = self.rooms[path] = Room(free_bytes, total_bytes, reserve_of(self._min_free_bytes(), total_bytes))
        was_refused = path in self.refusals
        if room.is_short:
            self.refusals[path] = (
                f"log directory {path} has {free_bytes} bytes free and {room.reserve_bytes} are kept "
                "(log.dir.min.free.bytes): writes are refused until space is freed; shorten the retention of topics, "
                "delete records or topics, move replicas to another directory, or enlarge the disk"
            )
            if not was_refused:
                logger.error("%s", self.refusals[path])
        elif was_refused:
            del self.refusals[path]
            logger.info("log directory %s takes writes again: %d bytes are free", path, free_bytes)

    def forget(self, path: str) -> None:
        """The directory is offline."""
        self.rooms.pop(path, None)
        self.refusals.pop(path, None)

    def room(self, path: str) -> Room:
        """A directory's last measurement."""
        return self.rooms.get(path, UNKNOWN)

    def check(self, path: str) -> None:
        """Raise `KafkaStorageError` when the directory refuses writes."""
        refusal = self.refusals.get(path)
        if refusal is not None:
            raise KafkaStorageError(refusal)


def measure(files: Files, paths: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """(free, total) bytes of the file system of each path. Blocks; a path that fails is left out and told."""
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        try:
            found[path] = files.free_bytes(path)
        except StorageError as error:
            logger.warning("%s", error)
    return found
