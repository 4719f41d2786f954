"""The controller on a real ZooKeeper: what it writes, and what it sends to brokers, for each kind of event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownServerError,
)
from odradek.base.types import TopicPartition
from odradek.controller.elections.candidates import ElectionKind
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.internal import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from odradek.zk import layout
from odradek.zk.layout import ControllerRegistration, PartitionState, TopicAssignment
from odradek.zk.port import NoNode
from odradek.zk.registration import next_producer_ids

pytestmark = pytest.mark.java

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Cluster = Any


def knows(broker: Any, partition: TopicPartition, **wanted: Any) -> bool:
    """Whether the broker's metadata has the partition with these values."""
    state = broker.metadata.get(partition)
    return state is not None and all(getattr(state, name) == value for name, value in wanted.items())


async def three_brokers(cluster: Cluster, **settings: str) -> Any:
    await cluster.start_brokers(1, 2, 3)
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    runtime, _ = await cluster.start_controller(1, properties)
    await cluster.until(lambda: all(b.live_brokers == (1, 2, 3) for b in cluster.brokers.values()))
    return runtime


async def test_a_topic_made_by_its_znode_gets_leaders_and_everybody_learns_of_it(
    cluster: Cluster, received: Any
) -> None:
    runtime = await three_brokers(cluster)
    topic_id = await cluster.make_topic("t", {0: [1, 2], 1: [2, 3]})
    await cluster.until(
        lambda: all(knows(b, T0, leader=1) and knows(b, T1, leader=2) for b in cluster.brokers.values())
    )
    assert await cluster.state(T0) == PartitionState(
        leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=runtime.epoch
    )
    assert set(cluster.brokers[2].replicas) == {T0, T1}
    assert set(cluster.brokers[3].replicas) == {T1}
    follower = cluster.brokers[2].replicas[T0]
    assert (follower.leader, follower.isr, follower.replicas, follower.is_new) == (1, (1, 2), (1, 2), True)
    request = received(cluster.brokers[2], ApiKey.LEADER_AND_ISR)[-1]
    assert request.topic_states[0].topic_id == topic_id
    assert (request.controller_id, request.controller_epoch) == (1, runtime.epoch)
    assert {(node.broker_id, node.port) for node in request.live_leaders} == {(1, 9001), (2, 9002)}
    counts = runtime.counts()
    assert (counts.active_controllers, counts.topics, counts.partitions, counts.offline_partitions) == (1, 1, 2, 0)


async def test_requests_to_a_broker_of_2_7_have_its_versions(cluster: Cluster) -> None:
    await cluster.start_brokers(1)
    cluster.brokers[1].versions = {ApiKey.LEADER_AND_ISR: 4, ApiKey.UPDATE_METADATA: 6, ApiKey.STOP_REPLICA: 3}
    await cluster.start_controller(1)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1) and T0 in cluster.brokers[1].replicas)
    await cluster.zk.create(layout.delete_topic_path("t"))
    await cluster.until_znode(layout.topic_path("t"), lambda data: data is None)


async def test_a_topic_of_an_old_tool_gets_an_id(cluster: Cluster) -> None:
    await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1]}, with_id=False)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    topic = TopicAssignment.decode("t", (await cluster.zk.get(layout.topic_path("t")))[0])
    assert topic.topic_id is not None and topic.topic_id.version == 4


