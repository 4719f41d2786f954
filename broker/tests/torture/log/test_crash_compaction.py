"""The power fails after every operation of a run with compaction, transactions, old formats and preallocated files.

In addition to `test_crash`, segments contain entries of all three formats, transactions are aborted, and cleaned
segments are swapped in twice. The recovered log must have every synced record that compaction did not drop, no gaps
except from compaction, and the transaction index of its markers; also after an interrupted recovery.
"""

from __future__ import annotations

import random

import pytest

from odradek.base.errors import StorageError
from odradek.compression import Codec
from odradek.log import checkpoints
from odradek.log.compaction.cleaned_segment import SegmentWriter
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import Segment
from odradek.log.values import CleanedSwap
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import ControlType
from odradek_testkit.disk import MemoryFiles, PowerCutError
from odradek_testkit.logs import DIRECTORY, TP, RecordingHost, batch, marker, old_set, open_log, small_segments
from odradek_testkit.loop import ManualClock

CONFIG = small_segments(segment_bytes=260, file_delete_delay_ms=0, preallocate=True)
ROOT = DIRECTORY.rpartition("/")[0]
RECOVERY_POINTS = f"{ROOT}/{checkpoints.RECOVERY_POINT_FILE}"
SEEDS = range(3)
T0 = 1_700_000_000_000


