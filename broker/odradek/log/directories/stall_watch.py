"""Notices a disk that does not answer, and takes its log directory offline.

`LogManager` starts the watch with its directories and ends it last, so that a stalled disk does not hold up a shutdown
either. The watch looks at the jobs of each `DirectoryWorker` several times within `log.dir.stall.timeout.ms`. A disk
may stall while nothing is synced, so the watch also writes and syncs a small file in each directory every
`log.dir.check.interval.ms`, unless another sync was completed meanwhile.

The same small write and sync is the canary that shows that a disk is slow: as soon as it takes longer than
`log.dir.slow.ms`, the appends of the directory are written by a thread, until a canary is in time. A canary starts when
no sync was completed for five times that long, and at once after a late one.

Time in which the event loop did not run does not count: the process was paused, or the loop itself waited for a disk.
Jobs may have ended meanwhile without the loop seeing it, so the first look after such a time takes nothing offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import StorageError
from odradek.base.ports import Clock, Files
from odradek.base.tasks import TaskOwner
from odradek.log.directories.directory_worker import DirectoryWorker, DirectoryWorkers, RunningJob

logger = logging.getLogger(__name__)

CHECK_FILE: Final = "odradek.check"
"""File that is written and synced in each log directory. Kafka ignores files there that it does not know."""

CANARY_SHARE: Final = 5
"""A check starts this many times `log.dir.slow.ms` after the last sync."""
PATIENCES: Final = 2
"""Number of waits that `log.dir.slow.ms` is divided into: a loop that did not run for a long time ends only one."""
LOOKS: Final = 20
"""Number of looks at the jobs within the stall timeout."""
SHORTEST_LOOK_MS: Final = 100.0
LONGEST_LOOK_MS: Final = 1000.0


def _ignore_slow(path: str, *, is_slow: bool) -> None:
    """Write the appends of slow directories like all others."""


class StallWatch:
    """Watches the log directories of one broker."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
        *,
        workers: DirectoryWorkers,
        fail: Callable[[str, StorageError], None],
        set_slow: Callable[..., None] = _ignore_slow,
    ) -> None:
        """`fail` takes the directory with this path offline; `set_slow(path, is_slow=...)` is called for slow ones.

        Nothing runs before `start`.
        """
        self._files = files
        self._clock = clock
        self._timeout_ms = config.log_dir_stall_timeout_ms
        self._slow_ms = config.log_dir_slow_ms
        self._check_interval_ms: float = config.log_dir_check_interval_ms
        if self._slow_ms:
            self._check_interval_ms = min(self._check_interval_ms, CANARY_SHARE * self._slow_ms)
        self._set_slow = set_slow
        self._workers = workers
        self._fail = fail
        self._tasks = TaskOwner()
        self._checks = TaskOwner()

    def start(self) -> None:
        """Start to look at the jobs of all directories, those that are added later included."""
        if self._timeout_ms:
            self._tasks.spawn(self._look_for_stalls(), name="stall-watch")

    def add(self, directory: str) -> None:
        """Start to check the disk of an online directory."""
        if self._check_interval_ms:
            self._checks.spawn(self._check(self._workers.at(directory)), name=f"disk-check-{directory}")

    async def end_checks(self) -> None:
        """Start no further check; one that runs continues. Idempotent."""
        await self._checks.close()

    async def close(self) -> None:
        """Stop watching. Idempotent."""
        await self._checks.close()
        await self._tasks.close()

    # Stalls

    async def _look_for_stalls(self) -> None:
        timeout_ms, looked_ms, was_late = self._timeout_ms, self._clock.monotonic_ms(), False
        interval_ms = min(max(timeout_ms / LOOKS, SHORTEST_LOOK_MS), LONGEST_LOOK_MS)
        while True:
            await self._clock.sleep_ms(interval_ms)
            now_ms = self._clock.monotonic_ms()
            lost_ms, looked_ms = now_ms - looked_ms - 2 * interval_ms, now_ms
            # The loop may not have seen the ends of jobs yet, so the next look decides.
            was_late = lost_ms > 0 and not was_late
            for worker in self._workers:
                if lost_ms > 0:
                    worker.forgive(lost_ms)
                stalled = worker.stalled(timeout_ms) if worker.failure is None and not was_late else None
                if stalled is not None:
                    self._fail(worker.path, _stall_error(worker.path, stalled, timeout_ms))

    # Checks

    async def _check(self, worker: DirectoryWorker) -> None:
        """Write and sync a small file at each interval until the directory is offline."""
        interval_ms = self._check_interval_ms
        while worker.failure is None:
            wait_ms = interval_ms - worker.silent_ms
            if wait_ms > 0:
                await self._clock.sleep_ms(wait_ms)
                continue
            try:
                check = self._start_check(worker)
                if self._slow_ms and not await self._is_in_time(check):
                    await self._slow(worker, check)
                else:
                    await check
            except StorageError as error:
                if worker.failure is None and not error.full:
                    self._fail(worker.path, error)
                    return
                await self._clock.sleep_ms(interval_ms)

    def _start_check(self, worker: DirectoryWorker) -> asyncio.Future[None]:
        path = f"{worker.path}/{CHECK_FILE}"
        return worker.check(f"write and sync of {path}", partial(write_check, self._files, path))

    async def _slow(self, worker: DirectoryWorker, check: asyncio.Future[None]) -> None:
        """Handle a check that is late: the directory is slow until a check is in time. Raises `StorageError`."""
        began_ms = self._clock.monotonic_ms() - self._slow_ms
        logger.warning(
            "log directory %s is slow: the write and sync of %s has been running for %d ms (log.dir.slow.ms); its "
            "appends are written by a thread until the disk answers in time",
            worker.path,
            CHECK_FILE,
            self._slow_ms,
        )
        self._set_slow(worker.path, is_slow=True)
        try:
            await check
            while not await self._is_in_time(check := self._start_check(worker)):
                await check
            await check
        finally:
            self._set_slow(worker.path, is_slow=False)
        duration_ms = self._clock.monotonic_ms() - began_ms
        logger.info("log directory %s is no longer slow, after %d ms", worker.path, duration_ms)

    async def _is_in_time(self, check: asyncio.Future[None]) -> bool:
        """Whether a check ends within `log.dir.slow.ms`, or while the event loop did not run."""
        changed = asyncio.Event()
        check.add_done_callback(lambda _: changed.set())
        for _ in range(PATIENCES):
            timer = self._clock.call_later(self._slow_ms / PATIENCES, changed.set)
            await changed.wait()
            timer.cancel()
            if check.done():
                return True
            changed.clear()
        return False


def write_check(files: Files, path: str) -> None:
    """Write one byte to a file and sync it. Blocks. Raises `StorageError`.

    The byte is overwritten in place: after the first time, the file system allocates nothing.
    """
    file = files.open(path, create=True)
    try:
        file.pwritev((b"\n",), 0)
        file.sync()
    finally:
        file.close()


def _stall_error(directory: str, job: RunningJob, timeout_ms: float) -> StorageError:
    return StorageError(
        f"log directory {directory} does not answer: the {job.what} has been running for {job.age_ms / 1000:.1f} s "
        f"(log.dir.stall.timeout.ms={timeout_ms:.0f}); check the mount, and the disk in the kernel log, then restart "
        "the broker to use the directory again",
        path=directory,
    )
