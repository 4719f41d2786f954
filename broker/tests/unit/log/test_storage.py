from __future__ import annotations

from random import Random

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import CorruptMessageError, KafkaStorageError, OffsetOutOfRangeError, StorageError
from odradek.log.partition_log import PartitionLog
from odradek_testkit.batches import iterate
from odradek_testkit.disk import Fate, MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, old_set, open_log, small_segments
from odradek_testkit.loop import WALL_START_MS, ManualClock

T0 = 1_600_000_000_000
PREALLOCATED = small_segments(segment_bytes=200, preallocate=True)


def path(offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def append(log: PartitionLog, count: int = 1, *, timestamp_ms: int = T0) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"v", timestamp_ms=timestamp_ms), leader_epoch=0)


def offsets(log: PartitionLog) -> list[int]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        batches = [header for _, header in iterate(log.read(offset, max_bytes=1 << 20).load())]
        found += [header.base_offset for header in batches]
        offset = batches[-1].next_offset
    return found


# Preallocation


def test_a_segment_is_preallocated_and_trimmed_when_sealed(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 3)
    first, active = log.segments
    assert files.size(path(0)) == first.size < 200
    assert files.size(path(2)) == 200 > active.size
    # Reads end where the batches do.
    assert len(log.read(0, max_bytes=1 << 20).load()) == first.size
    assert len(log.read(2, max_bytes=1 << 20).load()) == active.size
    log.close()
    assert files.size(path(2)) == active.size


@pytest.mark.parametrize("clean", [False, True])
def test_zeros_after_a_crash_are_truncated(files: MemoryFiles, clock: ManualClock, clean: bool) -> None:
    """As after a failed clean stop, which left the clean-shutdown file and incomplete indexes."""
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 3)
    active = log.active_segment
    log.flush()
    again = open_log(files, clock, config=PREALLOCATED, clean=clean)
    assert offsets(again) == [0, 1, 2]
    assert files.size(path(2)) == active.size
    append(again)
    assert offsets(again) == [0, 1, 2, 3]


def test_zeros_behind_a_sealed_segment_take_nothing_after_it(files: MemoryFiles, clock: ManualClock) -> None:
    """The crash happened after the roll and before the truncation of the old segment was durable."""
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 3)
    size = log.segments[0].size
    log.segments[0].file.truncate(200)
    again = open_log(files, clock, config=PREALLOCATED)
    assert offsets(again) == [0, 1, 2]
    assert files.size(path(0)) == size


def test_the_trim_of_a_sealed_segment_is_durable_before_its_indexes_are_valid(
    files: MemoryFiles, clock: ManualClock
) -> None:
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 2)
    log.flush()
    append(log)
    done: list[tuple[str, str]] = []
    files.fail = lambda operation, where: done.append((operation, where))
    log.flush()
    index = next(where for operation, where in done if operation == "rename" and ".index." in where)
    steps = [("sync", path(0)), ("sync", index), ("rename", index)]
    assert [step for step in done if step in steps] == steps


def test_zeros_instead_of_batches_are_a_loss(files: MemoryFiles, clock: ManualClock) -> None:
    """A file that was extended without its data: the records after the hole are removed as well."""
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 3)
    place = log.segments[0].locate(1)
    assert place is not None
    log.segments[0].file.pwritev((bytes(place.size),), place.position)
    again = open_log(files, clock, config=PREALLOCATED)
    assert offsets(again) == [0]
    assert not files.exists(path(2))


def test_a_full_disk_at_a_roll_refuses_only_the_append(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=PREALLOCATED)
    append(log, 2)
    files.capacity_bytes = 300
    with pytest.raises(KafkaStorageError):
        append(log)
    assert (log.log_end_offset, log.is_offline, len(log.segments)) == (2, False, 1)
    files.capacity_bytes = 1 << 30
    append(log)
    assert offsets(log) == [0, 1, 2]


def test_truncation_and_failed_writes_drop_the_preallocated_space(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock, config=PREALLOCATED)
    append(log, 2)
    log.truncate_to(1)
    assert files.size(path(0)) == log.active_segment.size
    append(log)
    assert offsets(log) == [0, 1]


def test_a_truncation_is_durable_before_anything_is_written_over_it(files: MemoryFiles, clock: ManualClock) -> None:
    """Otherwise a power failure could leave a mixture of removed and new batches, all of them valid."""
    log = open_log(files, clock)
    append(log, 3)
    log.flush()
    files.sync_directory(DIRECTORY)
    files.sync_directory(DIRECTORY.rpartition("/")[0])
    files.sync_directory("/")
    log.truncate_to(1)
    left = files.fork()
    left.crash(Random(0), (Fate.LOST,))
    assert left.size(path(0)) == log.active_segment.size


# Rolling by time


def test_a_compacted_log_rolls_before_the_longest_lag(files: MemoryFiles, clock: ManualClock) -> None:
    """Records in the active segment cannot be cleaned (KIP-354)."""
    config = small_segments(segment_bytes=1 << 20, segment_ms=10_000, max_compaction_lag_ms=500)
    plain = open_log(files, clock, config=config)
    append(plain)
    append(plain, timestamp_ms=T0 + 600)
    assert len(plain.segments) == 1
    compacted = small_segments(
        segment_bytes=1 << 20, segment_ms=10_000, max_compaction_lag_ms=500, cleanup_policy=("compact", "delete")
    )
    plain.update_config(compacted)
    keyed = batch(b"v", base_offset=2, leader_epoch=0, timestamp_ms=T0 + 500)
    plain.append_as_follower(keyed)
    assert len(plain.segments) == 1
    plain.append_as_follower(batch(b"v", base_offset=3, leader_epoch=0, timestamp_ms=T0 + 501))
    assert len(plain.segments) == 2


