from __future__ import annotations

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaStorageError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    StorageError,
)
from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.values import TimestampOffset
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType, read_header
from odradek.records.v2.record import decode_batch
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.batches import iterate
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, open_log, small_segments
from odradek_testkit.loop import WALL_START_MS, ManualClock

ALL = 1 << 30


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> PartitionLog:
    return open_log(files, clock, host=host)


def append(log: PartitionLog, *values: bytes, leader_epoch: int = 0, timestamp_ms: int = WALL_START_MS) -> int:
    return log.append_as_leader(batch(*values, timestamp_ms=timestamp_ms), leader_epoch=leader_epoch).first_offset


def read_all(log: PartitionLog, offset: int = 0, max_offset: int | None = None) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of every record from `offset` that a consumer reads."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        content = log.read(offset, max_bytes=500, max_offset=max_offset).load()
        batches = list(iterate(content))
        if not batches:
            return found
        for position, header in batches:
            records = decode_batch(content, position, header, limit=ALL)
            found += [(record.offset, record.value) for record in records if record.offset >= offset]
            offset = header.next_offset


# Append as leader


def test_an_append_is_numbered_stamped_and_read_back(log: PartitionLog) -> None:
    first = log.append_as_leader(batch(b"a", b"b", timestamp_ms=5000), leader_epoch=3)
    assert (first.first_offset, first.last_offset, first.record_count, first.max_timestamp) == (0, 1, 2, 5001)
    assert (first.leader_epoch, first.log_append_time, first.duplicate) == (3, -1, False)
    second = log.append_as_leader(batch(b"c"), leader_epoch=4)
    assert (second.first_offset, log.log_end_offset) == (2, 3)
    assert log.size_bytes == first.size_bytes + second.size_bytes
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    header = read_header(log.read(2, max_bytes=ALL).load())
    assert (header.base_offset, header.leader_epoch) == (2, 4)


def test_read_only_memory_is_copied_not_stamped(log: PartitionLog) -> None:
    records = bytes(batch(b"a"))
    append(log, b"x")
    assert log.append_as_leader(memoryview(records), leader_epoch=9).first_offset == 1
    assert read_header(records).leader_epoch == -1


def test_log_append_time_is_stamped_with_a_true_crc(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(batch(b"a", timestamp_ms=5), leader_epoch=0)
    assert info.log_append_time == info.max_timestamp == clock.wall_ms()
    content = log.read(0, max_bytes=ALL).load()
    (record,) = decode_batch(content, 0, read_header(content), limit=ALL)
    assert record.timestamp == clock.wall_ms()
    # The follower checks the CRC.
    other = open_log(MemoryFiles(), clock)
    assert other.append_as_follower(memoryview(bytearray(content))).max_timestamp == clock.wall_ms()


def test_a_refused_append_leaves_no_trace(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(max_message_bytes=200, segment_bytes=150))
    append(log, b"kept")
    broken = batch(b"x")
    broken[-1] ^= 1
    cases: list[tuple[memoryview, type[Exception]]] = [
        (broken, CorruptMessageError),
        (batch(b"x" * 300), MessageTooLargeError),
        (batch(b"x" * 100), RecordListTooLargeError),
        (batch(b"x")[:-1], InvalidRecordError),
        (batch(b"x", base_offset=7), InvalidRecordError),
    ]
    for records, error in cases:
        with pytest.raises(error):
            log.append_as_leader(records, leader_epoch=0)
    assert log.log_end_offset == 1
    assert read_all(log) == [(0, b"kept")]
    assert len(log.segments) == 1


def test_a_repeated_batch_gets_its_old_offsets_and_is_not_written(log: PartitionLog) -> None:
    def send(sequence: int) -> tuple[int, int, bool]:
        records = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=sequence)
        info = log.append_as_leader(records, leader_epoch=2)
        return info.first_offset, info.last_offset, info.duplicate

    assert [send(0), send(2)] == [(0, 1, False), (2, 3, False)]
    assert [send(0), send(2)] == [(0, 1, True), (2, 3, True)]
    with pytest.raises(OutOfOrderSequenceError):
        send(7)
    assert (log.log_end_offset, len(read_all(log))) == (4, 4)
    assert [producer.last_sequence for producer in log.active_producers()] == [3]


