"""Volumes grow where Kubernetes lets them; sets are made anew around pods, and never while brokers are drained."""

from __future__ import annotations

import asyncio

import pytest

from odradek.testing.loop import run_virtual
from odradek_operator.crds.types import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.kube.api import Kind, Object
from odradek_operator.kube.claims import GONE_SECONDS, grow_claims, remake_sets
from odradek_operator.kube.client import KubernetesError
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import WantedObject, wanted_objects
from odradek_operator.testing.api import KubernetesApi
from odradek_operator.testing.client import MemoryClient
from odradek_operator.testing.store import key_of


def cluster(size: str) -> Cluster:
    return Cluster(
        name="demo",
        namespace="shop",
        uid="1",
        brokers=Brokers(replicas=2, volumes=(Volume(id=0, size=size, storage_class="disks"),)),
        zookeeper=ZooKeeper(connect="zk:2181"),
    )


def claim(number: int, size: str, phase: str = "Bound") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"data-demo-kafka-{number}", "namespace": "shop"},
        "spec": {"resources": {"requests": {"storage": size}}},
        "status": {"phase": phase},
    }


class Shop:
    """An API server with claims."""

    def __init__(self, *claims: Object) -> None:
        self.api = KubernetesApi()
        self.client = MemoryClient(self.api)
        for body in claims:
            self.api.put(body)

    def claims(self) -> dict[str, Object]:
        resource = self.api.place("/api/v1/persistentvolumeclaims").resource
        return {body["metadata"]["name"]: body for body in self.api.store.all(resource, None)}

    def sizes(self) -> list[str]:
        return [body["spec"]["resources"]["requests"]["storage"] for body in self.claims().values()]

    def sets(self) -> dict[str, Object]:
        resource = self.api.place("/apis/apps/v1/statefulsets").resource
        return {body["metadata"]["name"]: body for body in self.api.store.all(resource, None)}


def wanted(size: str) -> list[WantedObject]:
    found = wanted_objects(cluster(size), settings=ImageSettings(), broker_count=2)
    return [item for item in found if item.kind == "StatefulSet"]


def test_claims_that_are_too_small_grow_and_no_other_is_touched() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"), claim(1, "3Gi"), claim(2, "1Gi"))
        assert await grow_claims(shop.client, cluster("2Gi"), shop.claims(), broker_count=2) == []
        assert shop.sizes() == ["2Gi", "3Gi", "1Gi"]
        assert await grow_claims(shop.client, cluster("2048Mi"), shop.claims(), broker_count=2) == []
        assert await grow_claims(shop.client, cluster("1Gi"), shop.claims(), broker_count=2) == []
        assert len(shop.api.writes) == 1

    run_virtual(run())


def test_a_claim_without_a_volume_grows_later() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi", phase="Pending"))
        assert await grow_claims(shop.client, cluster("2Gi"), shop.claims(), broker_count=2) == []
        assert shop.api.writes == []

    run_virtual(run())


@pytest.mark.parametrize("status", [403, 422])
def test_what_kubernetes_refuses_is_for_a_person(status: int) -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"), claim(1, "1Gi"))
        shop.api.faults.status = status
        shop.api.faults.concerns = lambda asked: asked.path.endswith("-0")
        (waiting,) = await grow_claims(shop.client, cluster("2Gi"), shop.claims(), broker_count=2)
        assert waiting.needs_person
        assert waiting.sentence.startswith("Claim data-demo-kafka-0 cannot grow to 2Gi: ")
        assert shop.sizes() == ["1Gi", "2Gi"]

    run_virtual(run())


def test_other_failures_are_not_passed_over() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"))
        shop.api.faults.status = 500
        with pytest.raises(KubernetesError):
            await grow_claims(shop.client, cluster("2Gi"), shop.claims(), broker_count=2)

    run_virtual(run())


async def present(size: str) -> Shop:
    shop = Shop()
    for item in wanted(size):
        await shop.client.apply(item.body)
    shop.api.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "demo-kafka-0",
                "namespace": "shop",
                "ownerReferences": [{"uid": shop.sets()["demo-kafka"]["metadata"]["uid"], "kind": "StatefulSet"}],
            },
            "spec": {},
        }
    )
    return shop


def test_a_set_is_made_anew_around_its_pods() -> None:
    async def run() -> None:
        shop = await present("1Gi")
        assert await remake_sets(shop.client, wanted("1Gi"), shop.sets(), settled_size=True) == frozenset()
        assert shop.sets()
        assert await remake_sets(shop.client, wanted("2Gi"), shop.sets(), settled_size=True) == frozenset()
        assert shop.sets() == {}
        pod = await shop.client.get(Kind.POD, "shop", "demo-kafka-0")
        assert pod is not None and "ownerReferences" not in pod["metadata"]
        assert await remake_sets(shop.client, wanted("2Gi"), shop.sets(), settled_size=True) == frozenset()

    run_virtual(run())


def test_a_set_stays_while_brokers_are_drained() -> None:
    async def run() -> None:
        shop = await present("1Gi")
        assert await remake_sets(shop.client, wanted("2Gi"), shop.sets(), settled_size=False) == {"demo-kafka"}
        assert shop.sets()

    run_virtual(run())


def test_a_set_that_goes_slowly_is_not_applied_yet() -> None:
    async def run() -> None:
        shop = await present("1Gi")
        body = shop.sets()["demo-kafka"]
        shop.api.store.merge(key_of(body), {"metadata": {"finalizers": ["orphan"]}})
        began = asyncio.get_running_loop().time()
        assert await remake_sets(shop.client, wanted("2Gi"), shop.sets(), settled_size=True) == {"demo-kafka"}
        assert asyncio.get_running_loop().time() - began <= GONE_SECONDS + 1
        deletions = [asked for asked in shop.api.writes if asked.method == "DELETE"]
        going = asyncio.create_task(remake_sets(shop.client, wanted("2Gi"), shop.sets(), settled_size=True))
        await asyncio.sleep(1)
        shop.api.store.merge(key_of(body), {"metadata": {"finalizers": None}})
        assert await going == frozenset()
        assert [asked for asked in shop.api.writes if asked.method == "DELETE"] == deletions

    run_virtual(run())
