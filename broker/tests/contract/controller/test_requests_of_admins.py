"""Admin requests to the controller, with a real ZooKeeper: reassignments, elections, features, settings."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.errors import InvalidRequestError, NotControllerError
from odradek.base.types import TopicPartition
from odradek.controller.elections.candidates import ElectionKind
from odradek.controller.features import FeatureUpdate
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.internal import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from odradek.zk import layout
from odradek.zk.layout import Feature, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.registration import announce_config_change

pytestmark = pytest.mark.java

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Cluster = Any


def knows(broker: Any, partition: TopicPartition, **wanted: Any) -> bool:
    """Whether the broker's metadata has the partition with these values."""
    state = broker.metadata.get(partition)
    return state is not None and all(getattr(state, name) == value for name, value in wanted.items())


async def started(cluster: Cluster, *ids: int, **settings: str) -> Any:
    await cluster.start_brokers(*ids)
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    runtime, _ = await cluster.start_controller(ids[0], properties)
    await cluster.until(lambda: all(broker.live_brokers == ids for broker in cluster.brokers.values()))
    return runtime


async def assignment(cluster: Cluster, partition: TopicPartition) -> ReplicaAssignment:
    data, _ = await cluster.zk.get(layout.topic_path(partition.topic))
    return TopicAssignment.decode(partition.topic, data).partitions[partition.partition]


async def in_sync(cluster: Cluster, runtime: Any, partition: TopicPartition, *isr: int) -> int:
    """Propose an ISR as the leader. Returns the error code."""
    data, stat = await cluster.zk.get(layout.partition_state_path(partition))
    state = PartitionState.decode(partition, data)
    topic = TopicAssignment.decode(partition.topic, (await cluster.zk.get(layout.topic_path(partition.topic)))[0])
    part = AlterPartitionRequestPartitionData(
        partition_index=partition.partition,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=tuple(AlterPartitionRequestBrokerState(broker_id=member) for member in isr),
        leader_recovery_state=0,
        partition_epoch=stat.version,
    )
    request = AlterPartitionRequest(
        broker_id=state.leader,
        broker_epoch=cluster.brokers[state.leader].epoch,
        topics=(AlterPartitionRequestTopicData(topic_id=topic.topic_id, partitions=(part,)),),
    )
    response = await runtime.alter_partition(request)
    code: int = response["error_code"] or response["topics"][0]["partitions"][0]["error_code"]
    return code


