from __future__ import annotations

import struct

import pytest

from odradek.base.errors import InvalidTransactionStateError
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, marker, open_log, small_segments
from odradek_testkit.loop import ManualClock

CONFIG = small_segments(segment_bytes=200)
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def index_of(*entries: tuple[int, int, int, int]) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(AbortedTxn(*entry))
    return index


def test_entries_have_kafkas_layout() -> None:
    content = index_of((7, 10, 15, 12)).encode()
    assert content == struct.pack(">hqqqq", 0, 7, 10, 15, 12)
    assert len(content) == 34


def test_collecting_stops_where_nothing_later_can_overlap() -> None:
    index = index_of((1, 0, 10, 5), (2, 5, 20, 12), (3, 12, 30, 31))
    first, second, third = index.entries()
    assert index.collect(0, 11) == ([first, second], True)
    assert index.collect(0, 5) == ([first], True)
    assert index.collect(0, 12) == ([first, second], True)
    assert index.collect(0, 100) == ([first, second, third], False)
    assert index.collect(11, 13) == ([second, third], True)
    assert index.collect(31, 40) == ([], False)
    assert index.collect(21, 31) == ([third], True)


def test_markers_rise() -> None:
    index = index_of((1, 0, 10, 11))
    with pytest.raises(ValueError, match="does not follow"):
        index.append(AbortedTxn(2, 0, 10, 11))


def test_truncation_uses_the_offset_of_the_marker() -> None:
    index = index_of((1, 0, 10, 11), (2, 5, 20, 21))
    assert not index.truncate(21)
    assert index.truncate(20)
    assert [entry.producer_id for entry in index.entries()] == [1]


@pytest.mark.parametrize(
    "content",
    [
        index_of((1, 0, 10, 11)).encode()[:-1],
        struct.pack(">hqqqq", 1, 7, 10, 15, 16),
        struct.pack(">hqqqq", 0, 7, 10, 99, 16),
        struct.pack(">hqqqq", 0, 7, -1, 150, 16),
        index_of((1, 0, 150, 151)).encode() * 2,
    ],
    ids=["short", "version", "below the segment", "negative", "not rising"],
)
def test_impossible_values_are_corrupt(content: bytes) -> None:
    assert TransactionIndex.decode(content, base_offset=100) is None


# In a log


def begin(log: PartitionLog, producer_id: int, sequence: int = 0) -> int:
    records = batch(
        b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True, leader_epoch=0
    )
    return log.append_as_leader(records, leader_epoch=0).first_offset


def end(log: PartitionLog, producer_id: int, kind: ControlType = ABORT) -> int:
    records = marker(kind, producer_id=producer_id)
    return log.append_as_leader(records, leader_epoch=0, origin=AppendOrigin.COORDINATOR).first_offset


def filled(files: MemoryFiles, clock: ManualClock) -> PartitionLog:
    """Transactions: 1 at 0..2 aborted, 2 at 1..5 aborted, 3 at 3..4 committed, 4 at 6..7 aborted, 5 at 8 open."""
    log = open_log(files, clock, config=CONFIG)
    begin(log, 1)
    begin(log, 2)
    end(log, 1)
    begin(log, 3)
    end(log, 3, COMMIT)
    end(log, 2)
    begin(log, 4)
    end(log, 4)
    begin(log, 5)
    return log


def indexed(log: PartitionLog) -> list[AbortedTxn]:
    return [entry for segment in log.segments for entry in segment.transaction_index.entries()]


EXPECTED = [AbortedTxn(1, 0, 2, 1), AbortedTxn(2, 1, 5, 6), AbortedTxn(4, 6, 7, 8)]


def test_abort_markers_are_indexed_with_the_stable_offset_of_their_moment(
    files: MemoryFiles, clock: ManualClock
) -> None:
    log = filled(files, clock)
    assert len(log.segments) > 3
    assert indexed(log) == EXPECTED
    log.high_watermark = log.log_end_offset
    assert log.first_unstable_offset == 8


@pytest.mark.parametrize(
    ("offset", "upper", "producers"),
    [(0, 9, [1, 2, 4]), (0, 1, [1]), (0, 2, [1, 2]), (3, 6, [2]), (3, 7, [2, 4]), (6, 9, [4]), (8, 9, [])],
)
def test_a_range_gets_the_transactions_that_overlap_it(
    files: MemoryFiles, clock: ManualClock, offset: int, upper: int, producers: list[int]
) -> None:
    log = filled(files, clock)
    assert [producer for producer, _ in log.aborted_transactions(offset, upper)] == producers


