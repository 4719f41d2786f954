"""The first record of a partition is acknowledged at once, although a fetch of its followers waits at the leader."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster

OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
SOON_MS = 100
Scenario = Callable[[MemoryCluster, VirtualClock], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Two brokers. A fetch of the follower waits at the leader for records of `OLD`."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = MemoryCluster(tmp_path, clock)
            try:
                for broker_id in (1, 2):
                    await cluster.start_broker(broker_id)
                cluster.create(OLD, (1, 2))
                assert (await cluster.brokers[1].append(OLD, b"a")).error_code == 0
                await clock.sleep_ms(700)
                assert cluster.brokers[1].replicas.fetch_purgatory.size == 1
                await scenario(cluster, clock)
            finally:
                await cluster.close()

        run_virtual(main())

    return run


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)], ids=["leader-first", "follower-first"])
@pytest.mark.parametrize("between_ms", [0, 45])
def test_of_a_new_partition(play: Callable[[Scenario], None], first: int, second: int, between_ms: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.create(NEW, (1, 2), inform=[first])
        await clock.sleep_ms(between_ms)
        cluster.announce(NEW, [second], is_new=True)
        began_ms = clock.monotonic_ms()
        assert (await cluster.brokers[1].append(NEW, b"a")).error_code == 0
        assert clock.monotonic_ms() - began_ms < SOON_MS

    play(scenario)


def test_of_a_new_reign(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.create(NEW, (1, 2))
        assert (await cluster.brokers[1].append(NEW, b"a")).error_code == 0
        await clock.sleep_ms(700)
        cluster.elect(NEW, 1, (1, 2), inform=(1,))
        await clock.sleep_ms(30)
        cluster.announce(NEW, [2])
        began_ms = clock.monotonic_ms()
        assert (await cluster.brokers[1].append(NEW, b"b")).error_code == 0
        assert clock.monotonic_ms() - began_ms < SOON_MS

    play(scenario)


def test_a_follower_that_does_not_come_waits_as_ever_after_a_second(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        served: list[float] = []
        serve = MemoryBroker.serve_fetch

        async def counting(self: MemoryBroker, version: int, frame: bytes) -> bytes:
            served.append(clock.monotonic_ms())
            return await serve(self, version, frame)

        monkeypatch.setattr(MemoryBroker, "serve_fetch", counting)
        cluster.create(NEW, (1, 2), inform=[1])
        await clock.sleep_ms(1_600)
        assert 20 < len(served) <= 102
        served.clear()
        await clock.sleep_ms(2_000)
        assert len(served) == 4

    play(scenario)
