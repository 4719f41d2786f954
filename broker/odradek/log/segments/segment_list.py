"""The segments of one log in order, and reads across them.

Each `PartitionLog` owns one. Invariants: the tuple of segments is replaced, never modified, so that a reader of it
sees one state; base offsets strictly increase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from odradek.log.retention import SegmentFacts
from odradek.log.segments.entries import NOT_IN_MEMORY, BatchPlace
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.segments.segment_lookups import NotInMemoryError, SegmentLookup, TimestampLookup, search
from odradek.log.segments.transaction_index import TransactionIndex
from odradek.log.values import LogSlice, TimestampOffset

MOST_PLACES: Final = 64
"""Maximum number of places that lookups found and that each log remembers."""

MOST_INDEXES: Final = 64
"""Maximum number of transaction indexes that lookups loaded and that each log keeps. Hardly any read needs several."""

UNKNOWN_POSITION: Final = -1
"""Result of a search for a position that would have to wait for the disk."""


class ReadBounds:
    """Limits of a read. A plain class: its constructor and fields are compiled, those of a named tuple are not."""

    __slots__ = ("end", "log_end", "max_bytes", "min_one_batch", "waits")

    def __init__(self, end: int, log_end: int, max_bytes: int, *, min_one_batch: bool, waits: bool) -> None:
        """All below offset `end` of a log that ends at `log_end`, and at most `max_bytes`, but with `min_one_batch` at
        least the first batch. `waits`: whether the read may wait for the disk."""
        self.end: Final = end
        self.log_end: Final = log_end
        self.max_bytes: Final = max_bytes
        self.min_one_batch: Final = min_one_batch
        self.waits: Final = waits


class SegmentList:
    """The segments of one log; never empty."""

    __slots__ = ("_aborted", "_bases", "_cache", "_limit", "_places", "active", "all")

    def __init__(self, segments: Sequence[Segment], cache: SegmentCache) -> None:
        """`segments` in order; `cache` bounds how many sealed segments of all logs are loaded."""
        self._cache = cache
        self.all: tuple[Segment, ...] = ()
        """All segments in order."""
        self.replace(tuple(segments))

    def replace(self, segments: tuple[Segment, ...]) -> None:
        """Replace all segments."""
        self._cache.forget({*self.all, segments[-1]}.difference(segments[:-1]))
        self.all = segments
        self.active = segments[-1]
        """The last segment, to which batches are appended."""
        self._bases = [segment.base_offset for segment in segments]
        # The last computed end of readable data, as (offset, segment, position): many fetches need the same one.
        self._limit: tuple[int, Segment | None, int] = (-1, None, 0)
        # Results of lookups by offset: the bytes may leave memory again before the next read needs them. The segments
        # from the one that holds the offset to the one of the result have no batch at or above the offset. Without a
        # place, the batch is in the active segment.
        self._places: dict[int, tuple[Segment, BatchPlace | None]] = {}
        # Transaction indexes that lookups have loaded: a read may need more segments at once than the cache can hold.
        self._aborted: dict[Segment, TransactionIndex] = {}

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        """Total size of the `.log` files."""
        return sum(segment.size for segment in self.all)

    def holding(self, offset: int) -> int:
        """Return the index of the segment whose range contains `offset`; 0 if it is below all segments."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def is_older(self, offset: int, upper_offset: int) -> bool:
        """Whether `offset` is in an older segment than `upper_offset`."""
        return self.holding(offset) < self.holding(upper_offset)

    def facts(self, log_end: int) -> list[SegmentFacts]:
        """Return what retention needs to know about each segment. Raises `StorageError`."""
        ends = [*self._bases[1:], log_end]
        return [SegmentFacts(end, segment.size, segment.newest_ms) for end, segment in zip(ends, self.all, strict=True)]

    def read(self, offset: int, bounds: ReadBounds) -> LogSlice:
        """Return the batches from the one that contains `offset`; empty if there is none below `bounds.end`.

        Raises `StorageError`, `CorruptMessageError`, and `NotInMemoryError` if it would have to wait but may not.
        """
        end = bounds.end
        if offset < end:
            scratch = None if bounds.waits else self._cache.scratch
            # Few logs have such places.
            known = self._places.get(offset) if self._places else None
            for slot in range(self.holding(offset if known is None else known[0].base_offset), len(self.all)):
                if self._bases[slot] >= end:
                    break
                segment = self.all[slot]
                if segment is not self.active:
                    self._ensure_loaded(segment, offset, waits=bounds.waits)
                bound, missing = self._bound(slot, bounds, scratch), None
                if bound == UNKNOWN_POSITION:
                    bound, missing = self._lower_bound(segment, end), NotInMemoryError(segment, end)
                place = segment.locate(offset, within=bound, scratch=scratch)
                if place is NOT_IN_MEMORY:
                    place = self._known(segment, offset, bound)
                if place is None:
                    if missing is not None:
                        raise missing
                    continue
                return _slice_at(segment, place, bounds, bound)
        return LogSlice(self.active.file, self.active.size, 0)

    def _ensure_loaded(self, segment: Segment, offset: int, *, waits: bool) -> None:
        if not segment.is_loaded:
            if not waits:
                raise NotInMemoryError(segment, offset)
            segment.load()
        self._cache.use(segment)

    def _bound(self, slot: int, bounds: ReadBounds, scratch: bytearray | None) -> int:
        """Return the position in a segment at which the batches below `bounds.end` stop; `UNKNOWN_POSITION` if it is
        not in memory."""
        segment = self.all[slot]
        end = bounds.end
        if end >= (self._bases[slot + 1] if slot + 1 < len(self._bases) else bounds.log_end):
            return segment.size
        known_end, known_segment, position = self._limit
        if known_end == end and known_segment is segment:
            return position
        place = segment.locate(end, scratch=scratch)
        if place is NOT_IN_MEMORY:
            try:
                place = self._known(segment, end, segment.size)
            except NotInMemoryError:
                return UNKNOWN_POSITION
        position = segment.size if place is None else place.position
        self._limit = (end, segment, position)
        return position

    def _lower_bound(self, segment: Segment, end: int) -> int:
        """Return the highest position known without a read at which a batch of a loaded segment begins, all before it
        being below `end`.

        A busy log may have another end at each read, so that a reader that waited for the lookup of each end would get
        nothing.
        """
        found = segment.offset_index.floor_position(end - segment.base_offset)
        for offset, (known, place) in self._places.items():
            if known is segment and offset <= end and place is not None and place.position > found:
                found = place.position
        return found

    def _known(self, segment: Segment, offset: int, within: int) -> BatchPlace | None:
        """Return the place that a lookup found; None if it is in a later segment or not below position `within`.

        Raises `NotInMemoryError`.
        """
        found, place = self._places.get(offset, (segment, None))
        if found is not segment:
            return None
        if place is None:
            raise NotInMemoryError(segment, offset)
        return place if place.position < within else None

    def contains(self, segment: Segment) -> bool:
        """Whether the log has this segment, rather than none or another one at its base offset."""
        return self.all[self.holding(segment.base_offset)] is segment

    def adopt(self, lookup: SegmentLookup | TimestampLookup) -> SegmentLookup | None:
        """Use what a lookup has loaded and found in a segment of this log, which has not changed meanwhile.

        Returns the lookup that continues in the next sealed segment if this one has no batch at or above the offset,
        as after compaction. Such a segment is not loaded: there may be more of them than the cache can hold.
        """
        segment = lookup.segment
        if isinstance(lookup, SegmentLookup) and lookup.offset is not None:
            place = lookup.place
            if place is None and segment is not self.active:
                if lookup.copy.size != segment.size:
                    return None  # It was the active segment, and got more batches.
                segment = self.all[self.holding(segment.base_offset) + 1]
                if segment is not self.active:
                    return SegmentLookup(NotInMemoryError(segment, lookup.offset), lookup.generation)
            if len(self._places) >= MOST_PLACES:
                del self._places[next(iter(self._places))]
            self._places[lookup.offset] = (segment, place)
        elif isinstance(lookup, SegmentLookup) and segment is not self.active:
            if len(self._aborted) >= MOST_INDEXES:
                del self._aborted[next(iter(self._aborted))]
            self._aborted[segment] = lookup.copy.transaction_index
        if segment is lookup.segment:
            segment.adopt(lookup.copy)
            if segment is not self.active:
                self._cache.use(segment)
        return None

    def _loaded(self, segment: Segment, *, time_index: bool = False) -> Segment:
        """Return the segment, which stays loaded until the cache needs its memory or its file descriptor."""
        if segment is not self.active:
            segment.load(time_index=time_index)
            self._cache.use(segment)
        return segment

    def cool(self, segment: Segment) -> None:
        """Release a sealed segment's file and indexes unless it is in use for reads."""
        if segment is not self.active and segment not in self._cache:
            segment.release()

    def forget(self) -> None:
        """Remove the segments from the cache, because the log is closed, deleted or offline."""
        self._cache.forget(self.all)

    def with_aborted(self, offset: int) -> list[Segment]:
        """Return the segments from the one that holds `offset` on that have aborted transactions."""
        return [segment for segment in self.all[self.holding(offset) :] if segment.has_aborted]

    def aborted(self, offset: int, upper_offset: int, *, waits: bool = True) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of the aborted transactions that overlap [`offset`, `upper_offset`).

        Raises `StorageError`, `CorruptMessageError`, and `NotInMemoryError` if it would have to wait but may not.
        """
        found: list[tuple[int, int]] = []
        for segment in self.with_aborted(offset):
            index = self._aborted.get(segment)
            if index is None:
                if not (waits or segment.knows_aborted):
                    raise NotInMemoryError(segment, None)
                index = segment.transaction_index
                if segment is not self.active:
                    self._cache.use(segment)
            entries, complete = index.collect(offset, upper_offset)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        return tuple(found)

    def end_of(self, offset: int, found: LogSlice) -> int | None:
        """Return an offset above all in a slice that `read` returned for `offset`; None if no index entry gives one."""
        for slot in range(self.holding(offset), len(self.all)):
            segment = self.all[slot]
            if segment.holds(found.file):
                end = segment.offset_index.offset_at(found.position + found.length)
                if end is not None:
                    return segment.base_offset + end
                return self._bases[slot + 1] if slot + 1 < len(self._bases) else None
        return None

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or after a time and an offset. Raises `StorageError`, `CorruptMessageError`."""
        for segment in self.all:
            if segment.max_timestamp < timestamp_ms:
                continue
            found = search(self._loaded(segment, time_index=True), timestamp_ms, start_offset)
            if found is not None:
                return found
        return None

    def newest_timestamp(self) -> int:
        """Return the largest timestamp; -1 if there is none."""
        return max(segment.max_timestamp for segment in self.all)


def _slice_at(segment: Segment, place: BatchPlace, bounds: ReadBounds, end: int) -> LogSlice:
    """Return the part of a segment from a batch to position `end`, within the limits of a read."""
    position, size, _, _ = place
    length = bounds.max_bytes
    is_incomplete = size > length and not bounds.min_one_batch
    length = 0 if is_incomplete else min(max(length, size), end - position)
    # `tuple.__new__`: the constructor of a NamedTuple is interpreted in the compiled form as well.
    return tuple.__new__(LogSlice, (segment.file, position, length, is_incomplete))
