"""Latencies of many records in little memory, and their percentiles. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The percentiles of summaries, by their names in JSON."""
_DIGITS: Final = 3
"""Significant digits of a latency: the error of a percentile is below 0.5 %."""
_RESOLUTION_MS: Final = 0.001


class Latencies:
    """Counts latencies rounded to three significant digits, so that memory does not grow with their number."""

    __slots__ = ("_counts", "_maximum", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        """Number of latencies."""
        self._sum = 0.0
        self._maximum = 0.0
        self._counts: Counter[float] = Counter()

    def add(self, latency_ms: float, count: int = 1) -> None:
        """Add `count` records with a latency in milliseconds."""
        self.count += count
        self._sum += latency_ms * count
        self._maximum = max(self._maximum, latency_ms)
        self._counts[_rounded(latency_ms)] += count

    @property
    def average_ms(self) -> float:
        """The mean; 0 without a record."""
        return self._sum / self.count if self.count else 0.0

    @property
    def maximum_ms(self) -> float:
        """The largest latency; 0 without a record."""
        return self._maximum

    def percentiles(self) -> dict[str, float]:
        """Return `PERCENTILES` in milliseconds: the latency that so large a part of the records does not exceed."""
        found: dict[str, float] = {}
        pending = list(PERCENTILES.items())
        seen = 0
        for latency_ms, count in sorted(self._counts.items()):
            seen += count
            while pending and seen >= math.ceil(pending[0][1] * self.count):
                found[pending.pop(0)[0]] = latency_ms
        return found | {name: 0.0 for name, _ in pending}

    def value(self) -> dict[str, float]:
        """Return the summary in milliseconds for JSON."""
        summary = {"average": self.average_ms, "maximum": self.maximum_ms, **self.percentiles()}
        return {name: round(latency_ms, 3) for name, latency_ms in summary.items()}

    def text(self) -> str:
        """Return the summary for people."""
        found = self.percentiles()
        return (
            f"latency: average {self.average_ms:.2f} ms, maximum {self.maximum_ms:.2f} ms, p50 {found['p50']:.2f} ms, "
            f"p95 {found['p95']:.2f} ms, p99 {found['p99']:.2f} ms, p99.9 {found['p999']:.2f} ms"
        )


def _rounded(latency_ms: float) -> float:
    if latency_ms < _RESOLUTION_MS:
        return 0.0
    return round(latency_ms, _DIGITS - 1 - math.floor(math.log10(latency_ms)))
