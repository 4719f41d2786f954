"""Planted bugs of what waits for disks: threads, stalls and reads of what is not in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.base.ports import DiskThreads
from odradek.log.directories.directory_worker import DirectoryWorker, DirectoryWorkers
from odradek.log.directories.write_queue import DirectoryQueue
from odradek.log.file_names import FileNames, OutdatedFlushError
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_list import SegmentList
from odradek.replication.leader.cold_reads import ColdReads
from odradek_testkit.simulation.directory_rules import LATE, NEEDLESS, NOTICED, SERVED
from odradek_testkit.simulation.plants.planting import Bite, Plant


def _share_one_thread(right: Any, bite: Bite) -> Any:
    """All directories of a broker share one thread."""

    def at(self: Any, directory: str) -> Any:
        is_new = directory not in {worker.path for worker in self}
        worker = right(self, directory)
        if is_new:
            turn = vars(self).setdefault("turn", asyncio.Lock())
            for lane in worker._lanes:
                lane.threads = _InTurn(lane.threads, turn, bite)
        return worker

    return at


class _InTurn:
    """`DiskThreads` whose calls wait for those of others."""

    def __init__(self, threads: DiskThreads, turn: asyncio.Lock, bite: Bite) -> None:
        self._threads = threads
        self._turn = turn
        self._bite = bite
        self.close = threads.close

    async def __call__(self, function: Callable[[], Any], /) -> Any:
        if self._turn.locked():
            self._bite()
        async with self._turn:
            return await self._threads(function)


def _wait_forever(right: Any, bite: Bite) -> Any:
    """A directory that does not answer stays online."""

    def stalled(self: Any, timeout_ms: float) -> None:
        if right(self, timeout_ms) is not None:
            bite()

    return stalled


def _count_lost_time(right: Any, bite: Bite) -> Any:
    """Time in which the event loop did not run counts for the age of jobs."""

    def forgive(self: Any, time_ms: float) -> None:
        if self.oldest is not None:
            bite()

    return forgive


def _write_late(right: Any, bite: Bite) -> Any:
    """A flush writes files by their names after its log was deleted, and perhaps created again."""

    def check(self: Any, version: int, path: str) -> None:
        try:
            right(self, version, path)
        except OutdatedFlushError:
            bite()

    return check


def _read_to_the_end(right: Any, bite: Bite) -> Any:
    """A read whose limit is not in memory continues to the end of the segment."""

    def lower_bound(self: SegmentList, segment: Segment, end: int) -> int:
        if right(self, segment, end) < segment.size:
            bite()
        return segment.size

    return lower_bound


def _look_up_once(right: Any, bite: Bite) -> Any:
    """A lookup whose result does not count, because the log has changed, is not repeated."""

    async def run(self: Any, log: Any, lookup: Any) -> None:
        await right(self, log, lookup)
        if not log.holds(lookup.segment, lookup.generation):
            bite()
            self._running[lookup.segment, lookup.offset] = lookup

    return run


def _overtake(right: Any, bite: Bite) -> Any:
    """When a slow directory is fast again, its logs write on the event loop while earlier appends still wait."""

    def set_slow(self: Any, logs: Any, *, is_slow: bool) -> None:
        right(self, logs, is_slow=is_slow)
        for log in () if self.is_in_use else logs:
            if log.write_queue is not None:
                bite()
                log.write_queue = None

    return set_slow


DISK_PLANTS: Final = (
    Plant(
        name="a stall blocks the other directory",
        seed=54,
        finds=frozenset({SERVED, NEEDLESS}),
        patches=((DirectoryWorkers, "at", _share_one_thread),),
    ),
    Plant(
        name="a stalled directory never goes offline",
        seed=0,
        finds=frozenset({NOTICED}),
        patches=((DirectoryWorker, "stalled", _wait_forever),),
    ),
    Plant(
        name="an append overtakes those of a directory that was slow",
        seed=896,
        transacts=False,
        finds=frozenset({"whole-again"}),
        patches=((DirectoryQueue, "set_slow", _overtake),),
    ),
    Plant(
        name="a late job writes into a live log",
        seed=138,
        transacts=False,
        finds=frozenset({LATE}),
        patches=((FileNames, "_check", _write_late),),
    ),
    Plant(
        name="time in which the loop did not run counts as a stall",
        seed=225,
        finds=frozenset({NEEDLESS}),
        patches=((DirectoryWorker, "forgive", _count_lost_time),),
    ),
    Plant(
        name="a cold read passes its limit",
        seed=6,
        finds=frozenset({"seen-replicated", "seen-stays"}),
        patches=((SegmentList, "_lower_bound", _read_to_the_end),),
    ),
    Plant(
        name="a lookup that a truncation made void is not repeated",
        seed=245,
        finds=frozenset({"whole-again", "everything-is-read"}),
        patches=((ColdReads, "_run", _look_up_once),),
    ),
)
