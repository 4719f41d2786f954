"""The rate of a writer, and the file of its acknowledged records."""

from __future__ import annotations

from pathlib import Path

import pytest
from ordeal.clients.ledger import Ledger, Pace, summary_of
from ordeal.records import read_acks


class Hands:
    """A clock whose time the test sets, in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rounds_are_due_at_the_rate() -> None:
    clock = Hands()
    pace = Pace(4.0, clock)
    assert (pace.wait_s(), pace.begin()) == (0.0, 0)
    assert pace.wait_s() == 0.25
    clock.now += 0.25
    assert (pace.wait_s(), pace.begin(), pace.rounds) == (0.0, 1, 2)


def test_rounds_that_were_slept_through_are_left_out() -> None:
    clock = Hands()
    pace = Pace(4.0, clock)
    pace.begin()
    clock.now += 1.125
    assert pace.begin() == 1
    assert pace.worst_ms == pytest.approx(875.0)
    assert pace.wait_s() == pytest.approx(0.125)


def test_a_ledger_keeps_what_was_acknowledged_and_tells_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "acks"
    with Ledger(path) as ledger:
        ledger.note(3, 7, 70)
        ledger.fail(4, 8, "no luck")
        ledger.flush()
        assert len(read_acks(path.read_bytes())) == 1
        ledger.note(3, 8, -1)
    assert [entry[:3] for entry in read_acks(path.read_bytes()).tolist()] == [(3, 7, 70), (3, 8, -1)]
    summary = summary_of(ledger, Pace(1.0), range(2))
    assert (summary["acknowledged"], summary["failed"]) == (2, 1)
    assert summary["failures"] == ["partition 4: record 8 failed: no luck"]
