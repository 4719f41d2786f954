"""The loop thread: results, futures, errors, misuse and forks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek.client.blocking import loop_thread


async def answer() -> int:
    return threading.get_ident()


def test_work_runs_on_one_other_thread() -> None:
    thread = loop_thread.current()
    first, second = thread.run(answer()), loop_thread.current().run(answer())
    assert first == second != threading.get_ident()
    assert thread.call(threading.get_ident) == first


def test_errors_are_raised_in_the_calling_thread() -> None:
    async def fail() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        loop_thread.current().run(fail())


async def start_future(futures: list[asyncio.Future[int]]) -> asyncio.Future[int]:
    futures.append(asyncio.get_running_loop().create_future())
    return futures[-1]


def test_a_context_manager_begins_and_ends_on_the_loop() -> None:
    thread = loop_thread.current()
    seen: list[object] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[int]:
        try:
            yield threading.get_ident()
        except ValueError as error:
            seen.append(str(error))
            raise
        finally:
            seen.append(threading.get_ident())

    with loop_thread.BlockingContext(thread, context()) as began:
        seen.append(threading.get_ident())
    loop = thread.call(threading.get_ident)
    assert (began, seen) == (loop, [threading.get_ident(), loop])
    with pytest.raises(ValueError, match="as it is"), loop_thread.BlockingContext(thread, context()):
        raise ValueError("as it is")
    assert seen[2:] == ["as it is", loop]


def test_a_future_of_the_loop_completes_for_threads() -> None:
    thread, source = loop_thread.current(), list[asyncio.Future[int]]()
    result = thread.run_for_future(start_future(source))
    assert not result.done()
    thread.call(lambda: source[0].set_result(7))
    assert result.result() == 7


def test_a_future_of_the_loop_fails_for_threads() -> None:
    thread, source = loop_thread.current(), list[asyncio.Future[int]]()
    failing, cancelled = (thread.run_for_future(start_future(source)) for _ in range(2))
    thread.call(lambda: source[0].set_exception(ValueError("as it is")))
    thread.call(source[1].cancel)
    with pytest.raises(ValueError, match="as it is"):
        failing.result()
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.result()


def test_cancelling_a_result_does_not_cancel_the_work() -> None:
    thread, source = loop_thread.current(), list[asyncio.Future[int]]()
    result = thread.run_for_future(start_future(source))
    assert result.cancel()
    thread.call(lambda: source[0].set_result(7))
    thread.run(asyncio.sleep(0))
    assert source[0].result() == 7
    assert result.cancelled()


def test_a_future_is_refused_on_the_loop_itself() -> None:
    thread = loop_thread.current()

    async def nested() -> concurrent.futures.Future[int]:
        return thread.run_for_future(start_future([]))

    with pytest.raises(RuntimeError, match="own event loop"):
        thread.run(nested())


def test_waiting_on_the_loop_itself_is_refused() -> None:
    thread = loop_thread.current()

    async def nested() -> int:
        return thread.run(answer())

    with pytest.raises(RuntimeError, match="own event loop"):
        thread.run(nested())


def test_a_forked_child_starts_another_loop() -> None:
    parent = loop_thread.current()
    parent.run(asyncio.sleep(0))
    child = os.fork()
    if child == 0:
        own = loop_thread.current()
        works = own is not parent and own.run(asyncio.sleep(0, result=True))
        os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loop_thread.current() is parent
