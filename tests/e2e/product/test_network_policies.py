"""Tests that the NetworkPolicies of a cluster keep out pods without the right, and hinder nothing that is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from kube.cluster import Cluster
from kube.policies import enforced
from support.kubectl import Kubectl, KubectlError
from support.kubernetes import idle_pod
from support.product import Demo, Release
from support.waiting import eventually

BROKER, OTHER, MEMBER, EXPORTER = "demo-kafka-0", "demo-kafka-1", "demo-zookeeper-0", "exporter"
STRANGER, PROMETHEUS, OPERATOR = "stranger", "prometheus", "operator"
ALLOWED: Final = (
    (STRANGER, BROKER, 9092),
    (PROMETHEUS, BROKER, 9404),
    (PROMETHEUS, MEMBER, 9404),
    (PROMETHEUS, EXPORTER, 9404),
    (OTHER, BROKER, 9091),
    (OTHER, MEMBER, 2181),
    ("demo-zookeeper-1", MEMBER, 3888),
    (EXPORTER, MEMBER, 2181),
    (EXPORTER, BROKER, 9092),
    (OPERATOR, MEMBER, 2181),
    (OPERATOR, BROKER, 9404),
    (OPERATOR, EXPORTER, 9404),
)
"""Who may connect to which port of which pod."""
REFUSED: Final = (
    (STRANGER, BROKER, 9091),
    (STRANGER, BROKER, 9404),
    (STRANGER, MEMBER, 2181),
    (STRANGER, MEMBER, 3888),
    (STRANGER, MEMBER, 9404),
    (STRANGER, EXPORTER, 9404),
    (PROMETHEUS, BROKER, 9091),
    (PROMETHEUS, MEMBER, 2181),
    (OTHER, MEMBER, 3888),
    (EXPORTER, BROKER, 9091),
)


@pytest.fixture
def places(demo: Demo, operator_release: Release) -> Iterator[dict[str, tuple[Kubectl, str]]]:
    """How to run a command in each pod, by the names above; two of them are made here."""
    kubectl = demo.kubectl
    image = kubectl.require("pod", BROKER)["spec"]["containers"][0]["image"]
    scraper = idle_pod(PROMETHEUS, image, labels={"app.kubernetes.io/name": "prometheus"})
    kubectl.apply(idle_pod(STRANGER, image), scraper)
    try:
        for name in (STRANGER, PROMETHEUS):
            eventually(lambda name=name: kubectl.require("pod", name)["status"].get("podIP"), what=f"pod {name}")
        (exporter,) = demo.pods("exporter")
        (operator,) = operator_release.pods()
        found = {name: (kubectl, name) for name in (BROKER, OTHER, MEMBER, "demo-zookeeper-1", STRANGER, PROMETHEUS)}
        yield {
            **found,
            EXPORTER: (kubectl, exporter.name),
            OPERATOR: (operator_release.kubectl, operator.name),
        }
    finally:
        kubectl.delete("pod", STRANGER, PROMETHEUS)


def connects(places: dict[str, tuple[Kubectl, str]], source: str, target: str, port: int) -> bool:
    """Whether a process in one pod can open a connection to a port of another."""
    kubectl, pod = places[target]
    address = kubectl.require("pod", pod)["status"]["podIP"]
    kubectl, pod = places[source]
    try:
        kubectl.execute(pod, "timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}")
    except KubectlError:
        return False
    return True


def test_only_pods_with_the_right_connect(
    demo: Demo, places: dict[str, tuple[Kubectl, str]], own_cluster: Cluster
) -> None:
    closed = [each for each in (*ALLOWED, *REFUSED) if not connects(places, *each)]
    assert closed == [], "without enforcement, every pod can connect: the pods and ports are right"
    with enforced(own_cluster) as guarded:
        assert {"demo-kafka-0", "demo-zookeeper-0"} <= {pod.name.partition("/")[2] for pod in guarded}
        assert [each for each in ALLOWED if not connects(places, *each)] == []
        assert [each for each in REFUSED if connects(places, *each)] == []
        topic = {"cluster": demo.name, "partitions": 3, "replicas": 3}
        body = {"apiVersion": "odradek.dev/v1", "kind": "Topic", "metadata": {"name": "policed"}, "spec": topic}
        demo.kubectl.apply(body)
        demo.await_topic("policed")
        bootstrap = "demo-kafka-bootstrap:9092"
        demo.command("produce", "-b", bootstrap, "policed", stdin="one\ntwo\n")
        found = demo.command("consume", "-b", bootstrap, "policed", "--from-beginning", "--until-end")
        assert sorted(found.split()) == ["one", "two"]
        demo.kubectl.delete("topic.odradek.dev", "policed")