async def test_a_dead_broker_loses_its_leadership_and_regains_it_by_a_preferred_election(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [2, 3], 1: [3, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=3))
    await cluster.brokers[2].down()
    for part in (T0, T1):
        await cluster.until(lambda part=part: knows(cluster.brokers[1], part, leader=3, isr=(3,)))
    assert cluster.brokers[1].live_brokers == (1, 3)
    assert (await cluster.state(T0)).leader_epoch == 1
    assert cluster.brokers[1].metadata[T0].offline_replicas == (2,)
    await cluster.brokers[2].up()
    await cluster.until(lambda: {T0, T1} <= set(cluster.brokers[2].replicas))
    assert cluster.brokers[2].replicas[T0].leader == 3
    await cluster.until(
        lambda: knows(cluster.brokers[2], T0, leader=3) and cluster.brokers[2].live_brokers == (1, 2, 3)
    )
    assert runtime.counts().preferred_replica_imbalance == 1
    # Back in sync, as its leader says; then a tool asks for preferred leaders.
    await alter(cluster, runtime, 3, T0, isr=(3, 2))
    await cluster.zk.create(layout.PREFERRED_ELECTION, layout.encode_partitions([T0, TopicPartition("nothing", 0)]))
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await cluster.until_znode(layout.PREFERRED_ELECTION, lambda data: data is None)
    assert runtime.counts().preferred_replica_imbalance == 0


async def test_without_a_replica_in_sync_a_partition_waits_and_the_whole_set_is_kept(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [2, 3]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await alter(cluster, runtime, 2, T0, isr=(2,))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=-1, isr=(2,)))
    assert runtime.counts().offline_partitions == 1
    await cluster.brokers[2].up()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    assert runtime.counts().offline_partitions == 0


async def test_an_unclean_election_happens_only_where_the_topic_allows_it(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic(
        "t", {0: [2, 3]}, config='{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
    )
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await alter(cluster, runtime, 2, T0, isr=(2,))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,)))
    assert (await cluster.state(T0)).recovering
    assert cluster.brokers[3].replicas[T0].leader_recovery_state == 1
    assert runtime.counts().unclean_elections == 1


async def test_a_broker_that_restarted_unnoticed_gets_the_whole_state_again(cluster: Cluster, received: Any) -> None:
    await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: T0 in cluster.brokers[2].replicas)
    broker, before = cluster.brokers[2], cluster.brokers[2].epoch
    old = broker.zk
    broker.replicas.clear()
    # One transaction replaces the registration, so that it always exists.
    second_client = await cluster.connect_zookeeper()
    data = (await second_client.get(layout.broker_path(2)))[0]
    from odradek.zk.kazoo_client import Create, Delete

    await second_client.multi([Delete(layout.broker_path(2)), Create(layout.broker_path(2), data, ephemeral=True)])
    broker.epoch = (await second_client.get(layout.broker_path(2)))[1].czxid
    assert broker.epoch > before
    await cluster.until(lambda: T0 in broker.replicas)
    await old.close()


async def test_a_topic_grows(cluster: Cluster) -> None:
    await three_brokers(cluster)
    topic_id = await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    found, stat = await cluster.zk.get(layout.topic_path("t"))
    topic = TopicAssignment.decode("t", found)
    grown = TopicAssignment(
        topic="t",
        topic_id=topic_id,
        partitions={**topic.partitions, 1: layout.ReplicaAssignment(replicas=(3, 1))},
    )
    await cluster.zk.set(layout.topic_path("t"), grown.encode(), stat.version)
    await cluster.until(lambda: all(knows(b, T1, leader=3, isr=(3, 1)) for b in cluster.brokers.values()))
    assert (await cluster.state(T0)).leader_epoch == 0


async def test_a_marked_topic_is_deleted_everywhere(cluster: Cluster, received: Any) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1, 2], 1: [2, 3]}, config='{"version":1,"config":{}}')
    await cluster.until(lambda: all(knows(b, T1, leader=2) for b in cluster.brokers.values()))
    await cluster.zk.create(layout.delete_topic_path("t"))
    await cluster.until_znode(layout.delete_topic_path("t"), lambda data: data is None)
    assert await cluster.zk.exists(layout.topic_path("t")) is None
    assert await cluster.zk.exists(layout.config_path("topics", "t")) is None
    deleted = {broker_id: sorted(broker.deleted) for broker_id, broker in cluster.brokers.items()}
    assert deleted == {1: [T0], 2: [T0, T1], 3: [T1]}
    assert all(not broker.metadata for broker in cluster.brokers.values())
    stop = received(cluster.brokers[1], ApiKey.STOP_REPLICA)[-1]
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2
    await cluster.until(lambda: runtime.counts().topics == 0)
    await cluster.make_topic("t", {0: [3]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3))


