"""The free space of each log directory, and whether it accepts writes.

A thread of each directory measures it every few seconds and after each roll. While space is short, a log refuses
appends before it writes anything. Reads, retention and removals continue, so that the directory recovers by itself. A
burst of writes between two measurements may still fill the disk: then the write itself fails and is undone
(`PartitionLog`).

Invariant: `refusals` contains exactly the directories whose last measurement was below their reserve.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Files
from odradek.log.directories.directory_worker import DirectoryWorkers

logger = logging.getLogger(__name__)

LARGEST_SHARE: Final = 20
"""The reserve is at most 1/20 of the file system, because a larger one would make small disks unusable."""


class DirectorySpace(NamedTuple):
    """The last measurement of one directory in bytes; `free_bytes` and `total_bytes` are -1 if it failed."""

    free_bytes: int
    total_bytes: int
    reserve_bytes: int

    @property
    def is_short(self) -> bool:
        """Whether writes are refused; never after a measurement that failed."""
        return 0 <= self.free_bytes < self.reserve_bytes


UNKNOWN: Final = DirectorySpace(-1, -1, 0)


def reserve_of(min_free_bytes: int, total_bytes: int) -> int:
    """Return the reserve under `log.dir.min.free.bytes` on a file system of this size; 0: no reserve."""
    return max(min(min_free_bytes, total_bytes // LARGEST_SHARE), 0)


class DiskSpace:
    """Free space of one broker's log directories."""

    def __init__(self, files: Files, min_free_bytes: Callable[[], int], *, workers: DirectoryWorkers) -> None:
        """`min_free_bytes` is called at each measurement, because the setting may change."""
        self._files = files
        self._min_free_bytes = min_free_bytes
        self._workers = workers
        self.by_path: dict[str, DirectorySpace] = {}
        self.refusals: dict[str, str] = {}
        """Error message of each directory that refuses writes; usually empty, so that appends check it quickly."""

    async def look(self, paths: Iterable[str]) -> None:
        """Measure directories off the loop; one that cannot be measured keeps its last result."""
        await asyncio.gather(*map(self._look_at, paths))

    async def _look_at(self, path: str) -> None:
        worker = self._workers.at(path)
        try:
            found = await worker.run(f"measurement of the free space of {path}", partial(self._files.free_bytes, path))
        except StorageError as error:
            if worker.failure is None:
                logger.warning("%s", error)
        else:
            if worker.failure is None:
                self._note(path, *found)

    def _note(self, path: str, free_bytes: int, total_bytes: int) -> None:
        space = self.by_path[path] = DirectorySpace(
            free_bytes, total_bytes, reserve_of(self._min_free_bytes(), total_bytes)
        )
        was_refused = path in self.refusals
        if space.is_short:
            self.refusals[path] = (
                f"log directory {path} has {free_bytes} bytes free, less than the reserve of {space.reserve_bytes} "
                "(log.dir.min.free.bytes): writes are refused until space is freed; shorten the retention of topics, "
                "delete records or topics, move replicas to another directory, or enlarge the disk"
            )
            if not was_refused:
                logger.error("%s", self.refusals[path])
        elif was_refused:
            del self.refusals[path]
            logger.info("log directory %s accepts writes again: %d bytes are free", path, free_bytes)

    def forget(self, path: str) -> None:
        """Drop the measurement of a directory that went offline."""
        self.by_path.pop(path, None)
        self.refusals.pop(path, None)

    def of(self, path: str) -> DirectorySpace:
        """Return the last measurement of a directory."""
        return self.by_path.get(path, UNKNOWN)

    def check(self, path: str) -> None:
        """Raise `KafkaStorageError` if the directory refuses writes."""
        refusal = self.refusals.get(path)
        if refusal is not None:
            raise KafkaStorageError(refusal)
