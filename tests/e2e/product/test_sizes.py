"""Tests sizes that are impossible or that a deleted object takes with it, and where pods run.

The sizes are those of StatefulSets, Clusters, ensembles and volumes. The tests share a small cluster in a separate
namespace: two brokers and one ZooKeeper member.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from support.kubernetes import Kubernetes
from support.product import CLUSTER, Demo, Release
from support.values import Object
from support.volumes import Volumes
from support.waiting import eventually

SETTLE_SECONDS = 180.0


@pytest.fixture(scope="module")
def small(kubernetes: Kubernetes, operator_release: Release) -> Iterator[Demo]:
    """The small cluster. Its StorageClass cannot expand volumes."""
    assert operator_release.pods(), "the operator is there before the cluster is"
    namespace = f"e2e-{secrets.token_hex(3)}"
    kubernetes.make_namespace(namespace)
    volumes = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=namespace)
    volumes.provide(2)
    made = Demo(kubectl=kubernetes.kubectl.within(namespace), storage_class=volumes.storage_class)
    try:
        made.kubectl.apply(wanted(made))
        made.await_ready()
        yield made
    finally:
        made.remove()
        kubernetes.remove_namespace(namespace, then=volumes.erase)
        volumes.withdraw()


def wanted(demo: Demo, *, brokers: int = 2, members: int = 1) -> Object:
    """The Cluster resource."""
    small = {"requests": {"cpu": "50m", "memory": "200Mi"}}
    volume = {"size": "1Gi", "storageClass": demo.storage_class}
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": demo.name},
        "spec": {
            "brokers": {"replicas": brokers, "storage": {"volumes": [{"id": 0, **volume}]}, "resources": small},
            "zookeeper": {"replicas": members, "storage": volume, "resources": small},
            "monitoring": {"exporter": {"enabled": False}},
        },
    }


def stateful_set(demo: Demo, component: str = "kafka") -> dict[str, Any] | None:
    return demo.kubectl.get("statefulset", f"{demo.name}-{component}")


def replicas(demo: Demo, component: str = "kafka") -> int | None:
    found = stateful_set(demo, component)
    return None if found is None else found["spec"]["replicas"]


def refused(demo: Demo, reason: str) -> str:
    """Wait until the Ready condition has this reason, and return its message."""

    def condition() -> tuple[str, str]:
        conditions = demo.cluster().get("status", {}).get("conditions", [])
        return next(((one["reason"], one["message"]) for one in conditions if one["type"] == "Ready"), ("", ""))

    return eventually(condition, lambda found: found[0] == reason, what=f"refusal {reason}", seconds=SETTLE_SECONDS)[1]


def size(demo: Demo, to: str) -> None:
    volumes = [{"id": 0, "size": to, "storageClass": demo.storage_class}]
    demo.kubectl.patch(CLUSTER, demo.name, {"spec": {"brokers": {"storage": {"volumes": volumes}}}})


def brokers(demo: Demo, count: int) -> None:
    demo.kubectl.patch(CLUSTER, demo.name, {"spec": {"brokers": {"replicas": count}}})


def test_brokers_run_on_nodes_of_their_own(small: Demo) -> None:
    small.await_ready()
    found = stateful_set(small)
    assert found is not None

    (rule,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert (rule["topologyKey"], rule["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert len({pod.node for pod in small.pods("kafka")}) == 2
    assert [
        condition for condition in small.cluster()["status"].get("warnings", []) if "run on node" in condition
    ] == []


def test_a_size_that_the_class_cannot_give_is_refused_and_taken_back(small: Demo) -> None:
    small.await_ready()
    before = stateful_set(small)
    assert before is not None

    size(small, "2Gi")
    sentence = refused(small, "ClaimCannotGrow")

    after = stateful_set(small)
    assert f"of StorageClass {small.storage_class} cannot grow from 1Gi to 2Gi" in sentence
    assert after is not None and after["metadata"]["uid"] == before["metadata"]["uid"]
    size(small, "1Gi")
    small.await_ready()


@pytest.fixture
def drain(small: Demo) -> Iterator[Demo]:
    """A cluster whose second broker cannot be removed, because a topic has two replicas.

    Afterwards the cluster has two brokers again.
    """
    small.await_ready()
    small.make_topic("wide", partitions=2, replicas=2)
    brokers(small, 1)
    refused(small, "ReplicasDoNotFit")
    yield small
    small.kubectl.patch(CLUSTER, small.name, {"spec": {"brokers": {"replicas": 2}, "zookeeper": {"replicas": 1}}})
    small.make_topic("wide", partitions=2, replicas=2)
    small.await_ready()


def finish(demo: Demo) -> None:
    """Let the drain complete: the second broker is removed when it has no replica left."""
    demo.make_topic("wide", partitions=2, replicas=1)
    eventually(lambda: replicas(demo), lambda count: count == 1, what="one broker", seconds=SETTLE_SECONDS)
    demo.await_ready()


def test_a_set_that_is_deleted_during_a_drain_comes_back_with_its_size(drain: Demo) -> None:
    before = stateful_set(drain)
    assert before is not None

    drain.kubectl.delete("statefulset", f"{drain.name}-kafka", wait=False)

    after = eventually(
        lambda: stateful_set(drain),
        lambda found: found is not None and found["metadata"]["uid"] != before["metadata"]["uid"],
        what="the set again",
    )
    assert after is not None and after["spec"]["replicas"] == 2
    finish(drain)


@pytest.mark.e2e_full
def test_a_cluster_made_again_keeps_its_sizes(drain: Demo) -> None:
    """The new resource has fewer brokers, which are drained first, and a larger ensemble, which is refused."""
    drain.kubectl.delete(CLUSTER, drain.name)
    eventually(drain.pods, lambda pods: not pods, what="the end of all pods", seconds=SETTLE_SECONDS)

    drain.kubectl.apply(wanted(drain, brokers=1, members=3))

    assert "Set spec.zookeeper.replicas back to 1" in refused(drain, "EnsembleSizeCannotChange")
    assert (replicas(drain, "zookeeper"), replicas(drain)) == (1, 2)
    drain.kubectl.patch(CLUSTER, drain.name, {"spec": {"zookeeper": {"replicas": 1}}})
    finish(drain)