# The age of records without timestamps


@pytest.mark.parametrize("clean", [None, False, True])
def test_records_without_a_time_age_from_the_last_write_to_their_segment(
    files: MemoryFiles, clock: ManualClock, clean: bool | None
) -> None:
    config = small_segments(segment_bytes=60, retention_ms=10_000)
    files.wall_ms = clock.wall_ms
    log = open_log(files, clock, config=config)
    for offset in range(4):
        log.append_as_follower(old_set(b"v" * 20, magic=0, base_offset=offset))
        clock.advance(6_000)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    if clean is not None:
        if clean:
            log.close()
        log = open_log(files, clock, config=config, clean=clean)
    log.high_watermark = log.log_end_offset
    # Written at 0, 6, 12 and 18 s; a segment of this broker counts from when it was rolled, 6 s later.
    assert log.delete_expired(WALL_START_MS + 17_000) == (1 if clean is None else 2)
    assert log.delete_expired(WALL_START_MS + 23_000) == 1


# Delete records


def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=small_segments(segment_bytes=150))
    append(log, 6)
    log.high_watermark = 5
    assert log.delete_records_before(3) == 3
    assert (log.log_start_offset, host.checkpoints) == (3, 1)
    assert log.delete_records_before(2) == 3
    assert host.checkpoints == 1
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(6)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(-2)
    assert log.delete_records_before(-1) == 5
    log.delete_expired(T0)
    assert [segment.base_offset for segment in log.segments] == [4]
    again = open_log(files, clock, config=small_segments(segment_bytes=150), log_start_offset=5)
    assert (again.log_start_offset, again.log_end_offset) == (5, 6)


def test_an_empty_log_takes_a_batch_in_which_the_leaders_log_begins(files: MemoryFiles, clock: ManualClock) -> None:
    """The leader deleted records up to the middle of a batch; a new follower fetches from there and gets all of it."""
    log = open_log(files, clock, log_start_offset=5)
    with pytest.raises(CorruptMessageError):
        log.append_as_follower(batch(b"v", base_offset=4, leader_epoch=0))
    log.append_as_follower(batch(b"v", b"v", b"v", base_offset=4, leader_epoch=0))
    assert (log.log_start_offset, log.log_end_offset) == (4, 7)
    with pytest.raises(CorruptMessageError):
        log.append_as_follower(batch(b"v", b"v", base_offset=6, leader_epoch=0))
    log.high_watermark = 7
    assert log.increment_log_start_offset(5)
    assert offsets(log) == [4]


# Truncation above the end


def test_truncation_to_the_log_end_removes_an_epoch_without_records(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock)
    append(log, 2)
    log.assign_epoch_start(7, 2)
    log.truncate_to(2)
    assert log.latest_epoch == 0


# Moves


def test_a_copy_replaces_the_original_log(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    current = open_log(files, clock, host=host, config=small_segments(segment_bytes=150))
    for sequence in range(5):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, timestamp_ms=T0)
        current.append_as_leader(records, leader_epoch=2)
    current.assign_epoch_start(4, 5)
    current.high_watermark = 4
    future = open_log(files, clock, config=small_segments(segment_bytes=300), directory="/other/events-0.x-future")
    for segment in current.segments:
        future.append_as_follower(memoryview(segment.file.pread(segment.size, 0)))
    held = future.read(0, max_bytes=1 << 20)
    files.rename(future.directory, "/other/events-0")
    future.take_over(current, "/other/events-0")
    current.abandon()
    assert (future.directory, future.high_watermark, future.latest_epoch) == ("/other/events-0", 4, 4)
    assert future.config is current.config
    assert held.load()
    host.flushes.clear()
    for sequence in range(5, 9):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, timestamp_ms=T0)
        future.append_as_leader(records, leader_epoch=4)
    assert host.flushes[:1] == [future]
    assert offsets(future) == list(range(9))
    again = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=5, timestamp_ms=T0)
    assert future.append_as_leader(again, leader_epoch=4).duplicate
    future.close()
    assert offsets(open_log(files, clock, config=TopicConfig(), clean=True, directory="/other/events-0")) == list(
        range(9)
    )


# DirectorySpace


def test_no_append_while_the_disk_is_nearly_full(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = open_log(files, clock, host=host)
    host.refusal = KafkaStorageError("little is free")
    with pytest.raises(KafkaStorageError, match="little"):
        append(log)
    with pytest.raises(KafkaStorageError, match="little"):
        log.append_as_follower(batch(b"v", base_offset=0, leader_epoch=0))
    assert log.log_end_offset == 0
    host.refusal = None
    append(log)


def test_a_stale_checkpoint_that_cannot_be_written_refuses_the_append(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=small_segments(segment_bytes=150))
    append(log, 4)
    log.flush()
    log.checkpointed(log.recovery_point)
    log.truncate_to(1)
    append(log)
    host.checkpoint_now = lambda log: log.take_offline(StorageError("broken"))  # type: ignore[method-assign]
    with pytest.raises(KafkaStorageError):
        append(log)
    assert log.log_end_offset == 2
