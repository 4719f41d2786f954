"""The worker of each log directory: runs the blocking calls on that directory, and shows whether its disk answers.

`LogManager` owns the workers. Whatever may wait for a disk runs on the worker of that disk's directory, so a stalled
disk occupies only its own threads. `log/directories/stall_watch` takes a directory offline whose worker is stalled.

A job that takes long is no proof of a stalled disk: a sync of 1 GiB takes 50 s on a disk with 20 MB/s. A disk that
completes other syncs meanwhile answers. Completed reads prove nothing, because the page cache answers them. Each flush
of a log has something new to sync, so what was written during a stall cannot be synced before its end.

A job waits here, not in the queue of the threads, until a thread is free: so its age is the time that it has run.

Invariants: jobs of the same kind start in order; after `retire` no waiting job starts, all callers get an error, and
the results of jobs that still run are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from posixpath import dirname
from typing import Any, Final, NamedTuple, TypeVar

from odradek.base.errors import StorageError
from odradek.base.ports import Clock, DiskThreads, DiskThreadsMaker

T = TypeVar("T")

SYNC_THREADS: Final = 8
"""Maximum number of threads of one directory that sync logs.

The journal of a file system commits the syncs that arrive during a commit together. On ext4 with a fast virtual disk, 8
threads reach two to four times the syncs per second of one thread, and 16 at most a quarter more.
"""

READ_THREADS: Final = 4
"""Maximum number of threads of one directory that read records for clients and followers."""

SHORT_THREADS: Final = 2
"""Maximum number of threads of one directory for small jobs, such as checkpoints."""

LONG: Final = 10
"""A job may take this many times the stall timeout if the disk answers other syncs meanwhile, or if it does much."""


class RunningJob(NamedTuple):
    """A job that is running: what it does, such as "sync of /data/1/topic-0", and its age in milliseconds."""

    what: str
    age_ms: float


class _Job:
    """A job that was submitted and has not ended."""

    __slots__ = ("began_ms", "function", "future", "is_sync", "patience", "share_ms", "what")

    def __init__(
        self,
        what: str,
        function: Callable[[], Any],
        future: asyncio.Future[Any],
        *,
        is_sync: bool = False,
        patience: int | None = 1,
    ) -> None:
        self.what: Final = what
        self.function: Final = function
        self.future: Final = future
        self.is_sync: Final = is_sync
        self.patience: Final = patience
        self.began_ms = 0.0
        self.share_ms = 0.0
        """For a sync of a log: its share of the disk's time."""


class _Lane:
    """The jobs of one kind: their threads, and the jobs that wait for a free one."""

    __slots__ = ("count", "running", "threads", "waiting")

    def __init__(self, threads: DiskThreads, count: int) -> None:
        self.threads: Final = threads
        self.count: Final = count
        self.running: Final[dict[_Job, None]] = {}
        self.waiting: Final[deque[_Job]] = deque()


