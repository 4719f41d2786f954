"""Latencies: percentiles are those of the sorted values, to three significant digits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.perf.latencies import PERCENTILES, Latencies


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=300))
def test_percentiles_are_those_of_the_sorted_values(values: list[float]) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    ordered = sorted(values)
    for name, part in PERCENTILES.items():
        exact = ordered[math.ceil(part * len(values)) - 1]
        assert latencies.percentiles()[name] == pytest.approx(exact, rel=0.005)
    assert latencies.maximum_ms == ordered[-1]
    assert latencies.average_ms == pytest.approx(sum(values) / len(values))


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    latencies = Latencies()
    for number in range(20_000):
        latencies.add(1 + number / 20_000)
    assert latencies.count == 20_000
    assert len(latencies._counts) <= 102
    assert latencies.value() == {"average": 1.5, "maximum": 2.0, "p50": 1.5, "p95": 1.95, "p99": 1.99, "p999": 2.0}


def test_without_a_record_everything_is_zero() -> None:
    latencies = Latencies()
    assert set(latencies.value().values()) == {0.0}
    latencies.add(0.0)
    assert latencies.percentiles() == dict.fromkeys(PERCENTILES, 0.0)


def test_the_summary_for_people() -> None:
    latencies = Latencies()
    latencies.add(2, count=3)
    assert latencies.text() == (
        "latency: average 2.00 ms, maximum 2.00 ms, p50 2.00 ms, p95 2.00 ms, p99 2.00 ms, p99.9 2.00 ms"
    )
