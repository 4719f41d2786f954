"""Rounds of the operator against a real ZooKeeper. The test simulates the brokers and the controller."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.layout import (
    BrokerRegistration,
    ClusterId,
    ConfigChangeNotification,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from odradek.zk.ownership import MANAGED_BROKERS, MANAGED_TOPICS, ManagedBrokers
from odradek.zk.port import Delete, NoNode, Operation, Result, SetData, ZkSettings
from odradek_operator.crds import Cluster, Deletion, Topic, ZooKeeper
from odradek_operator.lifecycle import defaults, ids
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.steps import LiftThrottle, MoveReplicas, SetBrokerDefaults
from odradek_operator.topics.reconcile import MAX_ROUNDS, reconcile
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    ForgetOwnership,
    RecordOwnership,
    SetConfig,
)
from odradek_operator.topics.topic_plan import Wanted, make_plan
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out, carry_out_step, new_topic_id

pytestmark = pytest.mark.java

ORDERS = Topic(name="orders", cluster="demo", partitions=2, replicas=2, config={"retention.ms": "60000"})


class Meddled(KazooZkClient):
    """A client for which another controller is elected before each of the next `elections` transactions."""

    elections = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Elect another controller, then run the transaction."""
        if self.elections:
            self.elections -= 1
            await self.set(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(self.elections))
        return await super().multi(operations)


@pytest.fixture
async def zk(odradek_zookeeper: str) -> AsyncIterator[Meddled]:
    """Return a client in a chroot with the znodes of three brokers and a controller with epoch 5."""
    client = Meddled(ZkSettings(connect=f"{odradek_zookeeper}/operator-{uuid4().hex}"))
    await client.start()
    for path in layout.PERSISTENT_PATHS:
        await client.ensure_path(path)
    await client.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(5))
    await client.create(layout.CLUSTER_ID, ClusterId(cluster_id="the-id").encode(), make_parents=True)
    for number in range(3):
        broker = BrokerRegistration(broker_id=number, endpoints=(Endpoint("PLAINTEXT", "host", 9092 + number),))
        await client.create(broker.path, broker.encode(), ephemeral=True)
    yield client
    await client.close()


def wanted(*topics: Topic, removed: tuple[Topic, ...] = ()) -> Wanted:
    return Wanted(
        cluster=Cluster(name="demo"),
        topics={topic.name: topic for topic in topics},
        removed={topic.name: topic for topic in removed},
    )


async def settle(zk: KazooZkClient, desired: Wanted) -> list[Action]:
    done: list[Action] = []
    outcome = await reconcile(zk, desired, done.append)
    assert outcome.settled
    return done


async def json_of(zk: KazooZkClient, path: str) -> Any:
    data, _ = await zk.get(path)
    return json.loads(data)


async def test_a_topic_is_written_as_kafka_writes_it(zk: KazooZkClient) -> None:
    (action,) = await settle(zk, wanted(ORDERS))
    assert isinstance(action, CreateTopic)
    written = await json_of(zk, "/brokers/topics/orders")
    assert written["version"] == 3
    assert written["partitions"] == {str(n): list(replicas) for n, replicas in action.assignment.items()}
    assert (written["adding_replicas"], written["removing_replicas"]) == ({}, {})
    assert UUID(bytes=layout.decode_uuid(written["topic_id"]).bytes).version == 4
    assert await json_of(zk, "/config/topics/orders") == {"version": 1, "config": {"retention.ms": "60000"}}
    assert await zk.children(layout.CONFIG_CHANGES) == []
    assert await settle(zk, wanted(ORDERS)) == []


async def test_growth_and_configuration_follow(zk: KazooZkClient) -> None:
    await settle(zk, wanted(ORDERS))
    before = TopicAssignment.decode("orders", (await zk.get("/brokers/topics/orders"))[0])
    changed = dataclasses.replace(ORDERS, partitions=5, config={"segment.bytes": "100000"})
    assert [type(action) for action in await settle(zk, wanted(changed))] == [AddPartitions, SetConfig]
    after = TopicAssignment.decode("orders", (await zk.get("/brokers/topics/orders"))[0])
    assert sorted(after.partitions) == [0, 1, 2, 3, 4]
    assert {number: after.partitions[number] for number in before.partitions} == before.partitions
    assert after.topic_id == before.topic_id
    assert await json_of(zk, "/config/topics/orders") == {"version": 1, "config": {"segment.bytes": "100000"}}
    (change,) = await zk.children(layout.CONFIG_CHANGES)
    path = f"{layout.CONFIG_CHANGES}/{change}"
    assert change == "config_change_0000000000"
    assert ConfigChangeNotification.decode(path, (await zk.get(path))[0]).entity_path == "topics/orders"


