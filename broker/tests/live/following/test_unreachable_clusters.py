"""The followers go on while a cluster cannot be reached, and end when they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.base.system_ports import SystemClock
from odradek.client.cluster_client import Cluster
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.topic_follower import TopicFollower
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.clients.mirrored_pair import MirroredPair, mirror_config

TIMEOUTS = {"default_api_timeout_ms": 300, "request_timeout_ms": 300}


class RoundClock(SystemClock):
    """A clock that tells when a round ends, and lets the test begin the next one."""

    def __init__(self, period_ms: float) -> None:
        super().__init__()
        self._period_ms = period_ms
        self.ended: asyncio.Queue[None] = asyncio.Queue()
        self.go_on = asyncio.Semaphore(0)

    async def sleep_ms(self, delay_ms: float) -> None:
        """Wait for the test between two rounds."""
        if delay_ms == self._period_ms:
            self.ended.put_nowait(None)
            await self.go_on.acquire()
        else:
            await super().sleep_ms(delay_ms)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[InProcessBroker, InProcessBroker]]:
    """The brokers of the source and of the target, which the test can close."""
    source, target = InProcessBroker(tmp_path / "source"), InProcessBroker(tmp_path / "target")
    try:
        source.start()
        target.start()
        yield source, target
    finally:
        source.close()
        target.close()


@pytest.fixture
async def failing(running: tuple[InProcessBroker, InProcessBroker]) -> AsyncIterator[MirroredPair]:
    """The clusters with clients that give up soon."""
    config = mirror_config(running[0].bootstrap, running[1].bootstrap)
    settings = [ClientSettings.of(broker.bootstrap, **TIMEOUTS) for broker in running]
    async with Cluster(settings[0]) as source, Cluster(settings[1]) as target:
        yield MirroredPair(config, source, target)


async def cancelled(running: asyncio.Task[None]) -> None:
    """Cancel a follower and wait for its end."""
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_partitions_stay_while_the_source_is_down(
    failing: MirroredPair, running: tuple[InProcessBroker, InProcessBroker]
) -> None:
    await failing.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    reports: list[frozenset[CopiedPartition]] = []
    clock = RoundClock(failing.config.refresh_seconds * 1000)
    follower = TopicFollower(
        failing.config, failing.source, failing.source_client, failing.target_client, reports.append, clock=clock
    )
    task = asyncio.create_task(follower.run())
    await clock.ended.get()
    assert len(reports) == 1 and len(reports[0]) == 1
    await asyncio.to_thread(running[0].close)
    for _ in range(2):
        clock.go_on.release()
        await clock.ended.get()
    assert len(reports) == 1
    await cancelled(task)


@pytest.mark.parametrize("closed", [0, 1])
async def test_groups_are_retried_while_a_cluster_is_down(
    failing: MirroredPair, running: tuple[InProcessBroker, InProcessBroker], closed: int
) -> None:
    clock = RoundClock(failing.config.groups_seconds * 1000)
    # A target that is down at the start is awaited.
    if closed == 1:
        await asyncio.to_thread(running[closed].close)
    follower = GroupFollower(failing.config, failing.source, failing.source_client, failing.target_client, clock=clock)
    task = asyncio.create_task(follower.run())
    await clock.ended.get()
    await asyncio.to_thread(running[closed].close)
    for _ in range(2):
        clock.go_on.release()
        await clock.ended.get()
    await cancelled(task)
