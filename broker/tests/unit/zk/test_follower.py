"""The follower of what was read from ZooKeeper: when it reads, and what a failure changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.follower import RETRY_MS, Follower
from odradek.zk.port import ConnectionLost
from odradek_testkit.loop import VirtualClock, run_virtual


class Bench:
    """A follower that notes whether each of its reads was one of everything."""

    def __init__(self) -> None:
        self.zk = MemoryZk(MemoryTree())
        self.follower = Follower(self.zk, VirtualClock(), "test subjects", self.read)
        self.reads: list[bool] = []
        self.failures = 0

    async def read(self) -> None:
        self.reads.append(self.follower.take_all())
        if self.failures:
            self.failures -= 1
            raise ConnectionLost("gone")


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await scenario(bench)
        finally:
            await bench.follower.close()
            await bench.follower.close()

    run_virtual(main())


def test_it_reads_everything_first_and_then_what_has_changed() -> None:
    async def scenario(bench: Bench) -> None:
        assert not bench.follower.is_running
        bench.follower.run()
        await turns()
        assert bench.follower.is_running
        assert bench.reads == [], "nothing was reported"
        for _ in range(3):
            bench.follower.wake()
        await turns()
        bench.follower.wake()
        await turns()
        bench.follower.want_all()
        await turns()
        assert bench.reads == [True, False, True]

    play(scenario)


def test_after_a_failure_it_reads_everything_once_more(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower.take_all()
        bench.follower.run()
        bench.failures = 2
        bench.follower.wake()
        await turns()
        assert bench.reads == [False]
        await VirtualClock().sleep_ms(2.5 * RETRY_MS)
        assert bench.reads == [False, True, True]

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert caplog.text.count("test subjects cannot be read; the broker keeps those that it has, and tries again") == 2


def test_a_closed_follower_hears_of_no_change() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.zk.ensure_path("/parent")
        bench.follower.listen({"/parent": bench.follower.wake})
        bench.follower.run()
        await bench.zk.ensure_path("/parent/one")
        await turns()
        assert bench.reads == [True]
        await bench.follower.close()
        assert not bench.follower.is_running
        await bench.zk.ensure_path("/parent/two")
        await turns()
        assert bench.reads == [True]

    play(scenario)
