"""Compares the log with a plain list of batches, over random operations and restarts.

Batches of all formats are appended as leader and follower, in and outside of transactions; the log is truncated,
deleted from the start, compacted, flushed, stopped, killed, or loses its power. After a power failure all synced
records must exist; the list is then replaced with the content of the log.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.base.errors import OutOfOrderSequenceError
from odradek.compression import Codec
from odradek.log.compaction.cleaned_segment import SegmentWriter
from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.partition_log import PartitionLog
from odradek.log.values import CleanedSwap
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import BatchHeader, ControlType, read_control_type
from odradek.records.v2.record import Record
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, marker, old_set, open_log, roll, small_segments
from odradek_testkit.loop import ManualClock

LIMIT = 1 << 20
SIZES = st.lists(st.integers(0, 25), min_size=1, max_size=2)
IDEMPOTENT = 3
"""A producer without transactions; producers 1 and 2 are always in transactions."""


class Batch(NamedTuple):
    """An entry of the list."""

    base: int
    values: tuple[bytes, ...]
    epoch: int
    timestamps: tuple[int, ...]
    producer: int = -1
    sequence: int = -1
    kind: ControlType | None = None

    @property
    def last(self) -> int:
        return self.base + len(self.values) - 1


class History(NamedTuple):
    """The transactions in the batches of a list."""

    running: dict[int, int]
    """Producer -> first offset of its open transaction."""
    aborted: list[tuple[int, int, int]]
    """(marker, producer, first offset)."""
    next_sequence: dict[int, int]


def history_of(batches: list[Batch]) -> History:
    history = History({}, [], {})
    for one in batches:
        if one.kind is not None:
            first = history.running.pop(one.producer, None)
            if first is not None and one.kind is ControlType.ABORT:
                history.aborted.append((one.base, one.producer, first))
        elif one.producer >= 0:
            history.next_sequence[one.producer] = one.sequence + len(one.values)
            if one.producer != IDEMPOTENT:
                history.running.setdefault(one.producer, one.base)
    return history


class CheckpointingHost(RecordingHost):
    """Writes the recovery point only on request, so that a truncation leaves one that is too high."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__(files)
        self.checkpoint = 0

    def checkpoint_now(self, log: PartitionLog) -> None:
        self.checkpoint = log.recovery_point
        log.checkpointed(log.recovery_point)


