"""Several brokers in a pod: `perPod` grows and shrinks, one pod after the other, and no replica is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects import names
from odradek_operator_testkit.surroundings import (
    IDLE_SECONDS,
    Operator,
    World,
    cluster_body,
    scenario,
    topic_body,
    until,
)
from odradek_testkit.loop import run_virtual

PODS = ["demo-kafka-0", "demo-kafka-1", "demo-kafka-2"]


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    run_virtual(scenario(steps, **options)())


def cluster(*, own: bool, per_pod: int) -> Object:
    body = cluster_body()
    body["spec"]["brokers"] |= {"replicas": 3, "perPod": per_pod}
    if own:
        body["spec"]["zookeeper"] = {"replicas": 1}
    return body


def change(world: World, per_pod: int) -> None:
    world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"perPod": per_pod}}})


def containers(world: World) -> list[list[str]]:
    pods = [world.find(Kind.POD, name) for name in PODS]
    return [[one["name"] for one in pod["spec"]["containers"]] for pod in pods if pod is not None]


def recorded(world: World) -> str | None:
    found: str | None = world.get(Kind.CONFIG_MAP, names.record("demo"))["data"].get("brokersPerPod")
    return found


def ready(world: World) -> bool:
    return world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders")


def settled(world: World, per_pod: int) -> bool:
    status = world.get(Kind.CLUSTER, "demo").get("status") or {}
    return ready(world) and status["brokersReady"] == f"{3 * per_pod}/{3 * per_pod}"


@pytest.mark.parametrize("own", [True, False])
def test_it_grows_and_shrinks_by_rolling_restarts(own: bool) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(own=own, per_pod=1))
        world.api.put(topic_body("orders", partitions=12, replicas=2))
        await until(lambda: ready(world), "all is ready")
        assert recorded(world) is None

        change(world, 2)
        await until(lambda: settled(world, 2), "six brokers")
        await until(lambda: max(world.replicas("orders")) >= 1000, "replicas move to them")
        assert containers(world) == [["kafka", "kafka-1"]] * 3
        assert recorded(world) == "2"
        assert sorted(world.deleted_pods) == PODS
        assert await states(world) == ["Running"] * 6
        await until(lambda: ready(world), "replicas have moved")

        change(world, 1)
        await until(lambda: settled(world, 1) and containers(world) == [["kafka"]] * 3, "three brokers")
        assert world.replicas("orders") == {0, 1, 2}
        await until(lambda: recorded(world) is None, "the record follows")
        assert sorted(world.deleted_pods) == sorted(2 * PODS)
        assert await states(world) == ["Running"] * 3

    play(steps)


async def states(world: World) -> list[str]:
    """Return the states of the brokers after another round."""
    await asyncio.sleep(IDLE_SECONDS)
    return [one["state"] for one in world.get(Kind.CLUSTER, "demo")["status"]["brokers"]]


def test_brokers_with_replicas_keep_their_containers_when_the_cluster_is_created_again() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(own=True, per_pod=2))
        world.api.put(topic_body("orders", partitions=12, replicas=3))
        await until(lambda: settled(world, 2), "all is ready")
        assert max(world.replicas("orders")) >= 1000
        world.delete(Kind.CLUSTER, "demo")
        await asyncio.sleep(IDLE_SECONDS)
        assert recorded(world) == "2"
        world.api.put(cluster(own=True, per_pod=1))
        await until(lambda: containers(world) == [["kafka", "kafka-1"]] * 3, "both containers are back")
        await until(lambda: settled(world, 1) and containers(world) == [["kafka"]] * 3, "they are drained")
        assert world.replicas("orders") == {0, 1, 2}

    play(steps)


def test_a_topic_with_more_replicas_than_pods_gets_a_warning_and_an_event() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = cluster(own=True, per_pod=2)
        body["spec"]["brokers"]["replicas"] = 2
        world.api.put(body)
        world.api.put(topic_body("wide", partitions=2, replicas=3))
        world.api.put(topic_body("orders", partitions=2, replicas=2))
        await until(lambda: ready(world) and world.ready(Kind.TOPIC, "wide"), "all is ready")

        def warnings(kind: Kind, name: str) -> list[str]:
            found: list[str] = (world.get(kind, name).get("status") or {}).get("warnings", [])
            return found

        await until(lambda: bool(warnings(Kind.TOPIC, "wide")), "the topic has a warning")
        (message,) = warnings(Kind.TOPIC, "wide")
        assert message.startswith("Topic wide has 3 replicas, and spec.brokers.replicas is 2: several replicas")
        assert message in warnings(Kind.CLUSTER, "demo")
        assert warnings(Kind.TOPIC, "orders") == []
        await asyncio.sleep(10 * IDLE_SECONDS)
        events = world.api.store.all(world.api.place("/api/v1/events").resource, None)
        (event,) = [one for one in events if one["reason"] == "ReplicasSharePod"]
        assert (event["type"], event["message"], event["involvedObject"]["name"]) == ("Warning", message, "wide")

    play(steps)


def test_an_id_of_another_broker_is_not_used() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(own=False, per_pod=1))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        await world.create_foreign_topic("of-others", 1001)
        change(world, 2)

        def message() -> str:
            conditions = world.get(Kind.CLUSTER, "demo")["status"]["conditions"]
            return str(conditions[0]["message"])

        await until(lambda: "broker 1001 has replicas of topic of-others" in message(), "it is reported")
        assert "The cluster keeps its 3 brokers" in message()
        assert containers(world) == [["kafka"]] * 3
        assert world.deleted_pods == []

    play(steps)
