"""Worker processes: results, errors, deaths, idle timeout, and that no process outlives its owner."""

from __future__ import annotations

import asyncio
import math
import operator
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from odradek.base.errors import StorageError, WorkerDiedError
from odradek.base.system_ports import SystemFiles
from odradek.base.workers import ProcessWorkers
from odradek.testing.waiting import wait_until


@pytest.fixture
async def workers() -> AsyncIterator[ProcessWorkers]:
    workers = ProcessWorkers(2)
    yield workers
    await workers.close()
    assert workers.running == 0


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what=what)


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_function_runs_in_another_process(workers: ProcessWorkers) -> None:
    assert await workers.run(operator.mul, 6, 7) == 42
    assert await workers.run(os.getpid) != os.getpid()


async def test_large_arguments_and_results_pass(workers: ProcessWorkers) -> None:
    data = bytes(5 << 20)
    assert await workers.run(operator.add, data, b"1") == data + b"1"


async def test_a_process_is_used_again(workers: ProcessWorkers) -> None:
    first = await workers.run(os.getpid)
    assert await workers.run(os.getpid) == first
    assert workers.running == 1


async def test_the_number_of_processes_can_be_raised() -> None:
    workers = ProcessWorkers(1)
    try:
        workers.grow(3)
        workers.grow(2)
        processes = await asyncio.gather(*(workers.run(os.getpid) for _ in range(3)))
        assert len(set(processes)) == workers.running == 3
    finally:
        await workers.close()


async def test_at_most_so_many_work_at_once(workers: ProcessWorkers) -> None:
    processes = await asyncio.gather(*(workers.run(os.getpid) for _ in range(6)))
    assert len(set(processes)) <= 2
    assert workers.running <= 2


async def test_errors_come_back_as_they_were_raised(workers: ProcessWorkers) -> None:
    with pytest.raises(ZeroDivisionError):
        await workers.run(operator.truediv, 1, 0)
    with pytest.raises(ValueError, match="math domain error") as caught:
        await workers.run(math.sqrt, -1)
    assert any("Traceback" in note for note in caught.value.__notes__)
    assert workers.deaths == 0


async def test_an_error_of_ours_keeps_what_it_knows(workers: ProcessWorkers) -> None:
    with pytest.raises(StorageError) as caught:
        await workers.run(SystemFiles().read, "/nowhere/at/all")
    assert caught.value.missing
    assert caught.value.path == "/nowhere/at/all"


async def test_what_can_not_be_pickled_there_is_an_error_here(workers: ProcessWorkers) -> None:
    with pytest.raises(Exception, match="pickle"):
        await workers.run(eval, "lambda: 0")
    assert await workers.run(operator.add, 1, 1) == 2


async def test_a_dead_process_is_reported_counted_and_replaced(workers: ProcessWorkers) -> None:
    first = await workers.run(os.getpid)
    with pytest.raises(WorkerDiedError):
        await workers.run(os._exit, 3)
    assert workers.deaths == 1
    assert workers.running == 0
    assert await workers.run(os.getpid) != first


async def test_a_process_that_was_killed_at_rest_is_noticed(workers: ProcessWorkers) -> None:
    process = await workers.run(os.getpid)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        await workers.run(os.getpid)
    assert await workers.run(os.getpid) != process


async def test_an_idle_process_ends() -> None:
    workers = ProcessWorkers(1, idle_seconds=0.0)
    process = await workers.run(os.getpid)
    await until(lambda: workers.running == 0, "the idle worker's end")
    assert is_gone(process)
    assert await workers.run(os.getpid) != process
    await workers.close()
    assert workers.deaths == 0


async def test_a_cancelled_call_lets_the_function_end_without_a_result(workers: ProcessWorkers, tmp_path: Path) -> None:
    process = await workers.run(os.getpid)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    call = asyncio.create_task(workers.run(Path.read_bytes, pipe))
    await until(lambda: workers._idle == [], "the start of the call")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(pipe.write_bytes, b"the end")
    await until(lambda: len(workers._idle) == 1, "the worker's return")
    assert await workers.run(os.getpid) == process


async def test_a_call_that_is_given_up_releases_its_place_at_once(tmp_path: Path) -> None:
    workers = ProcessWorkers(1)
    process = await workers.run(os.getpid)
    given_up = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(workers.run_until(given_up, signal.pause))
    await until(lambda: workers._idle == [], "the start of the call")
    given_up.set_result(None)
    with pytest.raises(WorkerDiedError, match="given up"):
        await call
    assert await workers.run(os.getpid) != process
    await until(lambda: is_gone(process), "the end of the killed process")
    assert workers.deaths == 0, "the process did not die by itself"
    await workers.close()


async def test_the_place_of_a_killed_process_does_not_wait_for_its_end(
    workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for a disk ends only when the disk answers."""
    answers, wait = threading.Event(), subprocess.Popen.wait

    def wait_for_the_disk(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        answers.wait(timeout)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_for_the_disk)
    given_up = asyncio.get_running_loop().create_future()
    calls = [asyncio.create_task(workers.run_until(given_up, signal.pause)) for _ in range(2)]
    await until(lambda: workers.running == 2, "the start of the calls")
    given_up.set_result(None)
    for call in calls:
        with pytest.raises(WorkerDiedError, match="given up"):
            await call
    assert workers.running == 0
    assert await workers.run(operator.add, 1, 1) == 2
    answers.set()


async def test_a_call_that_ends_in_time_is_not_given_up(workers: ProcessWorkers) -> None:
    given_up = asyncio.get_running_loop().create_future()
    assert await workers.run_until(given_up, operator.add, 1, 1) == 2
    with pytest.raises(ZeroDivisionError):
        await workers.run_until(given_up, operator.truediv, 1, 0)
    assert not given_up.done()


async def test_close_ends_a_process_at_work() -> None:
    workers = ProcessWorkers(1)
    process = await workers.run(os.getpid)
    call = asyncio.create_task(workers.run(signal.pause))
    await until(lambda: workers._idle == [], "the start of the call")
    await workers.close()
    with pytest.raises(WorkerDiedError):
        await call
    assert is_gone(process)
    assert workers.deaths == 0
    await workers.close()
    with pytest.raises(WorkerDiedError, match="closed"):
        await workers.run(os.getpid)


async def test_signals_of_the_group_are_not_for_the_worker(workers: ProcessWorkers) -> None:
    process = await workers.run(os.getpid)
    os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGTERM)
    assert await workers.run(os.getpid) == process


async def test_workers_have_the_requested_niceness() -> None:
    workers = ProcessWorkers(1, niceness=7)
    assert await workers.run(os.getpriority, os.PRIO_PROCESS, 0) == min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19)
    await workers.close()


ORPHAN = """
import asyncio, os, signal
from odradek.base.workers import ProcessWorkers

async def main():
    workers = ProcessWorkers(1)
    print(await workers.run(os.getpid), flush=True)
    await workers.run(signal.pause)

asyncio.run(main())
"""


def test_a_worker_ends_with_its_parent_even_in_the_middle_of_a_function() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    wait_until(lambda: is_gone(worker) or _is_zombie(worker), what="the orphan's end")


def _is_zombie(process: int) -> bool:
    """The process that adopts it may not reap it."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except FileNotFoundError:
        return True