async def test_a_partition_moves_when_its_new_replicas_have_caught_up(cluster: Cluster, received: Any) -> None:
    runtime = await started(cluster, 1, 2, 3, 4)
    await cluster.make_topic("t", {0: [1, 2], 1: [2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1) and knows(cluster.brokers[1], T1, leader=2))
    assert await runtime.alter_reassignments({T0: (3, 4)}) == {T0: None}
    moving = ReplicaAssignment(replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    assert await assignment(cluster, T0) == moving
    assert await runtime.list_reassignments(None) == await runtime.list_reassignments([T0, T1]) == {T0: moving}
    assert await runtime.list_reassignments([T1]) == {}
    assert runtime.counts().reassigning_partitions == 1
    await cluster.until(lambda: T0 in cluster.brokers[3].replicas and T0 in cluster.brokers[4].replicas)
    await cluster.until(lambda: cluster.brokers[1].replicas[T0].leader_epoch == 1)
    role = cluster.brokers[3].replicas[T0]
    assert (role.leader, role.is_new, role.adding_replicas, role.removing_replicas) == (1, True, (3, 4), (1, 2))
    assert cluster.brokers[1].replicas[T0].is_new is False
    assert await in_sync(cluster, runtime, T0, 1, 2, 3) == 0
    assert await assignment(cluster, T0) == moving
    assert await in_sync(cluster, runtime, T0, 1, 2, 3, 4) == 0
    for broker in cluster.brokers.values():
        await cluster.until(lambda broker=broker: knows(broker, T0, leader=3, isr=(3, 4), replicas=(3, 4)))
    await cluster.until(lambda: cluster.brokers[1].deleted == [T0] and cluster.brokers[2].deleted == [T0])
    assert set(cluster.brokers[2].replicas) == {T1}
    moved = ReplicaAssignment(replicas=(3, 4))
    await cluster.until_znode(
        layout.topic_path("t"),
        lambda data: data is not None and TopicAssignment.decode("t", data).partitions[0] == moved,
    )
    assert await runtime.list_reassignments(None) == {}
    stop = received(cluster.brokers[1], ApiKey.STOP_REPLICA)[-1].topic_states[0].partition_states[0]
    assert (stop.delete_partition, stop.leader_epoch) == (True, 2)
    assert cluster.brokers[3].replicas[T0].leader_epoch == 2


async def test_requests_are_refused_individually(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [1], 1: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=1))
    unknown = TopicPartition("nothing", 0)
    results = await runtime.alter_reassignments({T0: (2, 9), T1: (2,), unknown: (1,)})
    assert {part: getattr(error, "code", None) for part, error in results.items()} == {T0: 39, T1: None, unknown: 3}
    results = await runtime.alter_reassignments({T0: None, T1: (2, 2)})
    assert {part: getattr(error, "code", None) for part, error in results.items()} == {T0: 85, T1: 39}
    other, _ = await cluster.start_controller(2)
    for asked in (other.alter_reassignments({T0: (2,)}), other.list_reassignments(None)):
        with pytest.raises(NotControllerError):
            await asked


async def test_a_cancellation_removes_the_added_replicas(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2, 3)
    await cluster.make_topic("t", {0: [1, 2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await runtime.alter_reassignments({T0: (3,)})
    await cluster.until(lambda: T0 in cluster.brokers[3].replicas)
    assert await runtime.alter_reassignments({T0: None}) == {T0: None}
    assert await assignment(cluster, T0) == ReplicaAssignment(replicas=(1, 2))
    await cluster.until(lambda: cluster.brokers[3].deleted == [T0])
    await cluster.until(lambda: knows(cluster.brokers[2], T0, leader=1, isr=(1, 2), replicas=(1, 2)))


async def test_a_new_controller_finishes_what_the_old_one_began(cluster: Cluster) -> None:
    first = await started(cluster, 1, 2, 3)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await first.alter_reassignments({T0: (3,)})
    await first.close()
    second, _ = await cluster.start_controller(2)
    await cluster.until(lambda: cluster.brokers[3].replicas[T0].controller_epoch == second.epoch)
    assert cluster.brokers[3].replicas[T0].is_new is True
    assert await in_sync(cluster, second, T0, 1, 3) == 0
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,), replicas=(3,)))


async def test_a_restarted_broker_continues_to_catch_up(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2, 3)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await runtime.alter_reassignments({T0: (3,)})
    await cluster.until(lambda: T0 in cluster.brokers[3].replicas)
    await cluster.brokers[3].down()
    await cluster.until(lambda: cluster.brokers[1].live_brokers == (1, 2))
    await cluster.brokers[3].up()
    await cluster.until(lambda: T0 in cluster.brokers[3].replicas and cluster.brokers[3].replicas[T0].is_new)
    assert await in_sync(cluster, runtime, T0, 1, 3) == 0
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, replicas=(3,)))


async def test_an_old_broker_that_writes_the_in_sync_set_itself_completes_it_too(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await runtime.alter_reassignments({T0: (2,)})
    state = await cluster.state(T0)
    changed = PartitionState(leader=1, leader_epoch=state.leader_epoch, isr=(1, 2), controller_epoch=runtime.epoch)
    await cluster.zk.set(layout.partition_state_path(T0), changed.encode())
    notice = f"{layout.ISR_CHANGES}/{layout.ISR_CHANGE_PREFIX}"
    await cluster.zk.create(notice, layout.encode_partitions([T0]), sequential=True)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2, isr=(2,), replicas=(2,)))


