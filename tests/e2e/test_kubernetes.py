"""Tests the harness itself before any part of this project runs on it: nodes, pods, DNS, disks and failures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from kube.cluster import Cluster
from kube.node import PAUSE_IMAGE
from support.audit import AuditLog
from support.kubectl import Kubectl
from support.kubernetes import Kubernetes
from support.values import Pod
from support.volumes import Volumes
from support.waiting import eventually

DISK = "/disk"
USER = 10001


def pause_pod(name: str, spec: Mapping[str, Any] | None = None, claim: str = "") -> dict[str, Any]:
    """A pod as restricted as the project's own: not root, and only its disk is writable."""
    container: dict[str, Any] = {
        "name": "pause",
        "image": PAUSE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    disks: list[dict[str, Any]] = []
    if claim:
        container["volumeMounts"] = [{"name": "disk", "mountPath": DISK}]
        disks = [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]
    security = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "volumes": disks,
            "securityContext": security,
            "terminationGracePeriodSeconds": 2,
            **(spec or {}),
        },
    }


def claim_of(name: str, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def running(kubectl: Kubectl, name: str) -> Pod:
    """The pod once it is ready."""
    found = eventually(
        lambda: kubectl.pod(name), lambda pod: pod is not None and pod.ready, what=f"readiness of pod {name}"
    )
    assert found is not None
    return found


def test_every_node_is_ready_and_in_a_zone_of_its_own(kubernetes: Kubernetes, own_cluster: Cluster) -> None:
    nodes = kubernetes.kubectl.nodes()

    assert [node.name for node in nodes] == [f"node{number}" for number in own_cluster.run.numbers]
    assert all(node.ready for node in nodes)
    assert [node.zone for node in nodes] == [f"zone-{number}" for number in own_cluster.run.numbers]


def test_kubernetes_says_its_version(kubernetes: Kubernetes) -> None:
    assert '"gitVersion": "v1.' in kubernetes.kubectl.run("get", "--raw", "/version")


def addresses(kubectl: Kubectl, pod: str, name: str) -> list[str]:
    """The addresses to which a pod resolves a name."""
    return kubectl.execute(pod, "/pause", "lookup", name).split()


def test_a_restricted_pod_runs_on_every_node_and_finds_the_others_by_name(
    kubernetes: Kubernetes, kubectl: Kubectl, namespace: str
) -> None:
    kubectl.label("namespace", namespace, ["pod-security.kubernetes.io/enforce=restricted"])
    nodes = kubernetes.kubectl.nodes()
    headless = {"clusterIP": "None", "selector": {"group": "pause"}, "ports": [{"name": "none", "port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "pauses"}, "spec": headless}
    wanted = [
        pause_pod(f"on-{name}", {"nodeName": name, "hostname": f"on-{name}", "subdomain": "pauses"})
        for name in (node.name for node in nodes)
    ]
    for pod in wanted:
        pod["metadata"]["labels"]["group"] = "pause"

    kubectl.apply(service, *wanted)
    started = [running(kubectl, f"on-{node.name}") for node in nodes]

    assert [pod.node for pod in started] == [node.name for node in nodes]
    for one in started:
        for other in started:
            name = f"{other.name}.pauses.{namespace}.svc"
            found = eventually(
                partial(addresses, kubectl, one.name, name), what=f"the address of {name} from {one.name}"
            )
            assert found == [other.address]


def test_a_pod_reaches_the_api_server_by_its_cluster_address(kubectl: Kubectl) -> None:
    kubectl.apply(pause_pod("caller"))
    running(kubectl, "caller")

    # An HTTPS server answers a plain HTTP request with an error. That answer proves that the service works both ways.
    answer = kubectl.execute("caller", "/pause", "fetch", "http://kubernetes.default.svc:443/")

    assert "HTTP request to an HTTPS server" in answer


def test_a_local_disk_is_bound_on_first_use_and_keeps_what_is_written(kubectl: Kubectl, volumes: Volumes) -> None:
    volumes.provide(1)
    kubectl.apply(claim_of("first", volumes.storage_class))
    assert "Bound" not in volumes.phases().values()

    kubectl.apply(pause_pod("writer", claim="first"))
    writer = running(kubectl, "writer")
    kubectl.execute("writer", "/pause", "write", f"{DISK}/file", "kept")
    kubectl.delete("pod", "writer")
    kubectl.apply(pause_pod("reader", claim="first"))
    reader = running(kubectl, "reader")

    assert reader.node == writer.node
    assert kubectl.execute("reader", "/pause", "read", f"{DISK}/file") == "kept"


def test_a_disk_without_its_claim_is_emptied_and_offered_again(kubectl: Kubectl, volumes: Volumes) -> None:
    volumes.provide(1)
    kubectl.apply(claim_of("given-up", volumes.storage_class), pause_pod("user", claim="given-up"))
    running(kubectl, "user")
    kubectl.execute("user", "/pause", "write", f"{DISK}/file", "old")
    kubectl.delete("pod", "user")
    kubectl.delete("persistentvolumeclaim", "given-up")
    (name,) = eventually(volumes.recycle, what="release of the disk")

    phases = eventually(volumes.phases, lambda seen: "Released" not in seen.values(), what="the disk on offer")

    assert phases[name] == "Available"
    assert list(volumes.path(name).iterdir()) == []


def test_writes_are_counted_by_who_wrote(audit: AuditLog, kubectl: Kubectl) -> None:
    audit.mark()
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written"}, "data": {"a": "b"}})
    kubectl.patch("configmap", "written", {"data": {"a": "c"}})

    assert audit.writes("kubectl") == {("create", "configmaps"): 1, ("patch", "configmaps"): 1}
    assert audit.writes("odradek") == {}


def test_the_api_server_comes_back(own_cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(pause_pod("survivor"))
    before = running(kubectl, "survivor")

    own_cluster.stop_api_server()
    own_cluster.start_api_server()

    assert running(kubectl, "survivor").uid == before.uid


@pytest.mark.e2e_full
def test_a_node_is_lost_and_comes_back(own_cluster: Cluster, kubectl: Kubectl, kubernetes: Kubernetes) -> None:
    lost = f"node{own_cluster.run.nodes}"
    kubectl.apply(pause_pod("lost", {"nodeName": lost}))
    running(kubectl, "lost")

    own_cluster.kill_node(own_cluster.run.nodes)
    eventually(
        lambda: {node.name: node.ready for node in kubernetes.kubectl.nodes()},
        lambda ready: not ready[lost] and sum(ready.values()) == own_cluster.run.nodes - 1,
        what=f"the loss of {lost}",
    )
    own_cluster.start_node(own_cluster.run.nodes)

    assert running(kubectl, "lost").restarts == 1