async def test_a_dead_replica_delays_the_deletion_until_it_returns(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await cluster.brokers[2].down()
    await cluster.until(lambda: cluster.brokers[1].live_brokers == (1, 3))
    await cluster.zk.create(layout.delete_topic_path("t"))
    await cluster.until(lambda: cluster.brokers[1].deleted == [T0])
    assert await cluster.zk.exists(layout.topic_path("t")) is not None
    assert runtime.counts().topics_to_delete == 1
    await cluster.brokers[2].up()
    await cluster.until_znode(layout.topic_path("t"), lambda data: data is None)
    assert cluster.brokers[2].deleted == [T0]


async def test_a_new_controller_finishes_a_deletion(cluster: Cluster) -> None:
    await cluster.start_brokers(1, 2)
    first, _ = await cluster.start_controller(1)
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    cluster.brokers[2].reachable = False
    await cluster.zk.create(layout.delete_topic_path("t"))
    await cluster.until(lambda: cluster.brokers[1].deleted == [T0])
    await first.close()
    cluster.brokers[2].reachable = True
    await cluster.start_controller(2)
    await cluster.until_znode(layout.topic_path("t"), lambda data: data is None)
    assert T0 in cluster.brokers[2].deleted


async def test_marks_are_removed_where_deletion_is_disabled_or_the_topic_unknown(cluster: Cluster) -> None:
    await three_brokers(cluster, delete_topic_enable="false")
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    for topic in ("t", "unknown"):
        await cluster.zk.create(layout.delete_topic_path(topic))
        await cluster.until_znode(layout.delete_topic_path(topic), lambda data: data is None)
    assert await cluster.zk.exists(layout.topic_path("t")) is not None


async def test_another_broker_takes_over_with_the_next_epoch(cluster: Cluster) -> None:
    await cluster.start_brokers(1, 2)
    first, _ = await cluster.start_controller(1)
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[2], T0, leader=1))
    second, _ = await cluster.start_controller(2)
    await cluster.until(lambda: second.controller_id == 1)
    assert first.is_active and not second.is_active
    epoch = first.epoch
    await first.close()
    await cluster.until(lambda: second.epoch == epoch + 1)
    assert ControllerRegistration.decode((await cluster.zk.get(layout.CONTROLLER))[0]).broker_id == 2
    await cluster.until(
        lambda: any(
            key is ApiKey.LEADER_AND_ISR and request.controller_epoch == epoch + 1
            for key, request in cluster.brokers[1].requests
        )
    )
    assert (await cluster.state(T0)).leader_epoch == 0


async def test_the_next_controller_handles_the_failure_of_a_directory(cluster: Cluster) -> None:
    await cluster.start_brokers(1, 2)
    first, _ = await cluster.start_controller(1)
    await cluster.make_topic("t", {0: [2, 1], 1: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=1))
    await first.close()
    await cluster.brokers[2].down()
    await cluster.make_topic("u", {0: [1]})
    await cluster.start_controller(1)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1, isr=(1,)))
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=1, isr=(1,)))
    await cluster.until(lambda: knows(cluster.brokers[1], TopicPartition("u", 0), leader=1))


async def test_a_fenced_controller_writes_nothing_and_takes_part_in_the_next_election(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    epoch = runtime.epoch
    await cluster.zk.set(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 10))
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: runtime.epoch == epoch + 11)
    await cluster.until(lambda: knows(cluster.brokers[2], T0, leader=1))
    assert (await cluster.state(T0)).controller_epoch == epoch + 11