class Run:
    """A log on a disk, and the records that must exist after a crash."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_directories(ROOT)
        self.files.sync_directory("/")
        self.clock = ManualClock()
        self.current: dict[int, bytes] = {}
        """Values of all records by offset; markers have none."""
        self.durable: frozenset[int] = frozenset()
        self.droppable: set[int] = set()
        """Offsets that a started swap drops."""
        self.aborted: list[tuple[int, int, int]] = []
        """(marker, producer id, first offset) of the aborted transactions."""

    def open(self) -> PartitionLog:
        self.host = RecordingHost(self.files)
        try:
            content = self.files.read(RECOVERY_POINTS)
            recovery_point = checkpoints.decode_offsets(content, RECOVERY_POINTS).get(TP, 0)
        except StorageError:
            recovery_point = 0
        return open_log(self.files, self.clock, host=self.host, config=CONFIG, recovery_point=recovery_point)

    # What a broker does

    def append(self, log: PartitionLog, *values: bytes, producer_id: int = -1, sequence: int = -1) -> int:
        offset = log.log_end_offset
        self.current.update({offset + place: value for place, value in enumerate(values)})
        records = batch(
            *values,
            timestamp_ms=T0 + offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=producer_id >= 0,
        )
        log.append_as_leader(records, leader_epoch=1)
        return offset

    def follow(self, log: PartitionLog, magic: int, codec: Codec, *values: bytes) -> None:
        offset = log.log_end_offset
        self.current.update({offset + place: value for place, value in enumerate(values)})
        log.append_as_follower(old_set(*values, magic=magic, codec=codec, base_offset=offset, timestamp_ms=T0 + offset))

    def abort(self, log: PartitionLog, producer_id: int, first_offset: int) -> None:
        self.current[log.log_end_offset] = b""
        self.aborted.append((log.log_end_offset, producer_id, first_offset))
        records = marker(ControlType.ABORT, producer_id=producer_id, timestamp_ms=T0 + log.log_end_offset)
        log.append_as_leader(records, leader_epoch=1, origin=AppendOrigin.COORDINATOR)

    def settle(self, log: PartitionLog) -> None:
        self.host.flushes.clear()
        log.flush()
        self.files.sync_directory(ROOT)
        self.durable = frozenset(self.current)
        self.files.write_atomically(RECOVERY_POINTS, checkpoints.encode_offsets({TP: log.recovery_point}))
        log.checkpointed(log.recovery_point)
        log.high_watermark = log.log_end_offset

    def clean(self, log: PartitionLog, count: int) -> None:
        """Rewrite the first segments as one with every other entry and all entries of transactions."""
        views = log.cleanable()[:count]
        assert len(views) == count
        old = [segment for segment in log.segments if segment.base_offset in {view.base_offset for view in views}]
        writer = SegmentWriter(self.files, DIRECTORY, views[0].base_offset, 0)
        dropped = self._copy(old, writer)
        writer.finish(T0)
        self.droppable |= dropped
        replaced = tuple(view.base_offset for view in views)
        assert log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=replaced, cleaned=replaced[:1]))
        self.host.flushes.clear()

    def _copy(self, old: list[Segment], writer: SegmentWriter) -> set[int]:
        dropped: set[int] = set()
        number = 0
        for segment in old:
            content = segment.file.pread(segment.size, 0)
            for position, header in iterate_entries(content):
                number += 1
                if header.is_transactional or number % 2:
                    writer.append(content[position : position + header.size], header.last_offset, header.max_timestamp)
                else:
                    records = iterate_records(content, position, header, limit=1 << 20)
                    dropped |= {record.offset for record in records}
            for entry in segment.transaction_index.entries():
                writer.note_aborted(entry)
        return dropped

    def play(self) -> None:
        log = self.open()
        self.follow(log, 0, Codec.NONE, b"a")
        self.follow(log, 0, Codec.GZIP, b"b", b"c", b"d")
        self.follow(log, 1, Codec.NONE, b"e", b"f")
        self.follow(log, 1, Codec.SNAPPY, b"g", b"h")
        first = self.append(log, b"i", producer_id=7, sequence=0)
        self.append(log, b"j")
        self.abort(log, 7, first)
        self.append(log, b"k", b"l")
        self.settle(log)
        self.append(log, b"m")
        self.clean(log, 2)
        first = self.append(log, b"n", producer_id=8, sequence=0)
        self.append(log, b"o")
        self.abort(log, 8, first)
        self.append(log, b"p")
        self.settle(log)
        self.clean(log, 2)
        log.close()
        log = self.open()
        # The segment is rolled before it is synced: the index files of the stop must not mark it as valid.
        for _ in range(4):
            self.append(log, b"q" * 50)
        self.settle(log)
        self.append(log, b"r")

    # What is demanded

    def demand(self, log: PartitionLog) -> None:
        found = read_all(log)
        assert all(self.current[offset] == value for offset, value in found.items())
        expected = {offset for offset in self.current if offset < log.log_end_offset}
        assert expected - self.droppable <= found.keys(), "a hole"
        lost = {offset for offset in self.durable - self.droppable if offset not in found}
        assert not lost, f"synced records are lost: {sorted(lost)}"
        markers = [(producer, first) for offset, producer, first in self.aborted if offset < log.log_end_offset]
        assert list(log.aborted_transactions(0, log.log_end_offset)) == markers
        for segment in log.segments:
            assert segment.size <= CONFIG.segment_bytes * 2
            if segment is not log.active_segment:
                assert self.files.size(segment.path()) == segment.size
        assert not [name for name in self.files.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def read_all(log: PartitionLog) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while True:
        content = log.read(offset, max_bytes=1 << 20).load()
        entries = list(iterate_entries(content))
        if not entries:
            return found
        for position, header in entries:
            for record in iterate_records(content, position, header, limit=1 << 20):
                found[record.offset] = b"" if header.is_control else record.value or b""
            offset = header.next_offset


def length() -> int:
    run = Run()
    before = run.files.operations
    run.play()
    operations = run.files.operations - before
    run.demand(run.open())
    return operations


LENGTH = length()


def crashed_after(operations: int, seed: int) -> Run:
    run = Run()
    run.files.stop_after = run.files.operations + operations
    with pytest.raises(PowerCutError):
        run.play()
    run.files.crash(random.Random(f"{operations}/{seed}"))
    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_survives_every_crash(seed: int) -> None:
    for operations in range(LENGTH):
        run = crashed_after(operations, seed)
        log = run.open()
        run.demand(log)
        # The log can be used, and is equal after another restart.
        run.current = {offset: value for offset, value in run.current.items() if offset < log.log_end_offset}
        run.aborted = [entry for entry in run.aborted if entry[0] < log.log_end_offset]
        run.append(log, b"again")
        run.settle(log)
        expected = read_all(log)
        again = run.open()
        run.demand(again)
        assert read_all(again) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interrupted_recovery_can_be_repeated(seed: int) -> None:
    """Test every third crash of the run, and each crash during its recovery."""
    for operations in range(seed % 3, LENGTH, 3):
        cut = 0
        while True:
            run = crashed_after(operations, seed)
            run.files.stop_after = run.files.operations + cut
            try:
                log = run.open()
            except PowerCutError:
                run.files.crash(random.Random(f"{operations}/{seed}/{cut}"))
                run.demand(run.open())
                cut += 1
                continue
            run.files.stop_after = None
            run.demand(log)
            break
