"""Which broker ids belong to the cluster, and which are refused."""

from __future__ import annotations

import dataclasses

import pytest

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import BrokersOwnership, ManagedBrokers
from odradek_operator.crds import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.lifecycle import cluster_plan as plan
from odradek_operator.lifecycle import ids
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Pod, Quorum, Record, Set
from odradek_operator.lifecycle.steps import ClusterDecision
from odradek_operator.objects.names import Component
from odradek_operator.topics.zookeeper_state import ObservedBrokersRecord, ObservedConfig, ObservedTopic, Snapshot

NOTHING = KubernetesState()
SET = Set(name="demo-kafka", replicas=2, restart_hash="", generation_observed=True)
CLAIM = Claim(name="data-demo-kafka-2", uid="c", volume=None, nodes=(), lost=False, terminating=False)
POD = Pod(
    name="demo-kafka-2",
    uid="p",
    ordinal=2,
    node=None,
    ready=True,
    terminating=True,
    restart_hash="",
    phase="Running",
    trouble="",
    unscheduled_since=None,
)
REGISTERED = Snapshot(
    brokers={
        2: BrokerRegistration(broker_id=2, endpoints=(Endpoint("A", "java-2", 9092),)),
        9: BrokerRegistration(broker_id=9, endpoints=()),
    }
)


def cluster(replicas: int = 3, connect: str | None = "zk:2181") -> Cluster:
    brokers = Brokers(replicas=replicas, volumes=(Volume(id=0, size="1Gi"),))
    return Cluster(name="demo", uid="uid", brokers=brokers, zookeeper=ZooKeeper(connect=connect))


def holding(assignment: ReplicaAssignment) -> Snapshot:
    topic = TopicAssignment(topic="orders", partitions={0: assignment})
    return Snapshot(topics={"orders": ObservedTopic(assignment=topic, version=1)})


def remembering(uid: str, *brokers: int) -> ObservedBrokersRecord:
    record = ManagedBrokers(clusters={uid: BrokersOwnership(ids=frozenset(brokers))})
    return ObservedBrokersRecord(record=record, version=1)


@pytest.mark.parametrize(
    ("snapshot", "who", "free"),
    [
        (REGISTERED, "broker 2 is registered at java-2:9092", 10),
        (holding(ReplicaAssignment(replicas=(7, 1))), "broker 1 has replicas of topic orders", 8),
        (holding(ReplicaAssignment(replicas=(7, 8), adding=(0,))), "broker 0 has replicas of topic orders", 9),
        (holding(ReplicaAssignment(replicas=(7, 8), removing=(0,))), "broker 0 has replicas of topic orders", 9),
        (
            Snapshot(broker_configs={"1": ObservedConfig(values={}, version=0)}),
            "broker 1 has settings in /config/brokers/1",
            2,
        ),
    ],
)
def test_an_id_that_zookeeper_knows_is_refused(snapshot: Snapshot, who: str, free: int) -> None:
    waiting = ids.refused(cluster(), NOTHING, snapshot)
    assert waiting is not None
    assert (waiting.what, waiting.reason, waiting.needs_person) == ("broker-ids", "BrokerIdsInUse", True)
    assert who in waiting.message
    assert f"No broker is started: set spec.brokers.firstBrokerId to {free}." in waiting.message
    elsewhere = dataclasses.replace(cluster(), brokers=dataclasses.replace(cluster().brokers, first_id=free))
    assert ids.refused(elsewhere, NOTHING, snapshot) is None
    assert ids.refused(cluster(connect=None), NOTHING, snapshot) is None, "in its own ensemble all ids are its own"


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(),
        dataclasses.replace(REGISTERED, brokers={9: REGISTERED.brokers[9]}),
        holding(ReplicaAssignment(replicas=(3, 4))),
        Snapshot(
            broker_configs={
                "<default>": ObservedConfig(values={}, version=0),
                "3": ObservedConfig(values={}, version=0),
            }
        ),
    ],
)
def test_ids_that_nobody_has_are_free(snapshot: Snapshot) -> None:
    assert ids.refused(cluster(), NOTHING, snapshot) is None


