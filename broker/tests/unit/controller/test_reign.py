"""A reign with many partitions: all partitions of a dead broker get other leaders, in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.types import BrokerEpoch, ControllerEpoch, Endpoint, TopicPartition
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.context import SLICE_PARTITIONS, Leadership, LiveBroker, PartitionStatus, Replica, ReplicaStatus
from odradek.controller.controller_election import Election
from odradek.controller.elections.election_rules import Cause, Obstacle
from odradek.controller.machines import move_partitions
from odradek.controller.reign import Environment, Reign
from odradek.protocol.apis import ApiKey
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.port import ConnectionLost

BROKERS = (1, 2, 3)
EVERY = [TopicPartition("t", number) for number in range(3 * SLICE_PARTITIONS // 2)]


class Sent:
    """Replaces the dispatcher."""

    def __init__(self) -> None:
        self.requests: list[BrokerRequest] = []

    def send(self, requests: Iterable[BrokerRequest]) -> None:
        self.requests += requests


@pytest.fixture
async def zk() -> MemoryZk:
    zk = MemoryZk(MemoryTree())
    await zk.create(layout.topic_path("t"), b"{}", make_parents=True)
    await zk.create(layout.CONTROLLER_EPOCH, b"1")
    return zk


@pytest.fixture
async def reign(zk: MemoryZk) -> Reign:
    """Every partition is on all three brokers, which lead them in turn."""
    config, _ = BrokerConfig.parse({"zookeeper.connect": "z:1", "broker.id": "1", "listeners": "PLAINTEXT://h:9092"})
    sent: Any = Sent()
    clock: Any = None
    reign = Reign(
        Environment(zk=zk, clock=clock, config=config, broker_id=1, dispatcher=sent),
        Election(epoch=ControllerEpoch(1), epoch_version=0),
    )
    for broker in BROKERS:
        endpoints = (Endpoint("PLAINTEXT", "h", 9090 + broker),)
        registration = BrokerRegistration(broker_id=broker, endpoints=endpoints)
        reign.context.brokers[broker] = LiveBroker(registration, BrokerEpoch(broker))
    partitions = {
        partition.partition: ReplicaAssignment(
            replicas=tuple(BROKERS[(partition.partition + step) % 3] for step in range(3))
        )
        for partition in EVERY
    }
    reign.context.put_topic(TopicAssignment(topic="t", topic_id=UUID(int=1), partitions=partitions))
    await reign.create(EVERY)
    reign.flush()
    sent.requests.clear()
    return reign


def sent_by(reign: Reign) -> list[BrokerRequest]:
    found: Any = reign.environment.dispatcher
    return list(found.requests)


async def lose(reign: Reign, broker: int) -> None:
    context = reign.context
    context.remove_broker(broker)
    led = [partition for partition in EVERY if context.leader(partition) == broker]
    await reign.elect(led, Cause.OFFLINE)
    await reign.take_offline(context.replicas_on([broker]))
    reign.flush()


async def stored(zk: MemoryZk, partition: TopicPartition) -> PartitionState:
    return PartitionState.decode(partition, (await zk.get(layout.partition_state_path(partition)))[0])


async def test_a_dead_broker_leads_no_partition_and_is_in_no_isr(reign: Reign, zk: MemoryZk) -> None:
    await lose(reign, 2)
    for partition in EVERY:
        state = reign.context.leaderships[partition].state
        assert (state.leader in (1, 3), set(state.isr), state.leader_epoch) == (True, {1, 3}, 1)
        assert await stored(zk, partition) == state
        assert reign.context.replica_status[Replica(partition, 2)] is ReplicaStatus.OFFLINE
    requested: set[tuple[int, ApiKey, TopicPartition]] = set()
    for request in sent_by(reign):
        topics: Any = request.message["topic_states"]
        requested |= {
            (request.broker, request.api_key, TopicPartition("t", one["partition_index"]))
            for topic in topics
            for one in topic["partition_states"]
        }
    kinds = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA)
    assert requested == {(broker, kind, partition) for broker in (1, 3) for kind in kinds for partition in EVERY}


async def test_other_tasks_run_meanwhile(reign: Reign) -> None:
    """Other tasks run at least once for each slice, although nothing here takes time."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    await lose(reign, 2)
    task.cancel()
    assert turns >= 2 * (len(EVERY) // SLICE_PARTITIONS)


async def test_changed_states_are_planned_again_and_obstacles_are_returned(reign: Reign, zk: MemoryZk) -> None:
    """Broker 2 leads partition 1 and is the only member of its ISR. Another process wrote a later state of partition
    4."""
    alone = PartitionState(leader=2, leader_epoch=3, isr=(2,), controller_epoch=1)
    later = PartitionState(leader=2, leader_epoch=8, isr=(2, 3), controller_epoch=1)
    for partition, state in ((EVERY[1], alone), (EVERY[4], later)):
        await zk.set(layout.partition_state_path(partition), state.encode())
    reign.context.remove_broker(2)
    led = [partition for partition in EVERY if reign.context.leader(partition) == 2]
    assert {EVERY[1], EVERY[4]} <= set(led)
    obstacles = await reign.elect(led, Cause.OFFLINE)
    assert obstacles == {EVERY[1]: Obstacle.NO_IN_SYNC_REPLICA}
    assert (await stored(zk, EVERY[4])).leader == 3
    assert (await stored(zk, EVERY[4])).leader_epoch == 9


async def test_an_isr_that_a_leader_wrote_is_read_before_a_broker_is_removed(reign: Reign, zk: MemoryZk) -> None:
    partition = EVERY[0]
    path = layout.partition_state_path(partition)
    known = reign.context.leaderships[partition].state
    shrunk = replace(known, isr=(1, 2))
    reign.context.leaderships[partition] = Leadership(shrunk, 0)
    await zk.set(path, shrunk.encode())  # broker 3 had left the ISR and has joined it again without a notification
    await zk.set(path, known.encode())
    del reign.context.brokers[3]
    gone = [Replica(partition, 3)]
    await reign.reread_doubtful(gone)
    assert reign.context.leaderships[partition].state == known
    await reign.take_offline(gone)
    assert PartitionState.decode(partition, (await zk.get(path))[0]).isr == (1, 2)
    assert reign.context.leaderships[partition].state.leader_epoch == known.leader_epoch + 1


async def test_a_state_that_is_written_on_condition_is_not_read_again(reign: Reign, zk: MemoryZk) -> None:
    del reign.context.brokers[3]
    zk.failures = [ConnectionLost("there is nothing to read", "/")]
    await reign.reread_doubtful(Replica(partition, 3) for partition in EVERY)
    assert zk.failures


async def test_a_partition_whose_last_isr_member_goes_offline_is_read_again(reign: Reign, zk: MemoryZk) -> None:
    partition = EVERY[0]
    known = reign.context.leaderships[partition].state
    reign.context.leaderships[partition] = Leadership(replace(known, isr=(1,)), 0)
    del reign.context.brokers[1]
    await reign.reread_doubtful([Replica(partition, 1)])
    assert reign.context.leaderships[partition].state == known


async def test_a_stopped_replica_is_not_informed_of_the_next_epoch(reign: Reign) -> None:
    """Otherwise it would follow in that epoch for a short time, and its leader would wait for it to join the ISR."""
    context = reign.context
    followed = [partition for partition in EVERY if context.leader(partition) != 3]
    context.shutting_down.add(3)
    await reign.take_offline([Replica(partition, 3) for partition in followed])
    reign.flush()
    requested = {(request.broker, request.api_key) for request in sent_by(reign)}
    assert (3, ApiKey.LEADER_AND_ISR) not in requested
    assert (3, ApiKey.STOP_REPLICA) in requested
    assert {broker for broker, api_key in requested if api_key is ApiKey.LEADER_AND_ISR} == {1, 2}
    assert {broker for broker, api_key in requested if api_key is ApiKey.UPDATE_METADATA} == {1, 2, 3}


async def test_partitions_without_a_leader_are_one_line_in_the_log(
    reign: Reign, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in BROKERS:
        reign.context.remove_broker(broker)
    move_partitions(reign.context, EVERY, PartitionStatus.OFFLINE)
    for _ in range(3):
        await reign.trigger_online()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    names = "t-0, t-1, t-2, t-3, t-4"
    others = len(EVERY) - 5
    assert warnings == [f"{len(EVERY)} partitions have no leader: no replica is alive: {names} and {others} others"]


async def test_a_warning_names_few_partitions_and_is_repeated_when_they_change(
    reign: Reign, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in BROKERS:
        reign.context.remove_broker(broker)
    for number in (2, 3):
        move_partitions(reign.context, EVERY[:number], PartitionStatus.OFFLINE)
        await reign.trigger_online()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "2 partitions have no leader: no replica is alive: t-0, t-1",
        "3 partitions have no leader: no replica is alive: t-0, t-1, t-2",
    ]
