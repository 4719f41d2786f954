"""Throughput: summaries, lines of progress and the limit."""

from __future__ import annotations

import pytest

from odradek.cli.perf.meter import Meter, Pace


def test_a_summary_has_rates_and_latencies_if_there_are_some() -> None:
    meter = Meter(10.0)
    meter.add(1000, 4 << 20, 11.0)
    meter.add(1000, 4 << 20, 12.0)
    assert meter.value() == {
        "records": 2000,
        "bytes": 8 << 20,
        "seconds": 2.0,
        "recordsPerSecond": 1000.0,
        "mebibytesPerSecond": 4.0,
    }
    assert meter.text() == "2000 records (8.00 MiB) in 2.00 s: 1000 records/s, 4.00 MiB/s"
    meter.latencies.add(5.0)
    assert meter.value()["latencyMs"]["p50"] == 5.0  # type: ignore[index]
    assert "p50 5.00 ms" in meter.text().splitlines()[1]
    assert Meter(1.0).value()["recordsPerSecond"] == 0.0


def test_a_line_of_progress_is_about_the_time_since_the_last_one() -> None:
    meter = Meter(0.0)
    meter.add(500, 1 << 20, 0.5)
    assert meter.progress(0.9) is None
    assert meter.progress(2.0) == "500 records, 250 records/s, 0.50 MiB/s"
    meter.add(100, 0, 2.5)
    assert meter.progress(2.5) is None
    assert meter.progress(3.0) == "600 records, 100 records/s, 0.00 MiB/s"


def test_the_pace_waits_until_a_record_is_due_and_catches_up() -> None:
    pace = Pace(10, 100.0)
    assert pace.next(100.0) == 0.0
    assert pace.next(100.0) == pytest.approx(0.1)
    assert pace.next(100.5) == 0.0
    assert pace.next(100.5) == 0.0
