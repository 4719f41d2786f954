"""The manager: one loop for each Cluster, and what happens to Topics and objects without a Cluster."""

from __future__ import annotations

import asyncio

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.cluster.finalizers import FINALIZERS
from odradek_operator.kube.manager import SWEEP_SECONDS
from odradek_operator.objects import names
from odradek_operator_testkit.surroundings import (
    NAMESPACE,
    Operator,
    World,
    cluster_body,
    condition,
    scenario,
    topic_body,
    until,
)
from odradek_testkit.loop import run_virtual

RACKS = {"rack": {"topologyKey": "topology.kubernetes.io/zone"}}
"""With racks, brokers read their nodes, so the cluster has a cluster-scoped object: a ClusterRoleBinding."""


def loops() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("cluster ")}


def binding(namespace: str, cluster: str, **labels: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": names.node_reader_binding(namespace, cluster),
            "labels": {
                names.CLUSTER_LABEL: cluster,
                names.NAMESPACE_LABEL: namespace,
                names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
                **labels,
            },
        },
    }


def test_a_loop_starts_and_ends_with_its_cluster() -> None:
    async def steps(world: World, operator: Operator) -> None:
        for name in ("one", "two"):
            world.api.put(cluster_body(name))
        await until(lambda: loops() == {"cluster shop/one", "cluster shop/two"}, "both start")
        world.delete(Kind.CLUSTER, "one")
        await until(lambda: loops() == {"cluster shop/two"}, "one ends", SWEEP_SECONDS / 2)
        world.api.put(cluster_body("one"))
        await until(lambda: len(loops()) == 2, "it starts again", SWEEP_SECONDS / 2)

    run_virtual(scenario(steps)())


def test_no_loop_outlives_the_manager() -> None:
    async def run() -> None:
        world = World()
        async with world.living(), Operator(world).working():
            world.api.put(cluster_body())
            await until(lambda: len(loops()) == 1, "it starts")
        assert loops() == set()

    run_virtual(run())


def test_a_manager_that_starts_late_finds_existing_resources() -> None:
    async def run() -> None:
        world = World()
        world.api.put(cluster_body())
        world.api.put(topic_body("orders"))
        async with world.living():
            await asyncio.sleep(10)
            async with Operator(world).working():
                await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is reconciled")

    run_virtual(run())


def test_a_cluster_that_no_watch_reported_is_found() -> None:
    async def steps(world: World, operator: Operator) -> None:
        operator.deaf = True
        world.api.put(cluster_body())
        await until(lambda: len(loops()) == 1, "it starts", 2 * SWEEP_SECONDS)

    run_virtual(scenario(steps)())


def test_topics_without_a_cluster_get_a_status_and_can_be_deleted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = topic_body("orders", cluster="nowhere", deletion="Delete")
        body["metadata"]["finalizers"] = [FINALIZERS[Kind.TOPIC]]
        world.api.put(body)
        await until(
            lambda: condition(world.find(Kind.TOPIC, "orders")) == ("False", "NoCluster"), "its status is written"
        )
        version = world.api.store.version
        await asyncio.sleep(4 * SWEEP_SECONDS)
        assert world.api.store.version == version, "it is written once"
        world.delete(Kind.TOPIC, "orders")
        await until(lambda: world.find(Kind.TOPIC, "orders") is None, "its finalizer is removed", SWEEP_SECONDS / 2)

    run_virtual(scenario(steps)())


def test_cluster_scoped_objects_are_deleted_with_their_cluster() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = cluster_body()
        body["spec"]["brokers"] |= RACKS
        world.api.put(body)
        name = names.node_reader_binding(NAMESPACE, "demo")
        await until(lambda: world.find(Kind.CLUSTER_ROLE_BINDING, name) is not None, "it is there")
        await asyncio.sleep(3 * SWEEP_SECONDS)
        assert world.find(Kind.CLUSTER_ROLE_BINDING, name) is not None
        world.delete(Kind.CLUSTER, "demo")
        await until(lambda: world.find(Kind.CLUSTER_ROLE_BINDING, name) is None, "it is gone", SWEEP_SECONDS / 3)

    run_virtual(scenario(steps)())


def test_objects_of_clusters_that_were_deleted_unseen_are_removed() -> None:
    async def run() -> None:
        world = World()
        for body in (
            binding(NAMESPACE, "gone"),
            binding("elsewhere", "gone"),
            binding("other", "kept", **{names.MANAGED_BY_LABEL: "somebody-else"}),
        ):
            world.api.put(body)

        def left() -> set[str]:
            resource = world.api.place("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").resource
            return {body["metadata"]["labels"][names.NAMESPACE_LABEL] for body in world.api.store.all(resource, None)}

        async with world.living():
            async with Operator(world, namespaces=(NAMESPACE,)).working():
                await until(lambda: left() == {"elsewhere", "other"}, "objects of its namespace are deleted")
                await asyncio.sleep(3 * SWEEP_SECONDS)
                assert left() == {"elsewhere", "other"}
            async with Operator(world).working():
                await until(lambda: left() == {"other"}, "objects of all namespaces are deleted")
                await asyncio.sleep(3 * SWEEP_SECONDS)
                assert left() == {"other"}

    run_virtual(run())


def test_resources_are_counted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        paused = topic_body("paused")
        paused["metadata"]["annotations"] = {names.PAUSED: "true"}
        for body in (cluster_body(), topic_body("orders"), paused):
            world.api.put(body)

        def counted(name: str, kind: str) -> float | None:
            return operator.registry.get_sample_value(name, {"kind": kind, "namespace": "*", "selector": ""})

        await until(lambda: counted("strimzi_resources", "KafkaTopic") == 2, "topics are counted")
        assert counted("strimzi_resources", "Kafka") == 1
        assert counted("strimzi_resources_paused", "KafkaTopic") == 1
        await until(lambda: counted("strimzi_reconciliations_successful_total", "Kafka"), "rounds are counted")

    run_virtual(scenario(steps)())
