"""Which lists the operator requests. It makes no change based on its cache alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.cluster.cluster_view import EVENTS_SECONDS
from odradek_operator.objects import names
from odradek_operator.objects.wanted import PRUNED_KINDS
from odradek_operator_testkit.api import Asked
from odradek_operator_testkit.surroundings import Operator, World, cluster_body, scenario, topic_body, until
from odradek_testkit.loop import run_virtual

VIEW = {
    "clusters",
    "topics",
    "users",
    "nodes",
    "persistentvolumes",
    "pods",
    "statefulsets",
    "persistentvolumeclaims",
    "services",
    "configmaps",
}
"""The kinds that a fresh view lists, each once."""
PODS = ["demo-kafka-1", "demo-kafka-2", "demo-kafka-0"]
"""The pods in the order of a rolling restart: the controller last."""


def play(steps: Callable[[World, Operator], Awaitable[None]]) -> None:
    run_virtual(scenario(steps)())


async def settled(world: World, operator: Operator) -> None:
    """Create a cluster with topics. Return after its resync, when the operator sends no more requests."""
    world.api.put(cluster_body())
    topics = [f"topic-{number}" for number in range(20)]
    for topic in topics:
        world.api.put(topic_body(topic))
    await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, *topics), "all is ready")
    await asyncio.sleep(60)
    world.api.reads.clear()


def test_an_idle_cluster_is_listed_only_at_a_resync() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        await asyncio.sleep(operator.settings.resync_seconds / 2)
        assert world.api.lists() == []
        periods = 10
        await asyncio.sleep(periods * operator.settings.resync_seconds)
        counts = Counter(world.api.lists())
        assert counts["pods"] == periods
        # One view, the kinds that are pruned, and one sweep of the manager.
        assert counts.total() == periods * (len(VIEW) + len(PRUNED_KINDS) + 6)
        assert counts.total() / (periods * operator.settings.resync_seconds / 60) < 6, "lists a minute"

    play(steps)


def test_a_change_by_a_user_costs_one_fresh_view() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        world.change(Kind.TOPIC, "topic-1", {"spec": {"config": {"retention.ms": "1000"}}})
        await asyncio.sleep(30)
        assert world.ready(Kind.TOPIC, "topic-1")
        assert Counter(world.api.lists()) == dict.fromkeys(VIEW, 1)

    play(steps)


def test_an_event_that_changes_nothing_costs_no_list() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        world.change(Kind.POD, "demo-kafka-1", {"metadata": {"annotations": {"somebody": "else"}}})
        world.change(Kind.TOPIC, "topic-1", {"metadata": {"annotations": {"somebody": "else"}}})
        await asyncio.sleep(60)
        assert world.api.lists() == []

    play(steps)


def test_a_cluster_that_waits_is_listed_twice_a_minute() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        world.makes_pods = False
        world.delete(Kind.POD, "demo-kafka-1")
        await asyncio.sleep(60)
        assert not world.ready(Kind.CLUSTER, "demo"), "its status comes from the cache, which has heard of it"
        world.api.reads.clear()
        await asyncio.sleep(600)
        counts = Counter(world.api.lists())
        assert counts["pods"] == 20
        assert counts["events"] <= 600 / EVENTS_SECONDS
        world.makes_pods = True
        world.change(Kind.STATEFUL_SET, "demo-kafka", {"metadata": {"annotations": {"quota": "larger"}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the pod is there again", 30)

    play(steps)


def ready(body: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in body["status"]["conditions"])


def test_a_pod_that_failed_unnoticed_keeps_a_second_one_from_restarting() -> None:
    """In the cache, every pod is ready. A decision based on it alone would restart another pod first."""

    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        world.change(Kind.TOPIC, "topic-1", {"spec": {"config": {"retention.ms": "1000"}}})
        await asyncio.sleep(5)
        assert set(world.api.lists()) == VIEW, "the cache has just been read"
        operator.deaf_to = frozenset({"Pod", "Cluster"})
        conditions = [{"type": "Ready", "status": "False"}]
        pod = world.api.place(Kind.POD.path("shop")).key("demo-kafka-0")
        world.api.store.merge(pod, {"status": {"conditions": conditions}}, status_only=True)
        world.change(Kind.CLUSTER, "demo", {"spec": {"version": "0.1.1"}})
        # Only the cache gets the event. Another change wakes the loop, so the next round starts with the cached state.
        operator.manager.watch_event(world.get(Kind.CLUSTER, "demo"), deleted=False, listed=False)
        world.change(Kind.TOPIC, "topic-1", {"metadata": {"annotations": {"somebody": "else"}}})
        await until(lambda: len(world.deleted_pods) == 3, "all restart")
        assert world.deleted_pods[0] == "demo-kafka-0", "the pod that is not ready restarts first"

    play(steps)


@pytest.mark.parametrize("lag_seconds", [0.0, 5.0, 100.0, 100_000.0])
def test_no_lag_of_the_cache_restarts_two_pods_at_once(lag_seconds: float) -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        operator.lag_seconds = lag_seconds
        requests: list[str] = []
        others_at_restarts: list[bool] = []
        before = world.api.before_write

        def note(asked: Asked) -> None:
            if asked.method == "DELETE" and "/pods/" in asked.path:
                name = asked.path.rpartition("/")[2]
                others = [world.find(Kind.POD, pod) for pod in PODS if pod != name]
                others_at_restarts.append(all(pod is not None and ready(pod) for pod in others))
                requests.append("pods" if "pods" in world.api.lists() else "none")
                world.api.reads.clear()
            before(asked)

        world.api.before_write = note
        world.change(Kind.CLUSTER, "demo", {"spec": {"version": "0.1.1"}})
        await until(lambda: len(world.deleted_pods) == 3, "all restart")
        await asyncio.sleep(2 * operator.settings.resync_seconds)
        assert world.deleted_pods == PODS
        assert others_at_restarts == [True] * 3
        assert requests == ["pods"] * 3, "each restart is decided on a fresh list"

    play(steps)


def test_a_deletion_that_no_watch_reported_is_found_at_the_resync() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await settled(world, operator)
        operator.deaf = True
        service = names.bootstrap_service("demo")
        world.delete(Kind.SERVICE, service)
        await until(
            lambda: world.find(Kind.SERVICE, service) is not None,
            "it is created again",
            operator.settings.resync_seconds + operator.settings.idle_seconds,
        )

    play(steps)


def test_a_topic_that_was_created_again_unnoticed_keeps_its_records() -> None:
    """In the cache, the first Topic is deleted and the second one, which protects the topic, is missing."""

    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("orders", deletion="Delete"))
        world.api.put(cluster_body())
        await until(lambda: world.ready(Kind.TOPIC, "orders"), "it is ready")
        world.change(Kind.TOPIC, "orders", {"metadata": {"finalizers": None}})
        removed = world.get(Kind.TOPIC, "orders")
        operator.deaf_to = frozenset({"Topic"})
        world.delete(Kind.TOPIC, "orders")
        removed["metadata"]["resourceVersion"] = str(world.api.store.version)
        world.api.put(topic_body("orders"))
        operator.manager.watch_event(removed, deleted=True, listed=False)
        operator.manager.topic_changed(removed, deleted=True)
        await asyncio.sleep(2 * operator.settings.idle_seconds)
        assert world.topics() == {"orders"}
        assert world.ready(Kind.TOPIC, "orders")

    play(steps)
