"""Goals of the benchmark, and the format of figures."""

from __future__ import annotations

import pytest
from comparison.goals import METRICS
from comparison.scenarios import THEMES


@pytest.mark.parametrize(
    ("metric", "value", "met"),
    [
        ("records_per_s", 1.30, True),
        ("records_per_s", 1.2951, True),
        ("records_per_s", 1.29, False),
        ("cpu_s", 0.5, True),
        ("cpu_s", 0.51, False),
        ("p99_ms", 1.0, True),
        ("p99_ms", 1.01, False),
        ("rss_max_mb", 0.33, True),
        ("rss_max_mb", 0.34, False),
        ("start_s", 0.333, True),
    ],
)
def test_a_goal_is_judged_as_its_ratio_is_printed(metric: str, value: float, met: bool) -> None:
    goal = METRICS[metric].goal
    assert goal is not None
    assert goal.met(value) is met


@pytest.mark.parametrize(
    ("value", "text"), [(900, "900"), (8_967.4, "8967"), (28_640, "28.6 k"), (952_000, "952 k"), (1_240_000, "1.24 M")]
)
def test_rates_are_written_for_eyes(value: float, text: str) -> None:
    assert METRICS["records_per_s"].form(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.061, "0.06"), (9.94, "9.94"), (12.34, "12.3"), (1392.4, "1392")])
def test_times_are_written_with_three_digits(value: float, text: str) -> None:
    assert METRICS["p99_ms"].form(value) == text


def test_every_metric_of_a_table_is_known() -> None:
    assert {name for theme in THEMES for name in theme.metrics} <= METRICS.keys()