async def test_a_removed_topic_is_marked_for_deletion_once(zk: KazooZkClient) -> None:
    loose = dataclasses.replace(ORDERS, deletion=Deletion.DELETE)
    await settle(zk, wanted(loose))
    assert [type(action) for action in await settle(zk, wanted(removed=(loose,)))] == [DeleteTopic]
    assert await zk.children(layout.DELETE_TOPICS) == ["orders"]
    assert (await zk.get("/admin/delete_topics/orders"))[0] == b""
    assert await settle(zk, wanted(removed=(loose,))) == []


async def test_a_protected_topic_stays(zk: KazooZkClient) -> None:
    await settle(zk, wanted(ORDERS))
    assert [type(action) for action in await settle(zk, wanted(removed=(ORDERS,)))] == [ForgetOwnership]
    assert await settle(zk, wanted(removed=(ORDERS,))) == []
    assert await zk.children(layout.DELETE_TOPICS) == []
    assert await zk.children(MANAGED_TOPICS) == []


async def test_an_adopted_topic_keeps_its_settings_and_loses_only_what_the_resource_drops(zk: KazooZkClient) -> None:
    for_ever = {"retention.ms": "-1", "segment.bytes": "100000"}
    await settle(zk, wanted(ORDERS))
    await settle(zk, wanted(removed=(ORDERS,)))
    await zk.set("/config/topics/orders", layout.encode_config(for_ever))
    plain = dataclasses.replace(ORDERS, config={}, uid="1")
    assert [type(action) for action in await settle(zk, wanted(plain))] == [RecordOwnership]
    assert (await json_of(zk, "/config/topics/orders"))["config"] == for_ever
    listing = dataclasses.replace(plain, config={"preallocate": "true"})
    assert [type(action) for action in await settle(zk, wanted(listing))] == [SetConfig]
    assert (await json_of(zk, "/config/topics/orders"))["config"] == {**for_ever, "preallocate": "true"}
    assert [type(action) for action in await settle(zk, wanted(plain))] == [SetConfig]
    assert (await json_of(zk, "/config/topics/orders"))["config"] == for_ever
    record = await json_of(zk, "/odradek/topics/orders")
    assert (record["resource"], record["owned"], record["preserved"]) == ("1", [], sorted(for_ever))


async def test_the_record_of_a_deleted_topic_goes_with_it(zk: KazooZkClient) -> None:
    loose = dataclasses.replace(ORDERS, deletion=Deletion.DELETE)
    await settle(zk, wanted(loose))
    assert await zk.children(MANAGED_TOPICS) == ["orders"]
    await settle(zk, wanted(removed=(loose,)))
    assert await zk.children(MANAGED_TOPICS) == []


async def test_the_snapshot_has_everything_that_is_decided_from(zk: KazooZkClient) -> None:
    await settle(zk, wanted(ORDERS))
    state = PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=5)
    path = layout.partition_state_path(TopicPartition("orders", 1))
    await zk.create(path, state.encode(), make_parents=True)
    await zk.create("/brokers/topics/stranger", b"not even JSON")
    seen = await read_snapshot(zk, ["orders", "missing"])
    assert (seen.cluster_id, seen.controller_id, seen.controller_epoch) == ("the-id", None, 5)
    assert seen.controller_epoch_version == 0
    assert sorted(seen.brokers) == [0, 1, 2]
    assert sorted(seen.topics) == ["orders", "stranger"]
    assert seen.topics["orders"].states == {1: state}
    assert seen.configs["orders"].values == {"retention.ms": "60000"}
    assert seen.deleting == frozenset()


async def test_an_ensemble_that_nobody_has_used_is_empty(odradek_zookeeper: str) -> None:
    client = KazooZkClient(ZkSettings(connect=f"{odradek_zookeeper}/operator-{uuid4().hex}"))
    await client.start()
    try:
        seen = await read_snapshot(client, ["orders"])
        assert (seen.cluster_id, seen.controller_epoch_version, seen.brokers, seen.topics) == (None, None, {}, {})
        outcome = await reconcile(client, wanted(ORDERS), lambda action: None)
        assert [refusal.obstacle.value for refusal in outcome.plan.refusals] == ["NoController"]
    finally:
        await client.close()