async def test_an_expired_session_ends_the_reign_and_registers_anew(cluster: Cluster) -> None:
    await cluster.start_brokers(2)
    registered = asyncio.Event()

    async def register() -> None:
        registered.set()

    first, client = await cluster.start_controller(1, register=register)
    second, _ = await cluster.start_controller(2)
    await cluster.until(lambda: first.is_active and second.controller_id == 1)
    second_client = KazooClient(hosts=cluster.connect_string.partition("/")[0], client_id=client.credentials)

    def steal() -> None:
        second_client.start()
        second_client.stop()
        second_client.close()

    await asyncio.to_thread(steal)
    await cluster.until(lambda: second.is_active)
    await registered.wait()
    await cluster.until(lambda: not first.is_active and first.controller_id == 2)


async def alter(
    cluster: Cluster, runtime: Any, leader: int, partition: TopicPartition, *, isr: tuple[int, ...], **changes: Any
) -> Any:
    """Send AlterPartition as the leader. Returns the answer for the partition, or for the whole request if refused."""
    data, stat = await cluster.zk.get(layout.partition_state_path(partition))
    topic = TopicAssignment.decode(partition.topic, (await cluster.zk.get(layout.topic_path(partition.topic)))[0])
    values: dict[str, Any] = {
        "partition_index": partition.partition,
        "leader_epoch": PartitionState.decode(partition, data).leader_epoch,
        "new_isr_with_epochs": tuple(AlterPartitionRequestBrokerState(broker_id=member) for member in isr),
        "leader_recovery_state": 0,
        "partition_epoch": stat.version,
    }
    if changes.pop("is_old", False):
        # Versions 0 and 1 have the name of the topic; version 0 has no recovery state.
        old = {name: values[name] for name in ("partition_index", "leader_epoch", "partition_epoch")}
        part = AlterPartitionRequestPartitionData(**old, new_isr=isr)
        name = changes.pop("topic_name", partition.topic)
        topics = (AlterPartitionRequestTopicData(topic_name=name, partitions=(part,)),)
        request = AlterPartitionRequest(broker_id=leader, broker_epoch=cluster.brokers[leader].epoch, topics=topics)
        (received,) = (await runtime.alter_partition(request))["topics"]
        assert received["topic_name"] == topics[0].topic_name
        return received["partitions"][0]
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=changes.pop("broker_epoch", cluster.brokers[leader].epoch),
        topics=(
            AlterPartitionRequestTopicData(
                topic_id=changes.pop("topic_id", topic.topic_id),
                partitions=(AlterPartitionRequestPartitionData(**(values | changes)),),
            ),
        ),
    )
    response = await runtime.alter_partition(request)
    return response if response["error_code"] else response["topics"][0]["partitions"][0]


async def test_leaders_change_their_in_sync_sets_under_the_rules_of_the_protocol(
    cluster: Cluster, received: Any
) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1, 2, 3]})
    await cluster.until(lambda: knows(cluster.brokers[3], T0, leader=1))
    told_before = len(received(cluster.brokers[2], ApiKey.LEADER_AND_ISR))
    shrunk = await alter(cluster, runtime, 1, T0, isr=(1, 3))
    assert shrunk["error_code"] == 0
    assert (shrunk["isr"], shrunk["partition_epoch"], shrunk["leader_epoch"]) == ((1, 3), 1, 0)
    await cluster.until(lambda: all(knows(b, T0, isr=(1, 3), zk_version=1) for b in cluster.brokers.values()))
    assert len(received(cluster.brokers[2], ApiKey.LEADER_AND_ISR)) == told_before
    codes = {
        "repeated": await alter(cluster, runtime, 1, T0, isr=(1, 3), partition_epoch=0),
        "stale partition epoch": await alter(cluster, runtime, 1, T0, isr=(1,), partition_epoch=0),
        "future partition epoch": await alter(cluster, runtime, 1, T0, isr=(1,), partition_epoch=9),
        "fenced": await alter(cluster, runtime, 1, T0, isr=(1,), leader_epoch=-1),
        "not the leader": await alter(cluster, runtime, 2, T0, isr=(2,)),
        "no replica there": await alter(cluster, runtime, 1, T0, isr=(1, 7)),
        "stale broker": await alter(cluster, runtime, 1, T0, isr=(1,), broker_epoch=1),
        "unknown topic": await alter(cluster, runtime, 1, T0, isr=(1,), topic_id=uuid4()),
        "no topic id": await alter(cluster, runtime, 1, T0, isr=(1,), topic_id=None),
    }
    assert {what: answer["error_code"] for what, answer in codes.items()} == {
        "repeated": 0,
        "stale partition epoch": 95,
        "future partition epoch": 41,
        "fenced": 74,
        "not the leader": 42,
        "no replica there": 42,
        "stale broker": 77,
        "unknown topic": 100,
        "no topic id": 100,
    }
    await cluster.brokers[2].down()
    await cluster.until(lambda: cluster.brokers[1].live_brokers == (1, 3))
    assert (await alter(cluster, runtime, 1, T0, isr=(1, 3, 2)))["error_code"] == 107
    # Leaders of Kafka 2.7 to 3.1 send the name of the topic, and do not know that error.
    assert (await alter(cluster, runtime, 1, T0, isr=(1, 3, 2), is_old=True))["error_code"] == 55
    assert (await alter(cluster, runtime, 1, T0, isr=(1,), is_old=True, topic_name="unknown"))["error_code"] == 3
    assert (await alter(cluster, runtime, 1, T0, isr=(1,), is_old=True))["isr"] == (1,)


