"""Decisions of compaction: the dirtiest log, the range that may be cleaned, and segments to merge.

`log/compaction/cleaner` uses it on the loop, `log/compaction/compaction_pass` in the worker. It also defines the values
that are exchanged between the two, so that the broker's process does not import what only the worker needs. Invariant:
nothing at or above the end of a range is ever mapped, rewritten or dropped.

A log is clean below its checkpointed offset: each key occurs there at most once. The dirty part follows, up to the
first segment that may not be cleaned (the active segment, open transactions, records younger than
`min.compaction.lag.ms`). A pass maps the keys of the dirty part to their newest offsets, as many as fit into memory.
It then rewrites everything from the start of the log to the end of what was mapped.
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
"""A digest of 16 bytes and an offset of 8, as in Kafka's offset map."""

ABORT_FILE: Final = "cleaner-abort"
"""File in a log's directory that aborts the pass over it; ignored when a log is loaded."""


class CleaningAbortedError(OdradekError):
    """The pass was aborted, or its segments were removed; nothing was changed."""


class LastRecord(NamedTuple):
    """What must be kept of an active producer, so that its next batch is not out of order after a broker restart."""

    producer_epoch: int
    last_data_offset: int
    """Last offset of its last data batch; -1 if unknown."""
    last_sequence: int = -1
    """Last sequence of that batch, which identifies it otherwise; -1 if only markers of the producer are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """One pass over one log; sent to a worker."""

    name: str
    """The partition, for log messages."""
    directory: str
    segments: tuple[SegmentView, ...]
    """All segments that may be cleaned, from the start of the log."""
    first_dirty_offset: int
    end_offset: int
    """The first offset that may not be cleaned."""
    now_ms: int
    """Wall time; the base of delete horizons."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    load_factor: float
    """Fraction of the map's memory for merged keys; the rest is for unmerged keys."""
    read_bytes: int
    io_bytes_per_second: float
    seed: bytes
    """16 unpredictable bytes, so that clients cannot create keys that all fall into one bucket of the map."""
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the aborted transactions in the range."""
    producers: Mapping[int, LastRecord] = field(default_factory=dict)

    @property
    def abort_path(self) -> str:
        """Path of the file that aborts the pass."""
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
    """Records without a key, which are invalid in a compacted topic and were dropped."""
    map_utilization: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult:
    """A completed pass, whose `.cleaned` files are complete and synced."""

    groups: tuple[tuple[int, ...], ...]
    """Base offsets of the segments read; each group became one segment, with the base offset of its first."""
    end_offset: int
    """The log is clean below this offset."""
    stats: CleaningStats


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What `cleaning_range` needs to know about a log."""

    segments: Sequence[SegmentView]
    """The segments that could be cleaned, from the start of the log."""
    log_start_offset: int
    log_end_offset: int
    checkpointed_offset: int | None
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    deletes: bool
    """Whether the cleanup policy includes `delete`: the log start then regularly passes the clean offset."""


class CleaningRange(NamedTuple):
    """How far a log is clean, and how far it may be cleaned."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """How long the oldest dirty record has been due by `max.compaction.lag.ms`; 0 if it is not due."""
    reset_reason: str = ""
    """Why the checkpointed offset is invalid; empty if it is valid."""

    @property
    def ratio(self) -> float:
        """Dirty bytes as a fraction of all bytes that would be read, 0 .. 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether the log is dirty enough, or a record is overdue."""
        return self.cleanable_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_dirty_ratio)


def cleaning_range(facts: LogFacts, now_ms: int, first_timestamp: Callable[[SegmentView], int]) -> CleaningRange:
    """Return which part of a log is clean and which part may be cleaned now.

    `first_timestamp` returns the timestamp of a segment's first batch, -1 if it has none; it is called only if
    `max.compaction.lag.ms` is set.
    """
    first_dirty, reason = _first_dirty_offset(facts)
    bases = [segment.base_offset for segment in facts.segments]
    # The dirty part begins in the segment that contains the offset, possibly in the middle of it.
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
        return start, "" if facts.deletes else f"is below the log start {start}"
    if checkpointed > facts.log_end_offset:
        return start, f"is above the log end {facts.log_end_offset}"
    return checkpointed, ""


def _delay_ms(
    dirty: Sequence[SegmentView], max_lag_ms: int, now_ms: int, first_timestamp: Callable[[SegmentView], int]
) -> int:
    if max_lag_ms >= INT64_MAX:
        return 0
    known = [timestamp for segment in dirty if (timestamp := first_timestamp(segment)) > 0]
    return max(now_ms - max_lag_ms - min(known), 0) if known else 0


def dirtiest(candidates: Mapping[K, tuple[CleaningRange, float]]) -> K | None:
    """Return the due log with the highest dirty ratio; None if none is due. Values include the minimum dirty ratio."""
    due = {key: found for key, (found, min_ratio) in candidates.items() if found.is_due(min_ratio)}
    return max(due, key=lambda key: due[key].ratio) if due else None


class SegmentSizes(NamedTuple):
    """Sizes of one segment, for grouping."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def group_segments(segments: Iterable[SegmentSizes], max_bytes: int, max_index_bytes: int) -> list[tuple[int, ...]]:
    """Return groups of neighboring segments that fit into one segment together, as base offsets.

    The size of segment and indexes is limited as for any segment, and so is the offset range, because the indexes
    store relative offsets in four bytes.
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
