"""Planned writes. The context does not change before they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Leadership, Replica
from odradek.controller.elections.election_rules import Cause, Obstacle
from odradek.controller.plans import apply_write, elections, first_leaders, isr_removals

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Build = Callable[..., ControllerContext]


def test_first_leaders_are_live(build: Build) -> None:
    context = build([2, 3], {0: ((1, 2, 3), -1, ()), 1: ((1,), -1, ())})
    context.leaderships.clear()
    plan = first_leaders(context, [T0, T1], 4)
    assert [(write.partition, write.state.leader, write.state.isr) for write in plan.writes] == [(T0, 2, (2, 3))]
    assert plan.writes[0].expected_epoch is None
    assert plan.obstacles == {T1: Obstacle.NO_LIVE_REPLICA}
    assert context.leaderships == {}


@pytest.mark.parametrize(
    ("cause", "shutting_down", "leader", "isr"),
    [
        (Cause.OFFLINE, set(), 2, (3, 2)),
        (Cause.CONTROLLED_SHUTDOWN, {2}, 3, (3,)),
    ],
)
def test_elections_write_the_next_epoch_conditionally(
    build: Build, cause: Cause, shutting_down: set[int], leader: int, isr: tuple[int, ...]
) -> None:
    context = build([2, 3], {0: ((2, 3), 9, (3, 2))})
    context.shutting_down = shutting_down
    (write,) = elections(context, [T0], cause, 8).writes
    assert (write.state.leader, write.state.isr) == (leader, isr)
    assert (write.state.leader_epoch, write.state.controller_epoch, write.expected_epoch) == (6, 8, 3)
    assert write.reason == cause.value


def test_reassignment_prefers_the_new_replicas(build: Build) -> None:
    context = build([1, 2, 3], {0: ((3, 1, 2), 1, (1, 2, 3))})
    context.assignments["t"][0] = type(context.assignments["t"][0])(replicas=(1, 2, 3), adding=(3,), removing=(1,))
    assert elections(context, [T0], Cause.REASSIGNMENT, 8).writes[0].state.leader == 2


def test_only_topics_that_allow_it_have_unclean_elections(build: Build) -> None:
    context = build([2], {0: ((1, 2), 1, (1,))})
    assert elections(context, [T0], Cause.OFFLINE, 8).obstacles == {T0: Obstacle.NO_IN_SYNC_REPLICA}
    (write,) = elections(context, [T0], Cause.OFFLINE, 8, unclean_topics={"t"}).writes
    assert (write.state.leader, write.state.isr, write.unclean, write.state.recovering) == (2, (2,), True, True)


@pytest.mark.parametrize(
    ("leader", "isr", "going", "expected"),
    [
        (1, (1, 2, 3), {2}, (1, (1, 3))),
        (1, (1, 2, 3), {1}, (-1, (2, 3))),
        (1, (1,), {1}, (-1, (1,))),
        (1, (1, 2), {1, 2}, (-1, (1, 2))),
        (1, (1, 2), {3}, None),
        (-1, (2,), {2}, None),
    ],
)
def test_replicas_leave_the_isr(
    build: Build, leader: int, isr: tuple[int, ...], going: set[int], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    context = build([], {0: ((1, 2, 3), leader, isr)})
    plan = isr_removals(context, [Replica(T0, broker) for broker in sorted(going)], 8)
    if expected is None:
        assert plan.writes == []
        return
    (write,) = plan.writes
    assert (write.state.leader, write.state.isr) == expected
    assert (write.state.leader_epoch, write.expected_epoch) == (6, 3)


def test_the_context_is_updated_after_a_write(build: Build) -> None:
    context = build([2], {0: ((1, 2), 1, (1, 2))})
    (write,) = elections(context, [T0], Cause.OFFLINE, 8).writes
    assert context.leader(T0) == 1
    apply_write(context, write, 4)
    assert context.leaderships[T0] == Leadership(write.state, 4)
