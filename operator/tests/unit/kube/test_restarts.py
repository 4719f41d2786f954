"""An operator that is killed before any of its writes, repeatedly, reaches the same state as one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.zk import layout
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator_testkit.deaths import killed_or
from odradek_operator_testkit.resources import RESOURCES
from odradek_operator_testkit.surroundings import IDLE_SECONDS, Operator, World, cluster_body, topic_body, until
from odradek_testkit.loop import run_virtual

TOPICS = {"orders": {"partitions": 2}, "loose": {"deletion": "Delete"}, "doomed": {"deletion": "Delete"}}
VOLUMES = [{"id": 0, "size": "2Gi", "storageClass": "disks"}]


def made(world: World) -> None:
    world.api.put(cluster_body())
    for name, spec in TOPICS.items():
        world.api.put(topic_body(name, **spec))


def is_made(world: World) -> bool:
    return world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, *TOPICS)


def changed(world: World) -> None:
    """Add a broker, change the version, which restarts all pods, change a topic, and delete another one."""
    world.change(
        Kind.CLUSTER,
        "demo",
        {"spec": {"version": "0.1.1", "brokers": {"replicas": 4, "storage": {"volumes": VOLUMES}}}},
    )
    world.change(Kind.TOPIC, "orders", {"spec": {"partitions": 5, "config": {"retention.ms": "1000"}}})
    world.delete(Kind.TOPIC, "doomed")


def is_changed(world: World) -> bool:
    set_there = world.find(Kind.STATEFUL_SET, "demo-kafka")
    return (
        set_there is not None
        and world.find(Kind.TOPIC, "doomed") is None
        and "doomed" not in world.topics()
        and world.ready(Kind.CLUSTER, "demo")
        and world.ready(Kind.TOPIC, "orders", "loose")
    )


async def lived_through(world: World, done: Callable[[World], bool], lives: list[int]) -> None:
    """Run operators one after the other. Each is killed before the write with its number, except the last one."""
    for count in lives:
        async with Operator(world, lives=count).working() as operator:
            await killed_or(operator, lambda: done(world))
        await asyncio.sleep(1)
    async with Operator(world).working():
        await until(lambda: done(world), "the last operator finishes")
        await asyncio.sleep(3 * IDLE_SECONDS)
        assert done(world)


def persistent_state(world: World) -> dict[str, Any]:
    """Return the objects, without generated names and times."""
    found = {}
    for resource in RESOURCES:
        if resource.kind in ("Event", "Node"):
            continue
        for body in world.api.store.all(resource, None):
            found[f"{resource.kind} {body['metadata']['name']}"] = _plain(body)
    nodes = world.tree.nodes
    for path in nodes:
        if path.startswith((f"{layout.CONFIG}/", layout.DELETE_TOPICS)) and not path.startswith(layout.CONFIG_CHANGES):
            found[path] = nodes[path].data
    found["topics"] = sorted(world.topics())
    return found


def _plain(body: Object) -> Object:
    metadata = body["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata.get(key)}
    return {key: body[key] for key in ("spec", "data", "rules", "subjects") if key in body} | {"metadata": kept}


async def whole_life(lives: list[int]) -> World:
    world = World()
    async with world.living():
        made(world)
        await lived_through(world, is_made, lives)
        changed(world)
        await lived_through(world, is_changed, lives)
    return world


@pytest.fixture(scope="module")
def undisturbed() -> World:
    return run_virtual(whole_life([]))


def writes_of(world: World) -> int:
    return sum(asked.query.get("fieldManager") is not None or asked.method == "DELETE" for asked in world.api.writes)


def test_the_final_state_is_the_same_whichever_write_the_operator_dies_before(undisturbed: World) -> None:
    expected = persistent_state(undisturbed)
    # Each process does one write more than the one before. So each write is once the one that is prevented.
    world = run_virtual(whole_life(list(range(60))))
    assert persistent_state(world) == expected


@settings(max_examples=6)
@given(lives=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_the_final_state_is_the_same_after_any_sequence_of_deaths(undisturbed: World, lives: list[int]) -> None:
    world = run_virtual(whole_life(lives))
    assert persistent_state(world) == persistent_state(undisturbed)
    # No pod restarts more often than its template requires.
    assert sorted(world.deleted_pods) == sorted(undisturbed.deleted_pods)
