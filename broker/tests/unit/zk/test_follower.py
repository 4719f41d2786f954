"""The follower of what was read from ZooKeeper: when it reads, and what a failure changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import pytest

from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.follower import RETRY_MS, Follower, Notifications
from odradek.zk.port import ConnectionLost
from odradek.zk.registration import CHANGE_RETENTION_MS
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


def test_notifications_are_new_until_they_are_handled() -> None:
    async def scenario() -> None:
        zk, clock = MemoryZk(MemoryTree()), VirtualClock()
        notifications = Notifications(zk, clock, ["/a", "/b"])
        assert await notifications.new() == {}, "the parents need not exist"
        await notifications.handled()
        await zk.create("/a/change_", b"1", sequential=True, make_parents=True)
        await zk.create("/b/change_", b"2", sequential=True, make_parents=True)
        first = {"/a/change_0000000000": b"1", "/b/change_0000000000": b"2"}
        assert await notifications.new() == first
        assert await notifications.new() == first, "a failure came before they were handled"
        await notifications.handled()
        await zk.create("/a/change_", b"3", sequential=True)
        assert await notifications.new() == {"/a/change_0000000001": b"3"}
        await notifications.handled()
        assert await notifications.new() == {}

    run_virtual(scenario())


def test_a_notification_that_is_deleted_before_it_is_read_has_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        zk = MemoryZk(MemoryTree())
        notifications = Notifications(zk, VirtualClock(), ["/a"])
        created = await zk.create("/a/change_", b"1", sequential=True, make_parents=True)
        read = zk.children_many

        async def read_and_delete(paths: Iterable[str]) -> dict[str, list[str] | None]:
            names = await read(paths)
            await zk.delete(created.path)
            return names

        monkeypatch.setattr(zk, "children_many", read_and_delete)
        assert await notifications.new() == {created.path: None}
        await notifications.handled()

    run_virtual(scenario())


def test_notifications_are_deleted_after_some_time_by_the_first_broker() -> None:
    async def scenario() -> None:
        tree, clock = MemoryTree(), VirtualClock()
        zk, zk2 = MemoryZk(tree), MemoryZk(tree)
        first, second = (Notifications(each, clock, ["/a"]) for each in (zk, zk2))
        tree.wall_ms = clock.wall_ms()
        await zk.create("/a/change_", b"1", sequential=True, make_parents=True)
        for each in (first, second):
            await each.new()
        await clock.sleep_ms(CHANGE_RETENTION_MS)
        await first.handled()
        assert len(await zk.children("/a")) == 1
        await clock.sleep_ms(1)
        for each in (first, second):
            await each.handled()
            assert await zk.children("/a") == []

    run_virtual(scenario())
