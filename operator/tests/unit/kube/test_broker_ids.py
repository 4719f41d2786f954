"""A Cluster in an ensemble that others use starts no broker under an id of somebody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from odradek.testing.loop import run_virtual
from odradek.zk.ownership import MANAGED_BROKERS
from odradek_operator.kube.api import Kind
from odradek_operator.objects import names

from .surroundings import IDLE_SECONDS, Operator, World, cluster_body, condition, scenario, topic_body, until

IN_USE = ("False", "BrokerIdsInUse")


def play(steps: Callable[[World, Operator], Awaitable[None]]) -> None:
    run_virtual(scenario(steps)())


def message(world: World) -> str:
    conditions = world.get(Kind.CLUSTER, "demo")["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == "Ready"))


def test_no_broker_starts_while_another_one_has_its_id() -> None:
    async def steps(world: World, operator: Operator) -> None:
        other = await world.start_foreign_broker(1)
        world.api.put(cluster_body())
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == IN_USE, "it says so")
        assert "broker 1 is registered at kafka-1:9092" in message(world)
        await asyncio.sleep(4 * IDLE_SECONDS)
        assert world.find(Kind.STATEFUL_SET, "demo-kafka") is None
        assert world.find(Kind.POD, "demo-kafka-0") is None
        record = world.get(Kind.CONFIG_MAP, names.record("demo"))["data"]
        assert record.keys().isdisjoint({"brokers", "clusterId"}), "another ensemble may still be named"
        await other.close()
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the ids are free")
        uid = world.get(Kind.CLUSTER, "demo")["metadata"]["uid"]
        written = json.loads(world.tree.node(MANAGED_BROKERS).data)
        assert written["clusters"][uid]["ids"] == [0, 1, 2]

    play(steps)


def test_a_cluster_does_not_grow_into_the_id_of_a_broker_that_is_down() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster_body())
        world.api.put(topic_body("orders", partitions=3, replicas=3))
        await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders"), "all is ready")
        await world.create_foreign_topic("theirs", 3)
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == IN_USE, "it says so")
        assert "broker 3 has replicas of topic theirs" in message(world)
        assert "set spec.brokers.replicas back" in message(world)
        await asyncio.sleep(4 * IDLE_SECONDS)
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["replicas"] == 3
        assert (world.replicas("theirs"), world.replicas("orders")) == ({3}, {0, 1, 2})
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) != IN_USE, "it is set back")
        assert world.deleted_pods == []

    play(steps)