async def test_an_isr_that_another_writer_changed_is_a_conflict_and_is_read_again(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [1, 2, 3]})
    await cluster.until(lambda: knows(cluster.brokers[3], T0, leader=1))
    state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=runtime.epoch)
    await cluster.zk.set(layout.partition_state_path(T0), state.encode())
    assert (await alter(cluster, runtime, 1, T0, isr=(1,), partition_epoch=0))["error_code"] == 95
    notice = f"{layout.ISR_CHANGES}/{layout.ISR_CHANGE_PREFIX}"
    await cluster.zk.create(notice, layout.encode_partitions([T0]), sequential=True)
    await cluster.until(lambda: knows(cluster.brokers[3], T0, isr=(1, 2), zk_version=1))
    assert (await alter(cluster, runtime, 1, T0, isr=(1,)))["error_code"] == 0


async def test_a_broker_that_stops_cleanly_moves_its_leadership_first(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [2, 3], 1: [3, 2]})
    await cluster.make_topic("single", {0: [2]})
    single = TopicPartition("single", 0)
    await cluster.until(lambda: knows(cluster.brokers[2], single, leader=2) and knows(cluster.brokers[1], T1, leader=3))
    with pytest.raises(StaleBrokerEpochError):
        await runtime.controlled_shutdown(2, cluster.brokers[2].epoch - 1)
    with pytest.raises(BrokerNotAvailableError):
        await runtime.controlled_shutdown(9, 0)
    assert await runtime.controlled_shutdown(2, cluster.brokers[2].epoch) == []
    for part in (T0, T1):
        await cluster.until(lambda part=part: knows(cluster.brokers[1], part, leader=3, isr=(3,)))
        await cluster.until(lambda part=part: cluster.brokers[3].replicas[part].isr == (3,))
    await cluster.until(lambda: T1 not in cluster.brokers[2].replicas)
    assert (await alter(cluster, runtime, 3, T0, isr=(3, 2)))["error_code"] == 107
    assert await runtime.controlled_shutdown(2, cluster.brokers[2].epoch) == []
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], single, leader=-1))


