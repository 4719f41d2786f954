"""One loop for each Cluster, and what has no cluster is told, let go or swept."""

from __future__ import annotations

import asyncio

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.cluster.topic_finalizers import FINALIZER
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
"""With it, brokers read their nodes, for which they need an object that belongs to no namespace."""


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


def test_a_loop_begins_and_ends_with_its_cluster() -> None:
    async def steps(world: World, operator: Operator) -> None:
        for name in ("one", "two"):
            world.api.put(cluster_body(name))
        await until(lambda: loops() == {"cluster shop/one", "cluster shop/two"}, "both begin")
        world.delete(Kind.CLUSTER, "one")
        await until(lambda: loops() == {"cluster shop/two"}, "one ends", SWEEP_SECONDS / 2)
        world.api.put(cluster_body("one"))
        await until(lambda: len(loops()) == 2, "it begins anew", SWEEP_SECONDS / 2)

    run_virtual(scenario(steps)())


def test_no_loop_outlives_the_manager() -> None:
    async def run() -> None:
        world = World()
        async with world.living(), Operator(world).working():
            world.api.put(cluster_body())
            await until(lambda: len(loops()) == 1, "it begins")
        assert loops() == set()

    run_virtual(run())


def test_a_manager_that_starts_late_finds_what_is_there() -> None:
    async def run() -> None:
        world = World()
        world.api.put(cluster_body())
        world.api.put(topic_body("orders"))
        async with world.living():
            await asyncio.sleep(10)
            async with Operator(world).working():
                await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is cared for")

    run_virtual(run())


def test_a_cluster_that_no_watch_told_of_is_found() -> None:
    async def steps(world: World, operator: Operator) -> None:
        operator.deaf = True
        world.api.put(cluster_body())
        await until(lambda: len(loops()) == 1, "it begins", 2 * SWEEP_SECONDS)

    run_virtual(scenario(steps)())


def test_topics_without_a_cluster_are_told_so_and_let_go() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = topic_body("orders", cluster="nowhere", deletion="Delete")
        body["metadata"]["finalizers"] = [FINALIZER]
        world.api.put(body)
        await until(lambda: condition(world.find(Kind.TOPIC, "orders")) == ("False", "NoCluster"), "it is told")
        version = world.api.store.version
        await asyncio.sleep(4 * SWEEP_SECONDS)
        assert world.api.store.version == version, "it is told once"
        world.delete(Kind.TOPIC, "orders")
        await until(lambda: world.find(Kind.TOPIC, "orders") is None, "it is let go", SWEEP_SECONDS / 2)

    run_virtual(scenario(steps)())


def test_what_belongs_to_no_namespace_goes_with_its_cluster() -> None:
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


def test_what_is_left_of_clusters_that_went_unseen_is_swept() -> None:
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
                await until(lambda: left() == {"elsewhere", "other"}, "those of its own namespace go")
                await asyncio.sleep(3 * SWEEP_SECONDS)
                assert left() == {"elsewhere", "other"}
            async with Operator(world).working():
                await until(lambda: left() == {"other"}, "those of all namespaces go")
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
