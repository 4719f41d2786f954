"""The worker of a log directory: order, ages, what counts as a stall, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from odradek.base.errors import StorageError
from odradek.log.directories.directory_worker import (
    LONG,
    READ_THREADS,
    SYNC_THREADS,
    DirectoryWorker,
    DirectoryWorkers,
)
from odradek_testkit.inline_ports import StallingThreads, inline_threads, threads_that
from odradek_testkit.loop import VirtualClock, run_virtual

T = TypeVar("T")

TIMEOUT_MS = 30_000.0
DEAD = StorageError("log directory /data/1 does not answer", path="/data/1")


class Bench:
    """A worker whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.begun: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.worker = DirectoryWorker("/data/1", self.clock, threads_that(self._begin), long_threads=2)

    def _begin(self, function: Callable[[], T], /) -> Awaitable[T]:
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begun.append((function, ended))
        return ended

    async def end(self, number: int = 0) -> None:
        """End a running job, by its number in the order of starts."""
        function, ended = self.begun.pop(number)
        try:
            ended.set_result(function())
        except ZeroDivisionError as error:
            ended.set_exception(error)
        await asyncio.sleep(0)

    async def wait(self, time_ms: float) -> None:
        """Let time pass."""
        await self.clock.sleep_ms(time_ms)

    @property
    def stalled(self) -> str | None:
        """The job that shows a stall."""
        job = self.worker.stalled(TIMEOUT_MS)
        return None if job is None else job.what


