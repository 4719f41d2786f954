"""One pass over one log: its result, its aborts, and that a failure leaves no files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from odradek.base.errors import CorruptMessageError, StorageError
from odradek.compression import Codec
from odradek.log.compaction.cleaning_decisions import ABORT_FILE, CleaningAbortedError
from odradek.log.compaction.compaction_pass import CleanerThrottle, clean_log
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from odradek.log.segments.transaction_index import TransactionIndex
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek_testkit import logs
from odradek_testkit.cleaning import cleaning_request, compact, records_of, settle
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import RecordingHost, marker, open_log, small_segments
from odradek_testkit.loop import WALL_START_MS, ManualClock

CONFIG = small_segments(cleanup_policy=("compact",), segment_bytes=1000, delete_retention_ms=1000)


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> PartitionLog:
    files.wall_ms = clock.wall_ms
    return open_log(files, clock, host=host, config=CONFIG)


def write(
    log: PartitionLog, *records: tuple[bytes | None, bytes | None], producer_id: int = -1, sequence: int = 0
) -> int:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for place, (key, value) in enumerate(records):
        builder.append(key, value, timestamp_ms=WALL_START_MS + log.log_end_offset + place)
    content = builder.build(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    return log.append_as_leader(memoryview(bytearray(content)), leader_epoch=0).first_offset


def end(log: PartitionLog, producer_id: int, kind: ControlType) -> None:
    log.append_as_leader(marker(kind, producer_id=producer_id), leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def roll(log: PartitionLog) -> None:
    logs.roll(log)
    settle(log)


def state(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in records_of(log)]


def test_segments_that_shrank_become_one(files: MemoryFiles, log: PartitionLog, clock: ManualClock) -> None:
    for number in range(40):
        write(log, (b"k%d" % (number % 3), b"v" * 60))
    roll(log)
    assert len(log.segments) > 4
    result = compact(files, log, clock)
    assert [len(group) > 1 for group in result.groups].count(True) == 0
    result = compact(files, log, clock, result.end_offset)
    assert len(result.groups) == 1
    assert len(log.segments) == 2
    assert state(log) == [(37, b"k1"), (38, b"k2"), (39, b"k0")]
    assert (result.stats.records_written, result.end_offset) == (3, 40)


def test_a_pass_covers_what_fits_into_the_map(files: MemoryFiles, log: PartitionLog, clock: ManualClock) -> None:
    for number in range(8):
        write(log, *((b"%d" % (key % 5), b"%d" % number) for key in range(number, number + 3)))
    roll(log)
    result = compact(files, log, clock, map_bytes=24 * 3, load_factor=1.0)
    # Records 0 .. 4 have the keys 0, 1, 2, 1, 2; the next one has key 3.
    assert result.end_offset == 5
    assert state(log)[:4] == [(0, b"0"), (3, b"1"), (4, b"2"), (5, b"3")]
    assert result.stats.map_utilization == 1.0
    while result.end_offset < log.active_segment.base_offset:
        result = compact(files, log, clock, result.end_offset, map_bytes=24 * 3, load_factor=1.0)
    assert len(state(log)) == 5
    assert sorted(key or b"" for _, key in state(log)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_pass_stops_mapping_at_the_first_record_that_does_not_fit(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    log.update_config(replace(CONFIG, segment_bytes=1 << 20))
    for number in range(0, 6000, 500):
        write(log, *((b"%d" % (key % 2000), b"v") for key in range(number, number + 500)))
        roll(log)
    request = cleaning_request(log, clock, map_bytes=24 * 1800, load_factor=1.0)
    result = compact(files, log, clock, map_bytes=24 * 1800, load_factor=1.0)
    assert (result.end_offset, result.stats.map_utilization) == (1800, 1.0)
    assert result.stats.map_bytes < sum(segment.size for segment in request.segments)
    for _ in range(4):
        result = compact(files, log, clock, result.end_offset, map_bytes=24 * 1800, load_factor=1.0)
    assert result.end_offset == 6000
    assert state(log) == [(offset, b"%d" % (offset % 2000)) for offset in range(4000, 6000)]


def test_the_end_of_the_range_stays_as_an_empty_batch(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    write(log, (b"a", b"1"))
    first = write(log, (b"b", None), (b"c", None))
    roll(log)
    compact(files, log, clock)
    clock.advance(2000)
    compact(files, log, clock, log.active_segment.base_offset)
    assert state(log) == [(0, b"a")]
    entries = [found for _, found in iterate_entries(log.segments[0].file.pread(log.segments[0].size, 0))]
    assert [(each.base_offset, each.last_offset, each.record_count, each.size) for each in entries][1:] == [
        (first, first + 1, 0, 61)
    ]


def test_records_without_a_key_are_dropped_and_counted(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    log.update_config(replace(CONFIG, cleanup_policy=("delete",)))
    write(log, (None, b"1"), (b"a", b"2"), (None, b"3"))
    log.append_as_follower(memoryview(bytearray(encode_set([(3, 5, None, b"4")], magic=1))))
    write(log, (b"b", b"5"))
    log.update_config(CONFIG)
    roll(log)
    result = compact(files, log, clock)
    assert result.stats.keyless_records == 3
    assert state(log) == [(1, b"a"), (4, b"b")]


def test_tombstones_of_old_formats_go_by_the_age_of_their_segment(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    def old(key: bytes, value: bytes | None, codec: Codec = Codec.NONE) -> None:
        content = encode_set([(log.log_end_offset, 1, key, value)], magic=1, codec=codec)
        log.append_as_follower(memoryview(bytearray(content)))

    old(b"a", None)
    old(b"b", None, Codec.GZIP)
    old(b"c", b"1")
    roll(log)
    dirty = compact(files, log, clock).end_offset
    assert len(state(log)) == 3
    clock.advance(1001)
    old(b"d", b"1")
    roll(log)
    # The last clean segment is as old as the tombstones; a pass compares the times of tombstones with its time.
    dirty = compact(files, log, clock, dirty).end_offset
    assert len(state(log)) == 4
    old(b"e", b"1")
    roll(log)
    compact(files, log, clock, dirty)
    assert [key for _, key in state(log)][-3:] == [b"c", b"d", b"e"]


def test_the_transaction_index_keeps_what_there_is_data_of(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    write(log, (b"a", b"1"), producer_id=1)
    write(log, (b"a", b"2"), producer_id=2)
    end(log, 1, ControlType.ABORT)
    write(log, (b"a", b"3"), producer_id=1, sequence=1)
    end(log, 1, ControlType.ABORT)
    end(log, 2, ControlType.COMMIT)
    roll(log)
    before = log.aborted_transactions(0, 100)
    assert before == ((1, 0), (1, 3))
    compact(files, log, clock)
    assert state(log) == [(1, b"a")]
    assert log.aborted_transactions(0, 100) == before
    path = f"{log.directory}/{file_name(0, TRANSACTION_INDEX_SUFFIX)}"
    assert TransactionIndex.decode(files.read(path)) is not None
    # Nothing of the first aborted transaction was left, so the second pass needs no entry for it.
    compact(files, log, clock, log.active_segment.base_offset)
    assert log.aborted_transactions(0, 100) == ((1, 3),)


def test_indexes_are_those_that_recovery_makes(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock, host: RecordingHost
) -> None:
    for number in range(60):
        write(log, (b"k%d" % (number % 25), b"v" * 50), (b"same", b"w"))
    roll(log)
    compact(files, log, clock)
    settle(log)
    base = next(each.base_offset for each in log.segments if each.size > 300)
    paths = [f"{log.directory}/{file_name(base, suffix)}" for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    made = [files.read(path) for path in paths]
    assert all(made)
    for path in paths:
        files.remove(path)
    log.abandon()
    again = open_log(files, clock, host=host, config=CONFIG, recovery_point=log.recovery_point)
    settle(again)
    assert [files.read(path) for path in paths] == made


@pytest.mark.parametrize("read_bytes", [70, 1 << 20])
def test_an_aborted_pass_leaves_no_files(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock, read_bytes: int
) -> None:
    for _ in range(30):
        write(log, (b"a", b"v" * 50))
    roll(log)
    files.open(f"{log.directory}/{ABORT_FILE}", create=True).close()
    before = files.list(log.directory)
    with pytest.raises(CleaningAbortedError):
        clean_log(files, cleaning_request(log, clock, read_bytes=read_bytes))
    assert files.list(log.directory) == before


@pytest.mark.parametrize("place", [70, 15, 5])
def test_a_corrupt_log_is_not_rewritten(files: MemoryFiles, log: PartitionLog, clock: ManualClock, place: int) -> None:
    for _ in range(30):
        write(log, (b"a", b"v" * 50))
    roll(log)
    before = files.list(log.directory)
    files.open(log.segments[1].path()).pwritev((b"\x7e\x7e",), place)
    with pytest.raises(CorruptMessageError):
        clean_log(files, cleaning_request(log, clock))
    assert files.list(log.directory) == before


def test_a_log_that_is_shorter_than_it_was_is_not_rewritten(
    files: MemoryFiles, log: PartitionLog, clock: ManualClock
) -> None:
    for _ in range(30):
        write(log, (b"a", b"v" * 50))
    roll(log)
    request = cleaning_request(log, clock)
    files.open(log.segments[1].path()).truncate(30)
    with pytest.raises(CorruptMessageError):
        clean_log(files, request)


def test_files_of_an_earlier_pass_are_removed(files: MemoryFiles, log: PartitionLog, clock: ManualClock) -> None:
    for _ in range(30):
        write(log, (b"a", b"v" * 50))
    roll(log)
    stale = f"{log.directory}/{file_name(0, TRANSACTION_INDEX_SUFFIX)}.cleaned"
    files.write_atomically(stale, b"an entry of another time")
    compact(files, log, clock)
    assert not files.exists(stale)
    assert log.aborted_transactions(0, 100) == ()


def test_a_missing_segment_is_an_aborted_pass(files: MemoryFiles, log: PartitionLog, clock: ManualClock) -> None:
    write(log, (b"a", b"1"))
    roll(log)
    request = cleaning_request(log, clock)
    files.remove(log.segments[0].path())
    with pytest.raises(StorageError) as caught:
        clean_log(files, request)
    assert caught.value.missing


# The throttle


class Seconds:
    """A clock that `sleep` advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.checks = 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def check(self) -> None:
        self.checks += 1


