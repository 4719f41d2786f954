"""The status names the present cause: first what needs a user, then what is missing. Past causes are not named."""

from __future__ import annotations

import dataclasses

import pytest

from odradek_operator.kube.cluster.status_documents import no_cluster, with_condition
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Node, parse_pod, parse_refusals
from odradek_operator.lifecycle.steps import ClusterDecision, Waiting

from .test_status_documents import NOW, cluster_of, pod, pods, ready_of, snapshot, view

REFUSED = Waiting(
    what="apply",
    reason="KubernetesRefuses",
    message="Kubernetes refuses StatefulSet demo-kafka: quota.",
    needs_person=True,
)


def claim(name: str, volume: str | None) -> Claim:
    return Claim(name=name, uid="u", volume=volume, nodes=(), lost=False, terminating=False)


def test_claims_that_wait_for_a_volume_are_named_before_zookeeper() -> None:
    member = pod(
        0,
        "zookeeper",
        ready=False,
        node=None,
        claims=("data-demo-zookeeper-0",),
        trouble="It fits on no node: pod has unbound immediate PersistentVolumeClaims.",
    )
    state = KubernetesState(
        ensemble={0: member}, claims={"data-demo-zookeeper-0": claim("data-demo-zookeeper-0", None)}
    )
    found = view(snapshot=None, trouble="No member of the ZooKeeper ensemble is ready yet.", state=state)
    _, reason, message = ready_of(cluster_of(found))
    assert reason == "ClaimsPending"
    assert message.startswith("Claims without a volume: data-demo-zookeeper-0.")
    assert "unbound immediate PersistentVolumeClaims" in message


def test_the_status_says_why_no_member_of_the_ensemble_is_ready() -> None:
    member = pod(0, "zookeeper", ready=False, trouble="Container zookeeper waits (ImagePullBackOff).")
    found = view(snapshot=None, trouble="No member is ready yet.", state=KubernetesState(ensemble={0: member}))
    _, reason, message = ready_of(cluster_of(found))
    assert reason == "ZooKeeperUnreachable"
    assert message.startswith("No member is ready yet. ZooKeeper member 0 is not ready: Container zookeeper waits")


@pytest.mark.parametrize(
    ("nodes", "reasons"),
    [
        ({"node-1": Node(name="node-1", ready=False, changed_at=NOW)}, "has not been ready since 2023-11-14T22:13:20Z"),
        ({"node-0": Node(name="node-0", ready=True, changed_at=0.0)}, "Its node node-1 is gone"),
    ],
)
def test_a_broker_on_a_lost_node_is_lost_and_does_not_start(nodes: dict[str, Node], reasons: str) -> None:
    state = dataclasses.replace(
        pods(ready=False), nodes={**nodes, "node-2": Node(name="node-2", ready=True, changed_at=0)}
    )
    document = cluster_of(view(snapshot=snapshot(0, 2), state=state))
    broker = document["brokers"][1]
    assert broker["state"] == "Lost"
    assert reasons in broker["reason"]
    assert "Broker 1 is lost: Its node node-1" in ready_of(document)[2]


def test_a_broker_that_a_roll_restarts_does_not_count_as_missing() -> None:
    decision = ClusterDecision(broker_count=3, outdated=frozenset({1, 2}))
    restarting = view(snapshot=snapshot(0, 2), state=pods(ready=False, terminating=True), decision=decision)
    assert ready_of(cluster_of(restarting))[1] == "Rolling"
    starting = view(snapshot=snapshot(0, 2), state=pods(ready=False), decision=decision)
    assert ready_of(cluster_of(starting))[1] == "Rolling"
    crashing = view(snapshot=snapshot(0, 2), state=pods(ready=False, failing=True), decision=decision)
    assert ready_of(cluster_of(crashing))[1] == "BrokersMissing"
    unplanned = view(snapshot=snapshot(0, 2), state=pods(ready=False))
    assert ready_of(cluster_of(unplanned))[1] == "BrokersMissing"


def test_a_roll_lasts_until_its_last_broker_runs() -> None:
    """No pod is outdated any more while the last broker starts."""
    last = view(snapshot=snapshot(0, 2), state=pods(ready=False))
    document = cluster_of(last, roll={"waitingFor": "Broker 1 restarts."})
    assert ready_of(document)[1] == "Rolling"
    assert "roll" in document
    crashing = view(snapshot=snapshot(0, 2), state=pods(ready=False, failing=True))
    failed = cluster_of(crashing, roll={"waitingFor": "Broker 1 restarts."})
    assert ready_of(failed)[1] == "BrokersMissing"
    assert "roll" not in failed
    done = cluster_of(view(), roll={})
    assert ready_of(done)[0] == "True"
    assert "roll" not in done


