"""Conditions and counts of Cluster and Topic."""

from __future__ import annotations

import pytest

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek_operator.crds import Brokers, Cluster, Topic
from odradek_operator.topics.topic_actions import Decision, DeleteTopic, Obstacle, Refusal
from odradek_operator.topics.topic_status import Truth, cluster_status, topic_status
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot

TOPIC = Topic(name="orders", cluster="demo", partitions=2, generation=5)
NOTHING = Decision(topic="orders")


def state(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=0, isr=isr, controller_epoch=1)


def snapshot(states: dict[int, PartitionState]) -> Snapshot:
    replicas = ReplicaAssignment(replicas=(0, 1))
    assignment = TopicAssignment(topic="orders", partitions={0: replicas, 1: replicas})
    return Snapshot(topics={"orders": ObservedTopic(assignment=assignment, version=0, states=states)})


@pytest.mark.parametrize(
    ("states", "truth", "reason", "message", "counts"),
    [
        (
            {0: state(0, 0, 1), 1: state(1, 1, 0)},
            Truth.TRUE,
            "Reconciled",
            "All 2 partitions are as specified, and all replicas are in sync.",
            (0, 0),
        ),
        (
            {0: state(0, 0, 1), 1: state(1, 1)},
            Truth.FALSE,
            "UnderReplicated",
            "1 of 2 partitions are under-replicated.",
            (1, 0),
        ),
        ({0: state(0, 0, 1), 1: state(-1, 1)}, Truth.FALSE, "Offline", "1 of 2 partitions have no leader.", (1, 1)),
        ({0: state(0, 0, 1)}, Truth.FALSE, "Offline", "1 of 2 partitions have no leader.", (1, 1)),
    ],
)
def test_a_topic_is_ready_when_every_replica_is_in_sync(
    states: dict[int, PartitionState], truth: Truth, reason: str, message: str, counts: tuple[int, int]
) -> None:
    status = topic_status(TOPIC, snapshot(states), NOTHING)
    assert (status.ready.status, status.ready.reason, status.ready.message) == (truth, reason, message)
    assert (status.under_replicated, status.offline) == counts
    assert (status.partitions, status.replicas, status.observed_generation) == (2, 2, 5)


def test_what_needs_a_person_is_told_before_what_passes() -> None:
    decision = Decision(
        topic="orders",
        refusals=(
            Refusal(topic="orders", obstacle=Obstacle.NOT_ENOUGH_BROKERS, message="too few."),
            Refusal(topic="orders", obstacle=Obstacle.TOO_MANY_REPLICAS, message="not yet."),
        ),
    )
    ready = topic_status(TOPIC, snapshot({}), decision).ready
    assert (ready.status, ready.reason, ready.message) == (Truth.FALSE, "TooManyReplicas", "Not yet. Too few.")


def test_a_topic_that_is_being_changed_or_missing_is_not_ready() -> None:
    decision = Decision(
        topic="orders", actions=(DeleteTopic(topic="orders", version=0, ownership_version=None, reason="why"),)
    )
    assert topic_status(TOPIC, snapshot({}), decision).ready.message.endswith("In progress: why.")
    missing = topic_status(TOPIC, Snapshot(), NOTHING)
    assert (missing.ready.status, missing.ready.reason, missing.partitions) == (Truth.FALSE, "Reconciling", 0)


@pytest.mark.parametrize(
    ("live", "controller", "truth", "reason", "message"),
    [
        ((0, 1, 2), 1, Truth.TRUE, "Running", "Every broker is running: 0, 1, 2."),
        ((0, 1, 2), None, Truth.FALSE, "NoController", "The cluster has no controller."),
        ((0,), 0, Truth.FALSE, "BrokersMissing", "Not registered in ZooKeeper: brokers 1, 2."),
        ((0, 2), 0, Truth.FALSE, "BrokersMissing", "Not registered in ZooKeeper: broker 1."),
    ],
)
def test_a_cluster_is_ready_when_every_broker_is_registered(
    live: tuple[int, ...], controller: int | None, truth: Truth, reason: str, message: str
) -> None:
    registrations = {
        number: BrokerRegistration(broker_id=number, endpoints=(Endpoint("PLAINTEXT", "host", 9092 + number),))
        for number in live
    }
    cluster = Cluster(name="demo", brokers=Brokers(replicas=3), generation=2)
    seen = Snapshot(cluster_id="id", controller_id=controller, controller_epoch=4, brokers=registrations)
    status = cluster_status(cluster, seen)
    assert (status.ready.status, status.ready.reason, status.ready.message) == (truth, reason, message)
    assert status.brokers == {number: "Running" if number in live else "Missing" for number in range(3)}
    assert status.bootstrap == {"PLAINTEXT": ",".join(f"host:{9092 + number}" for number in live)}
    assert (status.cluster_id, status.controller_epoch, status.observed_generation) == ("id", 4, 2)