async def test_the_znode_of_old_tools_is_followed_and_cleared(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2, 3)
    await cluster.make_topic("t", {0: [1], 1: [2, 1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1) and knows(cluster.brokers[1], T1, leader=2))
    targets = {T0: (3,), T1: (1, 2), TopicPartition("nothing", 0): (1,), TopicPartition("t", 7): (1,)}
    await cluster.zk.create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment(targets))
    # The order of T1 changes at once, the unknown partition is removed, T0 stays until its reassignment is complete.
    left = layout.encode_reassignment({T0: (3,)})
    await cluster.until_znode(layout.REASSIGN_PARTITIONS, lambda data: data == left)
    assert await assignment(cluster, T1) == ReplicaAssignment(replicas=(1, 2))
    assert await in_sync(cluster, runtime, T0, 1, 3) == 0
    await cluster.until_znode(layout.REASSIGN_PARTITIONS, lambda data: data is None)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, replicas=(3,)))
    await cluster.zk.create(layout.REASSIGN_PARTITIONS, b"{}")
    await cluster.until_znode(layout.REASSIGN_PARTITIONS, lambda data: data is None)
    await cluster.zk.create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment({T0: (2,)}))
    await cluster.until(lambda: T0 in cluster.brokers[2].replicas)
    assert await runtime.alter_reassignments({T0: (1,)}) == {T0: None}
    await cluster.until_znode(layout.REASSIGN_PARTITIONS, lambda data: data is None)
    assert (await assignment(cluster, T0)).target == (1,)


async def test_partitions_that_are_added_meanwhile_stay(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    topic = TopicAssignment.decode("t", (await cluster.zk.get(layout.topic_path("t")))[0])
    grown = {**topic.partitions, 1: ReplicaAssignment(replicas=(2,))}
    await cluster.zk.set(topic.path, TopicAssignment(topic="t", topic_id=topic.topic_id, partitions=grown).encode())
    await runtime.alter_reassignments({T0: (2,)})
    await cluster.until(lambda: knows(cluster.brokers[1], T1, leader=2))
    assert await assignment(cluster, T1) == ReplicaAssignment(replicas=(2,))


async def test_a_topic_is_deleted_after_its_reassignment(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await runtime.alter_reassignments({T0: (2,)})
    await cluster.zk.create(layout.delete_topic_path("t"))
    await cluster.until(lambda: runtime.counts().topics_to_delete == 1)
    results = await runtime.alter_reassignments({T0: (1, 2)})
    assert getattr(results[T0], "code", None) == 3
    outcomes = await runtime.elect_leaders([T0], ElectionKind.PREFERRED)
    assert getattr(outcomes[T0], "code", None) == 17
    assert knows(cluster.brokers[1], T0, leader=1)
    assert await in_sync(cluster, runtime, T0, 1, 2) == 0
    await cluster.until_znode(layout.delete_topic_path("t"), lambda data: data is None)
    assert await cluster.zk.exists(layout.topic_path("t")) is None
    assert cluster.brokers[2].deleted == [T0]


async def test_a_new_controller_deletes_a_topic_after_its_reassignment(cluster: Cluster) -> None:
    first = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [1]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=1))
    await first.alter_reassignments({T0: (2,)})
    await first.close()
    await cluster.zk.create(layout.delete_topic_path("t"))
    second, _ = await cluster.start_controller(2)
    await cluster.until(lambda: second.counts().topics_to_delete == 1)
    assert await second.alter_reassignments({T0: None}) == {T0: None}
    await cluster.until_znode(layout.delete_topic_path("t"), lambda data: data is None)
    assert cluster.brokers[1].deleted == [T0]


async def offline_with_a_live_replica(cluster: Cluster, config: str | None = None) -> None:
    """Create T0 on brokers 2 and 3; only 2 was in sync when it died."""
    await cluster.make_topic("t", {0: [2, 3]}, config=config)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await cluster.brokers[3].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2, isr=(2,)))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=-1, isr=(2,)))
    await cluster.brokers[3].up()
    await cluster.until(lambda: T0 in cluster.brokers[3].replicas)
    assert knows(cluster.brokers[1], T0, leader=-1)


