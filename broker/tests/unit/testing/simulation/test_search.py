"""The search over many seeds returns an outcome for each seed, even for one that hangs."""

from __future__ import annotations

import logging
import signal

import pytest

from odradek_testkit.simulation import search
from odradek_testkit.simulation.play import Outcome, play
from odradek_testkit.simulation.search import play_guarded, play_many


def test_several_processes_give_what_one_gives() -> None:
    outcomes = {outcome.seed: outcome for outcome in play_many([11, 12, 13], 2)}
    assert set(outcomes) == {11, 12, 13}
    assert outcomes[12] == play_guarded(12)


def test_a_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(search, "STANDSTILL_S", 0.5)
    monkeypatch.setattr("odradek_testkit.simulation.workload.Workload.prepare", hang)
    before = signal.getsignal(signal.SIGVTALRM)
    outcome = play_guarded(1)
    assert outcome.invariant == "no-standstill"
    assert "in hang" in (outcome.violation or "")
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


def test_logs_are_off_in_a_search_and_on_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def watching(seed: int) -> Outcome:
        seen.append(logging.getLogger("odradek").isEnabledFor(logging.CRITICAL))
        return play(seed)

    monkeypatch.setattr(search, "play", watching)
    play_guarded(3)
    assert seen == [False]
    assert logging.getLogger("odradek").isEnabledFor(logging.CRITICAL)
