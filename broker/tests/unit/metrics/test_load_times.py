"""Durations of the loads of coordinator partitions."""

from __future__ import annotations

import pytest

from odradek.metrics.load_times import WINDOW_MS, LoadTimes
from odradek_testkit.loop import ManualClock


def test_only_loads_of_the_last_half_minute_count() -> None:
    clock = ManualClock()
    loads = LoadTimes(clock)
    assert (loads.max_ms, loads.mean_ms) == (0, 0)
    loads.observe(300)
    clock.advance(WINDOW_MS)
    loads.observe(100)
    assert (loads.max_ms, loads.mean_ms) == (300, 200)
    clock.advance(1)
    assert (loads.max_ms, loads.mean_ms) == (100, 100)
    clock.advance(WINDOW_MS)
    assert (loads.max_ms, loads.mean_ms) == (0, 0)


@pytest.mark.parametrize("count", [1_000, 5_000])
def test_the_number_of_remembered_loads_is_limited(count: int) -> None:
    loads = LoadTimes(ManualClock())
    for number in range(count):
        loads.observe(number)
    assert (loads.max_ms, loads.mean_ms) == (count - 1, count - 1_000 + 499.5)