async def all_znodes(zk: KazooZkClient, path: str = "") -> dict[str, bytes]:
    """Return the data of all znodes below a path."""
    found: dict[str, bytes] = {}
    for child in await zk.children(path or "/"):
        below = f"{path}/{child}"
        found[below] = (await zk.get(below))[0]
        found |= await all_znodes(zk, below)
    return found


@pytest.mark.parametrize("kind", [CreateTopic, AddPartitions, SetConfig, DeleteTopic])
async def test_no_write_outlives_the_controller_it_was_planned_under(zk: KazooZkClient, kind: type[Action]) -> None:
    changed = dataclasses.replace(ORDERS, partitions=3, config={})
    other = Topic(name="other", cluster="demo", replicas=1)
    gone = Topic(name="gone", cluster="demo", replicas=1, deletion=Deletion.DELETE)
    await settle(zk, wanted(ORDERS, gone))
    seen = await read_snapshot(zk, ["orders", "other", "gone"])
    plan = make_plan(wanted(changed, other, removed=(gone,)), seen)
    planned = {type(action): action for action in plan.actions}
    # Another controller is elected between the plan and the write.
    await zk.set(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(6))
    before = await all_znodes(zk)
    assert seen.controller_epoch_version is not None
    with pytest.raises(OutdatedError):
        await carry_out(zk, planned[kind], epoch_version=seen.controller_epoch_version)
    assert await all_znodes(zk) == before


async def test_a_topic_that_was_made_anew_is_not_deleted(zk: KazooZkClient) -> None:
    loose = dataclasses.replace(ORDERS, deletion=Deletion.DELETE)
    await settle(zk, wanted(loose))
    data, stat = await zk.get("/brokers/topics/orders")
    await zk.set("/brokers/topics/orders", data, stat.version)
    action = DeleteTopic(topic="orders", version=stat.version, ownership_version=None, reason="it was planned before")
    with pytest.raises(OutdatedError):
        await carry_out(zk, action, epoch_version=0)
    assert await zk.children(layout.DELETE_TOPICS) == []


@pytest.mark.parametrize(("elections", "settled"), [(1, True), (MAX_ROUNDS - 2, True), (MAX_ROUNDS, False)])
async def test_what_changed_meanwhile_is_read_and_planned_again(zk: Meddled, elections: int, settled: bool) -> None:
    zk.elections = elections
    done: list[Action] = []
    outcome = await reconcile(zk, wanted(ORDERS), done.append)
    assert (len(done), outcome.settled) == (int(settled), settled)


async def test_a_topic_that_vanishes_while_it_is_read_is_created_next_time(zk: KazooZkClient) -> None:
    await settle(zk, wanted(ORDERS))
    await zk.multi([Delete("/brokers/topics/orders"), SetData(layout.CONTROLLER_EPOCH, b"6")])
    with pytest.raises(NoNode):
        await zk.get("/brokers/topics/orders")
    (action,) = await settle(zk, wanted(ORDERS))
    assert isinstance(action, CreateTopic)
    assert action.config_version == 0


async def test_one_spoiled_topic_holds_no_other_up(zk: KazooZkClient) -> None:
    await zk.create("/brokers/topics/spoiled", b"not even JSON")
    spoiled = Topic(name="spoiled", cluster="demo", deletion=Deletion.DELETE)
    done: list[Action] = []
    outcome = await reconcile(zk, wanted(ORDERS, spoiled), done.append, everything=True)
    assert [action.topic for action in done] == ["orders"]
    (refusal,) = outcome.plan.refusals
    assert (refusal.topic, refusal.obstacle.value) == ("spoiled", "ZnodeUnreadable")
    assert "/brokers/topics/spoiled: not JSON" in refusal.message
    assert await settle(zk, wanted(ORDERS, removed=(spoiled,))) == []
    assert await zk.children(layout.DELETE_TOPICS) == []