class DirectoryWorker:
    """The threads and jobs of one log directory. All methods but `retire` are called on the event loop."""

    def __init__(self, path: str, clock: Clock, make_threads: DiskThreadsMaker, *, long_threads: int) -> None:
        """Starts no thread. `long_threads`: number of threads for jobs whose work is not bounded."""
        self.path: Final = path
        self.failure: StorageError | None = None
        """Why the directory is offline."""
        self._clock: Final = clock
        self._syncs: Final = _Lane(make_threads(path, SYNC_THREADS), SYNC_THREADS)
        self._checks: Final = _Lane(make_threads(path, 1), 1)
        self._writes: Final = _Lane(make_threads(path, 1), 1)
        self._reads: Final = _Lane(make_threads(path, READ_THREADS), READ_THREADS)
        self._short: Final = _Lane(make_threads(path, SHORT_THREADS), SHORT_THREADS)
        self._long: Final = _Lane(make_threads(path, long_threads), long_threads)
        self._lanes: Final = (self._syncs, self._checks, self._writes, self._reads, self._short, self._long)
        self._answered_ms = clock.monotonic_ms()
        """When the disk completed the last sync."""
        self._shared_ms = self._answered_ms
        """Until when the time is shared among the syncs of logs."""
        self._when_idle: Callable[[], None] | None = None
        self._idle: Final = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    # Jobs

    def sync(self, what: str, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a sync of a log, at the same time as others. Its end proves that the disk answers."""
        return self._submit(self._syncs, _Job(what, function, self._future(), is_sync=True))

    def check(self, what: str, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a small sync on its own thread. Its end proves that the disk answers."""
        return self._submit(self._checks, _Job(what, function, self._future(), is_sync=True))

    def write(self, what: str, function: Callable[[], T]) -> asyncio.Future[T]:
        """Write records after all earlier writes, because the directory is slow."""
        return self._submit(self._writes, _Job(what, function, self._future()))

    def read(self, what: str, function: Callable[[], T]) -> asyncio.Future[T]:
        """Read records for a client or a follower."""
        return self._submit(self._reads, _Job(what, function, self._future()))

    def run(self, what: str, function: Callable[[], T], *, patience: int | None = 1) -> asyncio.Future[T]:
        """Run any other job.

        `patience`: the number of stall timeouts after which the job counts as stalled if the disk completed no sync
        meanwhile; None: never, because the amount of work is not bounded. Such jobs have their own threads, so that
        the removal of a topic does not delay a checkpoint.
        """
        lane = self._long if patience is None else self._short
        return self._submit(lane, _Job(what, function, self._future(), patience=patience))

    def _future(self) -> asyncio.Future[Any]:
        """Return the future of a job. It fails with the job's error, or with `StorageError` once retired.

        If the caller cancels it, a job that runs continues, and its result is dropped.
        """
        self._loop = loop = asyncio.get_running_loop()
        return loop.create_future()

    def _submit(self, lane: _Lane, job: _Job) -> asyncio.Future[Any]:
        if self.failure is not None:
            job.future.set_exception(_copy(self.failure))
        elif self._is_closed:
            job.future.set_exception(RuntimeError("the broker stops"))
        elif len(lane.running) < lane.count:
            self._start(lane, job)
        else:
            lane.waiting.append(job)
        return job.future

    def _start(self, lane: _Lane, job: _Job) -> None:
        job.began_ms = self._clock.monotonic_ms()
        try:
            running = asyncio.ensure_future(lane.threads(job.function))
        except RuntimeError as error:
            job.future.set_exception(error)  # the system refuses another thread
            return
        if lane is self._syncs:
            self._share_time()
        lane.running[job] = None
        self._idle.clear()
        running.add_done_callback(partial(self._ended, lane, job))

    def _ended(self, lane: _Lane, job: _Job, running: asyncio.Future[Any]) -> None:
        if lane is self._syncs:
            self._share_time()
        del lane.running[job]
        if job.is_sync:
            self._answered_ms = self._clock.monotonic_ms()
        _copy_result(running, job.future)
        while self.failure is None and lane.waiting and len(lane.running) < lane.count:
            following = lane.waiting.popleft()
            if not following.future.cancelled():
                self._start(lane, following)
        if not any(each.running for each in self._lanes):
            self._became_idle()

    # Stalls

    def _share_time(self) -> None:
        """Divide the time since the last call among the syncs of logs that run."""
        now_ms, running = self._clock.monotonic_ms(), self._syncs.running
        if running:
            share_ms = (now_ms - self._shared_ms) / len(running)
            for job in running:
                job.share_ms += share_ms
        self._shared_ms = now_ms

    def _running(self) -> Iterator[_Job]:
        return chain.from_iterable(lane.running for lane in self._lanes)

    @property
    def oldest(self) -> RunningJob | None:
        """The job that has been running for the longest time; None if none runs."""
        job = min(self._running(), key=lambda each: each.began_ms, default=None)
        return None if job is None else RunningJob(job.what, self._clock.monotonic_ms() - job.began_ms)

    @property
    def oldest_ms(self) -> float:
        """Age of the oldest running job in milliseconds; 0 if none runs."""
        oldest = self.oldest
        return 0.0 if oldest is None else oldest.age_ms

    @property
    def silent_ms(self) -> float:
        """Milliseconds since the disk completed the last sync."""
        return self._clock.monotonic_ms() - self._answered_ms

    def stalled(self, timeout_ms: float) -> RunningJob | None:
        """Return the oldest job that shows that the disk does not answer; None if it may answer.

        That is a job that has run for the timeout while no sync was completed, or a sync that has used the disk for
        `LONG` timeouts, whatever else was completed. Syncs that run at the same time share the time of the disk.
        """
        self._share_time()
        now_ms = self._clock.monotonic_ms()
        silent_ms = self.silent_ms
        for job in sorted(self._running(), key=lambda each: each.began_ms):
            if job.patience is None:
                continue
            age_ms = now_ms - job.began_ms
            is_silent = min(age_ms, silent_ms) >= job.patience * timeout_ms
            used_ms = job.share_ms if job in self._syncs.running else age_ms
            if is_silent or (job.is_sync and used_ms >= LONG * timeout_ms):
                return RunningJob(job.what, age_ms)
        return None

    def forgive(self, time_ms: float) -> None:
        """Do not count the last `time_ms` milliseconds: the event loop did not run, so it saw no job end."""
        self._answered_ms += time_ms
        self._shared_ms = min(self._shared_ms + time_ms, self._clock.monotonic_ms())
        for job in self._running():
            job.began_ms += time_ms

    # End

    def retire(self, error: StorageError, when_idle: Callable[[], None]) -> None:
        """Fail all jobs, and refuse further ones, because the directory is offline. May be called on any thread.

        `when_idle` is called as soon as no thread uses the directory any more: now, later, or never.
        """
        self.failure = error
        self._when_idle = when_idle
        if self._loop is None or self._idle.is_set():
            self._became_idle()
        elif _running_loop() is self._loop:
            self._fail_jobs(error)
        else:
            self._loop.call_soon_threadsafe(self._fail_jobs, error)

    def _fail_jobs(self, error: StorageError) -> None:
        for job in self._running():
            _fail(job, error)
        for lane in self._lanes:
            while lane.waiting:
                _fail(lane.waiting.popleft(), error)
        self._idle.set()

    def _became_idle(self) -> None:
        self._idle.set()
        when_idle, self._when_idle = self._when_idle, None
        if when_idle is not None:
            when_idle()

    async def settle(self) -> None:
        """Wait until no job is left, or until the directory is offline."""
        await self._idle.wait()

    def close(self) -> None:
        """End the threads after the submitted jobs. Does not wait for them. Idempotent."""
        self._is_closed = True
        for lane in self._lanes:
            lane.threads.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread; None if it has none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _copy_result(running: asyncio.Future[Any], future: asyncio.Future[Any]) -> None:
    """Pass the result or error of a job to its caller, who may not wait any more."""
    if running.cancelled():
        future.cancel()
        return
    error = running.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(running.result())


def _fail(job: _Job, error: StorageError) -> None:
    if not job.future.done():
        job.future.set_exception(_copy(error))


def _copy(error: StorageError) -> StorageError:
    """Return an equal error: each caller that raises an error adds its stack to it."""
    return StorageError(str(error), path=error.path)


class DirectoryWorkers:
    """The workers of all log directories of a broker."""

    def __init__(self, clock: Clock, make_threads: DiskThreadsMaker, *, long_threads: int) -> None:
        """`long_threads`: number of threads of each directory for jobs whose work is not bounded."""
        self._clock: Final = clock
        self._make_threads: Final = make_threads
        self._long_threads: Final = long_threads
        self._by_path: Final[dict[str, DirectoryWorker]] = {}

    def at(self, directory: str) -> DirectoryWorker:
        """Return the worker of a log directory; creates it at the first call."""
        worker = self._by_path.get(directory)
        if worker is None:
            worker = self._by_path[directory] = DirectoryWorker(
                directory, self._clock, self._make_threads, long_threads=self._long_threads
            )
        return worker

    def holding(self, path: str) -> DirectoryWorker:
        """Return the worker of the log directory that contains a file of a log.

        Raises `StorageError` if the broker does not use such a directory.
        """
        worker = self._by_path.get(dirname(dirname(path)))
        if worker is None:
            raise StorageError(f"{path} is not in a log directory of this broker", path=path)
        return worker

    def __iter__(self) -> Iterator[DirectoryWorker]:
        """Iterate over the workers of all directories."""
        return iter(tuple(self._by_path.values()))

    async def settle(self) -> None:
        """Wait until no job is left, except in directories that are offline."""
        for worker in self:
            await worker.settle()

    def close(self) -> None:
        """End all threads after the submitted jobs. Does not wait for them. Idempotent."""
        for worker in self:
            worker.close()
