"""The loop thread: results, errors, misuse, forks."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from odradek.client.blocking import loop_thread


async def answer() -> int:
    return threading.get_ident()


def test_work_runs_on_one_other_thread() -> None:
    thread = loop_thread.current()
    first, second = thread.run(answer()), loop_thread.current().run(answer())
    assert first == second != threading.get_ident()
    assert thread.call(threading.get_ident) == first


def test_errors_come_back() -> None:
    async def fail() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        loop_thread.current().run(fail())


def test_waiting_on_the_loop_itself_is_refused() -> None:
    thread = loop_thread.current()

    async def nested() -> int:
        return thread.run(answer())

    with pytest.raises(RuntimeError, match="own event loop"):
        thread.run(nested())


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    parent = loop_thread.current()
    parent.run(asyncio.sleep(0))
    child = os.fork()
    if child == 0:
        own = loop_thread.current()
        works = own is not parent and own.run(asyncio.sleep(0, result=True))
        os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loop_thread.current() is parent
