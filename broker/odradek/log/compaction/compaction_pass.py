"""One compaction pass over one log, in a worker process: map the keys of the dirty part, then rewrite each segment.

`log/compaction/cleaner` sends a `CleaningRequest` to a worker, which returns a `CleaningResult` and leaves complete,
synced `.cleaned` files; the cleaner then swaps them in. Invariants: the files of the log are only read; a pass that
fails or is aborted leaves no files; memory is bounded by the offset map, one read and one group of records, whatever
the size of the log.

Records are processed many at a time in numpy columns; Python code runs per record only in batches that lose records.
This module and its imports run in workers only: the broker's process must not load numpy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from odradek.base.errors import CorruptMessageError, StorageError
from odradek.base.ports import Buffer, File, Files
from odradek.log.compaction.cleaned_segment import SegmentWriter, expect_pages, forget_pages, remove_cleaned_files
from odradek.log.compaction.cleaning_decisions import (
    CleaningAbortedError,
    CleaningRequest,
    CleaningResult,
    CleaningStats,
    SegmentSizes,
    group_segments,
)
from odradek.log.compaction.filtering import (
    FilterRules,
    Retention,
    TransactionTracker,
    empty_batch,
    rebuild_batch,
    rebuild_messages,
)
from odradek.log.compaction.offset_map import KeyDigester, OffsetMap
from odradek.log.compaction.record_groups import Flags, Group, GroupEntry, Rows
from odradek.log.segments.indexes import OffsetIndex
from odradek.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek.log.values import SegmentView
from odradek.records.formats import check_entry, iterate_entries, read_entry
from odradek.records.v2.batch import MAGIC, BatchHeader, ControlType
from odradek.records.v2.record import record_bytes
from odradek.records.v2.transactions import MARKER_LIMIT_BYTES, read_marker_type

_UNLIMITED_RATE: Final = 1e15
_BYTES_PER_FLAG: Final = 4
"""The flags of newest offsets take at most 1/4 of the map's memory: the part that merging used and no longer needs."""
_LONGEST_SLEEP_SECONDS: Final = 0.5
_BURST_SECONDS: Final = 0.3
"""How much unused rate may accumulate; Kafka's throttler uses windows of this length."""


def clean_log(files: Files, request: CleaningRequest) -> CleaningResult:
    """Run one pass. Blocks, for minutes if the log is large.

    Raises `CleaningAbortedError`, `CorruptMessageError` for a corrupt log, `StorageError`; no files are left then.
    """
    remove_cleaned_files(files, request.directory)
    try:
        return _Pass(files, request).run()
    except Exception:
        # Best effort: the next pass, or the next load of the log, removes what is left.
        with contextlib.suppress(StorageError):
            remove_cleaned_files(files, request.directory)
        raise


