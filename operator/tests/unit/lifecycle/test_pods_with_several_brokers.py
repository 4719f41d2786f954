"""Replicas, sizes and disks of pods with several brokers. `test_rolling` has their restarts."""

from __future__ import annotations

import dataclasses

from odradek.base.types import TopicPartition
from odradek_operator.lifecycle import cluster_plan, moves, resize
from odradek_operator.lifecycle.observed_cluster import Record, parse_pod
from odradek_operator.lifecycle.spreading import MAX_NOTICES, crowded_notices, crowded_topics
from odradek_operator.lifecycle.steps import MoveReplicas, ReleaseClaims
from odradek_operator.topics.zookeeper_state import Snapshot

from .world import KAFKA, World, make_world

SPREAD = {"orders": [(0, 1001), (1, 1002), (2, 1000)]}


def seen(world: World) -> Snapshot:
    snapshot = world.snapshot()
    assert snapshot is not None
    return snapshot


def with_brokers(world: World, **fields: int) -> None:
    world.cluster = dataclasses.replace(world.cluster, brokers=dataclasses.replace(world.cluster.brokers, **fields))


def per_pod(world: World) -> int:
    return resize.per_pod(world.cluster, world.observe(), world.snapshot())


def test_a_slot_stays_until_all_its_brokers_are_empty() -> None:
    world = make_world(SPREAD, per_pod=2)
    with_brokers(world, per_pod=1)
    assert per_pod(world) == 2
    for one in world.all_partitions():
        one.replicas = one.isr = tuple(broker % 1000 for broker in one.replicas)
    assert per_pod(world) == 1
    world.asked = {TopicPartition("orders", 0): (0, 1)}
    assert per_pod(world) == 2, "a reassignment may end on it"
    world.asked = {}
    world.leader = 7
    assert world.snapshot() is None
    assert per_pod(world) == 2, "ZooKeeper does not answer"


def test_the_record_and_replicas_count_if_the_set_was_deleted() -> None:
    world = make_world(SPREAD, per_pod=2)
    with_brokers(world, per_pod=1)
    state = dataclasses.replace(world.observe(), sets={}, brokers={}, record=Record(brokers=3, per_pod=2))
    assert resize.per_pod(world.cluster, state, None) == 2
    assert resize.per_pod(world.cluster, state, seen(world)) == 2
    unrecorded = dataclasses.replace(state, record=Record(brokers=3))
    assert resize.per_pod(world.cluster, unrecorded, seen(world)) == 2
    assert cluster_plan.per_pod_now(world.cluster, unrecorded, seen(world)) == 2


def test_in_a_shared_ensemble_brokers_with_higher_ids_belong_to_others() -> None:
    world = make_world(SPREAD, per_pod=1)
    zookeeper = dataclasses.replace(world.cluster.zookeeper, connect="zk:2181")
    world.cluster = dataclasses.replace(world.cluster, zookeeper=zookeeper)
    assert per_pod(world) == 1


def test_a_paused_cluster_keeps_its_pods() -> None:
    world = make_world(SPREAD, per_pod=2)
    with_brokers(world, per_pod=4)
    world.cluster = dataclasses.replace(world.cluster, paused=True)
    assert cluster_plan.per_pod_now(world.cluster, world.observe(), seen(world)) == 2


def test_replicas_in_one_pod_are_moved_apart() -> None:
    """The topic was created while the other pods were down. Nothing else moves."""
    world = make_world({"orders": [(0, 1000), (1, 1000), (2, 1001)]}, per_pod=2)
    (step,) = world.round().steps
    assert isinstance(step, MoveReplicas)
    ((name, target),) = step.targets.items()
    assert name == TopicPartition("orders", 0)
    assert len({broker % 1000 for broker in target}) == 2
    for _ in range(4):
        world.settle()
        world.round()
    assert all(len({broker % 1000 for broker in one.replicas}) == 2 for one in world.all_partitions())
    assert not world.decide().steps


def test_a_replica_waits_for_the_brokers_of_a_pod_that_is_down() -> None:
    """Otherwise both replicas would be in the other pod."""
    world = make_world({"orders": [(0,), (1000,)]}, brokers=2, per_pod=2)
    world.factors = {"orders": 2}
    for broker in (1, 1001):
        world.crash(broker)
    world.elect()
    decision = world.decide()
    assert not any(isinstance(step, MoveReplicas) for step in decision.steps)
    assert "PartitionsStuck" in {one.reason for one in decision.waiting}
    for _ in range(6):
        world.settle()
        world.round()
    assert all({broker % 1000 for broker in one.replicas} == {0, 1} for one in world.all_partitions())


