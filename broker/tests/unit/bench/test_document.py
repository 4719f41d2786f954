"""The benchmark's document: its tables, the marks in them, and the reasons."""

from __future__ import annotations

import pytest
from comparison.document import SHORT, render, shortfalls, table
from comparison.results import Outcome
from comparison.scenarios import CATALOGUE, THEMES

from .outcomes import outcome

BY_NAME = {scenario.name: scenario for scenario in CATALOGUE}
BY_THEME = {theme.name: theme for theme in THEMES}


def cells(found: Outcome) -> list[str]:
    scenario = BY_NAME[found.scenario]
    last = table(BY_THEME[scenario.theme], [(scenario, found)]).splitlines()[-1]
    return [cell.strip() for cell in last.strip("|").split("|")]


def test_a_row_gives_medians_ranges_and_marks() -> None:
    ours = [{"records_per_s": value, "p99_ms": 20.0, "cpu_s": 1.0} for value in (900.0, 1000.0, 1100.0)]
    theirs = [{"records_per_s": value, "p99_ms": 10.0, "cpu_s": 4.0} for value in (500.0, 400.0, 600.0)]
    row = cells(outcome("produce-100b-1r-1", ours, theirs))
    assert row[1:4] == ["1000 (900 … 1100)", "500 (400 … 600)", "**2.00**"]
    assert row[4] == f"20.0 / 10.0 = 2.00 {SHORT}"
    assert row[5] == "1.00 / 4.00 = 0.25"
    assert row[6] == "–"


def test_every_row_is_as_wide_as_the_head() -> None:
    for scenario in CATALOGUE:
        lines = table(BY_THEME[scenario.theme], [(scenario, outcome(scenario.name, [], []))]).splitlines()
        assert len({line.count("|") for line in lines}) == 1


def test_a_failed_side_is_shown_and_told() -> None:
    found = outcome("idle", [{"rss_after_mb": 50.0}], [], apache="run 1: it broke")
    assert cells(found)[1:4] == ["50.0 (50.0 … 50.0)", "failed", "–"]
    assert shortfalls(BY_NAME["idle"], found) == ["apache failed (run 1: it broke)"]


def test_latency_that_more_than_doubles_under_compaction_falls_short() -> None:
    found = outcome(
        "compact",
        [{"produce_before_p99_ms": 2.0, "produce_during_p99_ms": 5.0, "consume_before_p99_ms": 2.0}],
        [{"produce_before_p99_ms": 2.0, "produce_during_p99_ms": 9.0}],
    )
    assert shortfalls(BY_NAME["compact"], found) == ["produce p99 grows 2.5 times (≤ 2)"]


def test_the_document_gives_reasons_and_what_is_missing() -> None:
    slow = outcome("produce-single", [{"records_per_s": 1.0}], [{"records_per_s": 2.0}])
    text = render([slow], {"produce-single": "Because of this."})
    reasons = text.partition("## Missed goals")[2]
    assert "records/s 0.50 (≥ 1.3).\n\n  Because of this." in reasons
    assert "`idle`" in reasons.partition("Not measured yet")[2]
    assert text.count("## Producing") == 1
    assert "## Idle brokers" not in text


def test_a_remark_of_the_theme_serves_scenarios_without_their_own() -> None:
    slow = outcome("consume-java-cold-100b", [{"records_per_s": 1.0}], [{"records_per_s": 2.0}])
    assert "The client is the limit." in render([slow], {"consume": "The client is the limit."})


def test_a_reason_that_several_share_is_told_once() -> None:
    names = ("consume-java-cold-100b", "consume-java-cold-1000b")
    slow = [outcome(name, [{"records_per_s": 1.0}], [{"records_per_s": 2.0}]) for name in names]
    text = render(slow, {"consume": "The client is the limit."})
    assert text.count("The client is the limit.") == 1
    assert text.index(f"`{names[0]}`") < text.index(f"`{names[1]}`") < text.index("The client is the limit.")


def test_a_document_of_nothing_is_a_document() -> None:
    assert "no day yet" in render([], {})


def test_a_bound_of_our_own_figure_holds_whatever_the_other_system_needs() -> None:
    scenario = BY_NAME["controller-failover"]
    limit = scenario.limits["leaders_s"]
    good = outcome(scenario.name, [{"leaders_s": limit}], [{"leaders_s": 10 * limit}])
    late = outcome(scenario.name, [{"leaders_s": limit + 1}], [{"leaders_s": 10 * limit}])
    assert shortfalls(scenario, good) == []
    assert shortfalls(scenario, late) == ["all leaders known, s 6.00 (≤ 5)"]


@pytest.mark.parametrize("name", ["busy-200", "produce-single"])
def test_cpu_for_a_request_with_one_record_has_a_column_and_a_bound(name: str) -> None:
    scenario = BY_NAME[name]
    column = BY_THEME[scenario.theme].metrics.index("cpu_us") + 3
    fast, slow = (outcome(name, [{"cpu_us": value}], [{"cpu_us": 40.0}]) for value in (8.0, 8.1))
    assert cells(slow)[column] == "8.10 / 40.0 = 0.20"
    assert shortfalls(scenario, fast) == []
    assert shortfalls(scenario, slow) == ["CPU per record, µs 8.10 (≤ 8)"]