async def test_a_reassignment_and_its_throttle_come_and_go_together(zk: KazooZkClient) -> None:
    await settle(zk, wanted(ORDERS))
    await zk.ensure_path("/admin")
    before = await read_snapshot(zk, None)
    partition = TopicPartition("orders", 0)
    move = MoveReplicas(
        targets={partition: (2, 0, 1)},
        versions={"orders": before.topics["orders"].version},
        throttle_bytes_per_second=1000,
        broker_defaults={"leader.replication.throttled.rate": "1000"},
        topic_configs={"orders": {"leader.replication.throttled.replicas": "0:1"}},
        reason="more replicas",
    )
    await carry_out_step(zk, move, epoch_version=0)
    after = await read_snapshot(zk, None)
    assert (after.reassigning, after.reassignment_requested) == (frozenset({partition}), True)
    assert after.broker_configs["<default>"].values == {"leader.replication.throttled.rate": "1000"}
    assert after.configs["orders"].values["leader.replication.throttled.replicas"] == "0:1"
    assert await settle(zk, wanted(ORDERS)) == [], "the throttle is no drift"
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, move, epoch_version=0)
    lift = LiftThrottle(
        broker_defaults=("leader.replication.throttled.rate",),
        topics={"orders": ("leader.replication.throttled.replicas",)},
        reason="no replica is moving",
    )
    await carry_out_step(zk, lift, epoch_version=0)
    lifted = await read_snapshot(zk, None)
    assert lifted.broker_configs["<default>"].values == {}
    assert lifted.configs["orders"].values == before.configs["orders"].values
    assert len(await zk.children(layout.CONFIG_CHANGES)) == 4


async def test_dynamic_defaults_are_written_under_the_version_that_was_read(zk: KazooZkClient) -> None:
    first = SetBrokerDefaults(
        config={"log.retention.ms": "1"}, version=None, record=ManagedBrokers(), record_version=None, reason="why"
    )
    await carry_out_step(zk, first, epoch_version=0)
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, first, epoch_version=0)
    await carry_out_step(zk, dataclasses.replace(first, version=0, record_version=0, config={}), epoch_version=0)
    assert (await read_snapshot(zk, [])).broker_configs["<default>"].values == {}


async def test_a_cluster_in_another_ensemble_removes_only_what_it_set_there(zk: KazooZkClient) -> None:
    theirs = {"ssl.keystore.password": "cipher:geheim", "log.cleaner.threads": "3"}
    path = layout.config_path("brokers", layout.DEFAULT_ENTITY)
    await zk.create(path, layout.encode_config(theirs))
    cluster = Cluster(name="demo", uid="uid", zookeeper=ZooKeeper(connect="zk:2181"))

    async def settled(desired: dict[str, str]) -> dict[str, str]:
        while (step := defaults.decide(cluster, await read_snapshot(zk, []), desired)) is not None:
            await carry_out_step(zk, step, epoch_version=0)
        return layout.decode_config(path, (await zk.get(path))[0])

    assert await settled({}) == theirs
    assert await zk.exists(MANAGED_BROKERS) is None, "nothing is the cluster's, so there is nothing to record"
    assert await settled({"log.retention.ms": "7"}) == theirs | {"log.retention.ms": "7"}
    assert (await json_of(zk, MANAGED_BROKERS))["clusters"]["uid"]["owned"] == ["log.retention.ms"]
    await zk.set(path, layout.encode_config(theirs | {"log.retention.ms": "9", "num.io.threads": "16"}))
    assert await settled({"log.retention.ms": "7"}) == theirs | {"log.retention.ms": "7", "num.io.threads": "16"}
    assert await settled({}) == theirs | {"num.io.threads": "16"}


async def test_ids_that_zookeeper_knows_are_refused_to_a_new_cluster(zk: KazooZkClient) -> None:
    cluster = Cluster(name="demo", uid="uid", zookeeper=ZooKeeper(connect="zk:2181"))
    taken = ids.refused(cluster, KubernetesState(), await read_snapshot(zk, None))
    assert taken is not None
    assert "broker 0 is registered at host:9092" in taken.message
    for broker in range(3):
        await zk.delete(layout.broker_path(broker))
    assert ids.refused(cluster, KubernetesState(), await read_snapshot(zk, None)) is None
    topic = TopicAssignment(topic="orders", partitions={0: ReplicaAssignment(replicas=(7, 2))})
    await zk.create(topic.path, topic.encode())
    taken = ids.refused(cluster, KubernetesState(), await read_snapshot(zk, None))
    assert taken is not None
    assert "broker 2 has replicas of topic orders" in taken.message
    claimed = defaults.decide(cluster, await read_snapshot(zk, []), {}, ids=frozenset({0, 1, 2}))
    assert claimed is not None
    await carry_out_step(zk, claimed, epoch_version=0)
    assert ids.refused(cluster, KubernetesState(), await read_snapshot(zk, None)) is None, "the ids are its own"


def test_topic_ids_are_random_and_no_option_of_a_command_line() -> None:
    ids = {new_topic_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(layout.encode_uuid(topic_id).startswith("-") for topic_id in ids)