def event(message: str, at: str) -> dict[str, object]:
    return {"message": message, "reason": "FailedCreate", "lastTimestamp": at}


def test_a_pod_that_kubernetes_refuses_has_the_reason() -> None:
    head = 'create Pod demo-kafka-1 in StatefulSet demo-kafka failed error: pods "demo-kafka-1" is forbidden: '
    claim_of = "create Claim data-demo-kafka-2 for Pod demo-kafka-2 in StatefulSet demo-kafka failed error: no claims"
    refusals = parse_refusals(
        [
            event(f"{head}exceeded quota: pods=0", "2026-01-01T00:00:02Z"),
            event(f"{head}something older", "2026-01-01T00:00:01Z"),
            event(claim_of, "2026-01-01T00:00:01Z"),
            event("another message", "2026-01-01T00:00:03Z"),
        ]
    )
    state = KubernetesState(brokers={0: pod(0)}, refusals=refusals)
    document = cluster_of(view(snapshot=snapshot(0), state=state))
    reasons = {one["id"]: one.get("reason", "") for one in document["brokers"]}
    assert reasons[1].startswith("It has no pod. Kubernetes does not create it:")
    assert reasons[1].endswith("exceeded quota: pods=0.")
    assert reasons[2] == "It has no pod. Kubernetes does not create it: no claims."
    _, reason, message = ready_of(document)
    assert reason == "BrokersMissing"
    assert "exceeded quota" in message


def test_members_of_the_ensemble_that_kubernetes_refuses_have_the_reason() -> None:
    refusals = {"demo-zookeeper-0": "Kubernetes does not create it: exceeded quota."}
    found = view(snapshot=None, trouble="No member is ready yet.", state=KubernetesState(refusals=refusals))
    assert (
        "ZooKeeper member 0 is not ready: It has no pod. Kubernetes does not create it: exceeded quota."
        in ready_of(cluster_of(found))[2]
    )


def test_the_version_is_that_of_the_brokers_that_run() -> None:
    running = KubernetesState(brokers={number: pod(number, version="0.1.0") for number in range(3)})
    assert cluster_of(view(state=running))["version"] == "0.1.0"
    rolling = KubernetesState(brokers={0: pod(0, version="0.2.0"), 1: pod(1, version="0.1.0")})
    assert cluster_of(view(state=rolling))["version"] == "0.1.0, 0.2.0"
    assert cluster_of(view(state=KubernetesState()))["version"] == "0.1.0", (
        "the specified version before there are brokers"
    )


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("odradek/broker:0.1.0", "0.1.0"),
        ("registry.example:5000/odradek/broker:1.2", "1.2"),
        ("registry.example:5000/odradek/broker", ""),
        ("odradek/broker:1@sha256:00", "1"),
    ],
)
def test_the_version_of_a_pod_is_the_tag_of_its_image(image: str, tag: str) -> None:
    body = {"metadata": {"name": "demo-kafka-0"}, "spec": {"containers": [{"name": "kafka", "image": image}]}}
    assert parse_pod(body).version == tag


def test_a_refusal_by_kubernetes_is_reported_before_the_pods_that_it_prevents() -> None:
    decision = ClusterDecision(broker_count=3, waiting=(REFUSED,))
    nothing = view(snapshot=snapshot(), state=KubernetesState(), decision=decision)
    assert ready_of(cluster_of(nothing))[1:] == ("KubernetesRefuses", REFUSED.message)
    assert ready_of(cluster_of(dataclasses.replace(nothing, snapshot=None)))[1] == "KubernetesRefuses"


def test_a_container_that_ended_has_the_reason_from_its_termination_message() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "The broker cannot start: node.id is taken"}
    status = {"name": "kafka", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
    body = {"metadata": {"name": "demo-kafka-0"}, "status": {"containerStatuses": [status]}}
    expected = "Container kafka waits (CrashLoopBackOff): The broker cannot start: node.id is taken."
    assert parse_pod(body).trouble == expected


def test_the_status_of_a_topic_without_a_cluster_has_no_figures() -> None:
    previous = {"partitions": 3, "size": "1Gi", "conditions": []}
    document = with_condition(no_cluster("Topic", "gone"), 2, previous=previous, now=NOW, keep_figures=False)
    assert document.keys() == {"observedGeneration", "conditions"}
