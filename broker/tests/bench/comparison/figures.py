"""Statistics of runs: medians, ranges, ratios and percentiles; and the order of the runs. Pure.

`document`, `running` and the clients use it. Invariant: the summary of no values is None, so that a missing value is
never shown as zero.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]
"""Results of one run: metric to value, in the unit of the metric."""

OURS = "odradek"
THEIRS = "apache"
SYSTEMS = (OURS, THEIRS)


@dataclass(frozen=True, slots=True)
class Summary:
    """One metric over the counted runs of one system."""

    median: float
    low: float
    high: float
    runs: int


def summarize(values: Iterable[float]) -> Summary | None:
    """Return median and range; None for no values."""
    found = sorted(values)
    if not found:
        return None
    return Summary(statistics.median(found), found[0], found[-1], len(found))


def summary_of(runs: Iterable[Figures], metric: str) -> Summary | None:
    """Return the summary of one metric over the runs that have it."""
    return summarize(run[metric] for run in runs if metric in run)


def ratio(ours: Summary | None, theirs: Summary | None) -> float | None:
    """Return Odradek's median divided by Kafka's; None if one is missing or Kafka's is 0."""
    if ours is None or theirs is None or theirs.median == 0:
        return None
    return ours.median / theirs.median


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of ascending values (`share`: 0 to 1). Raises `ValueError` for no values."""
    if not ordered:
        raise ValueError("no values have no percentile")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_figures(milliseconds: Iterable[float], prefix: str = "") -> dict[str, float]:
    """Return p50, p99 and p99.9 as metrics; empty for no values."""
    ordered = sorted(milliseconds)
    if not ordered:
        return {}
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {prefix + name: percentile(ordered, share) for name, share in shares.items()}


def with_cost(figures: Figures) -> Figures:
    """Return figures of a run with the CPU of the brokers per record and per megabyte, if the run counted them."""
    costs = {}
    if records := figures.get("records"):
        costs["cpu_us"] = figures["cpu_s"] / records * 1e6
    if megabytes := figures.get("megabytes"):
        costs["cpu_ms_per_mb"] = figures["cpu_s"] / megabytes * 1e3
    return {**figures, **costs}


def turns(runs: int, warm_ups: int) -> list[tuple[int, tuple[str, str]]]:
    """Return number and order of systems of each round: A B, B A, A B, ...; rounds below 0 are warm-ups.

    With alternating orders, both systems are equally affected by the effects of the other: heat, dirty pages, noise.
    """
    orders = ((OURS, THEIRS), (THEIRS, OURS))
    return [(number, orders[number % 2]) for number in range(-warm_ups, runs)]
