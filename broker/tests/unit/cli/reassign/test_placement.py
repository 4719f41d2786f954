"""Planned moves of replicas: only the necessary ones, over all racks, and evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from odradek.base.types import TopicPartition
from odradek.cli.reassign.placement import Replicas, plan_moves

Assignment = dict[TopicPartition, Replicas]


def named(*replicas: Replicas, topic: str = "t") -> Assignment:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def numbered(assignment: Mapping[TopicPartition, Replicas]) -> dict[int, Replicas]:
    return {name.partition: each for name, each in assignment.items()}


def test_only_replicas_of_a_leaving_broker_move_and_keep_their_position() -> None:
    current = named((2, 1), (1, 3), (3, 2))
    assert numbered(plan_moves(current, dict.fromkeys((1, 3, 4)))) == {0: (4, 1), 2: (3, 4)}


def test_a_new_replica_is_in_an_uncovered_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert numbered(plan_moves(named((1, 9)), racks)) == {0: (1, 3)}
    # Without a rack for every broker, only the numbers of replicas count.
    assert numbered(plan_moves(named((1, 9)), {**racks, 2: None})) == {0: (1, 2)}


def test_a_larger_replication_factor_adds_replicas_and_a_smaller_one_removes_the_last() -> None:
    brokers = dict.fromkeys((1, 2, 3))
    assert numbered(plan_moves(named((1,), (2,)), brokers, replication_factor=2)) == {0: (1, 3), 1: (2, 1)}
    assert numbered(plan_moves(named((1, 2, 3)), brokers, replication_factor=1)) == {0: (1,)}


def test_a_smaller_replication_factor_removes_first_what_shares_a_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    assert numbered(plan_moves(named((1, 2, 3)), racks, replication_factor=2)) == {0: (1, 3)}
    assert numbered(plan_moves(named((1, 9, 3)), racks, replication_factor=2)) == {0: (1, 3)}


def test_a_new_broker_gets_its_share() -> None:
    current = named((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    targets = {**current, **plan_moves(current, dict.fromkeys((1, 2, 3)), balance=True)}
    assert Counter(broker for each in targets.values() for broker in each) == {1: 4, 2: 4, 3: 4}
    assert Counter(each[0] for each in targets.values()) == {1: 2, 2: 2, 3: 2}


def test_what_cannot_be_planned_is_an_error() -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match="no broker is left"):
        plan_moves(named((1,)), {})
    with pytest.raises(InvalidReplicationFactorError, match="t-0 needs 2 brokers, but only 1 may"):
        plan_moves(named((1, 2)), {1: None})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignment, dict[int, str | None]]:
    """Assignments to brokers of which some may not hold replicas any more, while others are new."""
    before = list(range(draw(st.integers(3, 6))))
    after = draw(st.lists(st.integers(0, 8), min_size=3, max_size=7, unique=True))
    racks = draw(st.sampled_from((0, 1, 2, 3)))
    rows = st.lists(st.sampled_from(before), min_size=1, max_size=3, unique=True)
    assignment = {
        TopicPartition(draw(st.sampled_from("ab")), number): tuple(draw(rows))
        for number in range(draw(st.integers(1, 20)))
    }
    return assignment, {broker: f"r{broker % racks}" if racks else None for broker in after}


@given(clusters())
def test_necessary_moves_leave_all_other_replicas_where_they_are(
    cluster: tuple[Assignment, dict[int, str | None]],
) -> None:
    current, brokers = cluster
    targets = plan_moves(current, brokers)
    assert targets.keys() == {name for name, each in current.items() if set(each) - brokers.keys()}
    for name, target in targets.items():
        assert len(set(target)) == len(target) == len(current[name])
        assert brokers.keys() >= set(target)
        kept = [(position, broker) for position, broker in enumerate(current[name]) if broker in brokers]
        assert all(target[position] == broker for position, broker in kept)


@given(clusters(), st.none() | st.integers(1, 3))
def test_a_balanced_plan_is_even_covers_racks_and_is_final(
    cluster: tuple[Assignment, dict[int, str | None]], factor: int | None
) -> None:
    current, brokers = cluster
    result = {**current, **plan_moves(current, brokers, replication_factor=factor, balance=True)}
    racks = {rack or "" for rack in brokers.values()}
    for name, replicas in result.items():
        assert len(set(replicas)) == len(replicas) == (factor or len(current[name]))
        assert brokers.keys() >= set(replicas)
        covered = {brokers[broker] or "" for broker in replicas}
        assert len(covered) == min(len(racks), len(replicas))
    if len(racks) == 1:
        held = Counter(broker for each in result.values() for broker in each)
        numbers = [held[broker] for broker in brokers]
        assert max(numbers) - min(numbers) <= 1
    assert plan_moves(result, brokers, replication_factor=factor, balance=True) == {}