def test_a_failed_write_is_undone_and_the_log_continues(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost
) -> None:
    append(log, b"kept")
    files.capacity_bytes = files.capacity_bytes - files.room() + 20
    records = batch(b"lost", producer_id=1, producer_epoch=0, base_sequence=0)
    with pytest.raises(KafkaStorageError, match="no space is left"):
        log.append_as_leader(records, leader_epoch=5)
    assert (log.log_end_offset, log.latest_epoch, log.active_producers()) == (1, 0, [])
    assert read_all(log) == [(0, b"kept")]
    assert not host.failures
    files.capacity_bytes = 1 << 40
    assert append(log, b"again") == 1
    assert read_all(log) == [(0, b"kept"), (1, b"again")]


def test_a_write_that_cannot_be_undone_takes_the_log_offline(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost
) -> None:
    append(log, b"kept")

    def fail(operation: str, path: str) -> StorageError | None:
        return StorageError(f"{operation} fails", path=path) if operation in ("write", "truncate") else None

    files.fail = fail
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, b"lost")
    assert log.is_offline
    assert len(host.failures) == 1
    files.fail = None
    for attempt in (lambda: append(log, b"x"), lambda: log.read(0, max_bytes=1), lambda: log.truncate_to(0)):
        with pytest.raises(KafkaStorageError):
            attempt()
    log.close()


def test_a_failed_sync_takes_the_log_offline(log: PartitionLog, files: MemoryFiles, host: RecordingHost) -> None:
    """After a failed fsync the kernel may have dropped the pages: a second one that succeeds proves nothing."""
    append(log, b"a")
    files.fail = lambda operation, path: StorageError("no", path=path) if operation == "sync" else None
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.is_offline
    assert len(host.failures) == 1


# Append as follower


def test_a_follower_keeps_offsets_and_epochs_and_ignores_a_truncated_batch(log: PartitionLog) -> None:
    whole = bytes(batch(b"a", b"b", base_offset=0, leader_epoch=1)) + bytes(batch(b"c", base_offset=2, leader_epoch=4))
    info = log.append_as_follower(memoryview(whole + bytes(batch(b"d", base_offset=3))[:-1]))
    assert (info.first_offset, info.last_offset, info.leader_epoch, info.size_bytes) == (0, 2, 4, len(whole))
    assert log.log_end_offset == 3
    assert log.read(0, max_bytes=ALL).load() == whole
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 2)
    assert log.end_offset_for_epoch(4) == EpochEndOffset(4, 3)


def test_a_follower_accepts_a_gap_and_refuses_an_overlap(log: PartitionLog) -> None:
    log.append_as_follower(batch(b"a", base_offset=10))
    assert log.log_end_offset == 11
    with pytest.raises(CorruptMessageError, match="but the batch starts at"):
        log.append_as_follower(batch(b"b", base_offset=10))
    with pytest.raises(CorruptMessageError):
        log.append_as_follower(batch(b"b", base_offset=11)[:-1])
    assert read_all(log) == [(10, b"a")]


def test_a_far_offset_begins_a_segment_that_can_hold_it(log: PartitionLog) -> None:
    far = 2**33
    log.append_as_follower(batch(b"a", base_offset=far))
    assert [segment.base_offset for segment in log.segments] == [far]
    log.append_as_follower(batch(b"b", base_offset=2 * far))
    assert [segment.base_offset for segment in log.segments] == [far, 2 * far]
    assert read_all(log) == [(far, b"a"), (2 * far, b"b")]


def test_a_follower_learns_producers(log: PartitionLog) -> None:
    log.append_as_follower(batch(b"a", producer_id=4, producer_epoch=1, base_sequence=9))
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(batch(b"b", producer_id=4, producer_epoch=1, base_sequence=11), leader_epoch=1)
    log.append_as_leader(batch(b"b", producer_id=4, producer_epoch=1, base_sequence=10), leader_epoch=1)