async def test_brokers_get_unique_producer_ids(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    assert await runtime.allocate_producer_ids(2, cluster.brokers[2].epoch) == (0, 1000)
    assert await runtime.allocate_producer_ids(3, cluster.brokers[3].epoch) == (1000, 1000)
    # A broker that allocated its block in ZooKeeper itself.
    assert (await next_producer_ids(cluster.zk, 1)).first_id == 2000
    assert await runtime.allocate_producer_ids(2, cluster.brokers[2].epoch) == (3000, 1000)
    for stale in (-1, cluster.brokers[2].epoch - 1, cluster.brokers[2].epoch + 1):
        with pytest.raises(StaleBrokerEpochError):
            await runtime.allocate_producer_ids(2, stale)
    with pytest.raises(BrokerIdNotRegisteredError):
        await runtime.allocate_producer_ids(9, 0)
    await cluster.zk.set(layout.PRODUCER_ID_BLOCK, b"no block")
    with pytest.raises(UnknownServerError):
        await runtime.allocate_producer_ids(2, cluster.brokers[2].epoch)
    assert runtime.is_active
    found = await cluster.zk.get(layout.PRODUCER_ID_BLOCK)
    assert found[0] == b"no block"


async def test_other_brokers_answer_not_controller(cluster: Cluster) -> None:
    await cluster.start_brokers(1)
    await cluster.start_controller(1)
    other, _ = await cluster.start_controller(2)
    await cluster.until(lambda: other.controller_id == 1)
    assert (await other.alter_partition(AlterPartitionRequest()))["error_code"] == 41
    with pytest.raises(NotControllerError):
        await other.controlled_shutdown(1, -1)
    with pytest.raises(NotControllerError):
        await other.allocate_producer_ids(1, -1)
    with pytest.raises(NotControllerError):
        await other.elect_leaders(None, ElectionKind.PREFERRED)


async def test_preferred_elections_answer_for_each_partition(cluster: Cluster) -> None:
    runtime = await three_brokers(cluster)
    await cluster.make_topic("t", {0: [2, 3], 1: [3, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=3))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,)))
    unknown = TopicPartition("u", 0)
    outcomes = await runtime.elect_leaders([T0, T1, unknown], ElectionKind.PREFERRED)
    assert {part: error.code for part, error in outcomes.items()} == {T0: 80, T1: 84, unknown: 3}


async def test_imbalance_is_undone_by_itself(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from odradek.controller import controller_runtime as module

    monkeypatch.setattr(module, "FIRST_REBALANCE_MS", 1)
    await cluster.start_brokers(1, 2)
    first, _ = await cluster.start_controller(1)
    await cluster.make_topic("t", {0: [2, 1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1, isr=(1,)))
    await cluster.brokers[2].up()
    await cluster.until(lambda: T0 in cluster.brokers[2].replicas)
    await alter(cluster, first, 1, T0, isr=(1, 2))
    await first.close()
    await cluster.start_controller(1, {"auto.leader.rebalance.enable": "true"})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))


async def test_a_replica_on_a_failed_directory_is_offline(cluster: Cluster, received: Any) -> None:
    await three_brokers(cluster)
    await cluster.make_topic("t", {0: [2, 3]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    broker = cluster.brokers[2]
    healthy: Callable[[Any], Any] = broker._leader_and_isr

    def failing(request: Any) -> Any:
        answer = healthy(request)
        for topic in answer["topics"]:
            for part in topic["partition_errors"]:
                part["error_code"] = 56
        return answer

    broker._leader_and_isr = failing
    notice = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
    await cluster.zk.create(notice, layout.LogDirEvent(broker_id=2).encode(), sequential=True)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,), offline_replicas=(2,)))
    assert cluster.brokers[1].live_brokers == (1, 2, 3)
    assert await cluster.zk.children(layout.LOG_DIR_EVENTS) == []
    # Only a restart of the broker with a working directory restores the replica.
    broker._leader_and_isr = healthy
    await broker.down()
    await cluster.until(lambda: cluster.brokers[1].live_brokers == (1, 3))
    await broker.up()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, offline_replicas=()))
    await cluster.until(lambda: T0 in broker.replicas)


async def test_close_is_idempotent_and_leaves_no_controller(cluster: Cluster) -> None:
    await cluster.start_brokers(1)
    runtime, client = await cluster.start_controller(1)
    await cluster.until(lambda: runtime.is_active)
    await runtime.close()
    await runtime.close()
    with pytest.raises(NoNode):
        await client.get(layout.CONTROLLER)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("controller")]
