"""Tests that the status of a Cluster names what a person has to correct, and that a mistake blocks nothing else."""

from __future__ import annotations

from typing import Any, Final

import pytest

from support.kubectl import Kubectl
from support.product import CLUSTER, Demo
from support.values import Object
from support.waiting import eventually

WRONG: Final = {"num.partitions": "many"}
"""A property value that the CRD accepts but with which a broker does not start."""


def cluster_of(name: str, *, storage_class: str, brokers: Object | None = None, **spec: Any) -> Object:
    """A Cluster of one broker and one ZooKeeper member."""
    small = {"requests": {"cpu": "50m", "memory": "200Mi"}}
    volume = {"size": "1Gi", "storageClass": storage_class}
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "brokers": {
                "replicas": 1,
                "storage": {"volumes": [{"id": 0, **volume}]},
                "resources": small,
                **(brokers or {}),
            },
            "zookeeper": {"replicas": 1, "storage": volume, "resources": small},
            "monitoring": {"exporter": {"enabled": False}},
            **spec,
        },
    }


def ready(resource: Object) -> tuple[str, str]:
    """The reason and the message of the Ready condition."""
    conditions = resource.get("status", {}).get("conditions", [])
    return next(((one["reason"], one["message"]) for one in conditions if one["type"] == "Ready"), ("", ""))


def ready_reason(kubectl: Kubectl, name: str, *words: str) -> tuple[str, str]:
    """Wait until the message of a Cluster's Ready condition contains these words. Return the reason and the message."""
    return eventually(
        lambda: ready(kubectl.require(CLUSTER, name)),
        lambda found: all(word in found[1] for word in words),
        what=f"a status with {', '.join(words)}",
        seconds=180.0,
    )


def pods(demo: Demo) -> dict[str, str]:
    """The uids of the existing pods, by name."""
    return {pod.name: pod.uid for pod in demo.pods()}


def config(demo: Demo, change: Object) -> None:
    demo.kubectl.patch(CLUSTER, demo.name, {"spec": {"brokers": {"config": change}}})


def test_a_mistake_in_a_cluster_stops_nothing(demo: Demo) -> None:
    generation, before = demo.await_ready()["metadata"]["generation"], pods(demo)
    config(demo, WRONG)
    try:
        reason, _ = ready_reason(
            demo.kubectl, demo.name, "num.partitions", f"of generation {generation}, stays in force"
        )
        assert reason == "InvalidSpec"
        status = demo.cluster()["status"]
        assert (status["observedGeneration"], status["brokersReady"]) == (generation, "3/3")
        demo.make_topic("meanwhile", partitions=1)
        (warning,) = demo.topic("meanwhile")["status"]["warnings"]
        assert warning.startswith("The specification of Cluster demo is invalid.")
    finally:
        config(demo, dict.fromkeys(WRONG))
    demo.await_ready()
    assert pods(demo) == before


def test_a_misspelled_property_restarts_no_broker_and_is_named_with_the_nearest(demo: Demo) -> None:
    demo.await_ready()
    before = pods(demo)
    template = demo.kubectl.require("statefulset", "demo-kafka")["spec"]["template"]
    config(demo, {"messag.max.bytes": "1000000"})
    try:
        warnings = demo.await_ready()["status"].get("warnings", [])
        assert any("messag.max.bytes" in each and "message.max.bytes?" in each for each in warnings)
        assert demo.kubectl.require("statefulset", "demo-kafka")["spec"]["template"] == template
        assert pods(demo) == before
    finally:
        config(demo, {"messag.max.bytes": None})
    demo.await_ready()


@pytest.mark.usefixtures("operator_release")
def test_a_claim_without_a_volume_is_named(kubectl: Kubectl) -> None:
    kubectl.apply(cluster_of("pending", storage_class="nobody-has-this"))

    reason, _ = ready_reason(kubectl, "pending", "data-pending-zookeeper-0")

    assert reason == "ClaimsPending"


@pytest.mark.usefixtures("operator_release")
def test_pods_that_a_quota_forbids_are_named_with_the_quota(kubectl: Kubectl) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-pods"},
        "spec": {"hard": {"pods": "0"}},
    }
    kubectl.apply(quota)
    eventually(
        lambda: kubectl.require("resourcequota", "no-pods").get("status", {}).get("hard"), what="a quota in force"
    )

    kubectl.apply(cluster_of("forbidden", storage_class="nobody-has-this"))

    ready_reason(kubectl, "forbidden", "It has no pod. Kubernetes does not create it", "exceeded quota: no-pods")


@pytest.mark.usefixtures("operator_release")
def test_the_last_words_of_a_broker_that_crashes_stand_in_the_status(demo: Demo) -> None:
    """The property comes from a Secret that only the broker reads."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": WRONG}
    demo.kubectl.apply(secret)
    wanted = cluster_of(
        "crashes",
        storage_class=demo.storage_class,
        brokers={"configFrom": [{"secretRef": {"name": "wrong"}}]},
    )
    demo.kubectl.apply(wanted)
    try:
        ready_reason(demo.kubectl, "crashes", "Broker 0", "num.partitions")
    finally:
        demo.kubectl.delete(CLUSTER, "crashes")
