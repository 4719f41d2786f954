"""The segment files of one log: create, roll, truncate, replace and remove.

Each `PartitionLog` owns one and makes the decisions; the operations change the files and the `SegmentList`. Files to be
removed are marked deleted at once and handed to the `LogHost`, but those of expired segments are renamed on a thread.
Invariant: an operation that raises `StorageError` leaves the list unchanged. Its caller then takes the log's directory
offline, unless nothing was changed (no space for a new segment).

A flush that has begun may still write files by name. Each operation voids it before it changes the names of segments
that the flush may know (`file_names`). A roll changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.base.config import TopicConfig
from odradek.base.ports import Clock, Files
from odradek.base.types import NO_TIMESTAMP
from odradek.log.file_names import FileNames
from odradek.log.producers.producer_files import write_snapshot_content
from odradek.log.producers.producer_state import ProducerState
from odradek.log.segments.expired_files import ExpiredFiles, mark_deleted
from odradek.log.segments.replacement import place_of, remove_cleaned, swap_segments
from odradek.log.segments.segment import INT32_MAX, Segment
from odradek.log.segments.segment_list import SegmentList
from odradek.log.values import CleanedSwap, FileRemover, LogContext

_MOST_TIMESTAMP = (1 << 63) - 1


class PendingRoll:
    """The creation of a segment: `run` does what blocks, on any thread, and `LogStorage.end_roll` the rest."""

    __slots__ = (
        "_allocate_bytes",
        "_files",
        "_first_offset",
        "_index_bytes",
        "_last_offset",
        "_now_ms",
        "_snapshot",
        "active",
        "is_cancelled",
        "segment",
    )

    def __init__(
        self,
        files: Files,
        active: Segment,
        first_offset: int,
        last_offset: int,
        *,
        snapshot: bytes,
        now_ms: int,
        allocate_bytes: int,
        index_bytes: int,
    ) -> None:
        """`active` is the current last segment, and `snapshot` the content of the producer snapshot at its end."""
        self._files = files
        self._first_offset = first_offset
        self._last_offset = last_offset
        self._snapshot = snapshot
        self._now_ms = now_ms
        self._allocate_bytes = allocate_bytes
        self._index_bytes = index_bytes
        self.active = active
        self.is_cancelled = False
        """Whether `run` creates nothing any more, because the log was deleted."""
        self.segment: Segment | None = None
        """The new segment, once `run` has created it. None if `active` is empty and fits."""

    def _is_over(self) -> bool:
        return self.is_cancelled  # it may change between two calls

    def run(self) -> None:
        """Create the segment and seal the previous one. Blocks. Raises `StorageError`, `CorruptMessageError`.

        It starts where the last batch ends, even if the next batch leaves a gap: a gap between two segments then tells
        recovery that a crash lost batches.
        """
        active = self.active
        base_offset = active.next_offset()
        if self._last_offset - base_offset > INT32_MAX:
            base_offset = self._first_offset
        if self._is_over() or (active.size == 0 and active.base_offset == base_offset):
            return
        write_snapshot_content(self._files, active.directory, self._snapshot, base_offset)
        if self._is_over():
            return
        segment = Segment(self._files, active.directory, base_offset, created_ms=self._now_ms)
        segment.create(self._allocate_bytes)
        segment.limit_indexes(self._index_bytes)
        if active.size:
            active.seal()
        self.segment = segment


class LogStorage:
    """The files of one log."""

    __slots__ = (
        "_clock",
        "_config",
        "_expired",
        "_files",
        "_jitter_ms",
        "_segment_ms",
        "directory",
        "host",
        "names",
        "segments",
    )

    def __init__(
        self, context: LogContext[Any], directory: str, segments: Iterable[Segment], config: TopicConfig
    ) -> None:
        """`segments` are the loaded segments, in order."""
        self._files: Files = context.files
        self._clock: Clock = context.clock
        self.host: FileRemover = context.host
        self.directory = directory
        self.segments = SegmentList(tuple(segments), context.segment_cache)
        """Always the same object; its content is replaced."""
        self.names = FileNames()
        self._expired: ExpiredFiles | None = None
        self.update_config(config)
        self.draw_jitter()

    def update_config(self, config: TopicConfig) -> None:
        """Apply new settings."""
        self._config = config
        self._segment_ms = config.segment_ms
        if config.compacted:
            # The active segment cannot be cleaned, so records may not stay in it longer than the maximum lag.
            self._segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        self.segments.active.limit_indexes(config.segment_index_bytes)

    def move_to(self, directory: str) -> None:
        """Follow a rename of the log's directory; open files stay open."""
        self.directory = directory
        for segment in self.segments.all:
            segment.move_to(directory)

    # Roll

    def is_full(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether an append of `size` bytes needs a new segment: no space is left, or the active one is too old."""
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
        # The same result as `is_due`, but cheaper: every append asks.
        return max_timestamp - first > self._segment_ms - self._jitter_ms

    def largest_timestamp(self) -> int:
        """Return the largest timestamp that an append may have without a new segment because of `segment.ms`; -1 if it
        is not known: the active segment is empty, or began with a batch without a timestamp."""
        first = self.segments.active.first_timestamp
        return min(first + self._segment_ms - self._jitter_ms, _MOST_TIMESTAMP) if first >= 0 else NO_TIMESTAMP

    def is_due(self, timestamp: int) -> bool:
        """Whether the active segment is older than `segment.ms`, by record timestamps if there are any."""
        return self.segments.active.age_ms(timestamp, self._clock.wall_ms) > self._segment_ms - self._jitter_ms

    def draw_jitter(self) -> None:
        """Draw by how much the next roll is earlier than `segment.ms` (`segment.jitter.ms`)."""
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        self._jitter_ms = int(self._clock.random() * bound) if bound > 0 else 0

    def roll(self, first_offset: int, last_offset: int, producers: ProducerState) -> bool:
        """Start a segment for the offsets from `first_offset` to `last_offset`. False if an empty one already fits."""
        pending = self.begin_roll(first_offset, last_offset, producers)
        pending.run()
        return self.end_roll(pending)

    def begin_roll(self, first_offset: int, last_offset: int, producers: ProducerState) -> PendingRoll:
        """Return a roll; nothing may be appended or truncated until `end_roll`."""
        config = self._config
        return PendingRoll(
            self._files,
            self.segments.active,
            first_offset,
            last_offset,
            snapshot=producers.encode(),
            now_ms=self._clock.wall_ms(),
            allocate_bytes=config.segment_bytes if config.preallocate else 0,
            index_bytes=config.segment_index_bytes,
        )

    def end_roll(self, pending: PendingRoll) -> bool:
        """Use the segment that a roll has created. Returns False if it created none."""
        active, segment = pending.active, pending.segment
        if segment is None:
            return False
        if active.size:
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

    # Truncate, remove

    def cut(self, offset: int) -> int:
        """Remove everything from `offset` on, which is not below the first segment. Returns the new log end.

        Only whole batches can be removed: the log ends at the start of the batch that contains `offset`.
        """
        # A late flush must not write index files of a segment that is gone, or that is appended to again.
        self.names.void()
        place = self.segments.holding(offset) + 1
        kept, dropped = self.segments.all[:place], self.segments.all[place:]
        if dropped or kept[-1].indexes_valid:
            # Before the truncation: otherwise a crash that brought later segments back would leave a gap before them,
            # and index files would mark batches as valid that are not synced.
            self.discard(reversed(dropped), 0)
            kept[-1].remove_indexes()
            self._files.sync_directory(self.directory)
        begin = kept[-1].truncate(offset)
        if begin is not None:
            # Otherwise a power failure could undo the truncation and keep some of the later writes: old and new batches
            # would both be valid, so that recovery could not tell them apart.
            kept[-1].file.sync()
        kept[-1].limit_indexes(self._config.segment_index_bytes)
        self.segments.replace(kept)
        return offset if begin is None else min(offset, begin)

    def restart_at(self, offset: int) -> None:
        """Remove everything and continue with a new segment at `offset`."""
        self.names.void()  # the new segment may have the name of an old one
        # New segments may get the names of expired ones, and a crash would mix those that it brings back with new ones.
        self.finish_expired()
        self.discard(reversed(self.segments.all), 0)
        # The old files must be gone before new ones are created: a crash that brings them back would mix two logs.
        self._files.sync_directory(self.directory)
        self.segments.replace((self._make(offset),))

    def remove_oldest(self, count: int) -> None:
        """Remove the first `count` segments, but not all. Their files wait in `expired`."""
        gone = self.segments.all[:count]
        if not all(segment.indexes_written for segment in gone):
            self.names.void()
        self.segments.replace(self.segments.all[count:])
        for segment in gone:
            segment.release()
        self.expired.add(gone)

    @property
    def expired(self) -> ExpiredFiles:
        """The files of removed segments that a thread has to rename. Most logs never have any."""
        if self._expired is None:
            self._expired = ExpiredFiles()
        return self._expired

    def finish_expired(self) -> None:
        """Rename the files of expired segments before this returns. Raises `StorageError`."""
        if self._expired is not None:
            self._expired.finish()
            self.remove_renamed()

    def remove_renamed(self) -> None:
        """Schedule the removal of expired segments whose files were renamed, after `file.delete.delay.ms`."""
        self._remove_later(self.expired.take_renamed(), self._config.file_delete_delay_ms)

    def cancel_expired(self) -> None:
        """Rename no more files of expired segments, because the log is offline."""
        if self._expired is not None:
            self._expired.cancel()

    def release_names(self) -> None:
        """Let no thread change a name any more, because the log's directory gets another one. Raises `StorageError`."""
        self.names.void()
        if self._expired is not None:
            self._expired.cancel_and_wait()

    def discard(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Mark the files of segments deleted at once, and schedule their removal.

        Segments must be ordered from the end that is cut off inwards, so that a crash in between leaves no gap.
        """
        paths: list[str] = []
        for segment in segments:
            paths += mark_deleted(segment)
            segment.release()
        self._remove_later(paths, delay_ms)

    def _remove_later(self, paths: list[str], delay_ms: int) -> None:
        if paths:
            self.host.remove_later(paths, delay_ms)

    # Compaction

    def swap(self, swap: CleanedSwap, *, is_current: bool) -> bool:
        """Swap in cleaned segments. Returns False, with the cleaned files removed, if the log has changed meanwhile.

        Readers of a replaced segment's file can continue. Also raises `CorruptMessageError` if the cleaned files
        are not whole.
        """
        place = place_of(self.segments.all, swap) if is_current else None
        if place is None:
            remove_cleaned(self._files, self.directory, 0, swap.cleaned)
            return False
        self.names.void()
        # Otherwise a crash could bring back records whose tombstones are gone from the cleaned segments.
        self.finish_expired()
        segments, deleted = swap_segments(self._files, self.segments.all, place, swap)
        self.segments.replace(segments)
        self._remove_later(deleted, self._config.file_delete_delay_ms)
        return True
