"""Distributions in constant memory, from which the quantiles of summaries are computed."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Quantiles:
    """Distribution of the last few minutes: counts in buckets that grow by a tenth, in two alternating windows.

    It has 190 integers, independent of the rate; the error of a quantile is at most 10 %.
    """

    __slots__ = ("_buckets", "_known", "_known_at", "_older", "_turn_at", "count", "total", "windows")

    GROWTH: Final = 1.1
    SMALLEST: Final = 0.01
    SIZE: Final = 190
    WINDOW_SECONDS: Final = 150.0

    def __init__(self) -> None:
        """Nothing observed."""
        self._buckets = [0] * self.SIZE
        self._older = [0] * self.SIZE
        self._turn_at = time.monotonic() + self.WINDOW_SECONDS
        self._known: list[tuple[float, float]] = []
        self._known_at = (-1, 0)
        self.count = 0
        self.total = 0.0
        self.windows = 0
        """Number of times that the windows were switched."""

    def observe(self, value: float) -> None:
        """Count one value, in the unit of the series."""
        self.count += 1
        self.total += value
        self._buckets[bisect_left(_BUCKET_LIMITS, value)] += 1

    def quantiles(self) -> list[tuple[float, float]]:
        """Return (quantile, value) for each of `QUANTILES`; zeros if nothing was observed recently."""
        now = time.monotonic()
        if now >= self._turn_at:
            self._older, self._buckets = self._buckets, [0] * self.SIZE
            self._turn_at = now + self.WINDOW_SECONDS
            self.windows += 1
        if self._known_at != (self.count, self.windows):
            self._known, self._known_at = self._read(), (self.count, self.windows)
        return self._known

    def _read(self) -> list[tuple[float, float]]:
        counts = [new + old for new, old in zip(self._buckets, self._older, strict=True)]
        total, seen, index, found = sum(counts), 0, -1, []
        for quantile in QUANTILES:
            while index < self.SIZE - 1 and seen < quantile * total:
                index += 1
                seen += counts[index]
            found.append((quantile, self.SMALLEST * self.GROWTH**index if index >= 0 else 0.0))
        return found


_BUCKET_LIMITS: Final = tuple(Quantiles.SMALLEST * Quantiles.GROWTH**index for index in range(Quantiles.SIZE - 1))
"""Upper bounds; the last bucket has none."""
