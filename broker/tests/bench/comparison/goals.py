"""The metrics of runs: their names in tables, units, and the goals for the ratios. Pure.

The goals: throughput at least 1.3 times Apache Kafka's, broker CPU at most half, p99 at most the same, memory and
startup time at most a third. A Spark sink writes at least 2 times the rows of Spark's own one. The mirror copies at
least 3 times the records of MirrorMaker 2, with at most a quarter of the CPU per record. The latency during compaction
may be at most twice that before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Direction(Enum):
    """Whether higher or lower values are better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the ratio of Odradek's value to Kafka's."""

    direction: Direction
    bound: float

    def met(self, ratio: float) -> bool:
        """Whether a ratio meets the goal, rounded to two digits as it is printed."""
        rounded = round(ratio, 2)
        return rounded >= self.bound if self.direction is Direction.HIGHER else rounded <= round(self.bound, 2)

    @property
    def text(self) -> str:
        """The goal as text for a column header."""
        return f"{'≥' if self.direction is Direction.HIGHER else '≤'} {self.bound:.2g}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: label, format and goal."""

    label: str
    form: Callable[[float], str]
    goal: Goal | None = None

    def grows_at_most(self, ours: float, theirs: float) -> bool:
        """Whether a growth factor is at most another, or at least for a metric whose goal is a higher value.

        A difference of less than a hundredth of the other factor does not count.
        """
        if self.goal is not None and self.goal.direction is Direction.HIGHER:
            return ours >= 0.99 * theirs
        return ours <= 1.01 * theirs


def _count(value: float) -> str:
    for limit, divisor, unit in ((999_500, 1e6, " M"), (9_995, 1e3, " k")):
        if value >= limit:
            return f"{value / divisor:.3g}{unit}" if value / divisor < 100 else f"{value / divisor:.0f}{unit}"
    return f"{value:.0f}"


def _plain(unit: str) -> Callable[[float], str]:
    def form(value: float) -> str:
        digits = 0 if value >= 99.5 else 1 if value >= 9.95 else 2
        return f"{value:.{digits}f}{unit}"

    return form


def _lower(bound: float) -> Goal:
    return Goal(Direction.LOWER, bound)


METRICS: Final[Mapping[str, Metric]] = {
    "records_per_s": Metric("records/s", _count, Goal(Direction.HIGHER, 1.3)),
    "rows_per_s": Metric("rows/s", _count, Goal(Direction.HIGHER, 2.0)),
    "rows_per_s_100": Metric("rows/s", _count, Goal(Direction.HIGHER, 4.0)),
    "rows_per_s_1000": Metric("rows/s", _count, Goal(Direction.HIGHER, 3.0)),
    "counted_per_s": Metric("records/s", _count, Goal(Direction.HIGHER, 6.0)),
    "micro_batch_ms": Metric("micro-batch, ms", _plain("")),
    "worker_mb": Metric("memory of a Python worker, maximum, MB", _plain("")),
    "requests_per_s": Metric("requests/s", _count, Goal(Direction.HIGHER, 1.3)),
    "megabytes_per_s": Metric("MB/s", _plain(""), Goal(Direction.HIGHER, 1.3)),
    "transactions_per_s": Metric("transactions/s", _count, Goal(Direction.HIGHER, 1.3)),
    "heartbeats_per_s": Metric("heartbeats/s", _count),
    "rebalance_s": Metric("rebalance, s", _plain(""), _lower(1.0)),
    "load_s": Metric("load, s", _plain(""), _lower(1.0)),
    "loaded_s": Metric("loaded after the start, s", _plain("")),
    "p50_ms": Metric("p50, ms", _plain("")),
    "p99_ms": Metric("p99, ms", _plain(""), _lower(1.0)),
    "p999_ms": Metric("p99.9, ms", _plain("")),
    "cpu_s": Metric("CPU, s", _plain(""), _lower(0.5)),
    "cpu_us": Metric("CPU per record, µs", _plain("")),
    "cpu_ms_per_mb": Metric("CPU per MB, ms", _plain("")),
    "client_us": Metric("CPU of the client per request, µs", _plain("")),
    "mirrored_per_s": Metric("records/s", _count, Goal(Direction.HIGHER, 3.0)),
    "mirrored_mb_per_s": Metric("MB/s", _plain("")),
    "mirror_us": Metric("CPU of the mirror per record, µs", _plain(""), _lower(0.25)),
    "mirror_mb": Metric("memory of the mirror, maximum, MB", _plain("")),
    "spark_us": Metric("CPU of Spark per row, µs", _plain("")),
    "rss_max_mb": Metric("memory, maximum, MB", _plain(""), _lower(1 / 3)),
    "rss_after_mb": Metric("memory, at the end, MB", _plain(""), _lower(1 / 3)),
    "start_s": Metric("first produce, s", _plain(""), _lower(1 / 3)),
    "metadata_s": Metric("first metadata, s", _plain("")),
    "leaders_s": Metric("all leaders known, s", _plain(""), _lower(1 / 3)),
    "detected_s": Metric("session expired, s", _plain("")),
    "elected_s": Metric("then controller elected, s", _plain("")),
    "propagated_s": Metric("then all leaders known, s", _plain("")),
    "acknowledged_s": Metric("records acknowledged, s", _plain(""), _lower(1 / 3)),
    "first_ms": Metric("first, ms", _plain("")),
    "produce_before_p99_ms": Metric("produce p99 before, ms", _plain("")),
    "produce_spinning_p99_ms": Metric("the same beside a spinning process, ms", _plain("")),
    "produce_during_p99_ms": Metric("produce p99 during, ms", _plain(""), _lower(1.0)),
    "consume_before_p99_ms": Metric("consume p99 before, ms", _plain("")),
    "consume_spinning_p99_ms": Metric("the same beside a spinning process, ms", _plain("")),
    "consume_during_p99_ms": Metric("consume p99 during, ms", _plain(""), _lower(1.0)),
    "kept_share": Metric("bytes kept", _plain("")),
}

GROWTH_BOUND: Final = 2.0
GROWTHS: Final = {
    "produce": ("produce_before_p99_ms", "produce_during_p99_ms"),
    "consume": ("consume_before_p99_ms", "consume_during_p99_ms"),
}
"""Latencies that may at most double: metric before, metric during compaction."""