async def test_an_unclean_election_on_request(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2, 3)
    await offline_with_a_live_replica(cluster)
    outcomes = await runtime.elect_leaders([T0], ElectionKind.PREFERRED)
    assert getattr(outcomes[T0], "code", None) == 80
    assert await runtime.elect_leaders([T0], ElectionKind.UNCLEAN) == {T0: 3}
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,)))
    assert (await cluster.state(T0)).recovering
    assert runtime.counts().unclean_elections == 1
    outcomes = await runtime.elect_leaders(None, ElectionKind.UNCLEAN)
    assert getattr(outcomes[T0], "code", None) == 84


async def test_no_leader_is_elected_without_a_live_replica(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2)
    await cluster.make_topic("t", {0: [2]})
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=2))
    await cluster.brokers[2].down()
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=-1))
    outcomes = await runtime.elect_leaders([T0], ElectionKind.UNCLEAN)
    assert getattr(outcomes[T0], "code", None) == 83


@pytest.mark.parametrize(
    ("path", "told_of"),
    [("topics/t", "t"), ("brokers/<default>", None), ("brokers/1", None)],
)
async def test_unclean_elections_happen_as_soon_as_they_are_allowed(
    cluster: Cluster, path: str, told_of: str | None
) -> None:
    runtime = await started(cluster, 1, 2, 3)
    await offline_with_a_live_replica(cluster)
    runtime.topic_settings_changed(told_of)
    # Events are handled in order: when this one is answered, the previous one is complete.
    await runtime.elect_leaders([T0], ElectionKind.PREFERRED)
    settings = layout.encode_config({"unclean.leader.election.enable": "true"})
    await cluster.zk.create(f"{layout.CONFIG}/{path}", settings, make_parents=True)
    assert (await cluster.state(T0)).leader == -1
    await announce_config_change(cluster.zk, path)
    runtime.topic_settings_changed(told_of)
    await cluster.until(lambda: knows(cluster.brokers[1], T0, leader=3, isr=(3,)))


async def test_settings_that_make_no_sense_do_not_end_a_reign(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, 2, 3)
    epoch = runtime.epoch
    await offline_with_a_live_replica(cluster, config="no JSON")
    runtime.topic_settings_changed("t")
    outcomes = await runtime.elect_leaders([T0], ElectionKind.UNCLEAN)
    assert (outcomes, runtime.epoch) == ({T0: 3}, epoch)


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    [
        ("3.9", b'{"features":{},"version":2,"status":1}'),
        ("2.7", b'{"features":{},"version":1,"status":1}'),
        ("2.6", b'{"features":{},"version":1,"status":0}'),
    ],
)
async def test_the_features_of_a_cluster(cluster: Cluster, protocol: str, wanted: bytes) -> None:
    runtime = await started(cluster, 1, inter_broker_protocol_version=protocol)
    data, stat = await cluster.zk.get(layout.FEATURE)
    assert (data, stat.version) == (wanted, 0)
    await runtime.close()
    await cluster.start_controller(1, {"inter.broker.protocol.version": "3.9"})
    # A broker becomes controller before it has written the features.
    enabled = Feature(enabled=True, features={}).encode()
    await cluster.until_znode(layout.FEATURE, lambda found: found == enabled)
    _, stat = await cluster.zk.get(layout.FEATURE)
    assert stat.version == (0 if protocol == "3.9" else 1)


async def test_what_another_make_finalized_can_be_removed(cluster: Cluster) -> None:
    await cluster.zk.create(layout.FEATURE, Feature(enabled=True, features={"f": 1}).encode())
    runtime = await started(cluster, 1)
    update = FeatureUpdate(feature="f", level=0, upgrade_type=2)
    assert await runtime.update_features([update], validate_only=True) == {"f": None}
    assert Feature.decode((await cluster.zk.get(layout.FEATURE))[0]).features == {"f": 1}
    assert await runtime.update_features([update], validate_only=False) == {"f": None}
    assert Feature.decode((await cluster.zk.get(layout.FEATURE))[0]).features == {}
    results = await runtime.update_features([update], validate_only=False)
    assert getattr(results["f"], "code", None) == 42


async def test_features_are_not_updated_where_they_are_disabled(cluster: Cluster) -> None:
    runtime = await started(cluster, 1, inter_broker_protocol_version="2.6")
    with pytest.raises(InvalidRequestError, match="does not support features"):
        await runtime.update_features([], validate_only=False)
