"""Estimates lag in seconds: how long ago the end of a partition was at the group's offset, from samples of the end.

`readings` adds samples of log end offsets with times of a monotonic clock. Between two samples the log is assumed to
have grown evenly, so the error is at most the time between them. Invariants: at most `SAMPLES` per partition; offsets
and times never decrease.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

SAMPLES: Final = 48
"""Maximum number of samples per partition: about 800 bytes. If there are more, every second one of the older half is
dropped, so that old times are kept with less precision."""

LOOKS_BACK: Final = (60.0, 600.0, 3_600.0, 6 * 3_600.0, 86_400.0, 7 * 86_400.0)
"""Ages in seconds for which brokers are queried if the samples do not reach back far enough."""


class OffsetHistory:
    """The ends of a partition over time."""

    __slots__ = ("_offsets", "_times", "is_seeded")

    def __init__(self) -> None:
        """Without samples."""
        self._offsets = array("q")
        self._times = array("d")
        self.is_seeded = False
        """Whether brokers were queried for times before the first sample."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._offsets)

    def note(self, offset: int, time: float) -> None:
        """Add the current end. Times must not decrease from call to call.

        If the end is below an earlier sample, records were lost (an unclean election, or a recreated topic): samples of
        those records are dropped.
        """
        offsets, times = self._offsets, self._times
        while offsets and offsets[-1] > offset:
            offsets.pop()
            times.pop()
        if len(offsets) >= 2 and offsets[-1] == offset and offsets[-2] == offset:
            # The first and the last sample describe a time without growth completely.
            times[-1] = time
            return
        offsets.append(offset)
        times.append(time)
        if len(offsets) > SAMPLES:
            self._thin()

    def seed(self, samples: Iterable[tuple[int, float]]) -> None:
        """Add ends before the first sample, oldest first; those that contradict later samples are ignored."""
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
        """Drop every second sample of the older half, but keep the first, which limits the known time."""
        half = len(self._offsets) // 2
        for samples in (self._offsets, self._times):
            del samples[1:half:2]

    def reaches(self, offset: int) -> bool:
        """Whether the samples include the time when the partition ended at `offset`."""
        return bool(self._offsets) and self._offsets[0] <= offset

    def seconds_behind(self, committed: int, now: float) -> float | None:
        """Return how long ago the partition ended at `committed`: the age of the first unread record.

        0 if nothing is unread. Before the first sample, the log is assumed to have grown at the same rate. None if
        there is no basis for an estimate.
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
            # At least this long; with a single sample that is no information.
            return now - time if now > time else None
        return now - time + (offset - committed) * elapsed / growth
