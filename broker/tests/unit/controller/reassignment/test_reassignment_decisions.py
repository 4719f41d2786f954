"""Decisions about reassignments: the next assignment, refused requests, and when old replicas can be dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from odradek.base.errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Replica
from odradek.controller.elections.election_rules import Obstacle
from odradek.controller.reassignment.reassignment_decisions import (
    dropped,
    epoch_bumps,
    is_complete,
    reassigned,
    requested_assignment,
    restricted,
)
from odradek.zk.layout import PartitionState, ReplicaAssignment

T0 = TopicPartition("t", 0)
Build = Callable[..., ControllerContext]


def moving(replicas: Sequence[int], adding: Sequence[int] = (), removing: Sequence[int] = ()) -> ReplicaAssignment:
    return ReplicaAssignment(replicas=tuple(replicas), adding=tuple(adding), removing=tuple(removing))


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        (moving([1, 2, 3]), [4, 5, 6], moving([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])),
        (moving([1, 2, 3]), [3, 4, 2], moving([3, 4, 2, 1], [4], [1])),
        (moving([1, 2, 3]), [3, 2, 1], moving([3, 2, 1])),
        (moving([1, 2, 3]), [1], moving([1, 2, 3], [], [2, 3])),
        (moving([1]), [1, 2, 3], moving([1, 2, 3], [2, 3])),
        (moving([4, 5, 1, 2], [4, 5], [1, 2]), [6, 1], moving([6, 1, 2], [6], [2])),
        (moving([4, 5, 1, 2], [4, 5], [1, 2]), [4, 2], moving([4, 2, 1], [4], [1])),
        (moving([3, 4, 2, 1], [4], [1]), [3, 2, 1], moving([3, 2, 1])),
    ],
)
def test_a_reassignment_has_the_target_replicas_first_and_keeps_the_original_ones(
    current: ReplicaAssignment, target: list[int], expected: ReplicaAssignment
) -> None:
    assert reassigned(current, target) == expected
    assert expected.target == tuple(target)
    assert set(expected.origin) == set(current.origin)
    assert reassigned(expected, target) == expected
    assert expected.is_being_reassigned == (set(target) != set(current.origin))


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), InvalidReplicaAssignmentError),
        ((1, 2, 1), InvalidReplicaAssignmentError),
        ((1, -1), InvalidReplicaAssignmentError),
        ((1, 9), InvalidReplicaAssignmentError),
        ((1, 3), InvalidReplicaAssignmentError),
        (None, NoReassignmentInProgressError),
    ],
)
def test_invalid_targets_are_refused(build: Build, target: tuple[int, ...] | None, error: type[ProtocolError]) -> None:
    context = build([1, 2, 3], {0: ((1, 2), 1, (1, 2))})
    context.shutting_down = {3}
    with pytest.raises(error):
        requested_assignment(context, T0, target, must_live=True)


def test_a_dead_broker_can_keep_its_replica_and_the_znode_can_add_one(build: Build) -> None:
    context = build([1], {0: ((1, 2), 1, (1,))})
    assert requested_assignment(context, T0, (2, 1), must_live=True) == moving([2, 1])
    assert requested_assignment(context, T0, (1, 9), must_live=False) == moving([1, 9, 2], [9], [2])


def test_reassignments_of_unknown_and_deleted_topics_end(build: Build) -> None:
    context = build([1, 2], {0: ((1,), 1, (1,))})
    with pytest.raises(UnknownTopicOrPartitionError):
        requested_assignment(context, TopicPartition("t", 1), (2,), must_live=True)
    context.set_assignment(T0, moving([2, 1], [2], [1]))
    context.deferred_deletions = {"t"}
    assert requested_assignment(context, T0, None, must_live=True) == moving([1])
    with pytest.raises(UnknownTopicOrPartitionError):
        requested_assignment(context, T0, (1, 2), must_live=True)
    context.deferred_deletions, context.deletions = set(), {"t"}
    with pytest.raises(UnknownTopicOrPartitionError):
        requested_assignment(context, T0, None, must_live=True)


@pytest.mark.parametrize(
    ("isr", "target", "is_refused"),
    [
        ((2,), None, True),
        ((2,), (3,), True),
        ((2,), (2, 3), False),
        ((1, 2), None, False),
        ((1,), None, False),
        ((9, 2), None, True),
    ],
)
def test_the_only_in_sync_replica_is_not_dropped(
    build: Build, isr: tuple[int, ...], target: tuple[int, ...] | None, is_refused: bool
) -> None:
    """Broker 2 is being added to 1 and 9, which is dead."""
    context = build([1, 2, 3], {0: ((2, 1, 9), isr[-1], isr)})
    context.set_assignment(T0, moving([2, 1, 9], [2], [1]))
    if is_refused:
        with pytest.raises(InvalidReplicaAssignmentError, match="has all records"):
            requested_assignment(context, T0, target, must_live=True)
    else:
        requested_assignment(context, T0, target, must_live=True)


def test_replicas_of_a_replaced_reassignment_are_dropped(build: Build) -> None:
    context = build([1, 2, 3], {0: ((1,), 1, (1,))})
    context.set_assignment(T0, moving([2, 1], [2], [1]))
    assert dropped(context, T0, requested_assignment(context, T0, (3,), must_live=True)) == (2,)
    assert dropped(context, T0, requested_assignment(context, T0, None, must_live=True)) == (2,)
    assert dropped(context, T0, requested_assignment(context, T0, (3, 2), must_live=True)) == ()


@pytest.mark.parametrize(
    ("alive", "isr", "assignment", "is_done"),
    [
        ([1, 2, 3], (1, 2), moving([2, 3, 1], [2, 3], [1]), False),
        ([1, 2, 3], (1, 2, 3), moving([2, 3, 1], [2, 3], [1]), True),
        ([1, 2, 3], (3, 2), moving([2, 3, 1], [2, 3], [1]), True),
        ([1, 2], (1, 2, 3), moving([2, 3, 1], [2, 3], [1]), True),
        ([1], (1, 2, 3), moving([2, 3, 1], [2, 3], [1]), False),
        ([1, 2], (1, 2), moving([1, 2], [], [2]), True),
        ([1, 2], (2,), moving([1, 2], [], [2]), False),
        ([1, 2], (2,), moving([1, 2]), True),
    ],
)
def test_old_replicas_can_be_dropped_when_the_target_replicas_are_in_sync(
    build: Build, alive: list[int], isr: tuple[int, ...], assignment: ReplicaAssignment, is_done: bool
) -> None:
    context = build(alive, {0: (assignment.replicas, isr[0], isr)})
    context.set_assignment(T0, assignment)
    assert is_complete(context, T0) is is_done
    del context.leaderships[T0]
    assert is_complete(context, T0) is not assignment.is_being_reassigned


def test_an_epoch_bump_changes_nothing_else(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2))})
    plan = epoch_bumps(context, [T0, TopicPartition("t", 1)], 7)
    (write,) = plan.writes
    assert write.state == PartitionState(leader=1, leader_epoch=6, isr=(1, 2), controller_epoch=7)
    assert write.expected_epoch == 3
    assert plan.obstacles == {TopicPartition("t", 1): Obstacle.NO_LIVE_REPLICA}


@pytest.mark.parametrize(
    ("alive", "leader", "isr", "kept", "outcome"),
    [
        ([1, 2, 3], 1, (1, 2, 3), (1, 2), (1, (1, 2))),
        ([1, 2, 3], 3, (1, 2, 3), (2, 1), (2, (1, 2))),
        ([1, 3], 3, (1, 2, 3), (2, 1), (1, (1, 2))),
        ([1, 3], 2, (2, 1), (2, 1), (1, (2, 1))),
        ([1, 2, 3], 3, (3,), (2, 1), None),
        ([3], 3, (1, 2, 3), (2, 1), None),
        ([1, 2, 3], -1, (1,), (2, 1), (1, (1,))),
    ],
)
def test_leader_and_isr_are_limited_to_the_kept_replicas(
    build: Build,
    alive: list[int],
    leader: int,
    isr: tuple[int, ...],
    kept: tuple[int, ...],
    outcome: tuple[int, tuple[int, ...]] | None,
) -> None:
    context = build(alive, {0: ((2, 1, 3), leader, isr)})
    plan = restricted(context, {T0: kept}, 7)
    assert [(write.state.leader, write.state.isr) for write in plan.writes] == ([] if outcome is None else [outcome])
    assert all((write.state.leader_epoch, write.state.controller_epoch) == (6, 7) for write in plan.writes)
    assert set(plan.obstacles) == (set() if outcome is not None else {T0})


def test_a_leader_that_is_shutting_down_leads_until_another_is_elected(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2))})
    context.shutting_down = {1}
    assert [write.state.leader for write in restricted(context, {T0: (1, 2)}, 7).writes] == [1]
    context.offline_directory_replicas = {Replica(T0, 1)}
    assert [write.state.leader for write in restricted(context, {T0: (1, 2)}, 7).writes] == [2]


def test_the_context_has_reassignments(build: Build) -> None:
    context = build([1, 2], {0: ((1,), 1, (1,)), 1: ((1,), 1, (1,))})
    assert not context.is_being_reassigned("t")
    context.set_assignment(T0, moving([2, 1], [2], [1]))
    assert (context.reassigning, context.is_being_reassigned("t")) == ({T0}, True)
    # A new first replica does not count as imbalance before it is in sync.
    assert context.preferred_imbalance_count() == 0
    leadership = context.leaderships[T0]
    state = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=1)
    context.leaderships[T0] = type(leadership)(state, 4)
    assert context.preferred_imbalance_count() == 1
    context.remove_topic("t")
    assert context.reassigning == set()
