"""A Cluster in a shared ensemble starts no broker with an id that a broker of another cluster has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from odradek.zk.ownership import MANAGED_BROKERS
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.objects import names
from odradek_operator_testkit.surroundings import (
    IDLE_SECONDS,
    Operator,
    World,
    cluster_body,
    condition,
    scenario,
    topic_body,
    until,
)
from odradek_testkit.loop import run_virtual

IN_USE = ("False", "BrokerIdsInUse")


def play(steps: Callable[[World, Operator], Awaitable[None]]) -> None:
    run_virtual(scenario(steps)())


def message(world: World) -> str:
    conditions = world.get(Kind.CLUSTER, "demo")["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == "Ready"))


def shown(world: World) -> tuple[str, list[int]]:
    """Return the number of ready brokers in the status, and the ids that it names."""
    status = world.get(Kind.CLUSTER, "demo")["status"]
    return status["brokersReady"], [one["id"] for one in status["brokers"]]


def test_no_broker_starts_while_another_one_has_its_id() -> None:
    async def steps(world: World, operator: Operator) -> None:
        other = await world.start_foreign_broker(1)
        world.api.put(cluster_body())
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == IN_USE, "the status reports it")
        assert "broker 1 is registered at kafka-1:9092" in message(world)
        await asyncio.sleep(4 * IDLE_SECONDS)
        assert world.find(Kind.STATEFUL_SET, "demo-kafka") is None
        assert world.find(Kind.POD, "demo-kafka-0") is None
        record = world.get(Kind.CONFIG_MAP, names.record("demo"))["data"]
        assert record.keys().isdisjoint({"brokers", "clusterId"}), "the resource may still name another ensemble"
        await other.close()
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the ids are free")
        uid = world.get(Kind.CLUSTER, "demo")["metadata"]["uid"]
        written = json.loads(world.tree.node(MANAGED_BROKERS).data)
        assert written["clusters"][uid]["ids"] == [0, 1, 2]

    play(steps)


def test_a_cluster_does_not_grow_to_the_id_of_a_broker_that_is_down() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster_body())
        world.api.put(topic_body("orders", partitions=3, replicas=3))
        await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders"), "all is ready")
        await world.create_foreign_topic("theirs", 3)
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == IN_USE, "the status reports it")
        assert "broker 3 has replicas of topic theirs" in message(world)
        assert "set spec.brokers.replicas back" in message(world)
        await asyncio.sleep(4 * IDLE_SECONDS)
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["replicas"] == 3
        assert (world.replicas("theirs"), world.replicas("orders")) == ({3}, {0, 1, 2})
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) != IN_USE, "it is set back")
        assert world.deleted_pods == []

    play(steps)


def test_a_cluster_beside_other_brokers_uses_ids_from_its_first_broker_id() -> None:
    """After creation, growth, drain and roll, pods, claims, replicas and statuses have these ids, and no others."""

    async def steps(world: World, operator: Operator) -> None:
        other = await world.start_foreign_broker(0)
        body = cluster_body(listeners=[{"name": "out", "port": 9094, "type": "nodeport", "insecure": True}])
        world.api.put(body)
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == IN_USE, "the status reports it")
        assert "set spec.brokers.firstBrokerId to 1." in message(world)
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"firstBrokerId": 100}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "no id is used twice")
        assert shown(world) == ("3/3", [0, 100, 101, 102])
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["ordinals"] == {"start": 100}
        assert world.find(Kind.SERVICE, "demo-kafka-out-102") is not None
        assert world.find(Kind.SERVICE, "demo-kafka-out-0") is None
        uid = world.get(Kind.CLUSTER, "demo")["metadata"]["uid"]
        assert json.loads(world.tree.node(MANAGED_BROKERS).data)["clusters"][uid]["ids"] == [100, 101, 102]
        await other.close()
        world.api.put(topic_body("orders", partitions=3, replicas=3))
        await until(lambda: world.ready(Kind.TOPIC, "orders"), "it is made")

        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it has grown")
        assert world.find(Kind.POD, "demo-kafka-103") is not None
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
        await until(lambda: world.find(Kind.POD, "demo-kafka-103") is None, "it is drained")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is smaller")
        await until(lambda: shown(world) == ("3/3", [100, 101, 102]), "the status names them all")
        assert world.replicas("orders") == {100, 101, 102}

        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"template": {"annotations": {"restarted": "1"}}}}})
        await until(
            lambda: {"demo-kafka-100", "demo-kafka-101", "demo-kafka-102"} <= {*world.deleted_pods}, "all restart"
        )
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"firstBrokerId": 0}}})
        changed = ("False", "BrokerIdsCannotChange")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == changed, "ids cannot change")
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["ordinals"] == {"start": 100}

    play(steps)
