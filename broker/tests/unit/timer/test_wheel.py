"""The timing wheel: expiry, cascading, removal."""

from __future__ import annotations

import pytest

from odradek.timer.wheel import TimerEntry, TimingWheel


def test_hands_an_entry_out_in_its_own_tick_and_never_before() -> None:
    wheel = TimingWheel(tick_ms=1, wheel_size=20)
    entry = TimerEntry(2)
    assert wheel.add(entry)
    assert wheel.advance(1.9) == []
    assert wheel.advance(2) == [entry]
    assert wheel.advance(50) == []


def test_refuses_what_is_due_already() -> None:
    wheel = TimingWheel(start_ms=100)
    assert not wheel.add(TimerEntry(100))
    assert not wheel.add(TimerEntry(3))
    assert wheel.size == 0


def test_time_is_a_multiple_of_the_tick() -> None:
    wheel = TimingWheel(tick_ms=10, wheel_size=4, start_ms=57)
    early, late = TimerEntry(61), TimerEntry(81)
    assert wheel.add(early)
    assert wheel.add(late)
    assert wheel.advance(69) == []
    assert wheel.advance(79) == [early]
    assert wheel.advance(90) == [late]


def test_rounds_deadlines_up_to_a_tick() -> None:
    wheel = TimingWheel(tick_ms=10, wheel_size=4)
    entry = TimerEntry(11)
    wheel.add(entry)
    assert wheel.advance(19) == []
    assert wheel.advance(20) == [entry]


@pytest.mark.parametrize(("expiration_ms", "levels"), [(19, 1), (20, 2), (350, 2), (399, 2), (400, 3), (7999, 3)])
def test_grows_an_overflow_wheel_for_what_is_beyond_the_span(expiration_ms: int, levels: int) -> None:
    wheel = TimingWheel(tick_ms=1, wheel_size=20)
    wheel.add(TimerEntry(expiration_ms))
    assert wheel.levels == levels


def test_an_entry_cascades_down_level_by_level() -> None:
    wheel = TimingWheel(tick_ms=1, wheel_size=20)
    entry = TimerEntry(450)
    wheel.add(entry)
    wakes = []
    expired: list[TimerEntry] = []
    while (wake := wheel.next_expiry_ms()) is not None:
        wakes.append(wake)
        expired += wheel.advance(wake)
    assert wakes == [400, 440, 450]
    assert expired == [entry]


def test_one_leap_over_all_levels_hands_out_in_order_of_deadline() -> None:
    wheel = TimingWheel(tick_ms=1, wheel_size=3)
    entries = [TimerEntry(at) for at in (80, 2, 26, 5, 9, 1)]
    for entry in entries:
        wheel.add(entry)
    assert [entry.expiration_ms for entry in wheel.advance(1000)] == [1, 2, 5, 9, 26, 80]


def test_removal_forgets_the_entry_and_its_wake() -> None:
    wheel = TimingWheel()
    gone, stays = TimerEntry(5), TimerEntry(9)
    wheel.add(gone)
    wheel.add(stays)
    assert gone.remove()
    assert not gone.remove()
    assert not gone.is_scheduled
    assert wheel.size == 1
    assert wheel.next_expiry_ms() == 9
    assert wheel.advance(20) == [stays]
    assert wheel.next_expiry_ms() is None


def test_an_entry_can_be_in_one_wheel_only() -> None:
    wheel = TimingWheel()
    entry = TimerEntry(5)
    wheel.add(entry)
    with pytest.raises(ValueError, match="already"):
        TimingWheel().add(entry)


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(0, 20), (-1, 20), (1, 1)])
def test_refuses_senseless_dimensions(tick_ms: float, wheel_size: int) -> None:
    with pytest.raises(ValueError, match="positive tick"):
        TimingWheel(tick_ms, wheel_size)