class LogAgainstList(RuleBasedStateMachine):
    """`batches` is the list, which may still contain batches below `start`."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.files.make_directories(DIRECTORY)
        self.files.sync_directory("/")
        self.files.sync_directory("/data")
        self.clock = ManualClock()
        self.host = CheckpointingHost(self.files)
        self.host.holds_renames = True
        self.batches: list[Batch] = []
        self.written: set[bytes] = set()
        self.durable: dict[int, bytes] = {}
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.count = 0
        self.tells_epochs = True
        """Whether the remaining records show where each epoch begins: old formats and dropped records do not."""
        self.config = small_segments()
        self.log: PartitionLog

    @initialize(
        segment_bytes=st.integers(200, 600),
        interval=st.integers(0, 500),
        index_bytes=st.sampled_from([40, 100, 4096]),
        preallocate=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int, preallocate: bool) -> None:
        self.config = small_segments(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            preallocate=preallocate,
            retention_ms=-1,
        )
        self.log = open_log(self.files, self.clock, host=self.host, config=self.config)
        self.flush()

    # Appends

    def _add(self, one: Batch) -> None:
        self.batches.append(one)
        self.written.update(one.values)
        self.end = one.last + 1

    def _values(self, sizes: list[int]) -> tuple[bytes, ...]:
        self.count += 1
        return tuple(b"%d:" % self.count + b"x" * size for size in sizes)

    @rule(sizes=SIZES, late_ms=st.integers(0, 50), count=st.integers(1, 4))
    def append(self, sizes: list[int], late_ms: int, count: int) -> None:
        for _ in range(count):
            self.clock.advance(10)
            values, timestamp_ms = self._values(sizes), self.clock.wall_ms() - late_ms
            info = self.log.append_as_leader(batch(*values, timestamp_ms=timestamp_ms), leader_epoch=self.epoch)
            assert (info.first_offset, info.record_count) == (self.end, len(values))
            self._add(Batch(self.end, values, self.epoch, times(values, timestamp_ms)))

    @rule(sizes=SIZES, producer=st.integers(1, 3))
    def append_by_producer(self, sizes: list[int], producer: int) -> None:
        values, timestamp_ms = self._values(sizes), self.clock.wall_ms()
        sequence = history_of(self.batches).next_sequence.get(producer, 0)
        try:
            self._send(values, timestamp_ms, producer, sequence)
        except OutOfOrderSequenceError:
            # None of its batches is left; a remaining marker shows its epoch, as in Kafka, but not its sequence.
            data = [one for one in self.batches if one.producer == producer and one.kind is None]
            assert all(one.last < self.start for one in data)
            sequence = 0
            self._send(values, timestamp_ms, producer, sequence)
        self._add(Batch(self.end, values, self.epoch, times(values, timestamp_ms), producer, sequence))

    def _send(self, values: tuple[bytes, ...], timestamp_ms: int, producer: int, sequence: int) -> None:
        """Append the batch twice, like a producer that got no answer."""
        for is_again in (False, True):
            records = batch(
                *values,
                timestamp_ms=timestamp_ms,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=producer != IDEMPOTENT,
            )
            info = self.log.append_as_leader(records, leader_epoch=self.epoch)
            assert (info.first_offset, info.duplicate) == (self.end, is_again)
            assert info.last_offset == self.end + len(values) - 1

    @rule(producer=st.integers(1, 2), kind=st.sampled_from(ControlType))
    def end_transaction(self, producer: int, kind: ControlType) -> None:
        timestamp_ms = self.clock.wall_ms()
        records = marker(kind, producer_id=producer, timestamp_ms=timestamp_ms)
        self.log.append_as_leader(records, leader_epoch=self.epoch, origin=AppendOrigin.COORDINATOR)
        self._add(Batch(self.end, (b"",), self.epoch, (timestamp_ms,), producer, kind=kind))

    @rule(producers=st.lists(st.integers(1, 2), min_size=1, max_size=4), kind=st.sampled_from(ControlType))
    def transactions(self, producers: list[int], kind: ControlType) -> None:
        """Append two complete, nested transactions."""
        for producer in producers:
            self.append_by_producer([1], producer)
        for producer in producers[::2]:
            self.end_transaction(producer, kind)

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def follow(self, gap: int, count: int) -> None:
        """Append batches of a leader, possibly with a gap from compaction."""
        content = b""
        for _ in range(count):
            values, timestamp_ms = self._values([0]), self.clock.wall_ms()
            base = self.end + gap
            content += bytes(batch(*values, base_offset=base, leader_epoch=self.epoch, timestamp_ms=timestamp_ms))
            self._add(Batch(base, values, self.epoch, times(values, timestamp_ms)))
        if len(content) <= self.config.segment_bytes:
            self.log.append_as_follower(memoryview(content))
        else:
            for position, header in iterate_entries(content):
                self.log.append_as_follower(memoryview(content)[position : position + header.size])

    @rule(
        magic=st.integers(0, 1),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
        sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    )
    def follow_old(self, magic: int, codec: Codec, sizes: list[int]) -> None:
        values, timestamp_ms, base = self._values(sizes), self.clock.wall_ms(), self.end
        content = old_set(*values, magic=magic, codec=codec, base_offset=base, timestamp_ms=timestamp_ms)
        self.log.append_as_follower(content)
        self.tells_epochs = False
        stamps = times(values, timestamp_ms) if magic else (-1,) * len(values)
        if codec is Codec.NONE:
            for place, value in enumerate(values):
                self._add(Batch(base + place, (value,), -1, stamps[place : place + 1]))
        else:
            self._add(Batch(base, values, -1, stamps))

    @rule(epochs=st.integers(0, 2))
    def roll(self, epochs: int) -> None:
        self.epoch += epochs
        roll(self.log)

    # Cuts

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        self.log.truncate_to(offset)
        if offset < self.end:
            # The batch that contains the offset is removed as a whole; in a gap nothing else is.
            self.end = min([one.base for one in self.batches if one.base <= offset <= one.last], default=offset)
            self._forget(lambda known: known >= self.end)
            self.start = min(self.start, self.end)

    def _forget(self, gone: object) -> None:
        assert callable(gone)
        self.batches = [one for one in self.batches if not gone(one.base)]
        self.durable = {offset: value for offset, value in self.durable.items() if not gone(offset)}

    @precondition(lambda self: len(self.batches) > 15)
    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.start = self.end = self.end + offset
        self.log.truncate_fully_and_start_at(self.end)
        self.batches, self.durable = [], {}

    @rule(share=st.floats(0, 1), removes=st.booleans())
    def delete_records(self, share: float, removes: bool) -> None:
        self.log.high_watermark = self.end
        self.start += round((self.end - self.start) * share**3)
        assert self.log.delete_records_before(self.start) == self.start
        if removes:
            self.log.delete_expired(self.clock.wall_ms())

    @precondition(lambda self: self.host.renames)
    @rule()
    def rename_expired(self) -> None:
        self.host.run_renames()

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(seed=st.integers(0, 1 << 16), count=st.integers(1, 3))
    def compact(self, seed: int, count: int) -> None:
        """Drop some batches outside of transactions from the first segments."""
        self.flush()
        self.log.high_watermark = self.end
        views = self.log.cleanable()[:count]
        if not views:
            return
        replaced = tuple(view.base_offset for view in views)
        writer = SegmentWriter(self.files, DIRECTORY, replaced[0], self.config.index_interval_bytes)
        chance, dropped = Random(seed), set[int]()
        for segment in self.log.segments[: len(views)]:
            content = segment.file.pread(segment.size, 0)
            for position, header in iterate_entries(content):
                if header.producer_id < 0 and chance.random() < 0.5:
                    dropped |= {r.offset for r in iterate_records(content, position, header, limit=LIMIT)}
                else:
                    entry = content[position : position + header.size]
                    writer.append(entry, header.last_offset, header.max_timestamp)
            for aborted in segment.transaction_index.entries():
                writer.note_aborted(aborted)
        writer.finish(self.clock.wall_ms())
        assert self.log.swap_cleaned(
            CleanedSwap(generation=self.log.generation, replaced=replaced, cleaned=replaced[:1])
        )
        self._forget(dropped.__contains__)
        self.tells_epochs = self.tells_epochs and not dropped

    # Stops

    @rule()
    def flush(self) -> None:
        self.host.run_flushes()
        self.log.flush()
        self.host.checkpoint_now(self.log)
        self.durable = {offset: value for offset, (value, _, _) in self._records().items()}

    def _open(self, clean: bool) -> None:
        self.host.flushes.clear()
        self.host.renames.clear()
        self.log = open_log(
            self.files,
            self.clock,
            host=self.host,
            config=self.config,
            clean=clean,
            recovery_point=self.host.checkpoint,
            log_start_offset=self.log.log_start_offset,
        )

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        """Stop cleanly or kill; all written records must exist."""
        if clean:
            self.log.close()
        self._open(clean)
        # A gap at the log end after a truncation is not stored in the files, as in Kafka.
        if self.log.log_end_offset < self.end:
            assert not any(offset >= self.log.log_end_offset for offset in self._records())
            self.end = self.log.log_end_offset

    @precondition(lambda self: len(self.batches) > 3)
    @rule(seed=st.integers(0, 1 << 16))
    def lose_power(self, seed: int) -> None:
        before = self._records()
        self.files.crash(Random(seed))
        self._open(clean=False)
        log = self.log
        self.batches = [one for one in self.batches if one.last < log.log_start_offset]
        for header, records in entries_of(log):
            kind = read_control_type(records[0].key) if header.is_control and records else None
            values = tuple((b"" if kind is not None else record.value or b"") for record in records)
            stamps = tuple(record.timestamp for record in records)
            base = records[0].offset
            self.batches.append(
                Batch(base, values, header.leader_epoch, stamps, header.producer_id, header.base_sequence, kind)
            )
            # It may have another offset: a torn write can put a new offset, which no CRC covers, before an old batch.
            assert self.written.issuperset(values), "never written"
        found = self._records()
        for offset, value in self.durable.items():
            if offset >= self.start:
                assert found.get(offset, (b"nothing",))[0] == value, f"synced records are lost: {offset}"
        # No record before a remaining one is missing.
        newest = max((offset for offset, record in before.items() if found.get(offset) == record), default=-1)
        assert all(offset in found for offset in before if offset < newest), "a hole"
        assert log.log_start_offset <= self.start
        self.start, self.end = log.log_start_offset, log.log_end_offset
        self.durable = {offset: value for offset, value in self.durable.items() if offset >= self.start}
        self.epoch = max([self.epoch, *(one.epoch for one in self.batches)])

    # Questions

    def _records(self) -> dict[int, tuple[bytes, int, int]]:
        return {
            one.base + place: (value, one.epoch, one.timestamps[place])
            for one in self.batches
            for place, value in enumerate(one.values)
            if one.base + place >= self.start
        }

    @precondition(lambda self: self._records())
    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        records = self._records()
        wanted = data.draw(st.sampled_from([max(timestamp, 0) for _, _, timestamp in records.values()]))
        expected = next((offset for offset, record in records.items() if record[2] >= wanted), None)
        found = self.log.offset_for_timestamp(wanted)
        assert (None if found is None else found.offset) == expected

    @rule(share=st.floats(0, 1), end_share=st.floats(0, 1), max_bytes=st.integers(0, 400))
    def read(self, share: float, end_share: float, max_bytes: int) -> None:
        offset = self.start + round((self.end - self.start) * share)
        bound = self.start + round((self.end - self.start) * end_share)
        found = self.log.read(offset, max_bytes=max_bytes, max_offset=bound)
        content = found.load()
        entries = list(iterate_entries(content))
        whole = [one.last for one in self.batches if offset <= one.last < bound]
        assert [header.last_offset for _, header in entries] == whole[: len(entries)]
        assert bool(entries) == bool(whole)
        if len(entries) > 1:
            assert len(content) <= max_bytes
        if entries:
            self._check_aborted(offset, entries[-1][1].next_offset, self.log.aborted_within(offset, found))

    def _check_aborted(self, offset: int, upper: int, found: tuple[tuple[int, int], ...]) -> None:
        """Check that all overlapping ones are returned, in order. The index may return more, and a larger first
        offset for a transaction that began below the log start."""
        aborted = history_of(self.batches).aborted
        needed = [(p, first) for last, p, first in aborted if last >= offset and self.start <= first < upper]
        assert [entry for entry in found if entry in needed] == needed
        for producer, begin in found:
            assert begin < self.start or any(p == producer and first <= begin <= last for last, p, first in aborted)

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = {
            record.offset: (b"" if header.is_control else record.value, header.leader_epoch, record.timestamp)
            for header, records in entries_of(log)
            for record in records
            if record.offset >= self.start
        }
        assert found == self._records()
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        self._check_aborted(self.start, self.end, log.aborted_transactions(self.start, self.end))
        self._check_unstable()
        if self.tells_epochs:
            self._check_epochs(sorted((record[1], offset) for offset, record in found.items()))

    def _check_unstable(self) -> None:
        self.log.high_watermark = self.end
        first = self.log.first_unstable_offset
        # The part of a transaction below the log start may be lost when the log is opened again.
        whole = history_of(self.batches).running.values()
        left = history_of([one for one in self.batches if one.last >= self.start]).running.values()
        if first is None:
            assert not left
        else:
            assert whole
            assert max(min(whole), self.start) <= first <= max(min(left, default=first), self.start)

    def _check_epochs(self, found: list[tuple[int, int]]) -> None:
        if not found:
            return
        assert self.log.latest_epoch == found[-1][0]
        ends = [(epoch, offset) for (epoch, _), (following, offset) in pairwise(found) if following != epoch]
        for epoch, end in [*ends, (found[-1][0], self.end)]:
            assert self.log.end_offset_for_epoch(epoch) == EpochEndOffset(epoch, end)


def times(values: tuple[bytes, ...], timestamp_ms: int) -> tuple[int, ...]:
    return tuple(timestamp_ms + place for place in range(len(values)))


def entries_of(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Return everything that a consumer can read."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while True:
        content = log.read(offset, max_bytes=300).load()
        entries = list(iterate_entries(content))
        if not entries:
            return found
        for position, header in entries:
            found.append((header, list(iterate_records(content, position, header, limit=LIMIT))))
            offset = header.next_offset


LogAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
