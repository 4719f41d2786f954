"""How long ago a partition's end was where a group is now: lag in seconds, from offsets seen over time.

In: log end offsets with their times, in seconds of any clock that never falls. Out: an estimate. Called by `readings`.
Between two looks the end is taken to have grown evenly, so the error is at most the time between them. Invariants: at
most `SAMPLES` are kept for a partition; offsets and times never fall from one to the next.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

SAMPLES: Final = 48
"""Kept for a partition: about 800 bytes. When they are too many every second one of the older half goes, so that old
times stay within reach, only coarser."""

LOOKS_BACK: Final = (60.0, 600.0, 3_600.0, 6 * 3_600.0, 86_400.0, 7 * 86_400.0)
"""How many seconds ago a broker is asked about, where nothing seen reaches back far enough."""


class OffsetHistory:
    """Where a partition ended, over time."""

    __slots__ = ("_offsets", "_times", "is_seeded")

    def __init__(self) -> None:
        """Nothing seen."""
        self._offsets = array("q")
        self._times = array("d")
        self.is_seeded = False
        """Whether brokers were asked about times before the first look."""

    def __len__(self) -> int:
        """Samples that are kept."""
        return len(self._offsets)

    def note(self, offset: int, time: float) -> None:
        """The partition ends at `offset` now; times must not fall from call to call.

        An end below what was seen means that records are gone (an election outside the in-sync set, a topic made
        anew): what was seen of them no longer counts.
        """
        offsets, times = self._offsets, self._times
        while offsets and offsets[-1] > offset:
            offsets.pop()
            times.pop()
        if len(offsets) >= 2 and offsets[-1] == offset and offsets[-2] == offset:
            # Of a time without growth the begin and the end say everything.
            times[-1] = time
            return
        offsets.append(offset)
        times.append(time)
        if len(offsets) > SAMPLES:
            self._thin()

    def seed(self, samples: Iterable[tuple[int, float]]) -> None:
        """Where the partition ended before the first look, oldest first; what does not fit with later samples goes."""
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
        """Halve the older half; the first sample stays, since it tells how far back anything is known."""
        half = len(self._offsets) // 2
        for samples in (self._offsets, self._times):
            del samples[1:half:2]

    def reaches(self, offset: int) -> bool:
        """Whether it was seen when the partition ended at `offset`."""
        return bool(self._offsets) and self._offsets[0] <= offset

    def seconds_behind(self, committed: int, now: float) -> float | None:
        """How long ago the partition ended at `committed`: the age of the first record that is not read.

        0 when nothing is unread. Below what was seen, growth is taken to have been as even as since. None where there
        is nothing to tell it from.
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
            # At least so long; with a single sample that is nothing at all.
            return now - time if now > time else None
        return now - time + (offset - committed) * elapsed / growth