def test_bytes_are_held_to_the_rate() -> None:
    time = Seconds()
    throttle = CleanerThrottle(1000.0, now=lambda: time.now, sleep=time.sleep)
    for _ in range(50):
        throttle.spend(200, time.check)
    assert time.now == pytest.approx(110.0)
    assert time.checks >= 50


def test_unused_rate_accumulates_only_to_a_limit() -> None:
    time = Seconds()
    throttle = CleanerThrottle(1000.0, now=lambda: time.now, sleep=time.sleep)
    time.now += 60
    throttle.spend(1300, time.check)
    assert time.now == pytest.approx(161.0)


def test_a_long_wait_is_broken_off_by_the_check() -> None:
    time = Seconds()
    throttle = CleanerThrottle(1.0, now=lambda: time.now, sleep=time.sleep)

    def stop() -> None:
        if time.now > 103:
            raise CleaningAbortedError("stop")

    with pytest.raises(CleaningAbortedError):
        throttle.spend(1000, stop)
    assert time.now < 104


def test_without_a_limit_there_is_no_wait() -> None:
    time = Seconds()
    CleanerThrottle(1.7976931348623157e308, now=lambda: time.now, sleep=time.sleep).spend(1 << 40, time.check)
    assert (time.now, time.checks) == (100.0, 0)


def test_what_belongs_to_the_worker_is_not_loaded_in_the_broker_process() -> None:
    program = "import odradek.app.broker, sys; sys.exit('odradek.log.compaction.compaction_pass' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
