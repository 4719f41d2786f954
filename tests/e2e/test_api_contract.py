"""Runs the operator's API contract tests against a real API server."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from operator.tests.contract.api_contract import ApiContract, stateful_set
from operator.tests.contract.watch_contract import WatchContract
from pathlib import Path

import pytest
from kubernetes import config
from kubernetes.client import Configuration

from odradek_operator.crds.schema import definitions
from odradek_operator.crds.types import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.claims import grow_claims, remake_sets
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects.wanted import WantedObject
from support.kubectl import Kubectl
from support.kubernetes import Kubernetes
from support.waiting import eventually


@pytest.fixture(scope="module")
def definitions_there(kubernetes: Kubernetes) -> Iterator[None]:
    """Install the project's CRDs for this module if they are missing. The chart installs them in other tests."""
    kubectl = kubernetes.kubectl
    missing = [body for body in definitions().values() if kubectl.get("crd", body["metadata"]["name"]) is None]
    for body in missing:
        kubectl.run("create", "-f", "-", stdin=json.dumps(body))
    for body in definitions().values():
        kubectl.run("wait", "--for=condition=Established", "crd", body["metadata"]["name"], "--timeout=60s")
    eventually(lambda: kubectl.list("topics.odradek.dev"), lambda _: True, what="topics are served")
    yield
    for body in missing:
        kubectl.delete("crd", body["metadata"]["name"])


@pytest.fixture
async def client(kubernetes: Kubernetes, definitions_there: None) -> AsyncIterator[KubernetesClient]:
    configuration = Configuration()
    config.load_kube_config(str(kubernetes.kubectl.kubeconfig), client_configuration=configuration)
    client = KubernetesClient(configuration, writes_per_second=1_000)
    yield client
    client.close()


@pytest.fixture
def kubeconfig(kubernetes: Kubernetes) -> Path:
    return kubernetes.kubectl.kubeconfig


class TestRealServer(ApiContract):
    """Every test of the API contract."""


class TestRealWatches(WatchContract):
    """Watches by kopf."""


def wanted(body: Object) -> WantedObject:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return WantedObject(
        api_version="apps/v1", kind="StatefulSet", name=name, namespace=namespace, body=body, owned=False
    )


async def test_pods_are_adopted_by_a_set_that_is_made_anew(client: KubernetesClient, kubectl: Kubectl) -> None:
    """Growing volumes rely on this: the new StatefulSet neither restarts pods nor creates them twice."""
    before = stateful_set(kubectl.namespace, replicas=2)
    before["spec"] |= {"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}
    after = copy.deepcopy(before)
    after["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "2Gi"
    old = (await client.apply(before))["metadata"]["uid"]

    def uids() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.list("pods")}

    def owners() -> set[str]:
        found = (pod["metadata"].get("ownerReferences", []) for pod in kubectl.list("pods"))
        return {owner["uid"] for references in found for owner in references}

    pods = await asyncio.to_thread(eventually, uids, lambda seen: len(seen) == 2, what="two pods")
    for _ in range(2):
        # The second time nothing differs from the desired state, so nothing may be deleted.
        present = await client.get(Kind.STATEFUL_SET, kubectl.namespace, "set")
        assert present is not None
        ready = await remake_sets(client, [wanted(after)], {"set": present}, kept=frozenset(), settled_size=True)
        assert [item.name for item in ready] == ["set"]
        made = await client.apply(after)
    uid = made["metadata"]["uid"]
    assert uid != old
    await asyncio.to_thread(eventually, owners, lambda seen: seen == {uid}, what="pods are adopted")
    settled = await asyncio.to_thread(
        eventually,
        lambda: kubectl.require("statefulset", "set")["status"],
        lambda status: status.get("replicas") == 2 and status.get("observedGeneration"),
        what="the set knows its pods",
    )
    assert settled["replicas"] == 2
    assert uids() == pods


async def test_claims_grow_where_their_class_lets_them(client: KubernetesClient, kubectl: Kubectl) -> None:
    namespace = kubectl.namespace
    kubernetes = kubectl.within("")
    cluster = Cluster(
        name="demo",
        namespace=namespace,
        uid="1",
        brokers=Brokers(replicas=2, volumes=(Volume(id=0, size="2Gi"),)),
        zookeeper=ZooKeeper(connect="zk:2181"),
    )
    names = [f"{namespace}-{word}" for word in ("grows", "stays")]
    try:
        for number, name in enumerate(names):
            kubernetes.apply(expanding_class(name, allowed=number == 0), volume(name))
            kubectl.apply(claim(namespace, f"data-demo-kafka-{number}", name))

        def claims() -> dict[str, Object]:
            return {body["metadata"]["name"]: body for body in kubectl.list("persistentvolumeclaims")}

        bound = await asyncio.to_thread(
            eventually,
            claims,
            lambda seen: len(seen) == 2 and all(body["status"]["phase"] == "Bound" for body in seen.values()),
            what="claims are bound",
        )
        (refused,) = (await grow_claims(client, cluster, bound, {}, broker_count=2)).waiting
        assert refused.reason == "ClaimCannotGrow"
        assert f"data-demo-kafka-1 of StorageClass {names[1]} " in refused.message
        requested = [body["spec"]["resources"]["requests"]["storage"] for _, body in sorted(claims().items())]
        assert requested == ["2Gi", "1Gi"]
    finally:
        kubectl.delete("persistentvolumeclaims", "--all", wait=False)
        kubernetes.delete("persistentvolume", *names, wait=False)
        kubernetes.delete("storageclass", *names)


def expanding_class(name: str, *, allowed: bool) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "allowVolumeExpansion": allowed,
    }


def volume(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "hostPath": {"path": "/nobody-uses-this"},
        },
    }


def claim(namespace: str, name: str, storage_class: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
