"""Moves of replicas in portions, with a throttle that is removed at the end."""

from __future__ import annotations

import dataclasses

import pytest

from odradek.base.types import TopicPartition
from odradek_operator.lifecycle import moves
from odradek_operator.lifecycle.moves import Moves
from odradek_operator.lifecycle.steps import LiftThrottle, MoveReplicas
from odradek_operator.lifecycle.throttle import LISTS, MARK, RATES, Mark, mark_of
from odradek_operator.topics.zookeeper_state import Snapshot

from .world import KAFKA, World, make_world

T = [TopicPartition("t", number) for number in range(9)]
LEADERS, FOLLOWERS = LISTS


def resized(world: World, replicas: int) -> World:
    brokers = dataclasses.replace(world.cluster.brokers, replicas=replicas)
    world.cluster = dataclasses.replace(world.cluster, brokers=brokers)
    return world


def seen(world: World) -> Snapshot:
    snapshot = world.snapshot()
    assert snapshot is not None
    return snapshot


def decide(world: World, snapshot: Snapshot | None = None, **factors: int) -> Moves:
    return moves.decide(world.cluster, snapshot or seen(world), present=world.sets[KAFKA].replicas, factors=factors)


def drained(portion: int = 2) -> World:
    """Return a world in which broker 2 must be drained. It has a replica of each of three partitions."""
    return resized(make_world({"t": [(0, 2), (2, 1), (0, 2)], "u": [(0, 1)]}, portion=portion), 2)


def test_a_settled_cluster_moves_nothing() -> None:
    assert decide(make_world({"t": [(0, 1), (1, 2), (2, 0)]})) == Moves()


def test_a_portion() -> None:
    moved = decide(drained())
    assert moved.step == MoveReplicas(
        targets={T[0]: (0, 1), T[1]: (0, 1)},
        versions={"t": 1},
        throttle_bytes_per_second=1_000,
        broker_defaults={RATES[0]: "1000", RATES[1]: "1000", MARK: "resize"},
        topic_configs={"t": {LEADERS: "0:0,0:2,1:2,1:1", FOLLOWERS: "0:1,1:0"}},
        reason="broker 2 is drained: 2 partitions move (t-0 and t-1)",
    )
    assert moved.progress is not None
    assert (moved.progress.remaining, moved.progress.total) == (3, 4)


def test_the_next_one_begins_when_nothing_moves_whoever_began_it() -> None:
    world = drained()
    asked = dataclasses.replace(seen(world), reassigning=frozenset({T[2]}))
    assert decide(world, asked).step is None
    assert decide(world, dataclasses.replace(seen(world), reassignment_requested=True)).step is None
    one = world.topics["u"][0]
    one.replicas, one.adding, one.removing = (2, 1, 0), (2,), (0,)
    moved = decide(world)
    assert moved.step is None
    assert moved.progress is not None
    assert moved.progress.remaining == 5, "one is on its way, and from there it has to leave with the other three"


def test_without_a_controller_nothing_is_asked_for() -> None:
    world = drained()
    assert decide(world, dataclasses.replace(seen(world), controller_id=None)).step is None
    assert decide(world, dataclasses.replace(seen(world), controller_epoch_version=None)).step is None


def test_a_wildcard_throttle_of_a_topic_stays_and_is_not_lifted() -> None:
    world = drained()
    world.overrides = {"t": {LEADERS: "*"}, "u": {LEADERS: "*", FOLLOWERS: "0:1"}}
    step = decide(world).step
    assert isinstance(step, MoveReplicas)
    assert list(step.topic_configs["t"]) == [FOLLOWERS]
    quiet = make_world({"t": [(0, 1)], "u": [(0, 1)]})
    quiet.overrides = world.overrides
    quiet.defaults = dict(step.broker_defaults)
    assert decide(quiet).step == LiftThrottle(
        broker_defaults=(*RATES, MARK), topics={"u": (FOLLOWERS,)}, reason="no replica is moving"
    )


def test_a_replica_that_only_goes_needs_no_throttle() -> None:
    world = make_world({"t": [(0, 1, 2)]})
    step = decide(world, t=2).step
    assert isinstance(step, MoveReplicas)
    assert step.targets == {T[0]: (0, 1)}
    assert not step.topic_configs


def test_only_our_throttle_is_lifted() -> None:
    world = make_world({"t": [(0, 1)]})
    world.defaults = {RATES[0]: "5", RATES[1]: "5"}
    world.overrides = {"t": {LEADERS: "0:0", FOLLOWERS: "0:1"}}
    assert decide(world).step is None
    world.defaults[MARK] = Mark.RESIZE.value
    step = decide(world).step
    assert isinstance(step, LiftThrottle)
    assert step.topics == {"t": LISTS}


def grown(portion: int = 1) -> World:
    world = resized(make_world({"t": [(0, 1, 2)] * 4}, portion=portion), 4)
    world.round()
    world.settle()
    return world


def test_evening_out_goes_on_beyond_the_point_where_it_would_begin() -> None:
    world = grown()
    rounds = 0
    while (decision := world.round()).steps:
        assert mark_of(seen(world)) in (Mark.EVEN_OUT, None)
        world.settle()
        rounds += 1
        assert rounds < 30
    counts = [sum(broker in one.replicas for one in world.all_partitions()) for broker in range(4)]
    assert counts == [3, 3, 3, 3]
    assert [sum(one.replicas[0] == broker for one in world.all_partitions()) for broker in range(4)] == [1, 1, 1, 1]
    assert decision.progress is None
    assert mark_of(seen(world)) is None


def test_a_spread_that_somebody_made_is_left() -> None:
    world = make_world({"t": [(0, 1, 2)] * 2 + [(3, 1, 2)] * 2}, brokers=4)
    assert decide(world) == Moves()


def test_evening_out_waits_for_all_brokers() -> None:
    world = resized(make_world({"t": [(0, 1, 2)] * 4}), 5)
    world.registered.add(3)
    moved = decide(world)
    assert moved.step is None
    assert [(one.what, one.reason) for one in moved.waiting] == [("rebalance", "BrokersMissing")]


def test_evening_out_needs_to_know_all_topics() -> None:
    world = grown()
    moved = decide(world, dataclasses.replace(seen(world), unreadable={"x": "A znode cannot be understood."}))
    assert moved.step is None
    assert [(one.reason, one.needs_person) for one in moved.waiting] == [("ZnodeUnreadable", True)]


def test_other_moves_among_it_do_not_end_it() -> None:
    world = grown()
    step = decide(world, t=2).step
    assert isinstance(step, MoveReplicas)
    assert step.broker_defaults[MARK] == Mark.EVEN_OUT.value


def test_racks_that_forbid_an_even_spread_end_it() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "a", 4: "a", 5: "b"}
    world = make_world({"t": [(n, 5) for n in range(5)] * 2}, brokers=6, racks=racks)
    world.defaults = {MARK: Mark.EVEN_OUT.value, RATES[0]: "1", RATES[1]: "1"}
    for _ in range(20):
        if isinstance(world.round().steps[0], LiftThrottle):
            break
        world.settle()
    else:
        pytest.fail("it does not end")
    assert decide(world) == Moves()
