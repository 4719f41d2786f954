"""Tasks that end with their owner, and cleanup that a cancellation does not interrupt."""

from __future__ import annotations

import asyncio

import pytest

from odradek.base.errors import ConfigError
from odradek.base.tasks import TaskOwner, at_most, finish


async def test_close_cancels_the_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    tasks = TaskOwner()
    task = tasks.spawn(work(), name="work")
    await asyncio.sleep(0)
    await tasks.close()
    assert (ended, task.cancelled()) == (["work"], True)
    await tasks.close()


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = TaskOwner()
    await tasks.spawn(tasks.close(), name="close")


async def test_a_failure_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    failures: list[tuple[str, str]] = []
    tasks = TaskOwner(lambda name, error: failures.append((name, str(error))))
    task = tasks.spawn(fail(), name="fetch")
    await asyncio.wait([task])
    assert failures == [("fetch", "a bug")]
    assert caplog.messages == ["the task fetch failed"]


async def test_a_cleanup_ends_before_its_cancellation_is_raised() -> None:
    started, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def cleanup() -> None:
        started.set()
        await may_end.wait()
        ended.set()

    task = asyncio.ensure_future(finish(cleanup()))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_block_ends_after_its_time_limit() -> None:
    async with at_most(0) as limit:
        await asyncio.Event().wait()
    assert limit.expired()
    async with at_most(None) as unlimited:
        await asyncio.sleep(0)
    assert not unlimited.expired()


async def test_another_timeout_error_leaves_the_block() -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with at_most(60_000):
            raise TimeoutError("mine")
    with pytest.raises(ConfigError, match="timeout_ms=-1"):
        async with at_most(-1):
            pass