def test_replicas_move_to_another_pod_of_a_node_with_two_pods() -> None:
    """Both nodes have a replica, but pod 2 has two and pod 1 none, so pod 2 could never restart."""
    world = make_world({"orders": [(0, 2, 1002), (1, 1000, 2)]}, per_pod=2)
    snapshot = seen(world)
    on = {0: "node-a", 1: "node-a", 2: "node-b"}
    registered = {
        broker: dataclasses.replace(one, machine=on[broker % 1000]) for broker, one in snapshot.brokers.items()
    }
    snapshot = dataclasses.replace(snapshot, brokers=registered)
    step = moves.decide(world.cluster, snapshot, present=3, factors={}).step
    assert isinstance(step, MoveReplicas)
    ((name, target),) = step.targets.items()
    assert name == TopicPartition("orders", 0)
    assert {broker % 1000 for broker in target} == {0, 1, 2}


def test_replicas_are_even_over_fewer_pods() -> None:
    """A pod with three of four replicas leaves one, so it could not restart with a minimum ISR of two."""
    world = make_world({"wide": [(0, 1000, 2000, 1)]}, brokers=2, per_pod=3)
    (step,) = world.round().steps
    assert isinstance(step, MoveReplicas)
    (target,) = step.targets.values()
    assert sorted(broker % 1000 for broker in target) == [0, 0, 1, 1]


def test_a_lost_disk_is_kept_while_one_broker_of_the_pod_is_registered() -> None:
    world = make_world(SPREAD, per_pod=2)
    world.lose_node(0)
    world.registered.add(1000)
    world.elect()
    world.now += 1_000
    decision = world.decide()
    assert not any(isinstance(step, ReleaseClaims) for step in decision.steps)
    (waiting,) = [one for one in decision.waiting if one.what == "release"]
    assert waiting.message == (
        "Kubernetes has lost the node or disk of pod demo-kafka-0, which still has broker 1000 registered in ZooKeeper."
    )
    world.registered.discard(1000)
    world.elect()
    (step,) = [one for one in world.decide().steps if isinstance(one, ReleaseClaims)]
    assert step.ordinal == 0
    assert step.reason.startswith("the disk of pod demo-kafka-0 is lost")


def test_a_lost_disk_is_kept_while_any_broker_of_the_pod_has_the_only_copy() -> None:
    world = make_world({"orders": [(0, 1001)], "alone": [(1000,)]}, per_pod=2)
    world.lose_node(0)
    world.elect()
    world.now += 1_000
    (waiting,) = [one for one in world.decide().waiting if one.what == "release"]
    assert waiting.message.startswith("The lost disk of pod demo-kafka-0 is kept: alone-0 have no in-sync replica")


def test_topics_with_more_replicas_than_pods_are_reported() -> None:
    world = make_world({"wide": [(0, 1, 1000)], "orders": [(0, 1)]}, brokers=2, per_pod=2)
    message = (
        "Topic wide has 3 replicas, and spec.brokers.replicas is 2: several replicas of a partition fail together with "
        "one pod, or with one group of processes of odradek up. Set spec.brokers.replicas to at least 3, or give the "
        "topic at most 2 replicas."
    )
    assert crowded_topics(world.cluster, seen(world)) == {"wide": message}
    assert world.decide().crowded == {"wide": message}
    assert message in world.decide().notices


def test_a_topic_with_replicas_on_brokers_of_others_has_more_pods() -> None:
    world = make_world({"wide": [(0, 1, 77)]}, brokers=2, per_pod=2)
    assert crowded_topics(world.cluster, seen(world)) == {}


def test_only_the_first_topics_with_more_replicas_than_pods_are_named() -> None:
    crowded = {f"t{number}": f"message {number}" for number in range(MAX_NOTICES + 1)}
    *named, rest = crowded_notices(crowded)
    assert named == [f"message {number}" for number in range(MAX_NOTICES)]
    assert rest == "1 more topic has more replicas than there are pods."
    assert crowded_notices({}) == ()


def test_the_containers_of_a_pod_are_its_brokers() -> None:
    pod = parse_pod(
        {
            "metadata": {"name": "demo-kafka-0"},
            "spec": {"containers": [{"name": "kafka"}, {"name": "kafka-1"}, {"name": "side"}]},
            "status": {
                "containerStatuses": [
                    {"name": "kafka", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
                    {"name": "kafka-1", "ready": False, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
                ]
            },
        }
    )
    assert pod.slots == 2
    assert {slot: one.ready for slot, one in pod.containers.items()} == {0: True, 1: False}
    assert pod.containers[1].trouble == "Container kafka-1 runs and is not ready yet."


def test_a_set_has_the_slots_of_its_template() -> None:
    world = make_world(SPREAD, per_pod=2)
    with_brokers(world, per_pod=3)
    decision = world.round()
    assert (decision.per_pod, decision.reachable_slots) == (3, 3)
    assert world.sets[KAFKA].slots == 3
    with_brokers(world, per_pod=1)
    world.topics.clear()
    decision = world.decide()
    assert (decision.per_pod, decision.reachable_slots) == (1, 3), "pods that have not restarted stay reachable"
