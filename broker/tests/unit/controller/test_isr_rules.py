"""Accepted ISR changes: the rules that only apply to a recovering leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.base.errors import InvalidRequestError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Leadership
from odradek.controller.isr_rules import IsrChange, decide
from odradek.controller.plans import StateWrite

T0 = TopicPartition("t", 0)
CHANGE = IsrChange(partition=T0, leader=1, leader_epoch=5, isr=(1, 2), recovering=False, partition_epoch=3)
Build = Callable[..., ControllerContext]


def test_an_accepted_change_is_a_conditional_write_of_the_same_reign(build: Build) -> None:
    decision = decide(build([1, 2], {0: ((1, 2), 1, (1,))}), CHANGE, 8)
    assert isinstance(decision, StateWrite)
    assert (decision.state.isr, decision.state.leader_epoch, decision.expected_epoch) == ((1, 2), 5, 3)
    assert decision.state.controller_epoch == 8


@pytest.mark.parametrize(
    ("was_recovering", "isr", "recovering", "accepted"),
    [(True, (1,), False, True), (True, (1, 2), True, False), (False, (1,), True, False), (True, (1, 2), False, True)],
)
def test_recovery_ends_once(
    build: Build, was_recovering: bool, isr: tuple[int, ...], recovering: bool, accepted: bool
) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1,) if was_recovering else (1, 2))})
    current = context.leaderships[T0]
    context.leaderships[T0] = Leadership(replace(current.state, recovering=was_recovering), 3)
    decision = decide(context, replace(CHANGE, isr=isr, recovering=recovering), 8)
    assert isinstance(decision, StateWrite if accepted else InvalidRequestError)


def test_a_leader_cannot_leave_the_isr(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2))})
    assert isinstance(decide(context, replace(CHANGE, isr=(2,)), 8), InvalidRequestError)


def test_a_topic_that_is_being_deleted_is_unknown(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1,))})
    context.deletions = {"t"}
    assert isinstance(decide(context, CHANGE, 8), UnknownTopicOrPartitionError)