def in_virtual_time(main: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    async def run() -> None:
        await main(Bench())

    def wrapped() -> None:
        run_virtual(run())

    return wrapped


@in_virtual_time
async def test_writes_run_one_at_a_time_in_order(bench: Bench) -> None:
    ran: list[int] = []
    writes = [bench.worker.write(f"write {number}", partial(ran.append, number)) for number in range(3)]
    for count in range(3):
        assert len(bench.begun) == 1
        assert len(ran) == count
        await bench.end()
    await asyncio.gather(*writes)
    assert ran == [0, 1, 2]


@in_virtual_time
async def test_syncs_run_at_the_same_time_and_start_in_order(bench: Bench) -> None:
    ran: list[int] = []
    count = SYNC_THREADS + 2
    syncs = [bench.worker.sync(f"sync {number}", partial(ran.append, number)) for number in range(count)]
    assert len(bench.begun) == SYNC_THREADS
    await bench.end(1)
    assert len(bench.begun) == SYNC_THREADS, "the next one takes the free thread"
    while bench.begun:
        await bench.end()
    await asyncio.gather(*syncs)
    assert ran == [1, 0, *range(2, count)]


@in_virtual_time
async def test_kinds_of_jobs_do_not_wait_for_each_other(bench: Bench) -> None:
    worker = bench.worker
    jobs = [
        worker.sync("sync", lambda: 1),
        worker.check("check", lambda: 2),
        worker.run("job", lambda: 3),
        *(worker.read("read", lambda: 4) for _ in range(READ_THREADS + 1)),
    ]
    assert len(bench.begun) == 3 + READ_THREADS, "the last read waits for a thread"
    while bench.begun:
        await bench.end()
    assert await asyncio.gather(*jobs) == [1, 2, 3] + [4] * (READ_THREADS + 1)


@in_virtual_time
async def test_the_age_is_that_of_the_oldest_job_that_runs(bench: Bench) -> None:
    worker = bench.worker
    assert (worker.oldest, worker.oldest_ms) == (None, 0.0)
    first, second = worker.write("write of a", lambda: None), worker.write("write of b", lambda: None)
    await bench.wait(500)
    assert worker.oldest == ("write of a", 500)
    await bench.end()
    await bench.wait(200)
    assert worker.oldest == ("write of b", 200), "the time in the queue does not count"
    await bench.end()
    assert worker.oldest_ms == 0.0
    await asyncio.gather(first, second)


@in_virtual_time
async def test_a_job_without_an_answer_of_the_disk_is_a_stall(bench: Bench) -> None:
    job = bench.worker.run("write of a checkpoint", lambda: None)
    await bench.wait(TIMEOUT_MS - 1)
    assert bench.stalled is None
    await bench.wait(1)
    assert bench.stalled == "write of a checkpoint"
    await bench.end()
    assert bench.stalled is None
    await job


@in_virtual_time
async def test_a_long_sync_is_no_stall_while_the_disk_completes_others(bench: Bench) -> None:
    long = bench.worker.sync("sync of a large segment", lambda: None)
    for _ in range(LONG):
        assert bench.stalled is None
        await bench.wait(TIMEOUT_MS - 1)
        check = bench.worker.check("check", lambda: None)
        await bench.end(-1)
        await check
    await bench.wait(LONG)
    assert bench.stalled == "sync of a large segment", "a sync never takes this long, whatever else the disk does"
    await bench.end()
    await long


async def answers(bench: Bench, time_ms: float) -> None:
    """Let time pass in which the disk completes checks."""
    await bench.wait(time_ms)
    check = bench.worker.check("check", lambda: None)
    await bench.end(-1)
    await check


@in_virtual_time
async def test_syncs_of_logs_share_the_time_of_the_disk(bench: Bench) -> None:
    """One after the other, none of them would take longer than the limit."""
    syncs = [bench.worker.sync(f"sync {number}", lambda: None) for number in range(SYNC_THREADS)]
    for _ in range((LONG - 1) * SYNC_THREADS):
        await answers(bench, TIMEOUT_MS - 1)
        assert bench.stalled is None
    while len(bench.begun) > 1:
        await bench.end()
    await answers(bench, TIMEOUT_MS - 1)
    assert bench.stalled is None
    await answers(bench, LONG + 1)
    assert bench.stalled == f"sync {SYNC_THREADS - 1}"
    await bench.end()
    await asyncio.gather(*syncs)


@in_virtual_time
async def test_syncs_that_run_at_the_same_time_without_an_answer_are_a_stall(bench: Bench) -> None:
    syncs = [bench.worker.sync(f"sync {number}", lambda: None) for number in range(SYNC_THREADS)]
    await bench.wait(TIMEOUT_MS - 1)
    assert bench.stalled is None
    await bench.wait(1)
    assert bench.stalled == "sync 0"
    while bench.begun:
        await bench.end()
    await asyncio.gather(*syncs)


@in_virtual_time
async def test_time_without_the_event_loop_is_not_shared(bench: Bench) -> None:
    syncs = [bench.worker.sync(f"sync {number}", lambda: None) for number in range(2)]
    await bench.wait(5 * LONG * TIMEOUT_MS)
    bench.worker.forgive(5 * LONG * TIMEOUT_MS)
    for _ in range(2 * LONG - 1):
        await answers(bench, TIMEOUT_MS)
        assert bench.stalled is None
    await answers(bench, TIMEOUT_MS)
    assert bench.stalled == "sync 0"
    while bench.begun:
        await bench.end()
    await asyncio.gather(*syncs)


@in_virtual_time
async def test_completed_reads_prove_nothing(bench: Bench) -> None:
    """The page cache answers reads of a dead disk."""
    sync = bench.worker.sync("sync", lambda: None)
    await bench.wait(TIMEOUT_MS)
    read = bench.worker.read("read", lambda: None)
    await bench.end(-1)
    await read
    assert bench.stalled == "sync"
    await bench.end()
    await sync


@in_virtual_time
async def test_the_patience_of_a_job(bench: Bench) -> None:
    endless = bench.worker.run("removal", lambda: None, patience=None)
    patient = bench.worker.run("opening", lambda: None, patience=3)
    await bench.wait(3 * TIMEOUT_MS - 1)
    assert bench.stalled is None
    await bench.wait(1)
    assert bench.stalled == "opening"
    await bench.end(1)
    assert bench.stalled is None, "the other job never counts"
    await bench.end()
    await asyncio.gather(endless, patient)


@in_virtual_time
async def test_time_without_the_event_loop_does_not_count(bench: Bench) -> None:
    job = bench.worker.run("job", lambda: None)
    await bench.wait(2 * TIMEOUT_MS)
    bench.worker.forgive(1.5 * TIMEOUT_MS)
    assert bench.worker.oldest_ms == TIMEOUT_MS / 2
    assert bench.stalled is None
    await bench.end()
    await job


@in_virtual_time
async def test_a_job_raises_what_its_function_raises(bench: Bench) -> None:
    job = bench.worker.run("job", lambda: 1 // 0)
    await bench.end()
    with pytest.raises(ZeroDivisionError):
        await job


@in_virtual_time
async def test_a_cancelled_caller_leaves_the_job_running_but_not_waiting(bench: Bench) -> None:
    ran: list[str] = []
    running = bench.worker.write("running", partial(ran.append, "running"))
    waiting = bench.worker.write("waiting", partial(ran.append, "waiting"))
    last = bench.worker.write("last", partial(ran.append, "last"))
    running.cancel()
    waiting.cancel()
    settled = asyncio.ensure_future(bench.worker.settle())
    await asyncio.sleep(0)
    assert not settled.done(), "a thread still works"
    await bench.end()
    await bench.end()
    await settled
    await last
    assert ran == ["running", "last"]


@in_virtual_time
async def test_a_retired_worker_fails_all_jobs_and_starts_none(bench: Bench) -> None:
    idle: list[bool] = []
    running, waiting = bench.worker.write("running", lambda: 1), bench.worker.write("waiting", lambda: 2)
    bench.worker.retire(DEAD, lambda: idle.append(True))
    await bench.worker.settle()
    for job in (running, waiting, bench.worker.run("late", lambda: 3)):
        with pytest.raises(StorageError, match="does not answer") as raised:
            await job
        assert raised.value.path == "/data/1"
    assert not idle, "a thread still uses the directory"
    assert len(bench.begun) == 1
    await bench.end()
    assert idle == [True]
    assert not bench.begun, "the waiting job does not start"


@in_virtual_time
async def test_an_idle_worker_retires_at_once(bench: Bench) -> None:
    idle: list[bool] = []
    bench.worker.retire(DEAD, lambda: idle.append(True))
    assert idle == [True]
    await bench.worker.settle()


@in_virtual_time
async def test_a_closed_worker_refuses_jobs(bench: Bench) -> None:
    bench.worker.close()
    with pytest.raises(RuntimeError, match="stops"):
        await bench.worker.read("read", lambda: None)


def test_files_are_assigned_to_the_worker_of_their_directory() -> None:
    async def main() -> None:
        workers = DirectoryWorkers(VirtualClock(), inline_threads, long_threads=1)
        assert workers.at("/data/1") is workers.at("/data/1")
        assert workers.at("/data/2") is workers.holding("/data/2/topic-0/00000000000000000000.log")
        assert [worker.path for worker in workers] == ["/data/1", "/data/2"]
        with pytest.raises(StorageError, match="not in a log directory"):
            workers.holding("/elsewhere/topic-0/00000000000000000000.log")
        workers.close()

    run_virtual(main())


def test_a_stalled_directory_does_not_delay_another_one() -> None:
    async def main() -> None:
        disks = StallingThreads()
        workers = DirectoryWorkers(VirtualClock(), disks, long_threads=1)
        disks.stall("/data/1")
        stuck = workers.at("/data/1").sync("sync", lambda: 1)
        assert await workers.at("/data/2").sync("sync", lambda: 2) == 2
        assert disks.waiting("/data/1") == 1
        disks.resume("/data/1")
        assert await stuck == 1

    run_virtual(main())
