"""Rates of counts."""

from __future__ import annotations

from odradek.metrics.count_rates import SAMPLES, WINDOW_MS, CountRate
from odradek_testkit.loop import ManualClock


class Counter:
    """A count of events."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.count = 0
        self.rate = CountRate(self.clock, lambda: self.count)

    def read(self, after_ms: float, events: int) -> float:
        """Let events happen, and return the rate after this time."""
        self.count += events
        self.clock.advance(after_ms)
        return self.rate.read()


def test_a_rate_is_measured_over_half_a_minute_at_least() -> None:
    counter = Counter()
    assert counter.read(1_000, 30) == 1.0
    assert counter.read(29_000, 0) == 1.0
    # The events before the first read are older than half a minute now.
    assert counter.read(5_000, 0) == 0.0
    assert counter.read(60_000, 120) == 2.0


def test_without_events_the_rate_falls_to_zero() -> None:
    counter = Counter()
    assert counter.read(30_000, 60) == 2.0
    assert counter.read(30_000, 0) == 0.0


def test_frequent_reads_need_no_more_memory() -> None:
    counter = Counter()
    for _ in range(10 * SAMPLES):
        found = counter.read(10, 1)
    assert found == SAMPLES / WINDOW_MS * 1000 - 1000 / WINDOW_MS
