"""Sizes outlive StatefulSets and the Cluster resource: a set that is deleted too early gets its size back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.objects import names
from odradek_operator_testkit.deaths import killed_or
from odradek_operator_testkit.surroundings import (
    IDLE_SECONDS,
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

RECORD = names.record("demo")


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    run_virtual(scenario(steps, **options)())


def replicas(world: World, name: str = "demo-kafka") -> int | None:
    found = world.find(Kind.STATEFUL_SET, name)
    return None if found is None else found["spec"]["replicas"]


def record(world: World) -> dict[str, str]:
    return world.get(Kind.CONFIG_MAP, RECORD)["data"]


def own_ensemble(members: int, **spec: Any) -> Object:
    body = cluster_body(**spec)
    body["spec"]["zookeeper"] = {"replicas": members}
    return body


def with_brokers(body: Object, count: int) -> Object:
    body["spec"]["brokers"]["replicas"] = count
    return body


async def drains(world: World) -> None:
    """Create four brokers, and remove one that cannot be drained yet, because a topic has four replicas."""
    world.api.put(with_brokers(cluster_body(), 4))
    world.api.put(topic_body("wide", partitions=2, replicas=4))
    await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "wide"), "all is ready")
    world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
    blocked = ("False", "ReplicasDoNotFit")
    await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == blocked, "the drain waits")


async def drained(world: World) -> None:
    world.change(Kind.TOPIC, "wide", {"spec": {"replicas": 3}})
    await until(lambda: replicas(world) == 3 and world.ready(Kind.CLUSTER, "demo"), "the fourth broker is removed")
    assert 3 not in world.replicas("wide")
    assert record(world)["brokers"] == "3"
    assert world.find(Kind.CLAIM, "data-demo-kafka-3") is not None


def test_a_set_that_is_deleted_during_a_drain_is_created_again_with_its_size() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await drains(world)
        world.delete(Kind.STATEFUL_SET, "demo-kafka")
        await until(lambda: replicas(world) is not None, "it is created again")
        assert replicas(world) == 4
        await until(lambda: world.find(Kind.POD, "demo-kafka-3") is not None, "the fourth broker is back")
        await drained(world)

    play(steps)


def test_a_set_that_a_user_scaled_down_gets_its_undrained_brokers_back() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await drains(world)
        world.change(Kind.STATEFUL_SET, "demo-kafka", {"spec": {"replicas": 3}})
        await until(lambda: replicas(world) == 4, "it is scaled back")
        await drained(world)

    play(steps)


@pytest.mark.parametrize("orphan", [False, True])
def test_a_cluster_created_again_with_fewer_brokers_drains_the_others_first(orphan: bool) -> None:
    async def steps(world: World, operator: Operator) -> None:
        await drains(world)
        if orphan:
            await operator.client.delete(_reference(Kind.STATEFUL_SET, "demo-kafka"), orphan=True)
        world.delete(Kind.CLUSTER, "demo")
        await asyncio.sleep(IDLE_SECONDS)
        assert record(world)["brokers"] == "4"
        world.api.put(with_brokers(cluster_body(), 3))
        await until(lambda: replicas(world) is not None, "its set is there")
        assert replicas(world) == 4
        await drained(world)

    play(steps)


def test_a_cluster_of_which_nothing_is_left_starts_without_a_record() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(with_brokers(own_ensemble(1), 2))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert record(world)["ensembleState"] == "formed"
        world.delete(Kind.CLUSTER, "demo")
        for name in ("data-demo-kafka-0", "data-demo-kafka-1", "data-demo-zookeeper-0"):
            world.delete(Kind.CLAIM, name)
        await asyncio.sleep(IDLE_SECONDS)
        await world.set_cluster_id("new-id")
        world.api.put(with_brokers(own_ensemble(3), 1))
        await until(lambda: replicas(world) == 1 and replicas(world, "demo-zookeeper") == 3, "as specified")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

    play(steps)


def test_an_ensemble_keeps_its_size_when_the_cluster_is_created_again() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(own_ensemble(1))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        world.delete(Kind.CLUSTER, "demo")
        await asyncio.sleep(IDLE_SECONDS)
        assert replicas(world, "demo-zookeeper") is None
        seen = set[int]()
        world.api.put(own_ensemble(3))

        def refused() -> bool:
            seen.add(replicas(world, "demo-zookeeper") or 1)
            return condition(world.get(Kind.CLUSTER, "demo")) == ("False", "EnsembleSizeCannotChange")

        await until(refused, "the status reports it")
        await until(lambda: replicas(world) == 3, "the brokers are back")
        assert seen == {1}
        state = world.get(Kind.CONFIG_MAP, names.zookeeper_config("demo"))["data"][names.ENSEMBLE_STATE]
        assert state == names.FORMED
        world.change(Kind.CLUSTER, "demo", {"spec": {"zookeeper": {"replicas": 1}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is set back")

    play(steps)


@pytest.mark.parametrize("instead", ["the size is set back", "the claims are deleted"])
def test_without_a_record_claims_of_another_ensemble_keep_zookeeper_from_starting(instead: str) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(own_ensemble(1))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        world.delete(Kind.CLUSTER, "demo")
        world.delete(Kind.CONFIG_MAP, RECORD)
        world.api.put(own_ensemble(3))
        unknown = ("False", "EnsembleSizeUnknown")
        await until(lambda: _said(world, unknown[1]), "the status reports it")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert replicas(world, "demo-zookeeper") is None
        if instead == "the size is set back":
            world.change(Kind.CLUSTER, "demo", {"spec": {"zookeeper": {"replicas": 1}}})
        else:
            world.delete(Kind.CLAIM, "data-demo-zookeeper-0")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "reconciliation continues")
        assert replicas(world, "demo-zookeeper") == (1 if instead == "the size is set back" else 3)

    play(steps)


def test_a_new_ensemble_forms_once() -> None:
    async def steps(world: World, operator: Operator) -> None:
        states = list[str]()

        def changed() -> None:
            found = world.find(Kind.CONFIG_MAP, names.zookeeper_config("demo"))
            if found is not None and states[-1:] != [found["data"][names.ENSEMBLE_STATE]]:
                states.append(found["data"][names.ENSEMBLE_STATE])

        world.api.store.listeners.append(changed)
        world.api.put(own_ensemble(1))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        await until(lambda: states == [names.FORMING, names.FORMED], "it is formed")
        world.delete(Kind.STATEFUL_SET, "demo-zookeeper")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        assert states == [names.FORMING, names.FORMED]
        assert world.deleted_pods == []

    play(steps)


def test_the_metadata_of_another_cluster_is_not_changed() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster_body())
        world.api.put(topic_body("orders", replicas=2))
        await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders"), "all is ready")
        assert record(world)["clusterId"] == "the-id"
        await world.set_cluster_id("another")
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 2}}})
        world.api.put(topic_body("late"))
        await until(lambda: _said(world, "ClusterIdChanged"), "the status reports it")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert (world.topics(), replicas(world)) == ({"orders"}, 3)
        await world.set_cluster_id("the-id")
        await until(lambda: replicas(world) == 2 and world.ready(Kind.TOPIC, "late"), "reconciliation continues")

    play(steps)


def test_the_record_is_deleted_with_the_cluster_only_if_all_claims_are() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = cluster_body()
        world.api.put(body)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert "ownerReferences" not in world.get(Kind.CONFIG_MAP, RECORD)["metadata"]
        storage = {**body["spec"]["brokers"]["storage"], "deleteClaims": True}
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"storage": storage}}})
        await until(lambda: "ownerReferences" in world.get(Kind.CONFIG_MAP, RECORD)["metadata"], "it is owned")
        world.delete(Kind.CLUSTER, "demo")
        await until(lambda: world.find(Kind.CONFIG_MAP, RECORD) is None, "it is gone")

    play(steps)


def test_nothing_grows_while_the_record_cannot_be_written() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster_body())
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        world.api.faults.concerns = lambda asked: asked.is_write and asked.path.endswith(RECORD)
        world.api.faults.status = 403
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        reason = ("False", "KubernetesRefuses")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[0] == "False", "the status reports it")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert replicas(world) == 3
        assert _said(world, reason[1])
        world.api.faults.status = 0
        await until(lambda: replicas(world) == 4 and world.ready(Kind.CLUSTER, "demo"), "it grows")

    play(steps)


def former(world: World, kind: Kind, body: Object) -> None:
    """Create an object of a deleted Cluster of the same name."""
    owner = {"apiVersion": "odradek.dev/v1", "kind": "Cluster", "name": "demo", "uid": "former", "controller": True}
    labels = names.labels("demo", names.Component.KAFKA)
    metadata = {**body.pop("metadata"), "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    world.api.put({"apiVersion": kind.api_version, "kind": kind.word, "metadata": metadata, **body})


def test_a_cluster_deleted_with_all_its_claims_leaves_nothing_to_the_next_one() -> None:
    """Kubernetes deletes owned objects later, so the next Cluster can be created before they are gone."""

    async def steps(world: World, operator: Operator) -> None:
        data = {
            "brokers": "5",
            "ensembleMembers": "3",
            "ensembleState": "formed",
            "clusterId": "old",
            "clusterUid": "x",
        }
        former(world, Kind.CONFIG_MAP, {"metadata": {"name": RECORD}, "data": data})
        spec = {"replicas": 0, "template": {"metadata": {}, "spec": {}}, "volumeClaimTemplates": []}
        former(world, Kind.STATEFUL_SET, {"metadata": {"name": "demo-kafka"}, "spec": spec})
        world.api.put(with_brokers(own_ensemble(1), 2))
        going = ("False", "FormerClusterGoing")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == going, "it waits")
        assert replicas(world) == 0
        assert record(world) == data
        world.delete(Kind.STATEFUL_SET, "demo-kafka")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert (replicas(world), replicas(world, "demo-zookeeper")) == (2, 1)
        assert (record(world)["brokers"], record(world)["clusterId"]) == ("2", "the-id")

    play(steps)


def _said(world: World, reason: str) -> bool:
    """Whether the operator has written an Event with this reason."""
    resource = world.api.place("/api/v1/events").resource
    return any(body["reason"] == reason for body in world.api.store.all(resource, None))


def _reference(kind: Kind, name: str) -> Reference:
    return Reference(kind=kind, namespace=NAMESPACE, name=name)


@pytest.mark.parametrize("lives", [1, 3, 6, 10, 15])
def test_no_broker_is_removed_undrained_whenever_operator_and_set_are_lost_during_a_scale_in(lives: int) -> None:
    """Each operator is killed before one of its writes, and the brokers' set is deleted before the next one starts."""

    async def run() -> None:
        world = World()
        too_small = list[set[int]]()

        def look() -> None:
            if replicas(world) == 3 and 3 in world.replicas("wide"):
                too_small.append(world.replicas("wide"))

        async with world.living():
            async with Operator(world).working():
                world.api.put(with_brokers(cluster_body(), 4))
                world.api.put(topic_body("wide", partitions=4, replicas=2))
                await until(
                    lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "wide"), "all is ready"
                )
            assert 3 in world.replicas("wide")
            world.api.store.listeners.append(look)
            world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
            for count in range(lives):
                async with Operator(world, lives=count).working() as operator:
                    await killed_or(operator, lambda: world.ready(Kind.CLUSTER, "demo"))
                if world.find(Kind.STATEFUL_SET, "demo-kafka") is not None:
                    world.delete(Kind.STATEFUL_SET, "demo-kafka")
            async with Operator(world).working():
                await until(lambda: replicas(world) == 3 and world.ready(Kind.CLUSTER, "demo"), "three brokers")
                await until(lambda: record(world)["brokers"] == "3", "the size is recorded")
        assert too_small == [], "the fourth broker went before it was drained"

    run_virtual(run())
