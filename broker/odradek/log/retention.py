"""Decides which segments retention removes: by age, by size of the log, and by log start offset.

`PartitionLog` removes the segments. Invariant: only segments wholly below the high watermark are removed, and the last
one only if it is not empty (its log then rolls first).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What retention needs to know about one segment."""

    end_offset: int
    """Base offset of the next segment; for the last segment, the log end offset."""
    size: int
    newest_ms: int
    """Largest timestamp; wall time of the last append if records have no timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Limits in force. `retention_ms` and `retention_bytes` below 0: no limit."""

    retention_ms: int
    retention_bytes: int
    log_start_offset: int
    high_watermark: int


class Expired(NamedTuple):
    """Number of oldest segments that are removed for each reason."""

    by_age: int
    by_size: int
    by_start_offset: int

    @property
    def total(self) -> int:
        """Total number of segments."""
        return self.by_age + self.by_size + self.by_start_offset


def expired_segments(segments: Sequence[SegmentFacts], rules: RetentionRules, now_ms: int) -> Expired:
    """Return the oldest segments to remove: first by age, then by size of the rest, then by log start offset."""

    def too_old(segment: SegmentFacts) -> bool:
        return rules.retention_ms >= 0 and now_ms - segment.newest_ms > rules.retention_ms

    excess = 0

    def too_much(segment: SegmentFacts) -> bool:
        nonlocal excess
        if rules.retention_bytes < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    def below_start(segment: SegmentFacts) -> bool:
        # A last segment without a successor is never wholly below the log start: the log continues in it.
        return segment is not segments[-1] and segment.end_offset <= rules.log_start_offset

    by_age = _leading(segments, rules.high_watermark, too_old)
    rest = segments[by_age:]
    excess = sum(segment.size for segment in rest) - rules.retention_bytes
    by_size = _leading(rest, rules.high_watermark, too_much)
    rest = rest[by_size:]
    return Expired(by_age, by_size, _leading(rest, rules.high_watermark, below_start))


def _leading(segments: Sequence[SegmentFacts], high_watermark: int, goes: Callable[[SegmentFacts], bool]) -> int:
    count = 0
    for place, segment in enumerate(segments):
        is_last_and_empty = place == len(segments) - 1 and segment.size == 0
        if is_last_and_empty or segment.end_offset > high_watermark or not goes(segment):
            break
        count += 1
    return count
