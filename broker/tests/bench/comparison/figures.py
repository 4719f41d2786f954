"""Figures of runs and what they come to: medians, ranges, ratios, percentiles, the order of the runs. Pure.

Numbers enter, numbers leave. Used by `document` for the tables, by `running` for the order and by the clients.
Invariant: a summary of nothing does not exist, it is None, so that no missing figure can look like a zero.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]
"""What one run came to: metric to value, in the metric's unit."""

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
    """Median and range; None of no values."""
    found = sorted(values)
    if not found:
        return None
    return Summary(statistics.median(found), found[0], found[-1], len(found))


def summary_of(runs: Iterable[Figures], metric: str) -> Summary | None:
    """The summary of one metric; runs without it do not count."""
    return summarize(run[metric] for run in runs if metric in run)


def ratio(ours: Summary | None, theirs: Summary | None) -> float | None:
    """Our median over theirs; None when either is missing or theirs is 0."""
    if ours is None or theirs is None or theirs.median == 0:
        return None
    return ours.median / theirs.median


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of ascending values, `share` from 0 to 1. `ValueError` of no values."""
    if not ordered:
        raise ValueError("no values have no percentile")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_figures(milliseconds: Iterable[float], prefix: str = "") -> dict[str, float]:
    """p50, p99 and p99.9 as metrics; none of no values."""
    ordered = sorted(milliseconds)
    if not ordered:
        return {}
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {prefix + name: percentile(ordered, share) for name, share in shares.items()}


def turns(runs: int, warm_ups: int) -> list[tuple[int, tuple[str, str]]]:
    """Number and order of systems of each round: A B, B A, A B, ...; rounds below 0 are warm-ups.

    Alternating orders give both systems the same share of whatever the other leaves behind: heat, dirty pages, noise.
    """
    orders = ((OURS, THEIRS), (THEIRS, OURS))
    return [(number, orders[number % 2]) for number in range(-warm_ups, runs)]
