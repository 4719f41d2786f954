"""Consumers that read from followers (KIP-392), throttled followers (KIP-73), followers with an old epoch (KIP-903)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import TOPIC_ID, MemoryBroker, MemoryCluster

TP = TopicPartition("events", 0)
BROKERS = (1, 2, 3)
RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
NOT_LEADER, OUT_OF_RANGE = 6, 1

Scenario = Callable[[MemoryCluster, VirtualClock], Coroutine[Any, Any, None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on three brokers in the racks r1, r2, r3 that replicate `TP`. Broker 1 is the leader."""

    def run(scenario: Scenario, *, topic: dict[str, str] | None = None, **settings: str) -> None:
        async def main() -> None:
            clock = VirtualClock()
            properties = {key.replace("_", "."): value for key, value in settings.items()}
            cluster = MemoryCluster(
                tmp_path,
                clock,
                settings={"replica.lag.time.max.ms": "10000", **RACK_AWARE, **properties},
                topic_settings=topic,
            )
            try:
                for broker_id in BROKERS:
                    broker = await cluster.start_broker(broker_id)
                    racks = [
                        AnnouncedBroker(broker_id=each, endpoints=(Endpoint("PLAINTEXT", "h", 1),), rack=f"r{each}")
                        for each in BROKERS
                    ]
                    broker.view.image = replace(broker.view.image, brokers={each.broker_id: each for each in racks})
                cluster.create(TP, BROKERS)
                await scenario(cluster, clock)
            finally:
                cluster.heal()
                await cluster.close()

        run_virtual(main())

    return run


async def fetch(
    broker: MemoryBroker, offset: int, *, rack: str = "", version: int = 17, **options: Any
) -> FetchedPartition:
    """Return the response to a full fetch without a wait."""
    by_id = version >= 13
    entry = FetchEntry(None if by_id else TP.topic, TOPIC_ID if by_id else None, 0, -1, offset, -1, -1, 1 << 20)
    request = FetchRequest(options.pop("max_wait_ms", 0), 1, 1 << 20, [entry], rack_id=rack, **options)
    frame = encode_fetch_request(version, 1, "test", request)[4:]
    (found,) = decode_fetch_response(version, memoryview(await broker.serve_fetch(version, frame))).partitions
    return found


async def committed(cluster: MemoryCluster, clock: VirtualClock, count: int) -> None:
    for number in range(count):
        assert (await cluster.brokers[1].append(TP, b"value %d" % number)).error_code == 0
    await clock.sleep_ms(1000)  # followers learn the high watermark with their next fetch


def test_a_consumer_is_sent_to_its_rack_and_served_there(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 3)
        answer = await fetch(cluster.brokers[1], 0, rack="r3", max_wait_ms=500)
        assert (answer.error_code, answer.preferred_read_replica, answer.high_watermark, bytes(answer.records)) == (
            0,
            3,
            3,
            b"",
        )
        found = await fetch(cluster.brokers[3], 0, rack="r3")
        assert (found.error_code, found.preferred_read_replica, found.high_watermark) == (0, -1, 3)
        assert bytes(found.records) == cluster.brokers[1].content(TP)

    play(scenario)


@pytest.mark.parametrize(("rack", "version"), [("", 17), ("r1", 17), ("elsewhere", 17), ("r3", 10)])
def test_others_are_served_by_the_leader(play: Play, rack: str, version: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 1)
        found = await fetch(cluster.brokers[1], 0, rack=rack, version=version)
        assert (found.preferred_read_replica, bytes(found.records)) == (-1, cluster.brokers[1].content(TP))

    play(scenario)


def test_without_a_selector_consumers_are_not_redirected(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 1)
        found = await fetch(cluster.brokers[1], 0, rack="r3")
        assert (found.preferred_read_replica, len(found.records) > 0) == (-1, True)

    play(scenario, replica_selector_class="org.apache.kafka.common.replica.LeaderSelector")


def test_consumers_do_not_read_from_a_lagging_follower(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 2)
        cluster.cut(3)
        cluster.brokers[1].append(TP, b"not there", acks=1)
        await clock.sleep_ms(1000)
        assert (await fetch(cluster.brokers[1], 2, rack="r3")).preferred_read_replica == 3
        assert (await fetch(cluster.brokers[1], 3, rack="r3")).preferred_read_replica == -1
        await clock.sleep_ms(20_000)
        assert cluster.isr(TP) == (1, 2)
        assert (await fetch(cluster.brokers[1], 0, rack="r3")).preferred_read_replica == -1

    play(scenario)


