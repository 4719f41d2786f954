"""Tests that clusters keep running when the operator is uninstalled, reinstalled or upgraded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from support.clients import consume_all, produce_all
from support.kubernetes import Kubernetes
from support.product import CRDS, TOPIC, Demo, Release
from support.waiting import eventually, holds

QUIET_SECONDS = 5.0
"""How long nothing may change after a new operator has finished its work."""


def lives(demo: Demo) -> dict[str, tuple[str, int]]:
    """The uid and the number of restarts of each pod of the cluster."""
    return {pod.name: (pod.uid, pod.restarts) for pod in demo.pods()}


def written(start: int, count: int) -> list[str]:
    return [f"number {number}" for number in range(start, start + count)]


@pytest.fixture
def topic(demo: Demo, outside: str) -> Iterator[str]:
    """A topic with a hundred records."""
    demo.make_topic("kept", config={"retention.ms": -1}, deletion="Delete")
    produce_all(outside, "kept", written(0, 100))
    yield "kept"
    demo.kubectl.delete(TOPIC, "kept")


@pytest.fixture
def restored(operator_release: Release) -> Iterator[None]:
    """Reinstall the operator after the test."""
    yield
    operator_release.install()


def restart_a_broker(demo: Demo) -> None:
    """Delete a broker's pod. Its replacement reads the rack of its node and becomes ready."""
    old = next(pod for pod in demo.pods("kafka") if pod.name == "demo-kafka-1")
    demo.kubectl.delete("pod", old.name)
    eventually(
        lambda: {pod.name: pod for pod in demo.pods("kafka")},
        lambda pods: old.name in pods and pods[old.name].uid != old.uid and pods[old.name].ready,
        what="a broker that restarts without an operator",
    )


def retention(admin: AdminClient, topic: str) -> str | None:
    """The retention of a topic as the brokers report it."""
    which = ConfigResource(ResourceType.TOPIC, topic)
    value: str | None = admin.describe_configs([which], request_timeout=30)[which].result()["retention.ms"].value
    return value


@pytest.mark.usefixtures("restored")
def test_an_upgrade_replaces_the_operator_and_no_pod_of_a_cluster(demo: Demo, operator_release: Release) -> None:
    demo.await_ready()
    before, (old,) = lives(demo), operator_release.pods()
    (first,) = operator_release.helm.releases(namespace=operator_release.kubectl.namespace)

    operator_release.install(logLevel="DEBUG")

    (listed,) = operator_release.helm.releases(namespace=operator_release.kubectl.namespace)
    (new,) = eventually(operator_release.pods, lambda pods: len(pods) == 1, what="the end of the old operator")
    assert (listed.status, listed.revision) == ("deployed", first.revision + 1)
    assert new.uid != old.uid
    demo.make_topic("after-upgrade")
    assert lives(demo) == before


@pytest.mark.usefixtures("restored")
def test_clusters_run_on_without_an_operator_and_are_adopted_by_the_next(
    demo: Demo, operator_release: Release, kubernetes: Kubernetes, admin: AdminClient, outside: str, topic: str
) -> None:
    demo.await_ready()
    before, uid = lives(demo), demo.cluster()["metadata"]["uid"]

    operator_release.uninstall()

    assert operator_release.helm.releases(namespace=operator_release.kubectl.namespace) == ()
    assert set(CRDS) <= {crd["metadata"]["name"] for crd in kubernetes.kubectl.list("crd")}
    assert demo.cluster()["metadata"]["uid"] == uid
    assert demo.topic(topic)["metadata"]["finalizers"] == ["odradek.dev/topic"]
    produce_all(outside, topic, written(100, 100))
    assert Counter(consume_all(outside, topic, 200)) == Counter(written(0, 200))
    restart_a_broker(demo)
    before = lives(demo)
    # A change that is made while no operator runs is applied by the next operator.
    demo.kubectl.patch(TOPIC, topic, {"spec": {"config": {"retention.ms": 86_400_000}}})

    operator_release.install()

    demo.await_topic(topic)
    demo.await_ready()
    eventually(lambda: retention(admin, topic), lambda value: value == "86400000", what="the retention asked for")
    holds(lambda: lives(demo), lambda now: now == before, what="all pods as they were", seconds=QUIET_SECONDS)
    assert Counter(consume_all(outside, topic, 200)) == Counter(written(0, 200))
