"""What compaction decides: which log is the dirtiest, from where to where it may be cleaned, which segments become one.

Facts about logs and segments enter, ranges and groups leave; `log.cleaner` asks on the loop, `log.cleaning` in the
worker. The values that travel between the two stand here as well, so that the broker's process never imports what only
the worker needs. Invariant: nothing at or above a range's end is ever mapped, rewritten or dropped.

Theory of operation. A log is clean up to its checkpointed offset: every key is there at most once below it. What
follows, up to the first segment that may not be touched (the active one, open transactions, records younger than
`min.compaction.lag.ms`), is dirty. A pass maps the keys of the dirty part to their newest offsets, as many as memory
holds, and then rewrites everything from the log's begin to the end of what was mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from odradek.base.errors import OdradekError
from odradek.log.values import SegmentView

K = TypeVar("K")

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

BYTES_PER_KEY: Final = 24
"""A digest of 16 bytes and an offset of 8, as in Kafka's map."""

ABORT_FILE: Final = "cleaner-abort"
"""Made in a log's directory to end the pass over it; what loads a log ignores it."""


class CleaningAbortedError(OdradekError):
    """The pass was told to stop, or its segments went away; nothing was changed."""


class LastRecord(NamedTuple):
    """What must stay of an active producer, lest a broker that starts anew takes its next batch for out of order."""

    producer_epoch: int
    last_data_offset: int
    """Last offset of its last batch with data; -1 where that is not known."""
    last_sequence: int = -1
    """Last sequence of that batch, by which it is found otherwise; -1 where only markers are known of the producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """One pass over one log, for a worker."""

    name: str
    """The partition, for messages."""
    directory: str
    segments: tuple[SegmentView, ...]
    """All that may be cleaned, from the log's begin on."""
    first_dirty_offset: int
    end_offset: int
    """The first offset that may not be cleaned."""
    now_ms: int
    """Wall time that delete horizons are set by and compared with."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    load_factor: float
    """Share of the map's memory that keys may take; the rest is for keys that wait to be sorted in."""
    read_bytes: int
    io_bytes_per_second: float
    seed: bytes
    """16 unpredictable bytes, so that nobody can make keys that crowd one place of the map."""
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the aborted transactions in the range."""
    producers: Mapping[int, LastRecord] = field(default_factory=dict)

    @property
    def abort_path(self) -> str:
        """The file whose presence ends the pass."""
        return f"{self.directory}/{ABORT_FILE}"


@dataclass(slots=True, kw_only=True)
class CleaningStats:
    """What a pass read and wrote."""

    map_records: int = 0
    map_bytes: int = 0
    map_seconds: float = 0.0
    seconds: float = 0.0
    records_read: int = 0
    bytes_read: int = 0
    records_written: int = 0
    bytes_written: int = 0
    keyless_records: int = 0
    """Records without a key, which have no place in a compacted topic and were dropped."""
    map_utilization: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult:
    """A finished pass, whose `.cleaned` files are complete and synced."""

    groups: tuple[tuple[int, ...], ...]
    """Base offsets of the segments that were read; each run became one segment, with the base offset of its first."""
    end_offset: int
    """The log is clean below."""
    stats: CleaningStats


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What the choice needs to know of one log."""

    segments: Sequence[SegmentView]
    """The log's begin, up to what may be cleaned at all."""
    log_start_offset: int
    log_end_offset: int
    checkpointed_offset: int | None
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    deletes: bool
    """Whether the log's policy has `delete` too: its start then moves on as a matter of course."""


class CleaningRange(NamedTuple):
    """How far a log is clean and how far it may be cleaned."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """For how long the oldest dirty record has been due by `max.compaction.lag.ms`; 0 when it is not."""
    reset_reason: str = ""
    """Why the checkpointed offset cannot be true; empty when it can."""

    @property
    def ratio(self) -> float:
        """The dirty share of what may be read, 0 .. 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether it is dirty enough, or something in it has waited for too long."""
        return self.cleanable_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_dirty_ratio)


def cleaning_range(facts: LogFacts, now_ms: int, first_timestamp: Callable[[SegmentView], int]) -> CleaningRange:
    """What of a log is clean and what may be cleaned now.

    `first_timestamp` gives the timestamp of a segment's first batch, -1 when it has none; it is asked only under a
    `max.compaction.lag.ms`.
    """
    first_dirty, reason = _first_dirty_offset(facts)
    bases = [segment.base_offset for segment in facts.segments]
    # The dirty part begins in the segment that holds the offset, perhaps in its middle.
    place = max((at for at, base in enumerate(bases) if base <= first_dirty), default=0)
    dirty = facts.segments[place:]
    if dirty and dirty[0].next_offset <= first_dirty:
        dirty = dirty[1:]
    cleanable: list[SegmentView] = []
    for segment in dirty:
        if facts.min_lag_ms > 0 and segment.newest_ms > now_ms - facts.min_lag_ms:
            break
        cleanable.append(segment)
    return CleaningRange(
        first_dirty_offset=first_dirty,
        end_offset=cleanable[-1].next_offset if cleanable else first_dirty,
        clean_bytes=sum(segment.size for segment in facts.segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in cleanable),
        delay_ms=_delay_ms(dirty, facts.max_lag_ms, now_ms, first_timestamp),
        reset_reason=reason,
    )


def _first_dirty_offset(facts: LogFacts) -> tuple[int, str]:
    start, checkpointed = facts.log_start_offset, facts.checkpointed_offset
    if checkpointed is None:
        return start, ""
    if checkpointed < start:
        return start, "" if facts.deletes else f"it lies below the log start {start}"
    if checkpointed > facts.log_end_offset:
        return start, f"it lies above the log end {facts.log_end_offset}"
    return checkpointed, ""


def _delay_ms(
    dirty: Sequence[SegmentView], max_lag_ms: int, now_ms: int, first_timestamp: Callable[[SegmentView], int]
) -> int:
    if max_lag_ms >= INT64_MAX:
        return 0
    known = [timestamp for segment in dirty if (timestamp := first_timestamp(segment)) > 0]
    return max(now_ms - max_lag_ms - min(known), 0) if known else 0


def dirtiest(candidates: Mapping[K, tuple[CleaningRange, float]]) -> K | None:
    """The log with the largest dirty share of those that are due (with their least dirty ratio); None: rest."""
    due = {key: found for key, (found, min_ratio) in candidates.items() if found.is_due(min_ratio)}
    return max(due, key=lambda key: due[key].ratio) if due else None


class SegmentSizes(NamedTuple):
    """One segment, as grouping sees it."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def group_segments(segments: Iterable[SegmentSizes], max_bytes: int, max_index_bytes: int) -> list[tuple[int, ...]]:
    """Runs of neighbours that fit into one segment together, as base offsets.

    Bytes and index bytes are bounded as for any segment, and offsets, because the indexes have four bytes for them.
    """
    groups: list[list[int]] = []
    size = index_bytes = time_index_bytes = 0
    for segment in segments:
        size += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        fits = (
            groups
            and size <= max_bytes
            and index_bytes <= max_index_bytes
            and time_index_bytes <= max_index_bytes
            and (segment.size == 0 or segment.next_offset - 1 - groups[-1][0] <= INT32_MAX)
        )
        if fits:
            groups[-1].append(segment.base_offset)
        else:
            groups.append([segment.base_offset])
            size, index_bytes, time_index_bytes = segment.size, segment.index_bytes, segment.time_index_bytes
    return [tuple(group) for group in groups]
