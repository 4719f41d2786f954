"""Estimates lag in seconds: how long ago the log end offset of a partition was equal to the group's offset.

The estimate is based on samples of log end offsets, which `readings` adds with times of a monotonic clock. The log is
assumed to grow evenly between two samples, so the error is at most the time between them. Invariants: there are at most
`SAMPLES` samples per partition; their offsets and times never decrease.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

SAMPLES: Final = 48
"""Maximum number of samples per partition, which take about 800 bytes. Beyond it, every second sample of the older half
is dropped, so the precision decreases with the age."""

QUERIED_AGES: Final = (60.0, 600.0, 3_600.0, 6 * 3_600.0, 86_400.0, 7 * 86_400.0)
"""Ages in seconds for which brokers are queried if a commit is older than all samples."""


class OffsetHistory:
    """Samples of the log end offset of one partition."""

    __slots__ = ("_offsets", "_times", "is_seeded")

    def __init__(self) -> None:
        """Create a history without samples."""
        self._offsets = array("q")
        self._times = array("d")
        self.is_seeded = False
        """Whether offsets of times before the first sample were queried."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._offsets)

    def note(self, offset: int, time: float) -> None:
        """Add a sample of the current end. Times must not decrease from call to call.

        If the end is below an earlier sample, records were lost by an unclean election, or the topic was created again.
        Samples above the end are then dropped.
        """
        offsets, times = self._offsets, self._times
        while offsets and offsets[-1] > offset:
            offsets.pop()
            times.pop()
        if len(offsets) >= 2 and offsets[-1] == offset and offsets[-2] == offset:
            # While the log does not grow, its first and last sample are sufficient.
            times[-1] = time
            return
        offsets.append(offset)
        times.append(time)
        if len(offsets) > SAMPLES:
            self._thin()

    def seed(self, samples: Iterable[tuple[int, float]]) -> None:
        """Add samples before the first one, oldest first. Samples that contradict later ones are ignored."""
        self.is_seeded = True
        offsets, times = array("q"), array("d")
        first_offset = self._offsets[0] if self._offsets else None
        first_time = self._times[0] if self._times else None
        for offset, time in samples:
            fits = first_offset is None or first_time is None or (offset <= first_offset and time < first_time)
            if fits and (not offsets or (offset >= offsets[-1] and time > times[-1])):
                offsets.append(offset)
                times.append(time)
        self._offsets, self._times = offsets + self._offsets, times + self._times
        while len(self._offsets) > SAMPLES:
            self._thin()

    def _thin(self) -> None:
        """Drop every second sample of the older half, but keep the first, where the known time begins."""
        half = len(self._offsets) // 2
        for samples in (self._offsets, self._times):
            del samples[1:half:2]

    def reaches(self, offset: int) -> bool:
        """Whether the samples go back to the time when the log end offset was `offset`."""
        return bool(self._offsets) and self._offsets[0] <= offset

    def seconds_behind(self, committed: int, now: float) -> float | None:
        """Return how long ago the log end offset was `committed`, which is the age of the first unread record.

        The result is 0 if nothing is unread, and None if no estimate is possible. Before the first sample, the log is
        assumed to have grown at the average rate since then.
        """
        offsets, times = self._offsets, self._times
        after = bisect_right(offsets, committed)
        if not offsets:
            return None
        if after == len(offsets):
            return 0.0
        if after > 0:
            offset, time = offsets[after - 1], times[after - 1]
            share = (committed - offset) / (offsets[after] - offset)
            return max(0.0, now - (time + share * (times[after] - time)))
        return self._before_the_first(committed, now)

    def _before_the_first(self, committed: int, now: float) -> float | None:
        offset, time = self._offsets[0], self._times[0]
        growth, elapsed = self._offsets[-1] - offset, self._times[-1] - time
        if growth <= 0 or elapsed <= 0:
            # The lag is at least this old. A single sample gives no estimate.
            return now - time if now > time else None
        return now - time + (offset - committed) * elapsed / growth