def test_an_open_transaction_holds_the_first_unstable_offset(log: PartitionLog) -> None:
    append(log, b"before")
    records = batch(b"a", producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(records, leader_epoch=0)
    assert log.first_unstable_offset == 1
    marker = marker_batch(
        ControlType.COMMIT, producer_id=4, producer_epoch=0, coordinator_epoch=2, timestamp_ms=WALL_START_MS
    )
    log.append_as_leader(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert log.first_unstable_offset == 1
    log.high_watermark = log.log_end_offset
    assert log.first_unstable_offset is None
    assert log.active_producers()[0].coordinator_epoch == 2


# Read


def test_reads_outside_of_the_log_are_refused(log: PartitionLog) -> None:
    append(log, b"a")
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, max_bytes=ALL)
    assert log.read(1, max_bytes=ALL).load() == b""


def test_a_read_stops_below_the_given_offset(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=small_segments(segment_bytes=200))
    for number in range(12):
        append(log, b"%d" % number)
    assert len(log.segments) == 6
    for end in range(13):
        assert [offset for offset, _ in read_all(log, 0, end)] == list(range(end))
        assert log.read(12, max_bytes=ALL, max_offset=end).length == 0


def test_a_batch_across_the_limit_is_omitted(log: PartitionLog) -> None:
    append(log, b"a")
    append(log, b"b", b"c")
    assert [offset for offset, _ in read_all(log, 0, 2)] == [0]


def test_max_bytes_and_the_first_batch(log: PartitionLog) -> None:
    append(log, b"a" * 100)
    size = log.size_bytes
    append(log, b"b" * 100)
    assert log.read(0, max_bytes=1).length == size
    refused = log.read(0, max_bytes=1, min_one_batch=False)
    assert (refused.length, refused.first_batch_incomplete, refused.load()) == (0, True, b"")
    assert log.read(0, max_bytes=size + 10).length == size + 10
    assert log.read(0, max_bytes=ALL).length == 2 * size
    assert not log.read(1, max_bytes=size, min_one_batch=False).first_batch_incomplete


@pytest.mark.parametrize(("max_files", "expected"), [(1, 2), (3, 4), (100, 6)])
def test_sealed_segments_stay_open_within_the_bound(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost, max_files: int, expected: int
) -> None:
    cache = SegmentCache(max_files=max_files)
    log = open_log(files, clock, host=host, config=small_segments(segment_bytes=200), segment_cache=cache)
    for number in range(12):
        append(log, b"%d" % number)
    host.run_flushes()
    assert [offset for offset, _ in read_all(log)] == list(range(12))
    open_files = [segment for segment in log.segments if segment._file is not None]
    assert len(log.segments) == 6
    assert len(open_files) == expected


# Timestamps


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, TimestampOffset(1000, 0, 0)),
        (1001, TimestampOffset(1001, 1, 0)),
        (1002, TimestampOffset(5000, 2, 1)),
        (3000, TimestampOffset(5000, 2, 1)),
        (6000, TimestampOffset(9000, 4, 2)),
        (9001, None),
    ],
)
def test_offset_for_timestamp(
    files: MemoryFiles, clock: ManualClock, timestamp: int, found: TimestampOffset | None
) -> None:
    log = open_log(files, clock, config=small_segments(segment_bytes=160))
    append(log, b"a", b"b", timestamp_ms=1000)
    append(log, b"c", timestamp_ms=5000, leader_epoch=1)
    append(log, b"d", timestamp_ms=3000, leader_epoch=1)
    append(log, b"e", timestamp_ms=9000, leader_epoch=2)
    assert len(log.segments) > 1
    assert log.offset_for_timestamp(timestamp) == found


def test_the_largest_timestamp(log: PartitionLog) -> None:
    assert log.max_timestamp_offset() is None
    append(log, b"a", b"b", timestamp_ms=1000)
    append(log, b"c", timestamp_ms=500)
    assert log.max_timestamp_offset() == TimestampOffset(1001, 1, 0)


def test_timestamps_below_the_log_start_are_not_found(log: PartitionLog) -> None:
    append(log, b"a", b"b", timestamp_ms=1000)
    log.high_watermark = 2
    log.increment_log_start_offset(1)
    assert log.offset_for_timestamp(0) == TimestampOffset(1001, 1, 0)


# Roll


def test_rolling_by_size_names_segments_by_their_first_offset(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(segment_bytes=200))
    for number in range(5):
        append(log, b"%d" % number)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert all(segment.size <= 200 for segment in log.segments)
    assert [name for name in files.list(DIRECTORY) if name.endswith(".snapshot")] == [
        "00000000000000000002.snapshot",
        "00000000000000000004.snapshot",
    ]


