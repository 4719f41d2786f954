"""Claims grow if Kubernetes permits it. StatefulSets follow when all their claims have grown, never during a drain."""

from __future__ import annotations

import asyncio

import pytest

from odradek_operator.crds.types import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.claims import GONE_SECONDS, Growth, grow_claims, remake_sets
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.storage import template_sizes
from odradek_operator.objects.wanted import WantedObject, wanted_objects
from odradek_operator_testkit.api import Asked, KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.store import key_of
from odradek_testkit.loop import run_virtual


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
        "spec": {"storageClassName": "disks", "resources": {"requests": {"storage": size}}},
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
    found = wanted_objects(cluster(size), settings=ImageSettings(), broker_count=2, operator_namespace="odradek-system")
    return [item for item in found if item.kind == "StatefulSet"]


async def grow(shop: Shop, size: str) -> Growth:
    return await grow_claims(shop.client, cluster(size), shop.claims(), shop.sets(), broker_count=2)


def test_only_claims_that_are_too_small_grow() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"), claim(1, "3Gi"), claim(2, "1Gi"))
        larger = Growth(
            notices=(
                "Claim data-demo-kafka-1 has 3Gi, more than spec.brokers.storage.volumes[id=0].size (2Gi): a claim "
                "never shrinks.",
            )
        )
        assert await grow(shop, "2Gi") == larger
        assert shop.sizes() == ["2Gi", "3Gi", "1Gi"]
        assert (await grow(shop, "2048Mi")).kept == frozenset()
        assert (await grow(shop, "1Gi")).kept == frozenset()
        assert len(shop.api.writes) == 1

    run_virtual(run())


def test_a_claim_without_a_volume_grows_later_and_its_set_waits_for_it() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi", phase="Pending"))
        growth = await grow(shop, "2Gi")
        assert [(one.reason, one.needs_person) for one in growth.waiting] == [("ClaimNotBound", False)]
        assert growth.kept == {"demo-kafka"}
        assert shop.api.writes == []

    run_virtual(run())


@pytest.mark.parametrize("status", [403, 422])
def test_a_refused_expansion_needs_a_person_and_costs_one_request_per_volume(status: int) -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"), claim(1, "1Gi"))
        shop.api.faults.status = status
        asked = set[str]()

        def concerns(one: Asked) -> bool:
            asked.add(one.path)
            return one.method == "PATCH"

        shop.api.faults.concerns = concerns
        growth = await grow(shop, "2Gi")
        (waiting,) = growth.waiting
        assert waiting.needs_person
        assert waiting.message.startswith("Claim data-demo-kafka-0 of StorageClass disks cannot grow from 1Gi to 2Gi: ")
        assert waiting.message.endswith("or set spec.brokers.storage.volumes[id=0].size back.")
        assert growth.kept == {"demo-kafka"}
        assert shop.sizes() == ["1Gi", "1Gi"]
        assert [path.rpartition("/")[2] for path in asked] == ["data-demo-kafka-0"]

    run_virtual(run())


def test_a_size_below_that_of_a_claim_is_refused_and_can_be_set_back() -> None:
    async def run() -> None:
        shop = await present("2Gi")
        shop.api.put(claim(0, "1Gi"))
        shop.api.put(claim(1, "2Gi"))
        growth = await grow(shop, "1Gi")
        assert [(one.reason, one.message, one.needs_person) for one in growth.waiting] == [
            (
                "ClaimCannotShrink",
                "spec.brokers.storage.volumes[id=0].size is 1Gi, but claim data-demo-kafka-1 has 2Gi, and a claim "
                "never shrinks: set the size back to at least 2Gi.",
                True,
            )
        ]
        assert growth.kept == {"demo-kafka"}
        assert (await grow(shop, "2Gi")).waiting == ()
        assert shop.sizes() == ["2Gi", "2Gi"]

    run_virtual(run())


def test_other_failures_are_raised() -> None:
    async def run() -> None:
        shop = Shop(claim(0, "1Gi"))
        shop.api.faults.status = 500
        with pytest.raises(KubernetesError):
            await grow(shop, "2Gi")

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


async def remake(shop: Shop, size: str, *, kept: frozenset[str] = frozenset(), settled: bool = True) -> list[str]:
    """Return the sizes of the StatefulSets that can be applied now."""
    ready = await remake_sets(shop.client, wanted(size), shop.sets(), kept=kept, settled_size=settled)
    return [found for item in ready for found in template_sizes(item.body).values()]


def test_a_set_is_recreated_around_its_pods() -> None:
    async def run() -> None:
        shop = await present("1Gi")
        assert await remake(shop, "1Gi") == ["1Gi"]
        assert shop.sets()
        assert await remake(shop, "2Gi") == ["2Gi"]
        assert shop.sets() == {}
        pod = await shop.client.get(Kind.POD, "shop", "demo-kafka-0")
        assert pod is not None and "ownerReferences" not in pod["metadata"]
        assert await remake(shop, "2Gi") == ["2Gi"]

    run_virtual(run())


@pytest.mark.parametrize(("kept", "settled"), [(frozenset({"demo-kafka"}), True), (frozenset[str](), False)])
def test_a_set_keeps_its_sizes_until_all_claims_have_grown_and_while_brokers_are_drained(
    kept: frozenset[str], settled: bool
) -> None:
    async def run() -> None:
        shop = await present("1Gi")
        assert await remake(shop, "2Gi", kept=kept, settled=settled) == ["1Gi"]
        assert shop.sets()

    run_virtual(run())


def test_a_set_whose_deletion_takes_long_is_not_applied_yet() -> None:
    async def run() -> None:
        shop = await present("1Gi")
        body = shop.sets()["demo-kafka"]
        shop.api.store.merge(key_of(body), {"metadata": {"finalizers": ["orphan"]}})
        began = asyncio.get_running_loop().time()
        assert await remake(shop, "2Gi") == []
        assert asyncio.get_running_loop().time() - began <= GONE_SECONDS + 1
        deletions = [asked for asked in shop.api.writes if asked.method == "DELETE"]
        going = asyncio.create_task(remake(shop, "2Gi"))
        await asyncio.sleep(1)
        shop.api.store.merge(key_of(body), {"metadata": {"finalizers": None}})
        assert await going == ["2Gi"]
        assert [asked for asked in shop.api.writes if asked.method == "DELETE"] == deletions

    run_virtual(run())
