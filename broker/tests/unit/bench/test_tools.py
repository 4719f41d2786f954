"""Parsing of the output of Kafka's load tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from comparison.java_tools import OutputError, consumer_figures, end_to_end_figures, payload_lines, producer_figures

PRODUCED = """\
24806 records sent, 4961.2 records/sec (4.73 MB/sec), 8.1 ms avg latency, 316.0 ms max latency.
75000 records sent, 4998.3 records/sec (4.77 MB/sec), 3.59 ms avg latency, 316.00 ms max latency, \
2 ms 50th, 8 ms 95th, 62 ms 99th, 101 ms 99.9th.
"""


def test_the_producer_tells_rate_and_percentiles() -> None:
    expected = {"records_per_s": 4998.3, "megabytes_per_s": 4.77, "p50_ms": 2, "p99_ms": 62, "p999_ms": 101}
    assert producer_figures(PRODUCED) == expected


def test_the_consumer_tells_the_rate_of_fetching() -> None:
    line = "2024-01-01 10:00:00:000, 2024-01-01 10:00:02:000, 95.3, 47.6, 1000000, 500000.0, 400, 1600, 59.6, 625000.0"
    assert consumer_figures(f"warning\n{line}\n") == {"records_per_s": 625_000.0, "megabytes_per_s": 59.6}


def test_end_to_end_tells_percentiles() -> None:
    text = "0\t1.5\nAvg latency: 0.7 ms\n\nPercentiles: 50th = 0, 99th = 3, 99.9th = 11\n"
    assert end_to_end_figures(text) == {"p50_ms": 0, "p99_ms": 3, "p999_ms": 11}


@pytest.mark.parametrize("parse", [producer_figures, consumer_figures, end_to_end_figures])
def test_anything_else_is_an_error(parse: Callable[[str], object]) -> None:
    with pytest.raises(OutputError, match="no result"):
        parse("Exception in thread main")


def test_payloads_are_lines_of_the_size_asked_for_and_the_same_each_time() -> None:
    lines = payload_lines(100, count=7).split("\n")
    assert [len(line) for line in lines] == [100] * 7
    assert len(set(lines)) == 7
    assert payload_lines(100, count=7).split("\n") == lines
