"""Delays between the restarts of a process that exits by itself."""

from __future__ import annotations

from odradek_operator.embedded.child import BackOff


def test_waits_double_up_to_half_a_minute() -> None:
    waits, back_off = [], BackOff()
    for _ in range(8):
        back_off = back_off.ended(0.1)
        waits.append(back_off.delay_seconds)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_process_that_ran_for_a_while_begins_again() -> None:
    assert BackOff(9).ended(30.0).delay_seconds == 1
    assert BackOff(9).ended(29.9).delay_seconds == 30


def test_nothing_has_ended_yet() -> None:
    assert BackOff().delay_seconds == 0
    assert BackOff(1_000_000).ended(0).delay_seconds == 30
