"""Rates of counts that only grow, for the series that Kafka provides as a count and as a rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.base.ports import Clock

WINDOW_MS: Final = 30_000.0
"""Minimum time over which a rate is measured, as with Kafka's default of `metrics.sample.window.ms`."""

SAMPLES: Final = 64
"""Maximum number of samples; of more frequent reads, the oldest are dropped, so the time becomes shorter."""


class CountRate:
    """Events per second of a count, measured over the time since the last read that is at least 30 seconds ago."""

    def __init__(self, clock: Clock, count: Callable[[], int]) -> None:
        """`count` returns the number of events so far."""
        self._clock: Final = clock
        self._count: Final = count
        self._samples: Final = deque([(clock.monotonic_ms(), count())], maxlen=SAMPLES)

    def read(self) -> float:
        """Return the events per second. Less than 30 seconds after the start, the time counts as 30 seconds."""
        now_ms, count = self._clock.monotonic_ms(), self._count()
        self._samples.append((now_ms, count))
        while len(self._samples) > 1 and now_ms - self._samples[1][0] >= WINDOW_MS:
            self._samples.popleft()
        since_ms, before = self._samples[0]
        return 1000 * (count - before) / max(WINDOW_MS, now_ms - since_ms)