class CleanerThrottle:
    """A token bucket for bytes read and written."""

    __slots__ = ("_free_at", "_now", "_rate", "_sleep")

    def __init__(
        self,
        bytes_per_second: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`now` and `sleep` in seconds, for tests."""
        self._rate = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def spend(self, size: int, check: Callable[[], None]) -> None:
        """Wait until `size` more bytes are within the rate; `check` is called periodically and may raise."""
        if self._rate >= _UNLIMITED_RATE:
            return
        now = self._now()
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + size / self._rate
        while (wait := self._free_at - self._now()) > 0:
            check()
            self._sleep(min(wait, _LONGEST_SLEEP_SECONDS))


class _Pass:
    """The state of one pass."""

    def __init__(self, files: Files, request: CleaningRequest) -> None:
        self._files = files
        self._request = request
        self._stats = CleaningStats()
        self._throttle = CleanerThrottle(request.io_bytes_per_second)
        self._digester = KeyDigester(request.seed)
        self._map = OffsetMap(request.map_bytes, request.load_factor)
        self._latest_offset = request.first_dirty_offset - 1
        """Last offset that the map covers; records above it are all kept."""
        self._newest: Flags | None = None
        """Flag per dirty offset in the map: whether it is the newest of its key. None if there are too many offsets."""
        self._rules = FilterRules(request.producers, request.end_offset, request.now_ms)
        self._aborted = self._load_aborted()

    def run(self) -> CleaningResult:
        started = time.monotonic()
        self._build_map()
        self._stats.map_seconds = time.monotonic() - started
        self._stats.map_utilization = self._map.utilization
        end_offset = self._latest_offset + 1
        first_dirty = self._request.first_dirty_offset
        if end_offset - first_dirty <= self._request.map_bytes // _BYTES_PER_FLAG:
            self._newest = self._map.newest(first_dirty, end_offset)
        segments = {segment.base_offset: segment for segment in self._request.segments}
        sources = [segment for segment in self._request.segments if segment.base_offset < end_offset]
        sizes = [self._sizes(segment) for segment in sources]
        request = self._request
        horizon_ms = self._old_format_horizon_ms()
        tracker = TransactionTracker({*request.aborted, *(entry[:2] for entry in self._aborted.values())})
        groups = group_segments(sizes, request.segment_bytes, request.segment_index_bytes)
        for group in groups:
            self._clean_group([segments[base] for base in group], tracker, horizon_ms)
        self._stats.seconds = time.monotonic() - started
        return CleaningResult(groups=tuple(groups), end_offset=end_offset, stats=self._stats)

    def _check(self) -> None:
        if self._files.exists(self._request.abort_path) or not self._files.exists(self._request.directory):
            raise CleaningAbortedError(f"the pass over {self._request.name} was aborted")

    def _load_aborted(self) -> dict[int, AbortedTxn]:
        """Return the entries of the segments' transaction indexes by the offset of the marker."""
        entries: dict[int, AbortedTxn] = {}
        for segment in self._request.segments:
            if segment.has_aborted:
                path = segment.path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX
                index = TransactionIndex.decode(self._files.read(path), segment.base_offset)
                if index is None:
                    raise CorruptMessageError(f"{path} is not a valid transaction index")
                entries.update((entry.last_offset, entry) for entry in index.entries())
        return entries

    def _sizes(self, segment: SegmentView) -> SegmentSizes:
        path = segment.path.removesuffix(LOG_SUFFIX)
        return SegmentSizes(
            segment.base_offset,
            segment.next_offset,
            segment.size,
            index_bytes=self._files.size(path + INDEX_SUFFIX),
            time_index_bytes=self._files.size(path + TIME_INDEX_SUFFIX),
        )

    def _old_format_horizon_ms(self) -> int:
        """Return the time such that format 0 and 1 tombstones may be removed from segments last changed before it."""
        clean = [s for s in self._request.segments if s.base_offset < self._request.first_dirty_offset]
        return clean[-1].changed_ms - self._request.delete_retention_ms if clean else 0

    # Reading

    def _read(
        self, segment: SegmentView, position: int, *, last_time: bool
    ) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Yield the entries of a segment from `position`; with `last_time` its pages are evicted from the cache."""
        file = self._files.open(segment.path, read_only=True)
        last_offset = segment.base_offset - 1
        try:
            while position < segment.size:
                self._check()
                begin, data = position, self._read_entries(file, segment, position)
                expect_pages(file, begin + len(data), min(self._request.read_bytes, segment.size - begin - len(data)))
                view = memoryview(data)
                for at, header in iterate_entries(data):
                    # Base offsets are not under the CRC.
                    if not last_offset < header.base_offset <= header.last_offset < segment.next_offset:
                        raise CorruptMessageError(
                            f"{segment.path}: offset {header.base_offset} at {begin + at} is wrong"
                        )
                    last_offset = header.last_offset
                    position = begin + at + header.size
                    yield view[at : at + header.size], header
                if last_time:
                    forget_pages(file, begin, position - begin)
                self._throttle.spend(position - begin, self._check)
        finally:
            file.close()

    def _read_entries(self, file: File, segment: SegmentView, position: int) -> bytes:
        """Return at least one whole entry."""
        room = segment.size - position
        data = file.pread(min(self._request.read_bytes, room), position)
        size = read_entry(data).size
        if size > room:
            raise CorruptMessageError(f"{segment.path} ends inside the entry at position {position}")
        if size > len(data):
            data = file.pread(size, position)
            if len(data) < size:
                raise CorruptMessageError(f"{segment.path} is shorter than its {segment.size} bytes")
        return data

    # Offset map

    def _build_map(self) -> None:
        first_dirty = self._request.first_dirty_offset
        tracker = TransactionTracker(self._aborted_from(first_dirty))
        for segment in self._request.segments:
            if segment.next_offset <= first_dirty or segment.base_offset >= self._request.end_offset:
                continue
            cut = self._map_segment(segment, tracker)
            if cut is not None:
                self._latest_offset = cut - 1
                return
            # Missing offsets at the end of a segment are covered, too.
            self._latest_offset = segment.next_offset - 1
        cut = self._map.settle()
        if cut is not None:
            self._latest_offset = cut - 1

    def _aborted_from(self, offset: int) -> set[tuple[int, int]]:
        """Return the aborted transactions that reach `offset`: those that ended earlier must not begin again."""
        ended = {entry[:2] for entry in self._aborted.values()}
        reaching = {entry[:2] for entry in self._aborted.values() if entry.last_offset >= offset}
        return reaching | (set(self._request.aborted) - ended)

    def _map_segment(self, segment: SegmentView, tracker: TransactionTracker) -> int | None:
        """Add the keys of a segment to the map. Returns the offset of the first record that does not fit, or None."""
        group = Group()
        for raw, header in self._read(segment, self._map_begin(segment), last_time=False):
            self._stats.map_bytes += header.size
            if header.is_control:
                if header.record_count:
                    tracker.end(header, _control_type(raw, header))
                continue
            if tracker.is_aborted(header) or header.next_offset <= self._request.first_dirty_offset:
                continue
            entry = GroupEntry(header, raw)
            size = entry.unpack()
            if not group.takes(entry):
                cut = self._map_group(group)
                if cut is not None:
                    return cut
                group = Group()
            group.add(entry, size)
        return self._map_group(group)

    def _map_begin(self, segment: SegmentView) -> int:
        """Return the position of the last index entry at or below the first dirty offset."""
        relative = self._request.first_dirty_offset - segment.base_offset
        if relative <= 0:
            return 0
        index = OffsetIndex.decode(self._files.read(segment.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX))
        return 0 if index is None else index.floor_position(relative)

    def _map_group(self, group: Group) -> int | None:
        if not group.records:
            return None
        buffer, offset, start, length = group.keys()
        self._stats.map_records += len(offset)
        wanted = np.flatnonzero((length >= 0) & (offset >= self._request.first_dirty_offset))
        keys = self._digester.digest(buffer, start[wanted], length[wanted])
        return self._map.insert(keys, offset[wanted])

    # Rewriting

    def _clean_group(self, sources: Sequence[SegmentView], tracker: TransactionTracker, horizon_ms: int) -> None:
        request = self._request
        writer = SegmentWriter(self._files, request.directory, sources[0].base_offset, request.index_interval_bytes)
        try:
            for segment in sources:
                self._clean_segment(segment, writer, tracker, keep_old_tombstones=segment.changed_ms > horizon_ms)
            self._check()
            writer.finish(sources[-1].changed_ms)
        finally:
            writer.close()
        self._stats.bytes_written += writer.size

    def _clean_segment(
        self, segment: SegmentView, writer: SegmentWriter, tracker: TransactionTracker, *, keep_old_tombstones: bool
    ) -> None:
        group = Group()
        for raw, header in self._read(segment, 0, last_time=True):
            self._stats.bytes_read += header.size
            entry = GroupEntry(header, raw)
            size = self._judge(entry, writer, tracker)
            if not group.takes(entry):
                self._settle(group, writer, keep_old_tombstones=keep_old_tombstones)
                group = Group()
            group.add(entry, size)
        self._settle(group, writer, keep_old_tombstones=keep_old_tombstones)
        writer.flush()

    def _judge(self, entry: GroupEntry, writer: SegmentWriter, tracker: TransactionTracker) -> int:
        """Decide on an entry by its header, or unpack its records. Returns the number of unpacked bytes."""
        header = entry.header
        if header.is_control:
            self._judge_marker(entry, writer, tracker)
            return 0
        aborted = tracker.is_aborted(header)
        retention = self._rules.of_data(header, aborted=aborted)
        entry.keeps_header = retention is Retention.KEEP_EMPTY
        if not aborted:
            return entry.unpack()
        self._stats.records_read += header.record_count
        if entry.keeps_header:
            entry.output = empty_batch(header)
        return 0

    def _judge_marker(self, entry: GroupEntry, writer: SegmentWriter, tracker: TransactionTracker) -> None:
        header = entry.header
        self._stats.records_read += header.record_count
        superfluous = True
        if header.record_count:
            fate = tracker.end(header, _control_type(entry.raw, header))
            superfluous = fate.superfluous
            if fate.aborted is not None:
                # If the index had no entry, use 0: no conclusion is drawn from that last stable offset.
                made = AbortedTxn(*fate.aborted, last_offset=header.last_offset, last_stable_offset=0)
                writer.note_aborted(self._aborted.get(header.last_offset, made))
        retention, goes = self._rules.of_marker(header, superfluous=superfluous)
        if goes or not header.record_count:
            entry.output = empty_batch(header) if retention is Retention.KEEP_EMPTY else None
            return
        self._stats.records_written += header.record_count
        if superfluous and header.delete_horizon_ms is None:
            section = record_bytes(entry.raw, 0, header, limit=MARKER_LIMIT_BYTES)
            entry.output = rebuild_batch(
                header,
                section,
                bytes((1,)) * header.record_count,
                max_timestamp=header.max_timestamp,
                horizon_ms=self._new_horizon_ms,
            )
        else:
            entry.output = entry.raw

    @property
    def _new_horizon_ms(self) -> int:
        return self._request.now_ms + self._request.delete_retention_ms

    def _settle(self, group: Group, writer: SegmentWriter, *, keep_old_tombstones: bool) -> None:
        """Decide on the records of a group and write those that are kept."""
        entries, rows = group.rows()
        keep = self._keep(entries, rows, keep_old_tombstones=keep_old_tombstones)
        kept = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(keep)))
        tombstones = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(keep & rows.is_tombstone)))
        self._stats.records_read += len(keep)
        self._stats.records_written += int(kept[-1])
        begin = 0
        for entry, end in zip(entries, rows.end, strict=True):
            count = int(kept[end] - kept[begin])
            has_tombstones = bool(tombstones[end] != tombstones[begin])
            if entry.messages is not None:
                self._rebuild_messages(entry, keep[begin:end], count)
            else:
                horizon_ms = None
                if has_tombstones and entry.header.delete_horizon_ms is None:
                    horizon_ms = self._new_horizon_ms
                self._rebuild_batch(entry, rows, slice(begin, end), keep[begin:end], horizon_ms)
            begin = end
        for entry in group.entries:
            if entry.output is not None:
                self._write(writer, entry, entry.output)

    def _keep(self, entries: Sequence[GroupEntry], rows: Rows, *, keep_old_tombstones: bool) -> Flags:
        """Flag records to keep: those not in the map, and the newest of each key unless its tombstone is due."""
        covered = rows.offset <= self._latest_offset
        has_key = rows.key_length >= 0
        self._stats.keyless_records += int(np.count_nonzero(covered & ~has_key))
        keep = ~covered
        if self._newest is not None and len(keep) and rows.offset.min() >= self._request.first_dirty_offset:
            # The map was built from these records: the offset alone is enough.
            judged = np.flatnonzero(covered)
            keep[judged] = self._newest[rows.offset[judged] - self._request.first_dirty_offset]
        else:
            judged = np.flatnonzero(covered & has_key)
            keys = self._digester.digest(rows.buffer, rows.key_start[judged], rows.key_length[judged])
            keep[judged] = rows.offset[judged] >= self._map.find(keys)
        due = [self._tombstones_are_due(entry.header, keep_old_tombstones) for entry in entries]
        if any(due):
            counts = np.array(rows.end) - np.array([0, *rows.end[:-1]])
            keep &= ~(covered & rows.is_tombstone & np.repeat(np.array(due), counts))
        return keep

    def _tombstones_are_due(self, header: BatchHeader, keep_old_tombstones: bool) -> bool:
        if header.magic < MAGIC:
            return not keep_old_tombstones
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and self._request.now_ms >= horizon_ms

    def _rebuild_batch(
        self, entry: GroupEntry, rows: Rows, its_rows: slice, keep: Flags, horizon_ms: int | None
    ) -> None:
        header = entry.header
        count = int(np.count_nonzero(keep))
        if count == 0:
            entry.output = empty_batch(header) if entry.keeps_header else None
        elif count == len(keep) and horizon_ms is None:
            entry.output = entry.raw
        else:
            entry.output = rebuild_batch(
                header,
                rows.buffer,
                keep.tobytes(),
                max_timestamp=int(rows.timestamp_ms[its_rows][keep].max()),
                horizon_ms=horizon_ms,
                places=None if rows.begin is None else rows.begin[its_rows.start : its_rows.stop + 1],
            )

    def _rebuild_messages(self, entry: GroupEntry, keep: Flags, count: int) -> None:
        messages = entry.messages or []
        if count == len(messages):
            entry.output = entry.raw
        elif count:
            kept = [message for message, stays in zip(messages, keep.tolist(), strict=True) if stays]
            entry.output = rebuild_messages(entry.header, kept)
        elif entry.keeps_header:
            # These formats have no empty entry, so keep the last message: it is the newest of its key.
            self._stats.records_written += 1
            entry.output = entry.raw if len(messages) == 1 else rebuild_messages(entry.header, messages[-1:])

    def _write(self, writer: SegmentWriter, entry: GroupEntry, output: Buffer) -> None:
        header = entry.header if output is entry.raw else read_entry(output)
        writer.append(output, header.last_offset, header.max_timestamp)
        self._throttle.spend(len(output), self._check)


def _control_type(raw: memoryview, header: BatchHeader) -> ControlType | None:
    """Return the type of a control batch that has a record. Raises `CorruptMessageError` if it is corrupt."""
    check_entry(raw, 0, header)
    return read_marker_type(raw, 0, header)
