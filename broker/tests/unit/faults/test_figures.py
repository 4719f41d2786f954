"""The summary of measurements by kind of fault, and the comparison with the goals."""

from __future__ import annotations

import json

import pytest
from ordeal.figures import HEADINGS, Outcome, Summary, cells, markdown, missed, plain, summaries
from ordeal.kinds import Fault, Kind, Timeouts, goal_ms

TIMEOUTS = Timeouts(session_ms=6_000.0, hang_ms=5_000.0)
CRASH = Fault(kind=Kind.CRASH, broker=1)


def outcome(*faults: Fault, led: tuple[float, ...] = (), back: tuple[float, ...] = (), number: int = 1) -> Outcome:
    return Outcome(
        number=number,
        faults=faults,
        began_s=1.0,
        led=led,
        others=(20.0, 40.0),
        elsewhere=led[:1],
        given_back=back,
        quiet=(50.0, 60.0),
        whole_ms=9_000.0,
    )


@pytest.mark.parametrize(
    ("fault", "goal"),
    [
        (CRASH, 2_000.0),
        (Fault(kind=Kind.HANG, broker=0), 8_000.0),
        (Fault(kind=Kind.MACHINE, broker=0), 8_000.0),
        (Fault(kind=Kind.SHUTDOWN, broker=0), 300.0),
        (Fault(kind=Kind.WIPE, broker=0), 300.0),
        (Fault(kind=Kind.WIPE, broker=0, hard=True), 8_000.0),
        (Fault(kind=Kind.SLEEP, broker=0), None),
        (Fault(kind=Kind.ZOOKEEPER_RESTART), None),
    ],
)
def test_goals(fault: Fault, goal: float | None) -> None:
    assert goal_ms(fault, TIMEOUTS) == goal


def test_a_goal_is_missed_by_a_single_partition() -> None:
    assert missed(outcome(CRASH, led=(100.0, 2_000.0)), TIMEOUTS) is None
    text = missed(outcome(CRASH, led=(100.0, 2_001.0), number=4), TIMEOUTS)
    assert text == ("episode 4, broker process killed, broker 1: a partition waited 2001 ms, but the goal is 2000 ms")


def test_faults_at_once_have_no_goal() -> None:
    mixed = outcome(CRASH, Fault(kind=Kind.ZOOKEEPER_RESTART), led=(9_000.0,))
    assert missed(mixed, TIMEOUTS) is None
    rows = summaries([mixed], TIMEOUTS)
    assert [row.title for row in rows] == ["no fault", "two faults at once"]
    assert rows[1].goal_ms is None


def test_rows_by_kind_pool_their_episodes() -> None:
    outcomes = [
        outcome(CRASH, led=(100.0, 300.0)),
        outcome(CRASH, led=(200.0, 2_500.0), back=(70.0,)),
        outcome(Fault(kind=Kind.WIPE, broker=0, hard=True), led=(6_500.0,)),
    ]
    quiet, back, crash, wipe = summaries(outcomes, TIMEOUTS)
    assert (quiet.count, quiet.p50_ms, quiet.max_ms) == (3, 55.0, 60.0)
    assert (back.count, back.max_ms) == (1, 70.0)
    assert (crash.count, crash.p50_ms, crash.max_ms, crash.missed) == (2, 250.0, 2_500.0, 1)
    assert (crash.elsewhere_p50_ms, crash.elsewhere_max_ms) == (150.0, 200.0)
    assert (crash.others_p50_ms, crash.others_max_ms, crash.whole_p50_ms) == (30.0, 40.0, 9_000.0)
    assert (wipe.title, wipe.kind, wipe.goal_ms) == ("broker stopped, its disk wiped, with SIGKILL", "wipe", 8_000.0)


def test_what_was_not_measured_is_no_zero() -> None:
    assert summaries([], TIMEOUTS) == []
    row = cells(Summary(title="x", count=1, max_ms=1234.4, missed=2))
    assert row == ("x", "1", "–", "1,234 ▼ 2×", "–", "–", "–", "–", "–", "–")


def test_a_table_has_a_cell_for_each_heading() -> None:
    lines = markdown(summaries([outcome(CRASH, led=(1.0,))], TIMEOUTS)).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}


def test_json_has_plain_values() -> None:
    text = json.loads(json.dumps(plain({"o": outcome(CRASH, led=(1.23456,)), "kinds": (Kind.SLEEP,)})))
    assert text["o"]["faults"][0]["kind"] == "crash"
    assert text["o"]["led"] == [1.235]
    assert text["kinds"] == ["long-pause"]
