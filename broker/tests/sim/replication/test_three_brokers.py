"""Three brokers replicate one partition: acknowledgements, the ISR, changes of leaders with diverging logs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryCluster

TP = TopicPartition("events", 0)
BROKERS = (1, 2, 3)

Scenario = Callable[[MemoryCluster, VirtualClock], Coroutine[Any, Any, None]]


@pytest.fixture(params=[17, 12, 11], ids=["by-id", "by-name", "old-leader"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario on three brokers that replicate `TP`. Broker 1 is the leader."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = MemoryCluster(
                tmp_path,
                clock,
                settings={"replica.lag.time.max.ms": "10000"},
                topic_settings={"min.insync.replicas": "2"},
                fetch_version=request.param,
            )
            try:
                for broker_id in BROKERS:
                    await cluster.start_broker(broker_id)
                cluster.create(TP, BROKERS)
                await scenario(cluster, clock)
            finally:
                cluster.heal()
                await cluster.close()

        run_virtual(main())

    return run


def assert_equal_logs(cluster: MemoryCluster) -> None:
    contents = {broker.content(TP) for broker in cluster.brokers.values()}
    assert len(contents) == 1
    assert {broker.partition(TP).log.log_end_offset for broker in cluster.brokers.values()} == {
        cluster.brokers[1].partition(TP).log.log_end_offset
    }


def test_acks_all_waits_for_every_member_of_the_isr(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        outcome = leader.append(TP, b"one", b"two")
        assert not outcome.done()
        result = await outcome
        assert (result.error_code, result.first_offset, result.last_offset) == (0, 0, 1)
        assert all(broker.partition(TP).log.log_end_offset == 2 for broker in cluster.brokers.values())
        assert leader.partition(TP).high_watermark == 2
        await clock.sleep_ms(2000)
        assert all(broker.partition(TP).high_watermark == 2 for broker in cluster.brokers.values())
        assert_equal_logs(cluster)

    play(scenario)


def test_a_silent_follower_leaves_the_isr_and_rejoins(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        assert (await leader.append(TP, b"before")).error_code == 0
        cluster.cut(3)
        outcome = leader.append(TP, b"while away")
        await clock.sleep_ms(5000)
        assert not outcome.done()
        assert leader.partition(TP).high_watermark == 1
        await clock.sleep_ms(11_000)
        assert cluster.isr(TP) == (1, 2)
        assert (await outcome).error_code == 0
        assert leader.replicas.counts().isr_shrinks == 1
        assert (await leader.append(TP, b"without it")).error_code == 0
        cluster.heal()
        await clock.sleep_ms(5000)
        assert cluster.isr(TP) == (1, 2, 3)
        assert leader.replicas.counts().isr_expands == 1
        assert_equal_logs(cluster)

    play(scenario)


def test_below_the_minimum_nothing_is_accepted_and_nothing_committed(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        cluster.cut(2, 3)
        pending = leader.append(TP, b"caught in between", timeout_ms=60_000)
        await clock.sleep_ms(20_000)
        assert cluster.isr(TP) == (1,)
        assert (await leader.append(TP, b"refused")).error_code == 19
        assert leader.partition(TP).log.log_end_offset == 1
        assert leader.partition(TP).high_watermark == 0
        assert not pending.done()
        cluster.heal()
        assert (await pending).error_code == 0
        await clock.sleep_ms(5000)
        assert set(cluster.isr(TP)) == {1, 2, 3}

    play(scenario)


def test_without_replication_in_time_the_producer_gets_an_error(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.cut(2, 3)
        result = await cluster.brokers[1].append(TP, b"slow", timeout_ms=700)
        assert (result.error_code, result.first_offset) == (7, 0)

    play(scenario)


def test_diverging_logs_are_truncated_at_the_first_difference(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        old = cluster.brokers[1]
        for number in range(5):
            assert (await old.append(TP, b"committed %d" % number)).error_code == 0
        await clock.sleep_ms(1000)
        cluster.cut(1)
        for number in range(3):
            old.append(TP, b"lost %d" % number, acks=1)
        assert old.partition(TP).log.log_end_offset == 8
        cluster.elect(TP, leader=2, isr=(2, 3), inform=(2, 3))
        new = cluster.brokers[2]
        for number in range(2):
            assert (await new.append(TP, b"new %d" % number)).error_code == 0
        before = cluster.brokers[3].content(TP)
        cluster.heal()
        cluster.announce(TP, inform=(1,))
        await clock.sleep_ms(5000)
        assert_equal_logs(cluster)
        assert new.content(TP) == before
        assert old.partition(TP).log.log_end_offset == 7
        assert set(cluster.isr(TP)) == {1, 2, 3}
        assert all(broker.partition(TP).high_watermark == 7 for broker in cluster.brokers.values())

    play(scenario)


def test_two_consecutive_changes_of_leaders_converge(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        assert (await cluster.brokers[1].append(TP, b"base")).error_code == 0
        await clock.sleep_ms(1000)
        cluster.cut(1)
        cluster.brokers[1].append(TP, b"tail of one", b"more", b"and more", acks=1)
        cluster.elect(TP, leader=2, isr=(2, 3), inform=(2, 3))
        cluster.cut(2)
        cluster.brokers[2].append(TP, b"tail of two", b"longer", acks=1)
        cluster.elect(TP, leader=3, isr=(3,), inform=(3,))
        cluster.brokers[3].append(TP, b"tail of three", acks=1)
        cluster.heal()
        cluster.announce(TP, inform=(1, 2))
        await clock.sleep_ms(10_000)
        assert_equal_logs(cluster)
        assert b"tail of three" in cluster.brokers[1].content(TP)
        assert b"tail of two" not in cluster.brokers[1].content(TP)
        assert (await cluster.brokers[3].append(TP, b"goes on")).error_code == 0

    play(scenario)


def test_a_follower_that_lost_its_disk_is_filled_again(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        for number in range(20):
            assert (await leader.append(TP, b"x" * 1000, b"record %d" % number)).error_code == 0
        follower = cluster.brokers[2].partition(TP)
        follower.log.truncate_fully_and_start_at(0)
        await clock.sleep_ms(5000)
        assert_equal_logs(cluster)

    play(scenario)


def test_a_follower_below_the_leaders_start_begins_there(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        cluster.cut(3)
        for number in range(4):
            leader.append(TP, b"record %d" % number, acks=1)
        await clock.sleep_ms(20_000)
        assert leader.partition(TP).high_watermark == 4
        leader.partition(TP).log.truncate_fully_and_start_at(4)
        leader.append(TP, b"after", acks=1)
        cluster.heal()
        await clock.sleep_ms(5000)
        log = cluster.brokers[3].partition(TP).log
        assert (log.log_start_offset, log.log_end_offset) == (4, 5)
        assert 3 in cluster.isr(TP)

    play(scenario)


def test_high_watermarks_survive_a_restart(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        assert (await cluster.brokers[1].append(TP, b"one", b"two")).error_code == 0
        await clock.sleep_ms(7000)
        await cluster.brokers[2].close(clean=False)
        again = await cluster.start_broker(2)
        cluster.announce(TP, inform=(2,))
        assert again.partition(TP).high_watermark == 2
        assert (await cluster.brokers[1].append(TP, b"three")).error_code == 0
        assert_equal_logs(cluster)

    play(scenario)
