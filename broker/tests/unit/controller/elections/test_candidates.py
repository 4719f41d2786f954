"""The partitions for which an election is held: on request and by the automatic leader balance."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext
from odradek.controller.elections.candidates import ElectionKind, candidates, imbalanced_partitions, outcomes
from odradek.controller.elections.election_rules import Obstacle
from odradek.zk.layout import ReplicaAssignment

T0, T1, UNKNOWN = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
Build = Callable[..., ControllerContext]
PREFERRED, UNCLEAN = ElectionKind.PREFERRED, ElectionKind.UNCLEAN


@pytest.mark.parametrize(
    ("kind", "leader", "code"),
    [
        (PREFERRED, 1, 84),
        (PREFERRED, 2, None),
        (PREFERRED, 9, None),
        (PREFERRED, -1, None),
        (UNCLEAN, 1, 84),
        (UNCLEAN, 2, 84),
        (UNCLEAN, 3, None),
        (UNCLEAN, 9, None),
        (UNCLEAN, -1, None),
    ],
)
def test_partitions_that_need_an_election(build: Build, kind: ElectionKind, leader: int, code: int | None) -> None:
    """Broker 3 is shutting down, 9 is dead."""
    context = build([1, 2, 3], {0: ((1, 2, 3, 9), leader, (leader,))})
    context.shutting_down = {3}
    asked = candidates(context, [T0], kind)
    assert (asked.electable, {part: error.code for part, error in asked.errors.items()}) == (
        ([T0], {}) if code is None else ([], {T0: code})
    )


@pytest.mark.parametrize(("kind", "code"), [(PREFERRED, 80), (UNCLEAN, 83)])
def test_results_of_partitions_without_an_election(build: Build, kind: ElectionKind, code: int) -> None:
    context = build([1], {0: ((1, 2), -1, (2,)), 1: ((1,), -1, (1,))})
    del context.leaderships[T1]
    asked = candidates(context, [T0, T1, UNKNOWN], kind)
    results = outcomes(context, asked, {T0: Obstacle.NO_IN_SYNC_REPLICA}, kind)
    assert {part: getattr(result, "code", result) for part, result in results.items()} == {
        T0: code,
        T1: code,
        UNKNOWN: 3,
    }
    for attribute in ("deletions", "deferred_deletions"):
        context.deletions, context.deferred_deletions = set(), set()
        setattr(context, attribute, {"t"})
        assert candidates(context, [T0], kind).errors[T0].code == 17


def test_the_new_leader_is_the_answer(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2), 2, (1, 2)), 1: ((1, 2), -1, (1,))})
    asked = candidates(context, [T0, T1], PREFERRED)
    context.leaderships[T0] = build([1, 2], {0: ((1, 2), 1, (1, 2))}).leaderships[T0]
    results = outcomes(context, asked, {}, PREFERRED)
    assert results[T0] == 1
    assert getattr(results[T1], "code", None) == 80


T0 = TopicPartition("t", 0)
Build = Callable[..., ControllerContext]


@pytest.mark.parametrize(
    ("elsewhere", "tolerated", "chosen"), [(1, 10, 0), (2, 10, 2), (2, 20, 0), (10, 10, 10), (1, 0, 1), (0, 0, 0)]
)
def test_the_imbalance_percentage_decides(build: Build, elsewhere: int, tolerated: int, chosen: int) -> None:
    context = build([1, 2], {n: ((1, 2), 2 if n < elsewhere else 1, (1, 2)) for n in range(10)})
    assert imbalanced_partitions(context, tolerated) == [TopicPartition("t", n) for n in range(chosen)]


def test_only_where_it_can_be_done(build: Build) -> None:
    assert imbalanced_partitions(build([1, 2], {0: ((1, 2), 2, (2,))}), 0) == []
    assert imbalanced_partitions(build([2], {0: ((1, 2), 2, (1, 2))}), 0) == []
    context = build([1, 2], {0: ((1, 2), 2, (1, 2))})
    context.shutting_down = {1}
    assert imbalanced_partitions(context, 0) == []
    context.shutting_down = set()
    assert imbalanced_partitions(context, 0) == [T0]
    for attribute in ("deletions", "deferred_deletions"):
        setattr(context, attribute, {"t"})
        assert imbalanced_partitions(context, 0) == []
        setattr(context, attribute, set())
    context.set_assignment(T0, ReplicaAssignment(replicas=(1, 2), removing=(2,)))
    assert imbalanced_partitions(context, 0) == []
