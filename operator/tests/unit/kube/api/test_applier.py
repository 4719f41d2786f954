"""Objects are applied when they differ or others changed them, and deleted when they are no longer desired."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from odradek_operator.crds.types import Cluster, Monitoring
from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.applier import Applier
from odradek_operator.kube.api.object_kinds import Kind, Reference, complete, kind_named
from odradek_operator.kube.api.owners import owner_of
from odradek_operator.objects import names
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import PRUNED_KINDS, WantedObject, prune_selector, wanted_objects
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.store import key_of
from odradek_testkit.loop import run_virtual

CLUSTER = Cluster(name="demo", namespace="shop", uid="1")


def wanted(cluster: Cluster = CLUSTER, brokers: int = 3) -> tuple[WantedObject, ...]:
    return wanted_objects(cluster, settings=ImageSettings(), broker_count=brokers, operator_namespace="odradek-system")


def begin() -> tuple[KubernetesApi, MemoryClient, Applier]:
    api = KubernetesApi()
    client = MemoryClient(api, writes_per_second=100_000)
    return api, client, Applier(client)


async def prune(applier: Applier, items: tuple[WantedObject, ...]) -> list[Reference]:
    kinds = [kind_named(*kind) for kind in PRUNED_KINDS]
    return await applier.prune(items, kinds, namespace="shop", selector=prune_selector(CLUSTER))


def test_everything_is_applied_once() -> None:
    async def run() -> None:
        api, _, applier = begin()
        assert await applier.apply(wanted()) == [Reference.of(item.body) for item in wanted()]
        count = len(api.writes)
        assert await applier.apply(wanted()) == []
        assert len(api.writes) == count

    run_virtual(run())


def test_only_what_differs_is_applied() -> None:
    async def run() -> None:
        _, _, applier = begin()
        await applier.apply(wanted())
        assert [which.name for which in await applier.apply(wanted(brokers=4))] == ["demo-kafka"]

    run_virtual(run())


def test_an_object_that_others_changed_is_applied_again() -> None:
    async def run() -> None:
        _, client, applier = begin()
        await applier.apply(wanted())
        for kind, name in ((Kind.STATEFUL_SET, "demo-kafka"), (Kind.SERVICE, "demo-kafka-brokers")):
            which = Reference(kind=kind, namespace="shop", name=name)
            before = await client.get(kind, "shop", name)
            assert before is not None
            assert not applier.touched(complete(kind, before))
            after = await client.merge(which, {"spec": {"replicas": 9}})
            assert after is not None
            assert applier.touched(complete(kind, after))
            assert await applier.apply(wanted()) == [which]

    run_virtual(run())


def test_a_new_status_is_not_a_change_by_others() -> None:
    async def run() -> None:
        _, client, applier = begin()
        await applier.apply(wanted())
        which = Reference(kind=Kind.STATEFUL_SET, namespace="shop", name="demo-kafka")
        after = await client.merge(which, {"status": {"readyReplicas": 3}}, sub="status")
        assert after is not None
        assert not applier.touched(after)
        assert await applier.apply(wanted()) == []

    run_virtual(run())


def test_a_deleted_object_is_created_again() -> None:
    async def run() -> None:
        _, client, applier = begin()
        await applier.apply(wanted())
        which = Reference(kind=Kind.CONFIG_MAP, namespace="shop", name="demo-kafka-config")
        await client.delete(which)
        assert applier.vanished(which)
        assert not applier.vanished(which)
        assert await applier.apply(wanted()) == [which]
        assert await client.get(Kind.CONFIG_MAP, "shop", "demo-kafka-config") is not None

    run_virtual(run())


def test_forgotten_objects_are_applied_again_without_effect() -> None:
    async def run() -> None:
        api, _, applier = begin()
        await applier.apply(wanted())
        version = api.store.version
        applier.forget()
        assert len(await applier.apply(wanted())) == len(wanted())
        assert api.store.version == version

    run_virtual(run())


def test_only_the_object_that_failed_is_applied_again() -> None:
    async def run() -> None:
        api, _, applier = begin()
        api.faults.status = 500
        api.faults.concerns = lambda asked: "statefulsets/demo-kafka" in asked.path
        with pytest.raises(KubernetesError):
            await applier.apply(wanted())
        api.faults.status = 0
        done = {Reference.of(item.body) for item in wanted() if api.store.find(key_of(item.body)) is not None}
        rest = await applier.apply(wanted())
        assert rest == [Reference.of(item.body) for item in wanted() if Reference.of(item.body) not in done]

    run_virtual(run())


def test_objects_that_are_no_longer_desired_are_deleted() -> None:
    async def run() -> None:
        api, client, applier = begin()
        await applier.apply(wanted())
        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": "shop", "labels": {names.CLUSTER_LABEL: "demo"}},
        }
        api.put(foreign)
        assert await prune(applier, wanted()) == []
        bare = Cluster(name="demo", namespace="shop", uid="1", monitoring=Monitoring(exporter=False))
        gone = {Reference.of(item.body) for item in wanted()} - {Reference.of(item.body) for item in wanted(bare)}
        assert gone
        assert set(await prune(applier, wanted(bare))) == gone
        assert await client.get(Kind.CONFIG_MAP, "shop", "theirs") is not None
        assert await client.get(Kind.STATEFUL_SET, "shop", "demo-kafka") is not None
        assert set(await applier.apply(wanted())) == gone

    run_virtual(run())


def test_nothing_is_pruned_of_kinds_that_are_not_installed() -> None:
    async def run() -> None:
        api, _, applier = begin()
        api.faults.status = 404
        api.faults.concerns = lambda asked: "monitoring.coreos.com" in asked.path
        assert await prune(applier, wanted()) == []

    run_virtual(run())


def test_kinds_that_are_not_installed_cause_a_warning_and_stop_nothing() -> None:
    async def run() -> None:
        api, _, applier = begin()
        api.faults.status = 404
        api.faults.concerns = lambda asked: "monitoring.coreos.com" in asked.path
        monitored = replace(CLUSTER, monitoring=Monitoring(pod_monitors=True))
        written = await applier.apply(wanted(monitored))
        assert {which.kind for which in written} >= {Kind.STATEFUL_SET, Kind.SERVICE}
        assert Kind.POD_MONITOR not in {which.kind for which in written}
        assert ["PodMonitor" in message for message in applier.warnings()] == [True]
        api.faults.status = 0
        assert [which.kind for which in await applier.apply(wanted(monitored))] == [Kind.POD_MONITOR]
        assert applier.warnings() == ()

    run_virtual(run())


STRIMZI = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "demo-kafka-bootstrap",
        "namespace": "shop",
        "labels": {"app.kubernetes.io/managed-by": "strimzi-cluster-operator"},
        "ownerReferences": [
            {
                "apiVersion": "kafka.strimzi.io/v1beta2",
                "kind": "Kafka",
                "name": "demo",
                "uid": "their-uid",
                "controller": True,
            }
        ],
    },
    "spec": {"ports": [{"name": "tcp-clients", "port": 9092}], "selector": {"strimzi.io/name": "demo-kafka"}},
}


def test_an_object_of_another_owner_is_reported_and_all_others_are_applied() -> None:
    async def run() -> None:
        api, client, applier = begin()
        api.put(copy.deepcopy(STRIMZI))
        before = await client.get(Kind.SERVICE, "shop", "demo-kafka-bootstrap")
        written = await applier.apply(wanted())
        assert await client.get(Kind.SERVICE, "shop", "demo-kafka-bootstrap") == before
        missing = {Reference.of(item.body) for item in wanted()} - set(written)
        assert [which.name for which in missing] == ["demo-kafka-bootstrap"]
        (refused,) = applier.waiting
        assert refused.needs_person
        assert refused.message.startswith(
            "Service shop/demo-kafka-bootstrap belongs to Kafka demo (kafka.strimzi.io/v1beta2) and is not changed"
        )
        await prune(applier, ())
        assert await client.get(Kind.SERVICE, "shop", "demo-kafka-bootstrap") == before, "it is not pruned either"

    run_virtual(run())


def test_pods_do_not_restart_while_another_owner_has_their_config_map() -> None:
    async def run() -> None:
        api, client, applier = begin()
        theirs = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "demo-kafka-config", "namespace": "shop", "labels": {"app": "theirs"}},
            "data": {"theirs": "1"},
        }
        api.put(theirs)
        await applier.apply(wanted())
        (refused,) = applier.waiting
        assert "belongs to an unknown owner" in refused.message
        assert await client.get(Kind.STATEFUL_SET, "shop", "demo-kafka") is None
        assert await client.get(Kind.STATEFUL_SET, "shop", "demo-zookeeper") is not None
        await client.delete(Reference(kind=Kind.CONFIG_MAP, namespace="shop", name="demo-kafka-config"))
        await applier.apply(wanted())
        assert applier.waiting == ()
        assert await client.get(Kind.STATEFUL_SET, "shop", "demo-kafka") is not None

    run_virtual(run())


def test_objects_of_an_earlier_cluster_of_the_name_are_waited_for() -> None:
    async def run() -> None:
        _, client, applier = begin()
        await applier.apply(wanted(replace(CLUSTER, uid="earlier")))
        again = Applier(client)
        assert all(item.api_version.startswith("rbac") for item in wanted() if not item.owned)
        assert await again.apply([item for item in wanted() if item.owned]) == []
        assert {waiting.reason for waiting in again.waiting} == {"ObjectIsLeaving"}
        assert not any(waiting.needs_person for waiting in again.waiting)

    run_virtual(run())


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({}, "field manager helm"),
        ({"app.kubernetes.io/managed-by": "Helm"}, "Helm"),
        (
            {
                "app.kubernetes.io/managed-by": "odradek-operator",
                "odradek.dev/cluster": "demo",
                "odradek.dev/namespace": "other",
            },
            "odradek-operator, for Cluster other/demo",
        ),
    ],
)
def test_the_owner_is_named_from_fields_of_the_object(labels: dict[str, str], owner: str) -> None:
    (service, *_) = (item.body for item in wanted() if item.kind == "Service")
    fields = [{"manager": "helm", "operation": "Update"}]
    present = {"metadata": {"name": "x", "labels": labels, "managedFields": fields}}
    assert owner_of(present, service) == owner


def test_an_object_without_an_owner_belongs_to_the_cluster_in_its_labels() -> None:
    """As after `kubectl delete cluster --cascade=orphan`, and for cluster-scoped objects."""
    (service, *_) = (item.body for item in wanted() if item.kind == "Service")
    assert owner_of({"metadata": {"labels": service["metadata"]["labels"]}}, service) is None
