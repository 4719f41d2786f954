"""Plans of faults: a seed determines the plan, and every plan obeys the rules."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordeal.kinds import TRAITS, Fault, Kind
from ordeal.plan import Draw, Episode, episodes

SESSION_MS = 6_000.0


def some(draw: Draw, count: int = 60) -> list[Episode]:
    return list(islice(episodes(draw), count))


def draw(seed: int = 0, *, together: float = 0.5, kinds: tuple[Kind, ...] = tuple(Kind), brokers: int = 3) -> Draw:
    return Draw(seed=seed, brokers=brokers, session_ms=SESSION_MS, kinds=kinds, together=together)


def test_a_seed_draws_the_same_plan_again() -> None:
    assert some(draw(7)) == some(draw(7))
    assert some(draw(7)) != some(draw(8))


def test_every_kind_comes_once_before_any_comes_again() -> None:
    firsts = [episode.faults[0].kind for episode in some(draw(3), 4 * len(Kind))]
    for begin in range(0, len(firsts), len(Kind)):
        assert set(firsts[begin : begin + len(Kind)]) == set(Kind)
    assert [episode.number for episode in some(draw(3), 3)] == [1, 2, 3]


@given(st.integers(0, 2**32), st.integers(1, 5), st.sets(st.sampled_from(Kind), min_size=1))
def test_what_is_never_drawn(seed: int, brokers: int, kinds: set[Kind]) -> None:
    ordered = tuple(kind for kind in Kind if kind in kinds)
    for episode in some(draw(seed, kinds=ordered, brokers=brokers, together=1.0)):
        assert 1 <= len(episode.faults) <= 2
        assert {fault.kind for fault in episode.faults} <= kinds
        assert not episode.is_mixed or not any(fault.trait.takes_data for fault in episode.faults)
        struck = [fault.broker for fault in episode.faults]
        assert len(set(struck)) == len(struck)
        assert episode.faults[0].after_ms == 0
        for fault in episode.faults:
            assert (fault.broker is not None) == fault.trait.on_broker
            assert fault.broker is None or 0 <= fault.broker < brokers
            low, high = fault.trait.lasting
            assert low * SESSION_MS - 1 <= fault.lasting_ms <= high * SESSION_MS + 1


def test_faults_come_alone_or_together() -> None:
    assert not any(episode.is_mixed for episode in some(draw(together=0.0)))
    assert any(episode.is_mixed for episode in some(draw(together=0.5)))


def test_a_long_pause_outlasts_a_session_and_a_short_one_does_not() -> None:
    for kind in (Kind.BLINK, Kind.ZOOKEEPER_BLINK):
        assert TRAITS[kind].lasting[1] < 1
    for kind in (Kind.SLEEP, Kind.ZOOKEEPER_SLEEP, Kind.MACHINE):
        assert TRAITS[kind].lasting[0] > 1


def test_steps_come_in_the_order_of_time() -> None:
    long = Fault(kind=Kind.SLEEP, broker=0, lasting_ms=5_000)
    short = Fault(kind=Kind.CRASH, broker=1, after_ms=2_000)
    steps = Episode(number=1, faults=(long, short)).steps()
    assert [(step.at_ms, step.ends, step.fault.kind) for step in steps] == [
        (0, False, Kind.SLEEP),
        (2_000, False, Kind.CRASH),
        (2_000, True, Kind.CRASH),
        (5_000, True, Kind.SLEEP),
    ]


@pytest.mark.parametrize("wrong", [draw(kinds=()), draw(brokers=0)])
def test_a_plan_needs_something_to_hurt(wrong: Draw) -> None:
    with pytest.raises(ValueError, match="needs"):
        some(wrong, 1)
