"""The number of fetch loops per leader; a change of it loses and duplicates nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster

PARTITIONS = [TopicPartition("t", number) for number in range(8)]
Scenario = Callable[[MemoryCluster, VirtualClock], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Broker 2 follows broker 1 in eight partitions with two loops."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = MemoryCluster(tmp_path, clock, settings={"num.replica.fetchers": "2"})
            try:
                for broker_id in (1, 2):
                    await cluster.start_broker(broker_id)
                for partition in PARTITIONS:
                    cluster.create(partition, (1, 2))
                await clock.sleep_ms(50)
                await scenario(cluster, clock)
            finally:
                await cluster.close()

        run_virtual(main())

    return run


def resize(broker: MemoryBroker, count: int) -> None:
    broker.replicas.fetchers.reconfigure(replace(broker.config, num_replica_fetchers=count))


async def replicate(cluster: MemoryCluster) -> None:
    for outcome in [cluster.brokers[1].append(partition, b"x") for partition in PARTITIONS]:
        assert (await outcome).error_code == 0


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_partitions_are_distributed_again_and_continue(play: Callable[[Scenario], None], count: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        assert {client for client, _ in cluster.connections} == {"broker-2-fetcher-0", "broker-2-fetcher-1"}
        await replicate(cluster)
        cluster.connections.clear()
        resize(cluster.brokers[2], count)
        await replicate(cluster)
        await clock.sleep_ms(1_500)
        await replicate(cluster)
        names = {f"broker-2-fetcher-{number}" for number in range(count)}
        assert {client for client, _ in cluster.connections} == names - {"broker-2-fetcher-0", "broker-2-fetcher-1"}
        assert cluster.brokers[1].replicas.fetch_purgatory.size <= count
        for partition in PARTITIONS:
            assert cluster.brokers[2].content(partition) == cluster.brokers[1].content(partition)
            assert cluster.brokers[2].partition(partition).log.log_end_offset == 3
            assert cluster.isr(partition) == (1, 2)

    play(scenario)


def test_a_change_of_roles_finds_the_right_loop_afterwards(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        resize(cluster.brokers[2], 4)
        for partition in PARTITIONS:
            cluster.elect(partition, 2, (1, 2), inform=(2, 1))
        for outcome in [cluster.brokers[2].append(partition, b"y") for partition in PARTITIONS]:
            assert (await outcome).error_code == 0
        await clock.sleep_ms(1_500)
        assert cluster.brokers[1].replicas.fetch_purgatory.size == 0

    play(scenario)


def test_after_close_no_task_starts(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        follower = cluster.brokers[2]
        await follower.replicas.fetchers.close()
        cluster.connections.clear()
        resize(follower, 4)
        await clock.sleep_ms(100)
        assert cluster.connections == []

    play(scenario)


def test_a_leader_that_returns_is_not_asked_through_its_old_connection(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure of the leader, nothing closes the connection, and its request is never answered."""

    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        first, second = cluster.brokers[1], cluster.brokers[2]

        async def never(_version: int, _frame: bytes) -> bytes:
            return await asyncio.get_running_loop().create_future()

        with monkeypatch.context() as changes:
            changes.setattr(first, "serve_fetch", never)
            await clock.sleep_ms(1_000)  # Both loops now wait for such a response.
        for leader in (second, first):
            for partition in PARTITIONS:
                cluster.elect(partition, leader.broker_id, (1, 2), inform=(1, 2))
            await clock.sleep_ms(10)
        begin_ms = clock.monotonic_ms()
        await replicate(cluster)
        assert clock.monotonic_ms() - begin_ms < 1_000

    play(scenario)


def test_a_new_leader_epoch_of_the_same_leader_keeps_the_connection(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.connections.clear()
        for partition in PARTITIONS:
            cluster.elect(partition, 1, (1, 2), inform=(1, 2))
        await replicate(cluster)
        assert cluster.connections == []

    play(scenario)
