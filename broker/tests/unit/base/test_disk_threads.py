"""Daemon threads: order, results, cancellation, and a process that ends although a thread is stuck."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from odradek.base.disk_threads import DaemonThreads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Blocks calls until it is set; set at the end, so that no thread is left."""
    gate = threading.Event()
    yield gate
    gate.set()


def running(directory: str) -> int:
    return sum(thread.name == f"disk {directory}" for thread in threading.enumerate())


async def test_one_thread_runs_calls_in_order() -> None:
    threads, ran = DaemonThreads("/in-order", 1), list[int]()
    assert running("/in-order") == 0, "no thread starts before it is needed"
    await asyncio.gather(*(threads(lambda number=number: ran.append(number)) for number in range(20)))
    assert ran == list(range(20))
    assert running("/in-order") == 1
    threads.close()


async def test_as_many_threads_start_as_there_are_calls_up_to_the_limit(gate: threading.Event) -> None:
    threads = DaemonThreads("/up-to-two", 2)
    calls = [threads(gate.wait) for _ in range(5)]
    assert running("/up-to-two") == 2
    gate.set()
    assert await asyncio.gather(*calls) == [True] * 5
    threads.close()


async def test_calls_wait_for_the_threads_there_are_if_the_system_refuses_another_one(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = DaemonThreads("/refused", 3)
    calls = [threads(gate.wait)]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        calls.append(threads(gate.wait))
        other = DaemonThreads("/refused", 3)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            other(gate.wait)
    calls += [threads(gate.wait), threads(gate.wait), threads(gate.wait)]
    assert running("/refused") == 3, "more threads start once the system allows it"
    gate.set()
    assert await asyncio.gather(*calls) == [True] * 5
    threads.close()


async def test_a_call_raises_what_its_function_raises() -> None:
    threads = DaemonThreads("/data/1", 1)
    with pytest.raises(ZeroDivisionError):
        await threads(lambda: 1 // 0)
    assert await threads(lambda: 5) == 5, "the thread continues"
    threads.close()


async def test_a_cancelled_call_runs_to_its_end(gate: threading.Event) -> None:
    threads, ended = DaemonThreads("/data/1", 1), list[str]()

    def work() -> None:
        gate.wait()
        ended.append("first")

    call = threads(work)
    call.cancel()
    gate.set()
    assert await threads(lambda: list(ended)) == ["first"]
    threads.close()


async def test_closed_threads_finish_what_they_have_and_accept_nothing(gate: threading.Event) -> None:
    threads = DaemonThreads("/data/1", 1)
    calls = [threads(gate.wait), threads(lambda: True)]
    threads.close()
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        threads(lambda: True)
    gate.set()
    assert await asyncio.gather(*calls) == [True, True]


STUCK = """
import asyncio, os
from odradek.base.disk_threads import DaemonThreads

async def main():
    read, _ = os.pipe()
    DaemonThreads("/data/1", 1)(lambda: os.read(read, 1))
    print(await DaemonThreads("/data/2", 1)(lambda: "served"), flush=True)

asyncio.run(main())
"""


def test_a_process_does_not_wait_for_a_stuck_thread_when_it_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "served\n", "")
