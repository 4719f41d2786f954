"""Reading a cluster from an in-memory ZooKeeper: topics in detail or only their names, and invalid znodes."""

from __future__ import annotations

import pytest

from odradek.base.types import Endpoint, TopicPartition
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    ClusterId,
    ControllerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from odradek.zk.port import ConnectionLost
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import ObservedConfig, Snapshot

NONSENSE = b"not even JSON"
STATE = PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=5)


async def cluster() -> MemoryZk:
    """Create a cluster of two brokers and a controller. The topics `a` and `b` have one partition each."""
    zk = MemoryZk()
    for path in layout.PERSISTENT_PATHS:
        await zk.ensure_path(path)
    await zk.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(5))
    await zk.create(layout.CLUSTER_ID, ClusterId(cluster_id="the-id").encode(), make_parents=True)
    await zk.create(layout.CONTROLLER, ControllerRegistration(broker_id=2).encode(), ephemeral=True)
    for number in (1, 2):
        broker = BrokerRegistration(broker_id=number, endpoints=(Endpoint("PLAINTEXT", "host", 9092),))
        await zk.create(broker.path, broker.encode(), ephemeral=True)
    for name in ("a", "b"):
        topic = TopicAssignment(topic=name, partitions={0: ReplicaAssignment(replicas=(1, 2))})
        await zk.create(topic.path, topic.encode())
        await zk.create(state_path(name), STATE.encode(), make_parents=True)
        await zk.create(layout.config_path("topics", name), layout.encode_config({"retention.ms": "1"}))
    return zk


def state_path(topic: str) -> str:
    return layout.partition_state_path(TopicPartition(topic, 0))


def config(**values: str) -> ObservedConfig:
    return ObservedConfig(values={key.replace("_", "."): value for key, value in values.items()}, version=0)


async def test_some_topics_are_read_in_depth_and_others_by_name() -> None:
    zk = await cluster()
    seen = await read_snapshot(zk, ["a", "missing"])
    assert (seen.cluster_id, seen.controller_id, seen.controller_epoch) == ("the-id", 2, 5)
    assert sorted(seen.brokers) == [1, 2]
    assert (seen.topics["a"].states, seen.topics["a"].version) == ({0: STATE}, 0)
    assert (dict(seen.topics["b"].assignment.partitions), seen.topics["b"].version) == ({}, -1)
    assert seen.configs == {"a": config(retention_ms="1")}
    assert not seen.reassignment_requested
    assert (seen.unreadable, seen.damaged) == ({}, ())


async def test_everything_is_read_in_depth_with_what_earlier_topics_left_behind() -> None:
    zk = await cluster()
    await zk.create(layout.config_path("topics", "gone"), layout.encode_config({"segment.bytes": "9"}))
    seen = await read_snapshot(zk, None)
    assert {name: topic.states for name, topic in seen.topics.items()} == {"a": {0: STATE}, "b": {0: STATE}}
    assert sorted(seen.configs) == ["a", "b", "gone"]
    assert seen.configs["gone"] == config(segment_bytes="9")


async def test_dynamic_properties_of_brokers_are_read_by_entity() -> None:
    zk = await cluster()
    await zk.create(layout.config_path("brokers", "<default>"), layout.encode_config({"log.retention.ms": "7"}))
    await zk.create(layout.config_path("brokers", "2"), layout.encode_config({}))
    seen = await read_snapshot(zk, [])
    assert seen.broker_configs == {"<default>": config(log_retention_ms="7"), "2": config()}


async def test_a_reassignment_is_seen() -> None:
    zk = await cluster()
    move = TopicPartition("a", 0)
    await zk.create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment({move: [2, 1]}))
    seen = await read_snapshot(zk, [])
    assert (seen.reassigning, seen.reassignment_requested) == (frozenset({move}), True)


@pytest.mark.parametrize("path", ["/brokers/topics/a", state_path("a"), "/config/topics/a"])
@pytest.mark.parametrize("everything", [True, False])
async def test_a_znode_that_cannot_be_understood_spoils_its_topic_alone(path: str, everything: bool) -> None:
    zk = await cluster()
    whole = await read_snapshot(zk, None)
    await zk.set(path, NONSENSE)
    seen = await read_snapshot(zk, None if everything else ["a", "b"])
    assert list(seen.unreadable) == ["a"]
    assert seen.unreadable["a"] == f"A znode is invalid: {path}: not JSON: {NONSENSE!r}."
    assert seen.damaged == ()
    # The topic still counts as existing, and not as one that was not read.
    assert seen.topics["a"].version >= 0
    assert seen.topics["b"] == whole.topics["b"]
    assert seen.configs["b"] == whole.configs["b"]


async def test_a_configuration_without_a_topic_can_be_spoiled_too() -> None:
    zk = await cluster()
    await zk.create(layout.config_path("topics", "gone"), NONSENSE)
    seen = await read_snapshot(zk, None)
    assert list(seen.unreadable) == ["gone"]
    assert "gone" not in seen.topics


@pytest.mark.parametrize(
    "path",
    [layout.CLUSTER_ID, layout.CONTROLLER, layout.CONTROLLER_EPOCH, "/brokers/ids/1", layout.REASSIGN_PARTITIONS],
)
async def test_other_znodes_that_cannot_be_understood_count_as_missing(path: str) -> None:
    zk = await cluster()
    await zk.create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment({}))
    await zk.create(layout.config_path("brokers", "1"), NONSENSE)
    await zk.set(path, NONSENSE)
    seen = await read_snapshot(zk, None)
    assert [path in message for message in seen.damaged].count(True) == 1
    assert len(seen.damaged) == 2
    assert sorted(seen.topics) == ["a", "b"]
    assert seen.unreadable == {}
    missing = {
        layout.CLUSTER_ID: seen.cluster_id is None,
        layout.CONTROLLER: seen.controller_id is None,
        layout.CONTROLLER_EPOCH: seen.controller_epoch_version is None,
        "/brokers/ids/1": sorted(seen.brokers) == [2],
        layout.REASSIGN_PARTITIONS: seen.reassigning == frozenset() and seen.reassignment_requested,
    }
    assert missing[path]


async def test_names_that_are_no_ids_are_no_brokers() -> None:
    zk = await cluster()
    await zk.create("/brokers/ids/one", b"{}")
    assert sorted((await read_snapshot(zk, [])).brokers) == [1, 2]


async def test_an_ensemble_that_nobody_has_used_is_empty() -> None:
    assert await read_snapshot(MemoryZk(), None) == Snapshot()


async def test_zookeeper_that_cannot_be_asked_is_an_error_and_no_empty_cluster() -> None:
    zk = await cluster()
    zk.failures.append(ConnectionLost("no answer"))
    with pytest.raises(ConnectionLost):
        await read_snapshot(zk, None)
