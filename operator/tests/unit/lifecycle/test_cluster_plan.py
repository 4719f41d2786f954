"""The order of the steps of a cluster."""

from __future__ import annotations

import dataclasses

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle import cluster_plan as plan
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Quorum, Set
from odradek_operator.lifecycle.steps import (
    ClusterDecision,
    MoveReplicas,
    ReleaseClaims,
    RestartPod,
    SetBrokerDefaults,
)
from odradek_operator.objects.names import Component
from odradek_operator.topics.zookeeper_state import Snapshot

from .world import KAFKA, ZOOKEEPER, World, make_world

BOTH = frozenset({Component.KAFKA, Component.ZOOKEEPER})
THREE = {"t": [(0, 1, 2), (1, 2, 0), (2, 0, 1)]}


def kinds(decision: ClusterDecision) -> list[type]:
    return [type(step) for step in decision.steps]


def with_brokers(world: World, **changes: object) -> World:
    brokers = dataclasses.replace(world.cluster.brokers, **changes)  # type: ignore[arg-type]
    world.cluster = dataclasses.replace(world.cluster, brokers=brokers)
    return world


def everything_to_do() -> World:
    """Return a world with new templates and defaults, a broker that has lost its disk, and a broker to drain."""
    world = make_world({"t": [(0, 1, 2), (1, 2, 3), (2, 3, 0)]}, brokers=4)
    with_brokers(world, replicas=3)
    world.lose_node(0)
    world.elect()
    world.now += 1_000
    world.hash = "b"
    for name in (KAFKA, ZOOKEEPER):
        world.sets[name] = dataclasses.replace(world.sets[name], restart_hash="b")
    world.dynamic = {"log.retention.ms": "7"}
    return world


def test_a_settled_cluster() -> None:
    assert make_world(THREE).decide() == ClusterDecision(broker_count=3, spread=BOTH)


def test_paused() -> None:
    world = everything_to_do()
    world.cluster = dataclasses.replace(world.cluster, paused=True)
    assert world.decide() == ClusterDecision(broker_count=4, outdated=frozenset({0, 1, 2, 3}), spread=BOTH)


def test_the_order_of_things() -> None:
    world = everything_to_do()
    decision = world.decide()
    assert kinds(decision) == [SetBrokerDefaults, ReleaseClaims], "a lost disk first, and no move beside it"
    assert decision.broker_count == 4
    seen: list[str] = []
    for _ in range(40):
        for step in world.round().steps:
            if isinstance(step, RestartPod):
                seen.append(f"{step.component.value}-{step.ordinal}")
            else:
                seen.append(type(step).__name__)
        world.settle()
    assert seen == [
        "SetBrokerDefaults",
        "ReleaseClaims",
        "zookeeper-1",
        "zookeeper-2",
        "zookeeper-0",
        "kafka-1",
        "kafka-2",
        "kafka-3",
        "MoveReplicas",
        "LiftThrottle",
    ], "broker 0 came back with the new template; 3 is the controller"
    assert world.decide() == ClusterDecision(broker_count=3, spread=BOTH)
    assert list(world.pods) == [0, 1, 2]


def test_at_most_one_step_takes_something_away() -> None:
    world = everything_to_do()
    for _ in range(40):
        decision = world.round()
        away = [step for step in decision.steps if isinstance(step, RestartPod | ReleaseClaims)]
        assert len(away) <= 1
        if away:
            assert not any(isinstance(step, MoveReplicas) for step in decision.steps)
        world.settle()


def test_a_broker_that_is_not_ready_comes_before_the_ensemble() -> None:
    world = everything_to_do()
    world.regain_nodes()
    world.registered.add(0)
    world.crash(2)
    (step,) = [step for step in world.decide().steps if isinstance(step, RestartPod)]
    assert (step.component, step.ordinal) == (Component.KAFKA, 2)
    world.pods[0].hash = world.pods[2].hash = "b"
    decision = world.decide()
    assert not [step for step in decision.steps if isinstance(step, RestartPod)]
    assert {one.what for one in decision.waiting} >= {"roll", "zookeeper-roll"}


def test_without_zookeeper_only_broken_members_restart() -> None:
    world = everything_to_do()
    for number in (0, 1):
        world.crash_member(number)
    assert world.snapshot() is None
    decision = world.decide()
    assert [(step.component, step.ordinal) for step in decision.steps if isinstance(step, RestartPod)] == [
        (Component.ZOOKEEPER, 0)
    ]
    assert decision.broker_count == 4, "what is on the last broker is not known"
    world = everything_to_do()
    blind = plan.decide(
        world.cluster,
        world.observe(),
        None,
        wanted_hashes={KAFKA: "b", ZOOKEEPER: "b"},
        wanted_dynamic={},
        wanted_factors={},
        quorum=world.quorum(),
        now=world.now,
    )
    assert not blind.steps
    assert [one.what for one in blind.waiting] == ["zookeeper-roll"]


def test_the_first_start() -> None:
    decision = plan.decide(
        Cluster(name="demo"),
        KubernetesState(),
        None,
        wanted_hashes={KAFKA: "a", ZOOKEEPER: "a"},
        wanted_dynamic={"log.retention.ms": "7"},
        wanted_factors={},
        quorum=Quorum(),
        now=0.0,
    )
    assert decision == ClusterDecision(broker_count=3, spread=BOTH)


def test_before_the_first_controller_nothing_is_written() -> None:
    sets = {KAFKA: Set(name=KAFKA, replicas=3, restart_hash="a", generation_observed=True)}
    decision = plan.decide(
        Cluster(name="demo"),
        KubernetesState(sets=sets),
        Snapshot(),
        wanted_hashes={KAFKA: "a", ZOOKEEPER: "a"},
        wanted_dynamic={"log.retention.ms": "7"},
        wanted_factors={"t": 2},
        quorum=Quorum(),
        now=0.0,
    )
    assert not decision.steps


def test_the_set_grows_at_once_and_shrinks_when_nothing_is_left() -> None:
    assert with_brokers(make_world(THREE), replicas=5).decide().broker_count == 5
    world = with_brokers(make_world(THREE, brokers=5), replicas=3)
    assert world.decide().broker_count == 3
    world.topics["t"][0].replicas = (0, 1, 4)
    assert world.decide().broker_count == 5
    assert kinds(world.decide()) == [MoveReplicas]
