"""Restarts that the plugin asks for, carried out by an operator in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.plugin.restart_requests import PluginError, find_target, request_restart
from odradek_operator.plugin.roll_watch import follow_roll
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.surroundings import NAMESPACE, Operator, World, cluster_body, scenario, until
from odradek_testkit.loop import run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def play(steps: Callable[[World, Operator, MemoryClient], Awaitable[None]]) -> None:
    async def run(world: World, operator: Operator) -> None:
        world.api.put(cluster_body())
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the cluster is ready")
        await steps(world, operator, MemoryClient(world.api))

    run_virtual(scenario(run)())


async def restarted(
    world: World, client: MemoryClient, name: str, component: Component = Component.KAFKA
) -> tuple[list[str], list[str]]:
    """Return the pods that were deleted, and what was said."""
    said: list[str] = []
    target = await find_target(client, NAMESPACE, name, component)
    await request_restart(client, NAMESPACE, target, now=NOW)
    await follow_roll(client, NAMESPACE, target.cluster, say=said.append, timeout_seconds=1800)
    return world.deleted_pods, said


def test_one_broker_restarts() -> None:
    async def steps(world: World, operator: Operator, client: MemoryClient) -> None:
        specification = world.get(Kind.CLUSTER, "demo")["metadata"]["generation"]
        deleted, said = await restarted(world, client, "demo-kafka-1")
        assert deleted == ["demo-kafka-1"]
        assert "to restart: demo-kafka-1" in said[0]
        assert said[-1].endswith("pods have the current template and are ready.")
        assert world.get(Kind.CLUSTER, "demo")["metadata"]["generation"] == specification

    play(steps)


def test_all_brokers_restart_with_the_controller_last() -> None:
    async def steps(world: World, operator: Operator, client: MemoryClient) -> None:
        deleted, _ = await restarted(world, client, "demo")
        # The simulated controller is the broker with the lowest id.
        assert deleted == ["demo-kafka-1", "demo-kafka-2", "demo-kafka-0"]

    play(steps)


def test_what_cannot_be_restarted() -> None:
    async def steps(world: World, operator: Operator, client: MemoryClient) -> None:
        with pytest.raises(PluginError, match="There is no Cluster other in namespace shop"):
            await find_target(client, NAMESPACE, "other", Component.KAFKA)
        with pytest.raises(PluginError, match="Cluster demo has no pods of zookeeper"):
            await find_target(client, NAMESPACE, "demo", Component.ZOOKEEPER)
        metadata = {"name": "stranger", "namespace": NAMESPACE, "labels": {"app": "x"}}
        world.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
        with pytest.raises(PluginError, match="Pod stranger is neither a broker nor a ZooKeeper member"):
            await find_target(client, NAMESPACE, "stranger", Component.KAFKA)
        target = await find_target(client, NAMESPACE, "demo", Component.KAFKA)
        with pytest.raises(PluginError, match="Pod gone no longer exists"):
            await request_restart(client, NAMESPACE, target._replace(pods=("gone",)), now=NOW)
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        with pytest.raises(PluginError, match="Cluster demo is paused"):
            await find_target(client, NAMESPACE, "demo-kafka-0", Component.KAFKA)

    play(steps)


def test_a_roll_that_does_not_end_and_an_api_server_that_does_not_answer() -> None:
    async def steps(world: World, operator: Operator, client: MemoryClient) -> None:
        world.makes_pods = False
        target = await find_target(client, NAMESPACE, "demo-kafka-2", Component.KAFKA)
        await request_restart(client, NAMESPACE, target, now=NOW)
        said: list[str] = []
        await until(lambda: bool(world.deleted_pods), "the pod is deleted")
        with pytest.raises(PluginError, match=r"was not done after 60 s\. The last state was: 2 of 3 pods"):
            await follow_roll(client, NAMESPACE, "demo", say=said.append, timeout_seconds=60)
        client.line.cut = True
        with pytest.raises(PluginError, match="Asking again"):
            await follow_roll(client, NAMESPACE, "demo", say=said.append, timeout_seconds=60)
        client.line.cut = False
        world.api.faults.status = 403
        with pytest.raises(KubernetesError, match="403"):
            await follow_roll(client, NAMESPACE, "demo", say=said.append, timeout_seconds=60)
        world.api.faults.status = 0

    play(steps)
