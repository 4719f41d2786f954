"""The threads of a simulated machine's log directories: jobs take virtual time while a directory is slow or stalled.

Each directory is on its own disk. `World` gives `DirectoryDisks.threads` to the broker (`System.disk_threads`),
`faults` slows and stalls directories, and `directory_rules` reads their state.

Fault model. A job of a healthy directory runs at once, except that flushes take virtual time in a world with slow
flushes, and reads of records do in a world in which they may not be in memory. A job of a slow directory takes virtual
time. No job of a stalled directory ends before the directory answers again. The job takes effect at the start or at the
end of this time, so it is either done without its caller's knowledge, or late. A job whose process has ended never
takes effect, because the kernel ends its threads. What the event loop does with files never waits, as if it only wrote
to the page cache.

Invariant: a job that takes effect late changes no file of a log that did not exist when the job was submitted. Such
changes are collected in `DirectoryDisks.late_changes`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from posixpath import dirname
from typing import Final, TypeVar

from odradek.base.ports import DiskThreads
from odradek.log.directories.directory_worker import READ_THREADS
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import threads_that
from odradek_testkit.logs import is_flush

T = TypeVar("T")

SYNC_MS: Final = (0.2, 3.0, 3.0, 20.0, 150.0)
"""Durations of slow flushes of a healthy directory, each within 50 %."""
READ_MS: Final = (0.0, 0.3, 0.3, 8.0, 60.0)
"""Durations of reads of a healthy directory if not all bytes are in memory, each within 50 %."""
LONG_READ_MS: Final = (0.3, 60.0, 600.0, 2_500.0)
"""The same for an overloaded disk. Replicas may leave the ISR."""


class DirectoryDisk:
    """The disk of one log directory."""

    __slots__ = ("_answers", "_slow", "_stalls", "path")

    def __init__(self, path: str) -> None:
        """A disk that answers at once."""
        self.path: Final = path
        self._slow: Final[list[int]] = []
        self._stalls = 0
        self._answers: Final = asyncio.Event()
        self._answers.set()

    @property
    def is_stalled(self) -> bool:
        """Whether no job ends."""
        return self._stalls > 0

    @property
    def job_ms(self) -> int:
        """The typical duration of a job in virtual milliseconds; 0 if jobs end at once."""
        return max(self._slow, default=0)

    @property
    def is_healthy(self) -> bool:
        """Whether the disk is neither slow nor stalled."""
        return not (self._stalls or self._slow)

    def slow(self, job_ms: int) -> None:
        """Let jobs take about `job_ms`, until `quicken` is called with the same number. The slowest call applies."""
        self._slow.append(job_ms)

    def quicken(self, job_ms: int) -> None:
        """Revert a call of `slow`."""
        self._slow.remove(job_ms)

    def stall(self) -> None:
        """Let no job end until `resume` was called as often as `stall`."""
        self._stalls += 1
        self._answers.clear()

    def resume(self) -> None:
        """Revert a call of `stall`. If no other call stalls the directory, the waiting jobs end in order."""
        self._stalls -= 1
        if not self._stalls:
            self._answers.set()

    async def answer(self) -> None:
        """Wait until the disk is not stalled."""
        while self._stalls:
            await self._answers.wait()


class DirectoryDisks:
    """The disks of one machine, and the threads that use them."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        flush_chance: random.Random | None,
        read_chance: random.Random | None = None,
        fault_chance: random.Random,
        process: Callable[[], object],
        files: Callable[[], MemoryFiles],
        logs: Callable[[], Mapping[str, object]],
    ) -> None:
        """`flush_chance` chooses the durations of flushes of healthy directories; None: flushes are immediate.

        `read_chance` does the same for reads of records. `fault_chance` chooses the rest, so that faults do not change
        these durations. `process` returns what identifies the process that runs on the machine; `logs` its current
        logs by their directories.
        """
        self.by_path: Final = {path: DirectoryDisk(path) for path in paths}
        self.read_ms: Sequence[float] = READ_MS
        """Typical durations of reads of records, if these take time."""
        self.late_changes: Final[list[str]] = []
        """Files of a log changed by a job that had started before the log was created."""
        self._flush_chance: Final = flush_chance
        self._read_chance: Final = read_chance
        self._fault_chance: Final = fault_chance
        self._process: Final = process
        self._files: Final = files
        self._logs: Final = logs

    def threads(self, directory: str, count: int) -> DiskThreads:
        """Return the threads of a directory. Usable as `System.disk_threads`. A job of no directory never waits."""
        disk = self.by_path.get(directory, DirectoryDisk(directory))
        time = self._read_time if count == READ_THREADS else self._flush_time

        def run(function: Callable[[], T], /) -> Awaitable[T]:
            return self._run(disk, function, *time(function))

        return threads_that(run)(directory, count)

    async def _run(self, disk: DirectoryDisk, function: Callable[[], T], delay_s: float, is_late: bool) -> T:
        """`delay_s`: what the job takes if the directory is healthy, and `is_late`: whether it then takes effect at
        its end."""
        if not disk.is_healthy:
            chance = self._fault_chance
            delay_s += disk.job_ms * (0.5 + chance.random()) / 1000
            is_late = chance.random() < 0.5
        elif not delay_s:
            return function()
        if not is_late:
            result = function()
            await self._pass(disk, delay_s)
            return result
        known = self._logs()
        await self._pass(disk, delay_s)
        return self._late(function, known)

    def _flush_time(self, function: Callable[[], object]) -> tuple[float, bool]:
        """Return the duration of a flush in seconds, and whether it takes effect at its end."""
        chance = self._flush_chance
        return (0.0, False) if chance is None or not is_flush(function) else _time(chance, SYNC_MS)

    def _read_time(self, function: Callable[[], object]) -> tuple[float, bool]:
        chance = self._read_chance
        return (0.0, False) if chance is None else _time(chance, self.read_ms)

    async def _pass(self, disk: DirectoryDisk, delay_s: float) -> None:
        """Wait until a job ends: never, if its process ends before."""
        process = self._process()
        if delay_s:
            await asyncio.sleep(delay_s)
        await disk.answer()
        if self._process() is not process:
            await asyncio.get_running_loop().create_future()

    def _late(self, function: Callable[[], T], known: Mapping[str, object]) -> T:
        files = self._files()
        files.on_change = partial(self._changed, known, self._logs())
        try:
            return function()
        finally:
            files.on_change = None

    def _changed(self, known: Mapping[str, object], logs: Mapping[str, object], operation: str, path: str) -> None:
        if operation.startswith("sync"):
            return
        directory = dirname(path)
        log = logs.get(directory)
        if log is not None and known.get(directory) is not log:
            self.late_changes.append(f"{operation} {path}, whose log is newer than the job")


def _time(chance: random.Random, typical_ms: Sequence[float]) -> tuple[float, bool]:
    delay_s = chance.choice(typical_ms) * (0.5 + chance.random()) / 1000
    return delay_s, chance.random() < 0.5
