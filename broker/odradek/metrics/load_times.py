"""How long the last loads of coordinator partitions took."""

from __future__ import annotations

from collections import deque
from typing import Final

from odradek.base.ports import Clock

WINDOW_MS: Final = 30_000.0
"""Time for which a load counts, as in Kafka's `partition-load-time-max`."""

LOADS: Final = 1_000
"""Maximum number of loads that are remembered."""


class LoadTimes:
    """Durations of the loads that ended in the last half minute.

    `coordinator_runtime` observes each load, and the metrics are read at a scrape.
    """

    def __init__(self, clock: Clock) -> None:
        """Without loads."""
        self._clock: Final = clock
        self._loads: Final[deque[tuple[float, float]]] = deque(maxlen=LOADS)
        """(monotonic time of the end, duration) in milliseconds."""

    def observe(self, duration_ms: float) -> None:
        """Count a load that ends now."""
        self._loads.append((self._clock.monotonic_ms(), duration_ms))

    @property
    def max_ms(self) -> float:
        """The longest load in milliseconds; 0 if there was none."""
        return max(self._recent(), default=0.0)

    @property
    def mean_ms(self) -> float:
        """The mean duration in milliseconds; 0 if there was no load."""
        recent = self._recent()
        return sum(recent) / len(recent) if recent else 0.0

    def _recent(self) -> list[float]:
        oldest_ms = self._clock.monotonic_ms() - WINDOW_MS
        while self._loads and self._loads[0][0] < oldest_ms:
            self._loads.popleft()
        return [duration_ms for _, duration_ms in self._loads]