def test_rolling_by_the_records_time(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(segment_ms=1000))
    append(log, b"a", timestamp_ms=5000)
    clock.advance(10_000_000)
    append(log, b"b", timestamp_ms=6000)
    assert len(log.segments) == 1
    append(log, b"c", timestamp_ms=6001)
    assert len(log.segments) == 2


def test_rolling_by_wall_time_when_records_have_none(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(segment_ms=1000))
    append(log, b"a", timestamp_ms=-1)
    clock.advance(1000)
    append(log, b"b", timestamp_ms=-1)
    assert len(log.segments) == 1
    clock.advance(1)
    append(log, b"c", timestamp_ms=-1)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(segment_ms=1000, segment_jitter_ms=1000))
    append(log, b"a", timestamp_ms=5000)
    append(log, b"b", timestamp_ms=5999)
    assert len(log.segments) == 2


def test_rolling_by_a_full_index(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=TopicConfig(index_interval_bytes=0, segment_index_bytes=48))
    for _ in range(20):
        append(log, b"a")
    assert len(log.segments) > 1
    log.flush()
    for segment in log.segments[:-1]:
        assert files.size(segment.path(".index")) <= 48
        assert files.size(segment.path(".timeindex")) <= 48


def test_a_sealed_segment_is_flushed_and_its_indexes_are_written(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=small_segments(segment_bytes=200))
    for number in range(5):
        append(log, b"%d" % number)
    assert host.flushes == [log, log]
    host.run_flushes()
    assert log.recovery_point == 5
    assert files.exists(f"{DIRECTORY}/00000000000000000002.index")
    assert not files.exists(f"{DIRECTORY}/00000000000000000004.index")


# Truncate


@pytest.mark.parametrize(
    ("offset", "end"),
    [(0, 0), (1, 0), (2, 2), (3, 2), (7, 6), (12, 12), (13, 12), (14, 14), (99, 14)],
)
def test_truncation_drops_whole_batches(files: MemoryFiles, clock: ManualClock, offset: int, end: int) -> None:
    log = open_log(files, clock, config=small_segments(segment_bytes=200))
    for number in range(7):
        append(log, b"%d" % number, b"x", leader_epoch=number)
    log.high_watermark = 14
    log.truncate_to(offset)
    assert log.log_end_offset == end
    assert log.high_watermark == end
    assert [found for found, _ in read_all(log)] == list(range(end))
    assert log.latest_epoch == end // 2 - 1
    assert append(log, b"new", leader_epoch=50) == end
    assert read_all(log)[-1] == (end, b"new")


def test_truncation_lowers_the_recovery_point_and_requests_checkpoints(log: PartitionLog, host: RecordingHost) -> None:
    append(log, b"a")
    append(log, b"b")
    log.flush()
    assert log.recovery_point == 2
    log.truncate_to(1)
    assert log.recovery_point == 1
    assert host.checkpoints == 1
    log.truncate_to(1)
    assert host.checkpoints == 1


def test_truncation_restores_earlier_producer_state(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=small_segments(segment_bytes=250))
    for sequence in range(8):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(records, leader_epoch=0)
    log.truncate_to(5)
    assert [producer.last_sequence for producer in log.active_producers()] == [4]
    log.truncate_to(0)
    assert log.active_producers() == []


def test_truncation_keeps_what_it_knows_of_repeated_batches(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=small_segments(segment_bytes=250))
    for sequence in range(8):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(records, leader_epoch=0)
    log.truncate_to(7)
    for sequence in (3, 4, 5, 6):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence)
        info = log.append_as_leader(records, leader_epoch=1)
        assert (info.duplicate, info.first_offset) == (True, sequence)


