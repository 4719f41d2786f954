"""Invariants of elections in random clusters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.elections.election_rules import (
    Elected,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)

brokers = st.integers(0, 6)
assignments = st.lists(brokers, min_size=1, max_size=5, unique=True)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[int], list[int], set[int]]:
    """An assignment, an ISR that is part of it, and live brokers."""
    assignment = draw(assignments)
    isr = draw(st.lists(st.sampled_from(assignment), unique=True, min_size=1))
    return assignment, isr, draw(st.sets(brokers))


@given(partitions())
def test_a_clean_leader_is_alive_assigned_and_was_in_sync(case: tuple[list[int], list[int], set[int]]) -> None:
    assignment, isr, live = case
    outcomes = [
        elect_offline(assignment, isr, live, unclean=False),
        elect_preferred(assignment, isr, live, leader=-1),
        elect_reassigned(assignment, isr, live),
        elect_for_shutdown(assignment, isr, live, shutting_down=()),
    ]
    possible = set(assignment) & set(isr) & live
    for outcome in outcomes:
        if isinstance(outcome, Elected):
            assert outcome.leader in possible
            assert outcome.leader in outcome.isr
            assert set(outcome.isr) <= set(isr)
            assert not outcome.unclean
    assert isinstance(outcomes[0], Elected) == bool(possible)


@given(partitions())
def test_an_unclean_leader_only_when_there_is_no_clean_one(case: tuple[list[int], list[int], set[int]]) -> None:
    assignment, isr, live = case
    outcome = elect_offline(assignment, isr, live, unclean=True)
    assert isinstance(outcome, Elected) == bool(set(assignment) & live)
    if isinstance(outcome, Elected):
        assert outcome.unclean == (not set(assignment) & set(isr) & live)
        assert set(outcome.isr) <= live


@given(partitions(), st.sets(brokers, max_size=3))
def test_a_stopping_broker_is_neither_leader_nor_in_sync(
    case: tuple[list[int], list[int], set[int]], shutting_down: set[int]
) -> None:
    assignment, isr, live = case
    outcome = elect_for_shutdown(assignment, isr, live, shutting_down=shutting_down)
    if isinstance(outcome, Elected):
        assert outcome.leader in outcome.isr
        assert not shutting_down & set(outcome.isr)