def test_the_offset_index_limits_the_end_of_a_read(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    first = log.read(0, max_bytes=1)
    assert log.aborted_within(0, first) == ((1, 0),)
    both = log.read(0, max_bytes=1 << 20)
    assert log.aborted_within(0, both) == ((1, 0), (2, 1))
    last = log.read(6, max_bytes=1 << 20)
    assert log.aborted_within(6, last) == ((4, 6),)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_follower_writes_the_leaders_index(files: MemoryFiles, clock: ManualClock, at_once: bool) -> None:
    log = filled(files, clock)
    content = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)
    follower = open_log(MemoryFiles(), clock)
    if at_once:
        follower.append_as_follower(memoryview(content))
    else:
        for segment in log.segments:
            follower.append_as_follower(memoryview(segment.file.pread(segment.size, 0)))
    assert indexed(follower) == EXPECTED


@pytest.mark.parametrize("clean", [False, True])
def test_it_comes_back_after_a_stop(files: MemoryFiles, clock: ManualClock, clean: bool) -> None:
    log = filled(files, clock)
    if clean:
        log.close()
    again = open_log(files, clock, config=CONFIG, clean=clean)
    assert indexed(again) == EXPECTED
    assert end(again, 5) == 9
    assert indexed(again)[-1] == AbortedTxn(5, 8, 9, 10)


def test_only_segments_with_an_aborted_transaction_have_a_file(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    log.close()
    present = {int(name.split(".")[0]) for name in files.list(DIRECTORY) if name.endswith(".txnindex")}
    holding = {segment.base_offset for segment in log.segments if len(segment.transaction_index)}
    assert present == holding
    assert 0 < len(present) < len(log.segments)
    for name in files.list(DIRECTORY):
        if name.endswith(".txnindex"):
            assert files.size(f"{DIRECTORY}/{name}") % 34 == 0


@pytest.mark.parametrize("damage", ["missing", "short", "garbage"])
@pytest.mark.parametrize("clean", [False, True])
def test_an_invalid_file_is_created_again(files: MemoryFiles, clock: ManualClock, damage: str, clean: bool) -> None:
    """A missing index counts as empty if the other index files exist, as in Kafka."""
    log = filled(files, clock)
    log.close()
    (path, *_) = (f"{DIRECTORY}/{name}" for name in files.list(DIRECTORY) if name.endswith(".txnindex"))
    good = files.read(path)
    if damage == "missing":
        files.remove(path)
        files.remove(path.replace(".txnindex", ".index"))
    else:
        files.write_atomically(path, good[:-1] if damage == "short" else b"\xff" * len(good))
    again = open_log(files, clock, config=CONFIG, clean=clean, recovery_point=log.log_end_offset)
    assert indexed(again) == EXPECTED
    again.flush()
    assert files.read(path) == good


@pytest.mark.parametrize("offset", range(9))
def test_truncation_takes_what_ended_above(files: MemoryFiles, clock: ManualClock, offset: int) -> None:
    log = filled(files, clock)
    log.flush()
    log.truncate_to(offset)
    left = [entry for entry in EXPECTED if entry.last_offset < offset]
    assert indexed(log) == left
    for clean in (False, True):
        if clean:
            log.close()
        log = open_log(files, clock, config=CONFIG, clean=clean)
        assert indexed(log) == left


def test_the_file_is_removed_with_its_segment(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    log.flush()
    log.high_watermark = log.log_end_offset
    log.increment_log_start_offset(log.active_segment.base_offset)
    log.delete_expired(0)
    assert len(log.segments) == 1
    kept = {segment.base_offset for segment in log.segments}
    assert {int(name.split(".")[0]) for name in files.list(DIRECTORY) if name.endswith(".txnindex")} <= kept


def test_a_batch_outside_of_the_open_transaction_is_refused(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock)
    begin(log, 1)
    outside = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=1)
    with pytest.raises(InvalidTransactionStateError):
        log.append_as_leader(outside, leader_epoch=0)
    assert log.log_end_offset == 1
    end(log, 1)
    log.append_as_leader(outside, leader_epoch=0)


def test_a_transaction_that_began_below_the_log_start_limits_reads_to_the_log_start(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = filled(files, clock)
    log.high_watermark = log.log_end_offset
    begin(log, 6)
    log.high_watermark = log.log_end_offset
    log.increment_log_start_offset(9)
    assert log.first_unstable_offset == 9
    end(log, 5)
    end(log, 6)
    assert log.first_unstable_offset == 9
    log.high_watermark = log.log_end_offset
    assert log.first_unstable_offset is None
