"""Medians, ratios, percentiles and the order of runs."""

from __future__ import annotations

import pytest
from comparison.figures import (
    OURS,
    THEIRS,
    Summary,
    latency_figures,
    percentile,
    ratio,
    summarize,
    summary_of,
    turns,
    with_cost,
)
from hypothesis import given
from hypothesis import strategies as st


def test_a_summary_has_median_and_range() -> None:
    assert summarize([3.0, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0, 3)
    assert summarize([]) is None


def test_runs_without_the_metric_do_not_count() -> None:
    assert summary_of([{"cpu_s": 4.0}, {"p99_ms": 1.0}, {"cpu_s": 2.0}], "cpu_s") == Summary(3.0, 2.0, 4.0, 2)
    assert summary_of([{"p99_ms": 1.0}], "cpu_s") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [([6.0], [3.0], 2.0), ([], [3.0], None), ([6.0], [], None), ([6.0], [0.0], None)]
)
def test_a_ratio_needs_both_sides(ours: list[float], theirs: list[float], expected: float | None) -> None:
    assert ratio(summarize(ours), summarize(theirs)) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1))
def test_a_percentile_is_a_value_with_that_share_at_or_below(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-6


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert latency_figures([]) == {}


def test_latency_figures_carry_their_prefix() -> None:
    found = latency_figures(range(1, 1001), "produce_before_")
    expected = {"produce_before_p50_ms": 500, "produce_before_p99_ms": 990, "produce_before_p999_ms": 999}
    assert found == expected


def test_cost_is_cpu_by_the_counted_records_and_megabytes() -> None:
    found = with_cost({"cpu_s": 2.0, "records": 400_000, "megabytes": 50.0})
    assert found == {"cpu_s": 2.0, "records": 400_000, "megabytes": 50.0, "cpu_us": 5.0, "cpu_ms_per_mb": 40.0}
    assert with_cost({"cpu_s": 2.0}) == {"cpu_s": 2.0}


def test_orders_alternate_and_warm_ups_are_below_zero() -> None:
    rounds = turns(3, 1)
    assert [number for number, _ in rounds] == [-1, 0, 1, 2]
    assert [order[0] for _, order in rounds] == [THEIRS, OURS, THEIRS, OURS]
    assert all(sorted(order) == sorted((OURS, THEIRS)) for _, order in rounds)