@pytest.mark.parametrize(
    ("state", "record"),
    [
        (KubernetesState(sets={"demo-kafka": dataclasses.replace(SET, replicas=3)}), None),
        (KubernetesState(sets={"demo-kafka": SET}, brokers={2: POD}), None),
        (KubernetesState(sets={"demo-kafka": SET}, claims={CLAIM.name: CLAIM}), None),
        (KubernetesState(sets={"demo-kafka": SET}, record=Record(brokers=3)), None),
        (NOTHING, remembering("uid", 0, 1, 2)),
    ],
)
def test_a_broker_that_the_cluster_has_had_is_never_refused(
    state: KubernetesState, record: ObservedBrokersRecord | None
) -> None:
    snapshot = dataclasses.replace(REGISTERED, brokers_record=record)
    assert ids.refused(cluster(), state, snapshot) is None


@pytest.mark.parametrize(
    "state",
    [
        KubernetesState(sets={"demo-kafka": SET}),
        KubernetesState(sets={"demo-kafka": SET}, claims={CLAIM.name: dataclasses.replace(CLAIM, terminating=True)}),
    ],
)
def test_a_cluster_does_not_grow_into_an_id_of_others(state: KubernetesState) -> None:
    snapshot = dataclasses.replace(REGISTERED, brokers_record=remembering("another", 2))
    waiting = ids.refused(cluster(), state, snapshot)
    assert waiting is not None
    assert "The cluster stays at 2 brokers: set spec.brokers.replicas back." in waiting.message
    assert decide(cluster(), state, snapshot).broker_count == 2


def test_many_ids_make_one_short_sentence() -> None:
    waiting = ids.refused(cluster(9), NOTHING, holding(ReplicaAssignment(replicas=tuple(range(9)))))
    assert waiting is not None
    assert waiting.message.count("has replicas of") == ids.MAX_NAMED
    assert ", and 6 more. " in waiting.message


def test_what_is_not_known_is_not_started() -> None:
    waiting = ids.refused(cluster(), NOTHING, None)
    assert waiting is not None
    assert (waiting.reason, waiting.needs_person) == ("BrokerIdsUnknown", False)
    assert ids.refused(cluster(2), KubernetesState(sets={"demo-kafka": SET}), None) is None
    unreadable = Snapshot(unreadable={"t": "A znode is invalid: /brokers/topics/t: not JSON."})
    waiting = ids.refused(cluster(), NOTHING, unreadable)
    assert waiting is not None
    assert (waiting.reason, waiting.needs_person) == ("BrokerIdsUnknown", True)
    assert waiting.message.startswith("A znode is invalid: /brokers/topics/t: not JSON. It may have")


@pytest.mark.parametrize("snapshot", [REGISTERED, None])
def test_nothing_is_done_before_the_first_broker_may_start(snapshot: Snapshot | None) -> None:
    waiting = ids.refused(cluster(), NOTHING, snapshot)
    assert waiting is not None
    assert decide(cluster(), NOTHING, snapshot) == ClusterDecision(
        broker_count=0, waiting=(waiting,), spread=frozenset({Component.KAFKA})
    )


def test_ids_are_recorded_while_the_cluster_has_the_brokers() -> None:
    before = Snapshot(brokers_record=remembering("uid", 0, 1, 2))
    assert ids.recorded(cluster(), NOTHING, Snapshot()) == frozenset()
    assert ids.recorded(cluster(), NOTHING, before) == {0, 1, 2}, "a set that somebody deleted comes back"
    assert ids.recorded(cluster(), KubernetesState(sets={"demo-kafka": SET}), before) == {0, 1}, "2 was drained"
    serving = {2: dataclasses.replace(POD, terminating=False)}
    assert ids.recorded(cluster(), KubernetesState(sets={"demo-kafka": SET}, brokers=serving), before) == {0, 1, 2}
    assert ids.recorded(cluster(connect=None), KubernetesState(sets={"demo-kafka": SET}), before) == frozenset()


def decide(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> ClusterDecision:
    return plan.decide(
        cluster,
        state,
        snapshot,
        wanted_hashes={},
        wanted_dynamic={},
        wanted_factors={},
        quorum=Quorum(),
        now=0.0,
    )
