"""Which member of the ZooKeeper ensemble may restart, rule by rule."""

from __future__ import annotations

import dataclasses

import pytest

from odradek_operator.crds import ZooKeeper
from odradek_operator.lifecycle import ensemble_rolling as ensemble
from odradek_operator.lifecycle.steps import RestartPod, Verdict
from odradek_operator.objects.names import Component

from .world import ZOOKEEPER, World, make_world

ALL = {0: "follower", 1: "leader", 2: "follower"}


def outdated_world(size: int = 3) -> World:
    world = make_world({"t": [(0,)]}, zookeeper=size)
    for pod in world.members.values():
        pod.hash = "old"
    return world


def decide(world: World, modes: dict[int, str] | None = None, *, busy: str = "") -> Verdict:
    return ensemble.decide(
        world.cluster, world.observe(), wanted_hash="a", modes=ALL if modes is None else modes, brokers_busy=busy
    )


def restarts(verdict: Verdict) -> int:
    assert isinstance(verdict.step, RestartPod), verdict
    assert verdict.step.component is Component.ZOOKEEPER
    assert verdict.step.pod == f"demo-zookeeper-{verdict.step.ordinal}"
    return verdict.step.ordinal


def waits(verdict: Verdict) -> str:
    assert verdict.step is None
    (waiting,) = verdict.waiting
    assert waiting.what == "zookeeper-roll"
    assert waiting.message.endswith(".")
    return waiting.reason


def test_followers_by_number_the_leader_last() -> None:
    world = outdated_world()
    order = []
    for _ in range(3):
        number = restarts(decide(world))
        order.append(number)
        world.members[number].hash = "a"
    assert order == [0, 2, 1]
    assert decide(world) == Verdict()


def test_nothing_before_the_template_is_there() -> None:
    world = outdated_world()
    world.sets[ZOOKEEPER] = dataclasses.replace(world.sets[ZOOKEEPER], generation_observed=False)
    assert decide(world) == Verdict()


def test_an_ensemble_of_others_is_left_alone() -> None:
    world = outdated_world()
    world.cluster = dataclasses.replace(world.cluster, zookeeper=ZooKeeper(connect="zk:2181"))
    assert decide(world) == Verdict()
    assert ensemble.away(world.cluster, world.observe()) == ""


def test_one_alone_goes_except_while_a_broker_is_away() -> None:
    world = outdated_world(1)
    assert restarts(decide(world, {0: "leader"})) == 0
    assert restarts(decide(world, {})) == 0
    assert waits(decide(world, {0: "leader"}, busy="Pod x is ending.")) == "BrokerRestarting"
    world.members[0].ready = False
    assert restarts(decide(world, {}, busy="Pod x is ending.")) == 0
    world.members[0].terminating = True
    assert decide(world, {}) == Verdict()


@pytest.mark.parametrize(
    ("modes", "reason"),
    [
        ({0: "follower", 1: "leader"}, "MemberSilent"),
        ({0: "follower", 1: "follower", 2: "follower"}, "NoLeader"),
        ({0: "leader", 1: "leader", 2: "follower"}, "NoLeader"),
    ],
)
def test_all_must_follow_one(modes: dict[int, str], reason: str) -> None:
    assert waits(decide(outdated_world(), modes)) == reason


def test_one_at_a_time() -> None:
    world = outdated_world()
    world.members[0].terminating = True
    assert waits(decide(world)) == "MemberRestarting"
    world = outdated_world()
    del world.members[2]
    assert waits(decide(world)) == "MemberRestarting"
    world = outdated_world()
    world.members[0].hash = "a"
    assert waits(decide(world, {1: "leader", 2: "follower"})) == "MemberRestarting", "it does not answer"
    world.members[0].ready = False
    assert waits(decide(world)) == "MemberRestarting", "it is not ready"
    assert waits(decide(outdated_world(), busy="Pod x is ending.")) == "MemberRestarting"


def test_one_that_serves_nobody_goes_first() -> None:
    world = outdated_world()
    world.members[2].ready = False
    assert restarts(decide(world, {0: "follower", 1: "leader"}, busy="Pod x is ending.")) == 2


def test_one_that_serves_and_is_not_ready_goes_if_a_majority_is_left() -> None:
    world = outdated_world(5)
    world.members[3].ready = False
    serving = dict.fromkeys(range(4), "follower") | {4: "leader"}
    assert restarts(decide(world, serving)) == 3
    world = outdated_world(3)
    world.members[2].ready = False
    assert restarts(decide(world)) == 2
    world = outdated_world(5)
    world.members[2].ready = world.members[3].ready = False
    world.members[4].ready = True
    assert waits(decide(world, {2: "follower", 3: "follower", 4: "leader"})) == "NoMajority"


def test_where_nobody_serves_a_majority_gets_the_new_template_and_then_has_to_show_it() -> None:
    world = outdated_world()
    for pod in world.members.values():
        pod.ready = False
    assert restarts(decide(world, {})) == 0
    world.members[0].hash = "a"
    assert restarts(decide(world, {})) == 1
    world.members[1].hash = "a"
    assert waits(decide(world, {})) == "NoMajority"


def test_the_last_one_that_is_broken_goes_while_the_others_serve() -> None:
    world = outdated_world()
    world.members[0].hash = world.members[1].hash = "a"
    world.members[2].ready = False
    assert restarts(decide(world, {0: "follower", 1: "leader"})) == 2


def test_what_brokers_wait_for() -> None:
    world = outdated_world()
    assert ensemble.due(world.cluster, world.observe(), wanted_hash="a") != ""
    assert ensemble.due(world.cluster, world.observe(), wanted_hash="old") == ""
    assert ensemble.away(world.cluster, world.observe()) == ""
    world.members[1].ready = False
    assert "demo-zookeeper-1" in ensemble.away(world.cluster, world.observe())
    world.bad_nodes[world.member_claims[1]] = 0.0
    assert ensemble.away(world.cluster, world.observe()) == "", "nobody knows when a lost node is back"
    del world.members[1]
    assert "Member 1" in ensemble.away(world.cluster, world.observe())
