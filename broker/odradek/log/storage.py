"""The segments of one log as files: made, rolled, cut, replaced and removed.

Offsets and decisions of `PartitionLog` enter, which owns one; changed files and a changed `SegmentList` stay behind.
What has to go is marked deleted at once and handed to the `LogHost`. Invariant: an operation that raises
`StorageError` leaves the list as it was; its caller then takes the log's directory offline, unless nothing was changed
(a new segment for which there is no room).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.base.config import TopicConfig
from odradek.base.ports import Clock, Files
from odradek.log.producer_files import write_snapshot
from odradek.log.producer_state import ProducerState
from odradek.log.segment import INT32_MAX, Segment
from odradek.log.segment_list import SegmentList
from odradek.log.swapping import place_of, remove_cleaned, swap_segments
from odradek.log.values import CleanedSwap, LogContext, LogHost


class LogStorage:
    """Files of one log."""

    __slots__ = ("_clock", "_config", "_files", "_jitter_ms", "_segment_ms", "directory", "host", "segments")

    def __init__(self, context: LogContext, directory: str, segments: Iterable[Segment], config: TopicConfig) -> None:
        """The segments as they were loaded."""
        self._files: Files = context.files
        self._clock: Clock = context.clock
        self.host: LogHost = context.host
        self.directory = directory
        self.segments = SegmentList(tuple(segments))
        """The same object for good; its content is replaced."""
        self.update_config(config)
        self.draw_jitter()

    def update_config(self, config: TopicConfig) -> None:
        """Put other settings in force."""
        self._config = config
        self._segment_ms = config.segment_ms
        if config.compacted:
            # What lies in the active segment can not be cleaned, so it may not stay there for longer than that.
            self._segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        self.segments.active.limit_indexes(config.segment_index_bytes)

    def move_to(self, directory: str) -> None:
        """The directory has another name now; open files go on."""
        self.directory = directory
        for segment in self.segments.all:
            segment.move_to(directory)

    # Roll

    def is_full(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether an append of `size` bytes needs a new segment: for lack of room, or as the active one is too old."""
        active = self.segments.active
        if (
            active.size + size > self._config.segment_bytes
            or active.index_full
            or last_offset - active.base_offset > INT32_MAX
        ):
            return True
        if not active.size:
            return False
        first = active.first_timestamp
        if first < 0:
            return self.is_due(max_timestamp)
        # What `is_due` comes to then; it is asked with every append.
        return max_timestamp - first > self._segment_ms - self._jitter_ms

    def is_due(self, timestamp: int) -> bool:
        """Whether the active segment is older than `segment.ms`: by the records' own time, if they have one."""
        return self.segments.active.age_ms(timestamp, self._clock.wall_ms) > self._segment_ms - self._jitter_ms

    def draw_jitter(self) -> None:
        """Draw how much earlier than `segment.ms` the next segment is rolled (`segment.jitter.ms`)."""
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        self._jitter_ms = int(self._clock.random() * bound) if bound > 0 else 0

    def roll(self, first_offset: int, last_offset: int, producers: ProducerState) -> bool:
        """Begin a segment that can hold the offsets from `first_offset` to `last_offset`; False when there is one.

        It begins where the last batch ends, even if the next one leaves a gap: recovery then knows by a gap between
        two segments that a crash took batches.
        """
        active = self.segments.active
        base_offset = active.next_offset()
        if last_offset - base_offset > INT32_MAX:
            base_offset = first_offset
        if active.size == 0 and active.base_offset == base_offset:
            return False
        write_snapshot(self._files, self.directory, producers, base_offset)
        segment = self._make(base_offset)
        if active.size:
            active.seal()
            active.changed_ms = segment.created_ms
            self.segments.replace((*self.segments.all, segment))
        else:
            self.segments.replace((*self.segments.all[:-1], segment))
            self.discard((active,), 0)
        self.draw_jitter()
        return True

    def _make(self, base_offset: int) -> Segment:
        config = self._config
        segment = Segment(self._files, self.directory, base_offset, created_ms=self._clock.wall_ms())
        segment.create(config.segment_bytes if config.preallocate else 0)
        segment.limit_indexes(config.segment_index_bytes)
        return segment

    # Cut, remove

    def cut(self, offset: int) -> int:
        """Drop everything from `offset` on, which is not below the first segment; where the log ends then.

        Whole batches go: it ends at the begin of the one that holds `offset`.
        """
        place = self.segments.holding(offset) + 1
        kept, dropped = self.segments.all[:place], self.segments.all[place:]
        if dropped or kept[-1].indexes_vouch:
            # Before the cut: a crash that brought later segments back would leave a gap before them, and index
            # files would vouch for batches that are not synced.
            self.discard(reversed(dropped), 0)
            kept[-1].remove_indexes()
            self._files.sync_directory(self.directory)
        begin = kept[-1].truncate(offset)
        kept[-1].limit_indexes(self._config.segment_index_bytes)
        self.segments.replace(kept)
        return offset if begin is None else min(offset, begin)

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on with a new segment at `offset`."""
        self.discard(reversed(self.segments.all), 0)
        # The old files must be gone before new ones come: a crash that brings them back would mix two logs.
        self._files.sync_directory(self.directory)
        self.segments.replace((self._make(offset),))

    def remove_oldest(self, count: int) -> None:
        """Remove the first segments, of which some are left, after `file.delete.delay.ms`."""
        gone = self.segments.all[:count]
        self.segments.replace(self.segments.all[count:])
        self.discard(gone, self._config.file_delete_delay_ms)

    def discard(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Mark the files of segments deleted, at once, and have them removed.

        In the order given: from the side that is cut off inwards, so that a crash in between leaves no gap.
        """
        self._remove_later([path for segment in segments for path in segment.mark_deleted()], delay_ms)

    def _remove_later(self, paths: list[str], delay_ms: int) -> None:
        if paths:
            self.host.remove_later(paths, delay_ms)

    # Compaction

    def swap(self, swap: CleanedSwap, *, is_current: bool) -> bool:
        """Put cleaned segments in place; False, with the cleaned files removed, when the log changed meanwhile.

        Readers that hold a file of a replaced segment go on with it. Raises also `CorruptMessageError` for cleaned
        files that are not whole.
        """
        place = place_of(self.segments.all, swap) if is_current else None
        if place is None:
            remove_cleaned(self._files, self.directory, 0, swap.cleaned)
            return False
        segments, deleted = swap_segments(self._files, self.segments.all, place, swap)
        self.segments.replace(segments)
        self._remove_later(deleted, self._config.file_delete_delay_ms)
        return True
