"""Frozen and dead hosts, and the tasks that belong to them. broker/tests/sim/test_network tests the streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek_testkit.net import Host, SimulatedLoop, as_host, current_host


def run(main: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))


def test_a_frozen_host_does_nothing_and_then_everything_in_its_order() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, done = Host("a"), list[object]()
        with as_host(host):
            loop.call_later(3, done.append, "timer of 3 s")
            loop.call_later(1, done.append, "timer of 1 s")
            loop.call_later(9, done.append, "timer of 9 s")
            loop.call_soon(done.append, "at once")
        host.freeze()
        host.freeze()
        assert host.is_frozen
        await asyncio.sleep(5)
        assert done == []
        assert host.turns == 0
        host.thaw()
        await asyncio.sleep(0)
        assert done == ["at once", "timer of 1 s", "timer of 3 s"]
        await asyncio.sleep(5)
        assert done[3:] == ["timer of 9 s"]
        assert host.turns == 4

    run(main)


def test_what_was_cancelled_while_its_host_stood_still_does_not_happen() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, done = Host("a"), list[object]()
        with as_host(host):
            timer = loop.call_later(1, done.append, "timer")
            call = loop.call_soon(done.append, "call")
        host.freeze()
        await asyncio.sleep(2)
        timer.cancel()
        call.cancel()
        host.thaw()
        await asyncio.sleep(1)
        assert done == []

    run(main)


def test_what_an_earlier_call_cancels_after_the_host_continues_does_not_happen() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, done = Host("a"), list[object]()
        with as_host(host):
            timer = loop.call_later(1, done.append, "timer")
            loop.call_soon(lambda: timer.cancel())
        host.freeze()
        await asyncio.sleep(2)
        host.thaw()
        await asyncio.sleep(1)
        assert done == []
        assert host.turns == 1

    run(main)


def test_a_host_that_dies_frozen_does_nothing_any_more() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, done = Host("a"), list[object]()
        with as_host(host):
            loop.call_soon(done.append, "call")
        host.freeze()
        await asyncio.sleep(1)
        loop.network.kill(host)
        host.thaw()
        host.thaw()
        await asyncio.sleep(1)
        assert done == []
        assert host.turns == 0
        assert repr(host) == "Host(a, dead)"

    run(main)


def test_a_host_may_freeze_again_before_it_has_caught_up() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, done = Host("a"), list[object]()
        with as_host(host):
            loop.call_soon(done.append, "call")
        host.freeze()
        await asyncio.sleep(1)
        host.thaw()
        host.freeze()
        await asyncio.sleep(1)
        assert done == []
        host.thaw()
        await asyncio.sleep(1)
        assert done == ["call"]

    run(main)


def test_a_task_belongs_to_the_host_that_makes_it_until_it_ends() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, seen = Host("a"), list[Host | None]()

        async def inner() -> None:
            seen.append(current_host())
            await asyncio.sleep(1)

        async def outer() -> None:
            task = asyncio.create_task(inner())
            assert task in host.tasks
            await task

        with as_host(host):
            task = loop.create_task(outer(), name="outer")
        outside = asyncio.create_task(asyncio.sleep(0))
        assert host.tasks == {task}
        assert outside not in host.tasks
        await asyncio.gather(task, outside)
        assert host.tasks == set()
        assert seen == [host]
        assert current_host() is None

    run(main)


def test_tasks_of_a_dead_host_stand_and_are_kept() -> None:
    async def main(loop: SimulatedLoop) -> None:
        host, ended = Host("a"), list[str]()

        async def work() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                ended.append("finally")

        with as_host(host):
            task = loop.create_task(work())
        await asyncio.sleep(0.5)
        loop.network.kill(host)
        await asyncio.sleep(5)
        assert host.tasks == {task}
        assert not task.done()
        assert ended == []
        host.alive = True  # so that the loop runs the cancelled task
        task.cancel()
        await asyncio.wait([task])

    run(main)