def test_truncating_fully_begins_elsewhere(log: PartitionLog, files: MemoryFiles) -> None:
    append(log, b"a", leader_epoch=4)
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.latest_epoch) == (500, 500, 500, -1)
    assert append(log, b"b") == 500
    assert read_all(log, 500) == [(500, b"b")]
    assert [name for name in files.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000500.log"]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, max_bytes=ALL)


def test_truncating_fully_to_the_same_start_empties(log: PartitionLog) -> None:
    append(log, b"a")
    log.truncate_fully_and_start_at(0)
    assert read_all(log) == []
    assert append(log, b"b") == 0
    assert read_all(log) == [(0, b"b")]


# Start offset, retention


def test_the_log_start_rises_to_the_high_watermark_at_most(log: PartitionLog, host: RecordingHost) -> None:
    for _ in range(4):
        append(log, b"v")
    log.high_watermark = 3
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(4)
    assert log.increment_log_start_offset(2)
    assert not log.increment_log_start_offset(1)
    assert log.log_start_offset == 2
    assert host.checkpoints == 1
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, max_bytes=ALL)
    assert [offset for offset, _ in read_all(log, 2)] == [2, 3]
    assert log.delete_expired(0) == 0


def expiring(files: MemoryFiles, clock: ManualClock, host: RecordingHost, **settings: object) -> PartitionLog:
    config = small_segments(segment_bytes=200, file_delete_delay_ms=77, **settings)
    log = open_log(files, clock, host=host, config=config)
    for number in range(6):
        append(log, b"%d" % number, timestamp_ms=1000 * number)
    log.high_watermark = 6
    return log


def test_old_segments_go_and_the_log_start_follows(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = expiring(files, clock, host, retention_ms=1000)
    assert log.delete_expired(3500) == 1
    assert log.log_start_offset == 2
    assert [offset for offset, _ in read_all(log, 2)] == [2, 3, 4, 5]
    ((paths, delay_ms),) = host.removed
    assert delay_ms == 77
    assert f"{DIRECTORY}/00000000000000000000.log.deleted" in paths
    assert not [name for name in files.list(DIRECTORY) if name.startswith("00000000000000000000")]


def test_when_all_records_are_expired_the_log_rolls_and_continues(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = expiring(files, clock, host, retention_ms=1000)
    assert log.delete_expired(10**6) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)
    assert log.delete_expired(10**6) == 0
    assert append(log, b"next") == 6


def test_by_size(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = expiring(files, clock, host, retention_bytes=270, retention_ms=-1)
    assert log.size_bytes == 414
    assert log.delete_expired(10**9) == 1
    assert log.size_bytes == 276


def test_compaction_alone_deletes_only_below_the_log_start(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = expiring(files, clock, host)
    log.update_config(small_segments(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0))
    assert log.delete_expired(10**9) == 0
    log.increment_log_start_offset(3)
    assert log.delete_expired(10**9) == 1
    assert log.log_start_offset == 3


def test_a_reader_keeps_a_removed_segments_bytes(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = expiring(files, clock, host, retention_ms=0)
    held = log.read(0, max_bytes=ALL)
    before = held.load()
    assert before
    assert log.delete_expired(10**9) == 3
    assert held.load() == before


# Flush and close


def test_a_flush_that_began_before_a_truncation_does_not_raise_the_recovery_point(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log, b"a")
    log.flush()
    append(log, b"b")
    append(log, b"c")
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(1)
    append(log, b"other")
    ticket.run(files)
    log.end_flush(ticket)
    assert log.recovery_point == 1


def test_a_flush_covers_the_batches_before_its_start(log: PartitionLog, files: MemoryFiles) -> None:
    append(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    append(log, b"b")
    ticket.run(files)
    log.end_flush(ticket)
    assert log.recovery_point == 1
    log.flush()
    assert log.recovery_point == 2
    assert log.begin_flush() is None


def test_closing_leaves_everything_that_a_clean_start_needs(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=small_segments())
    for sequence in range(9):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, timestamp_ms=1000 + sequence)
        log.append_as_leader(records, leader_epoch=sequence // 4)
    log.close()
    log.close()
    again = open_log(files, clock, config=small_segments(), clean=True)
    assert (again.log_end_offset, again.recovery_point, again.latest_epoch) == (9, 9, 2)
    assert read_all(again) == [(offset, b"v") for offset in range(9)]
    assert again.active_producers() == log.active_producers()
    assert again.max_timestamp_offset() == TimestampOffset(1008, 8, 2)
    assert again.end_offset_for_epoch(0) == EpochEndOffset(0, 4)
    assert append(again, b"next", leader_epoch=2) == 9