def test_a_follower_serves_records_below_its_high_watermark(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 2)
        follower = cluster.brokers[2]
        cluster.cut(3)
        cluster.brokers[1].append(TP, b"uncommitted", acks=1)
        await clock.sleep_ms(1000)
        assert (follower.partition(TP).log.log_end_offset, follower.partition(TP).high_watermark) == (3, 2)
        for offset in (
            2,
            3,
        ):  # the offset exists, but is above the high watermark of the follower, so no records are returned
            found = await fetch(follower, offset, rack="r2")
            assert (found.error_code, bytes(found.records), found.high_watermark) == (0, b"", 2)
        assert (await fetch(follower, 4, rack="r2")).error_code == OUT_OF_RANGE
        assert (await fetch(follower, 0, rack="r2", version=10)).error_code == NOT_LEADER

    play(scenario)


def test_a_fetch_that_waits_at_a_follower_is_answered_when_records_are_committed(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await committed(cluster, clock, 1)
        cluster.brokers[1].append(TP, b"value", acks=1)
        begin_ms = clock.monotonic_ms()
        found = await fetch(cluster.brokers[2], 1, rack="r2", max_wait_ms=60_000)
        assert len(found.records)
        assert clock.monotonic_ms() - begin_ms < 2000

    play(scenario)


def test_a_fetch_with_an_old_broker_epoch_is_ignored(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.cut(2)
        await clock.sleep_ms(600)
        leader = cluster.brokers[1]
        assert (await fetch(leader, 0, replica_id=2, replica_epoch=50)).error_code == 0
        assert (await fetch(leader, 0, replica_id=2, replica_epoch=49)).error_code == NOT_LEADER
        assert (await fetch(leader, 0, replica_id=2, replica_epoch=50)).error_code == 0
        assert (await fetch(leader, 0, replica_id=2, replica_epoch=51)).error_code == 0
        assert (await fetch(leader, 0, replica_id=2, replica_epoch=50)).error_code == NOT_LEADER
        assert (await fetch(leader, 0, replica_id=2, version=12)).error_code == 0

    play(scenario)


LEADER_THROTTLED = {"leader.replication.throttled.replicas": "0:1"}
FOLLOWER_THROTTLED = {"follower.replication.throttled.replicas": "*"}


@pytest.mark.parametrize(
    ("topic", "limit"),
    [
        (LEADER_THROTTLED, {"leader_replication_throttled_rate": "10000"}),
        (FOLLOWER_THROTTLED, {"follower_replication_throttled_rate": "10000"}),
    ],
    ids=["leader", "follower"],
)
def test_catching_up_is_throttled_and_replicas_in_sync_are_not(
    play: Play, topic: dict[str, str], limit: dict[str, str]
) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        cluster.cut(3)
        await clock.sleep_ms(20_000)
        leader, behind = cluster.brokers[1], cluster.brokers[3]
        for _ in range(20):
            assert (await leader.append(TP, b"x" * 10_000)).error_code == 0
            await clock.sleep_ms(5000)  # at the allowed rate, so that no replica is behind
        assert cluster.isr(TP) == (1, 2)
        assert leader.partition(TP).high_watermark == 20
        cluster.heal()
        begin_ms = clock.monotonic_ms()
        while behind.partition(TP).log.log_end_offset < 20:
            await clock.sleep_ms(100)
        elapsed_s = (clock.monotonic_ms() - begin_ms) / 1000
        assert 5 < elapsed_s < 30  # 200 kB at 10 kB/s; the quota windows do not limit the beginning
        busy = leader.replicas.quotas.leader if "leader" in next(iter(topic)) else behind.replicas.quotas.follower
        assert busy.byte_rate > 0
        await clock.sleep_ms(30_000)
        assert 3 in cluster.isr(TP)
        assert busy.byte_rate == 0.0

    play(scenario, topic=topic, replica_fetch_max_bytes="10100", **limit)


def test_a_throttled_member_of_the_isr_does_not_wait(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = cluster.brokers[1]
        begin_ms = clock.monotonic_ms()
        for _ in range(20):
            assert (await leader.append(TP, b"x" * 10_000)).error_code == 0
        assert clock.monotonic_ms() - begin_ms < 1000
        assert leader.replicas.quotas.leader.is_exceeded

    play(scenario, topic=LEADER_THROTTLED, leader_replication_throttled_rate="1000")
