"""The contents of statuses. The CRDs have every field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek_operator.crds import Brokers, Cluster, Topic, ZooKeeper
from odradek_operator.crds.schema import definitions
from odradek_operator.exporter.report import GroupLag, TopicReport
from odradek_operator.kube.cluster.status_documents import (
    MAX_MESSAGE,
    ClusterView,
    cluster_document,
    human_size,
    invalid,
    no_cluster,
    paused,
    topic_document,
    with_condition,
    zookeeper_unreachable,
)
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod
from odradek_operator.lifecycle.steps import ClusterDecision, Progress, Waiting
from odradek_operator.topics.topic_actions import Decision, Obstacle, Refusal
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot

NOW = 1_700_000_000.0
STAMP = "2023-11-14T22:13:20Z"
CLUSTER = Cluster(name="demo", brokers=Brokers(replicas=3), generation=4)


def pod(ordinal: int, component: str = "kafka", **more: object) -> Pod:
    base = Pod(
        name=f"demo-{component}-{ordinal}",
        uid=f"u-{ordinal}",
        ordinal=ordinal,
        node=f"node-{ordinal}",
        ready=True,
        terminating=False,
        restart_hash="h",
        phase="Running",
        trouble="",
        unscheduled_since=None,
    )
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def snapshot(*live: int, **more: object) -> Snapshot:
    base = Snapshot(
        cluster_id="the-id",
        controller_id=1,
        controller_epoch=7,
        controller_epoch_version=7,
        brokers={
            number: BrokerRegistration(
                broker_id=number, endpoints=(Endpoint("PLAIN", "host", 9092),), rack=f"zone-{number}"
            )
            for number in live
        },
    )
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def view(**more: object) -> ClusterView:
    base = ClusterView(
        snapshot=snapshot(0, 1, 2),
        state=KubernetesState(
            brokers={number: pod(number) for number in range(3)},
            ensemble={number: pod(number, "zookeeper") for number in range(3)},
        ),
        decision=ClusterDecision(broker_count=3),
        bootstrap={"plain": "demo-kafka-bootstrap.kafka.svc:9092"},
    )
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def pods(**more: object) -> KubernetesState:
    """Return a view in which only broker 1 has a problem."""
    return KubernetesState(brokers={0: pod(0), 1: pod(1, **more), 2: pod(2)})


def members(**more: object) -> KubernetesState:
    """Return a view in which only member 1 of the ensemble has a problem."""
    found = {number: pod(number, "zookeeper") for number in range(3)}
    return dataclasses.replace(view().state, ensemble={**found, 1: pod(1, "zookeeper", **more)})


def cluster_of(given_view: ClusterView, cluster: Cluster = CLUSTER, **previous: object) -> dict[str, Any]:
    document = cluster_document(cluster, given_view, previous=previous, now=NOW)
    check(document, "clusters")
    return document


def ready_of(document: Mapping[str, Any]) -> tuple[str, str, str]:
    (condition,) = document["conditions"]
    assert condition["type"] == "Ready"
    return condition["status"], condition["reason"], condition["message"]


def check(document: object, plural: str) -> None:
    """Check that the API server accepts a status unchanged: every field is in the schema and has its type."""
    (version,) = definitions()[plural]["spec"]["versions"]
    conforms(document, version["schema"]["openAPIV3Schema"]["properties"]["status"])


def conforms(value: object, schema: Mapping[str, Any]) -> None:
    match schema["type"]:
        case "object":
            assert isinstance(value, dict)
            assert set(schema.get("required", ())) <= set(value) <= set(schema["properties"])
            for name, inner in value.items():
                conforms(inner, schema["properties"][name])
        case "array":
            assert isinstance(value, list)
            for item in value:
                conforms(item, schema["items"])
            for key in schema.get("x-kubernetes-list-map-keys", ()):
                assert len({item[key] for item in value}) == len(value)
        case "string":
            assert isinstance(value, str)
            assert value in schema.get("enum", [value])
            assert schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        case "boolean":
            assert isinstance(value, bool)
        case "integer":
            assert type(value) is int
        case "number":
            assert type(value) in (int, float)


def test_a_cluster_that_is_as_specified() -> None:
    assert cluster_of(view()) == {
        "observedGeneration": 4,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Running",
                "message": "Every broker is running: 0, 1, 2.",
                "lastTransitionTime": STAMP,
                "observedGeneration": 4,
            }
        ],
        "version": "0.1.0",
        "clusterId": "the-id",
        "controllerId": 1,
        "controllerEpoch": 7,
        "brokersReady": "3/3",
        "listeners": [{"name": "plain", "type": "internal", "bootstrap": "demo-kafka-bootstrap.kafka.svc:9092"}],
        "brokers": [
            {
                "id": number,
                "state": "Running",
                "pod": f"demo-kafka-{number}",
                "node": f"node-{number}",
                "rack": f"zone-{number}",
            }
            for number in range(3)
        ],
        "zookeeper": {"ready": "3/3"},
    }


@pytest.mark.parametrize(
    ("state", "live", "state_text", "reason"),
    [
        (pods(ready=False, trouble="It is not ready."), (0, 2), "Starting", "It is not ready."),
        (pods(ready=False, trouble="It is not ready."), (0, 1, 2), "Starting", "It is not ready."),
        (pods(), (0, 2), "Starting", "It is not registered in ZooKeeper."),
        (pods(terminating=True), (0, 1, 2), "Restarting", None),
        (pods(node=None, ready=False, trouble="No node fits."), (0, 2), "Pending", "No node fits."),
        (KubernetesState(brokers={0: pod(0), 2: pod(2)}), (0, 2), "Missing", "It has no pod."),
        (KubernetesState(brokers={0: pod(0), 2: pod(2)}), (0, 1, 2), "Missing", "It has no pod."),
    ],
)
def test_a_broker_that_is_not_running(
    state: KubernetesState, live: tuple[int, ...], state_text: str, reason: str | None
) -> None:
    document = cluster_of(view(state=state, snapshot=snapshot(*live)))
    assert (document["brokers"][1]["state"], document["brokers"][1].get("reason")) == (state_text, reason)
    assert document["brokersReady"] == "2/3"
    truth, word, message = ready_of(document)
    assert (truth, word) == ("False", "BrokersMissing")
    assert message == f"Broker 1 is {state_text.lower()}" + (f": {reason}" if reason else ".")


def test_brokers_beyond_the_specified_ones() -> None:
    """One broker that is being drained, and one of another cluster in the same ensemble."""
    state = KubernetesState(brokers={number: pod(number) for number in range(4)})
    document = cluster_of(view(state=state, snapshot=snapshot(0, 1, 2, 3, 100)))
    assert [(one["id"], one["state"], one.get("pod")) for one in document["brokers"][3:]] == [
        (3, "Running", "demo-kafka-3"),
        (100, "Running", None),
    ]
    assert document["brokersReady"] == "3/3"


def waiting(what: str, **more: bool) -> Waiting:
    return Waiting(what=what, reason="Because", message="It waits for orders-0.", **more)


PROGRESS = Progress(remaining=3, total=12, reason="broker 3 is drained")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"snapshot": None, "trouble": "No member of the ensemble is ready."},
            ("False", "ZooKeeperUnreachable", "No member of the ensemble is ready."),
        ),
        (
            {"snapshot": snapshot(0, 1, 2, controller_id=None)},
            ("False", "NoController", "The cluster has no controller."),
        ),
        (
            {"decision": ClusterDecision(broker_count=3, waiting=(waiting("roll"),), outdated=frozenset({1}))},
            ("False", "Because", "It waits for orders-0."),
        ),
        (
            {
                "decision": ClusterDecision(
                    broker_count=3,
                    waiting=(
                        waiting("roll"),
                        dataclasses.replace(waiting("scale-in", needs_person=True), reason="Big"),
                    ),
                )
            },
            ("False", "Big", "It waits for orders-0."),
        ),
        (
            {"decision": ClusterDecision(broker_count=3, outdated=frozenset({1, 2}))},
            ("False", "Rolling", "2 of 3 brokers are waiting for their restart."),
        ),
        (
            {"decision": ClusterDecision(broker_count=4, progress=PROGRESS)},
            ("False", "Rebalancing", "3 of 12 partitions have to move: broker 3 is drained."),
        ),
        (
            {"state": dataclasses.replace(view().state, ensemble={0: pod(0, "zookeeper"), 2: pod(2, "zookeeper")})},
            ("False", "ZooKeeperMembersMissing", "ZooKeeper member 1 is not ready: It has no pod."),
        ),
        (
            {"state": members(ready=False, trouble="It fits on no node.")},
            ("False", "ZooKeeperMembersMissing", "ZooKeeper member 1 is not ready: It fits on no node."),
        ),
        (
            {"state": members(terminating=True)},
            ("False", "ZooKeeperMembersMissing", "ZooKeeper member 1 is not ready."),
        ),
    ],
)
def test_why_a_cluster_is_not_ready(more: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert ready_of(cluster_of(view(**more))) == expected


def test_a_partition_that_lost_its_leader_is_reported() -> None:
    assignment = TopicAssignment(topic="t", partitions={n: ReplicaAssignment(replicas=(0,)) for n in range(3)})
    states = {
        0: PartitionState(leader=-1, leader_epoch=0, isr=(0,), controller_epoch=1),
        1: PartitionState(leader=0, leader_epoch=0, isr=(0,), controller_epoch=1),
    }
    topics = {"t": ObservedTopic(assignment=assignment, version=0, states=states)}
    seen = snapshot(0, 1, 2, topics=topics)
    assert ready_of(cluster_of(view(snapshot=seen))) == ("False", "PartitionsOffline", "1 partition has no leader.")
    leaving = dataclasses.replace(seen, deleting=frozenset({"t"}))
    assert ready_of(cluster_of(view(snapshot=leaving)))[0] == "True"


def test_work_in_progress_is_reported() -> None:
    decision = ClusterDecision(
        broker_count=3, waiting=(waiting("release"), waiting("roll")), progress=PROGRESS, outdated=frozenset({1})
    )
    document = cluster_of(view(decision=decision))
    assert document["roll"] == {"waitingFor": "It waits for orders-0."}
    assert document["rebalance"] == {"remaining": 3, "total": 12, "reason": "broker 3 is drained"}
    assert [one.get("outdated") for one in document["brokers"]] == [None, True, None]
    rolling = ClusterDecision(broker_count=3, outdated=frozenset({1}))
    assert cluster_of(view(decision=rolling))["roll"] == {}


def test_without_zookeeper_the_cluster_id_stays_and_the_states_of_brokers_come_from_pods() -> None:
    document = cluster_of(view(snapshot=None, trouble="why."), clusterId="the-id", controllerId=2)
    assert document["clusterId"] == "the-id"
    assert "controllerId" not in document
    assert document["brokersReady"] == "3/3"


def test_an_ensemble_of_others_has_no_members_and_unknown_addresses_are_omitted() -> None:
    joined = dataclasses.replace(CLUSTER, zookeeper=ZooKeeper(connect="a:1"))
    document = cluster_of(view(bootstrap={}), joined)
    assert "zookeeper" not in document
    assert document["listeners"] == [{"name": "plain", "type": "internal"}]


def test_warnings_name_fields_without_effect_and_unreadable_znodes() -> None:
    seen = snapshot(0, 1, 2, damaged=("A znode cannot be understood.",))
    document = cluster_of(view(snapshot=seen, notices=("It has no effect.",)))
    assert document["warnings"] == ["It has no effect.", "A znode cannot be understood."]


ORDERS = Topic(name="orders", cluster="demo", partitions=2, replicas=1, generation=6)
TOPIC_ID = UUID("12345678-1234-4234-8234-123456789abc")


def seen_topic() -> Snapshot:
    partitions = {number: ReplicaAssignment(replicas=(number,)) for number in range(2)}
    assignment = TopicAssignment(topic="orders", partitions=partitions, topic_id=TOPIC_ID)
    states = {
        number: PartitionState(leader=number, leader_epoch=0, isr=(number,), controller_epoch=1) for number in range(2)
    }
    return snapshot(0, 1, topics={"orders": ObservedTopic(assignment=assignment, version=0, states=states)})


def topic_of(
    seen: Snapshot, decision: Decision, report: TopicReport | None = None, topic: Topic = ORDERS
) -> dict[str, Any]:
    document = topic_document(topic, seen, decision, report=report, previous={}, now=NOW)
    check(document, "topics")
    return document


def test_a_topic_that_is_as_specified() -> None:
    report = TopicReport(
        partitions=2,
        size_bytes=3 << 29,
        groups=(
            GroupLag(group="billing", lag_records=12, lag_seconds=3.5),
            GroupLag(group="audit", lag_records=0, lag_seconds=None),
        ),
    )
    assert topic_of(seen_topic(), Decision(topic="orders"), report) == {
        "observedGeneration": 6,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Reconciled",
                "message": "All 2 partitions are as specified, and all replicas are in sync.",
                "lastTransitionTime": STAMP,
                "observedGeneration": 6,
            }
        ],
        "topicId": "EjRWeBI0QjSCNBI0VniavA",
        "partitions": 2,
        "replicas": 1,
        "underReplicated": 0,
        "offline": 0,
        "sizeBytes": 3 << 29,
        "size": "1.5Gi",
        "groups": [
            {"group": "billing", "lagRecords": 12, "lagSeconds": 3.5},
            {"group": "audit", "lagRecords": 0},
        ],
    }


def test_a_topic_whose_size_is_unknown() -> None:
    document = topic_of(seen_topic(), Decision(topic="orders"), TopicReport(partitions=2))
    assert not {"size", "sizeBytes", "groups"} & set(document)


def test_a_topic_with_adopted_changes_and_one_that_moves() -> None:
    adopting = Decision(topic="orders", adopted=("partitions=2", "segment.bytes=100"))
    assert topic_of(seen_topic(), adopting)["adopted"] == ["partitions=2", "segment.bytes=100"]
    moving = Decision(topic="orders", reassigning="replicas of 1 of 2 partitions are being moved.")
    assert ready_of(topic_of(seen_topic(), moving)) == (
        "False",
        "Reassigning",
        "Replicas of 1 of 2 partitions are being moved.",
    )


def test_a_topic_that_does_not_exist() -> None:
    refusal = Refusal(topic="orders", obstacle=Obstacle.NOT_ENOUGH_BROKERS, message="too few.")
    document = topic_of(snapshot(), Decision(topic="orders", refusals=(refusal,)))
    assert set(document) == {"observedGeneration", "conditions"}
    assert ready_of(document) == ("False", "NotEnoughBrokers", "Too few.")


@pytest.mark.parametrize(
    ("condition", "truth", "reason"),
    [
        (invalid("spec.partitions: must be more."), "False", "InvalidSpec"),
        (no_cluster("Topic", "demo"), "False", "NoCluster"),
        (no_cluster("Topic", ""), "False", "NoCluster"),
        (paused(), "Unknown", "Paused"),
        (zookeeper_unreachable("It does not answer."), "Unknown", "ZooKeeperUnreachable"),
    ],
)
def test_the_rest_of_the_status_stays_when_only_a_condition_is_known(condition: Any, truth: str, reason: str) -> None:
    previous = topic_of(seen_topic(), Decision(topic="orders"))
    document = with_condition(condition, 9, previous=previous, now=NOW + 60)
    check(document, "topics")
    assert ready_of(document)[:2] == (truth, reason)
    assert document["observedGeneration"] == 9
    assert {key: document[key] for key in ("topicId", "partitions")} == {
        key: previous[key] for key in ("topicId", "partitions")
    }


def test_a_condition_has_the_time_at_which_its_status_changed() -> None:
    """The time does not change with the reason only, or in another round."""
    first = with_condition(invalid("one."), 1, previous={}, now=NOW)
    second = with_condition(no_cluster("Topic", "demo"), 2, previous=first, now=NOW + 60)
    third = with_condition(paused(), 3, previous=second, now=NOW + 120)
    times = [document["conditions"][0]["lastTransitionTime"] for document in (first, second, third)]
    assert times == [STAMP, STAMP, "2023-11-14T22:15:20Z"]
    assert with_condition(paused(), 3, previous=third, now=NOW + 999) == third


def test_a_damaged_status_is_written_again() -> None:
    spoiled = {"conditions": ["nonsense", {"type": "Ready", "status": "True"}], "observedGeneration": "x"}
    assert cluster_document(CLUSTER, view(), previous=spoiled, now=NOW) == cluster_of(view())


def test_a_very_long_message_is_cut() -> None:
    document = with_condition(invalid("x" * 99_999), 1, previous={}, now=NOW)
    assert len(document["conditions"][0]["message"]) == MAX_MESSAGE


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (512, "512"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (1 << 20, "1Mi"), (5 << 50, "5Pi")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


@given(st.integers(0, 1 << 70))
def test_sizes_for_people_are_short(size: int) -> None:
    assert len(human_size(size)) <= 11
