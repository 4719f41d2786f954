"""Reads in several segments of a log: what is loaded, and when the cache forgets a segment."""

from __future__ import annotations

from collections import Counter

import pytest

from odradek.base.errors import StorageError
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import INDEX_SUFFIX, LOADED_BYTES
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.segments.segment_lookups import NotInMemoryError, SegmentLookup
from odradek.log.values import LogSlice
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.cleaning import write_cleaned
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import RecordingHost, batch, marker, open_log, roll, small_segments
from odradek_testkit.loop import ManualClock

SEGMENTS = 4


class Readings:
    """Counts reads of whole files, by path."""

    def __init__(self, files: MemoryFiles) -> None:
        self.counts: Counter[str] = Counter()
        files.fail = self._note

    def _note(self, operation: str, path: str) -> StorageError | None:
        self.counts[path] += operation == "read"
        return None

    def of_indexes(self) -> int:
        return sum(count for path, count in self.counts.items() if path.endswith(INDEX_SUFFIX))


@pytest.fixture
def cache() -> SegmentCache:
    return SegmentCache()


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock, host: RecordingHost, cache: SegmentCache) -> PartitionLog:
    """A flushed log with three sealed segments of two records and an active one."""
    made = open_log(files, clock, host=host, config=small_segments(), segment_cache=cache)
    for number in range(2 * SEGMENTS):
        if number and number % 2 == 0:
            roll(made)
        made.append_as_leader(batch(b"record %d" % number), leader_epoch=0)
    made.high_watermark = made.log_end_offset
    made.flush()
    host.run_flushes()
    return made


def read(log: PartitionLog, offset: int) -> LogSlice:
    return log.read(offset, max_bytes=1)


def test_two_readers_in_different_segments_load_each_index_once(files: MemoryFiles, log: PartitionLog) -> None:
    readings = Readings(files)
    for _ in range(3):
        assert b"record 1" in read(log, 1).load()
        assert b"record 5" in read(log, 5).load()
    assert readings.of_indexes() == 2


def test_with_memory_for_one_segment_each_read_in_turn_loads_an_index(
    files: MemoryFiles, log: PartitionLog, cache: SegmentCache
) -> None:
    cache.max_bytes = 1
    readings = Readings(files)
    for _ in range(3):
        read(log, 1)
        read(log, 5)
    assert readings.of_indexes() == 6


def test_reads_of_the_active_segment_are_not_in_the_cache(log: PartitionLog, cache: SegmentCache) -> None:
    read(log, 7)
    assert len(cache) == 0


def test_a_slice_can_be_loaded_after_other_reads_released_its_segment(log: PartitionLog, cache: SegmentCache) -> None:
    cache.max_files = 1
    found = read(log, 1)
    read(log, 3)
    assert log.segments[0] not in cache
    assert b"record 1" in found.load()


def test_logs_share_the_bounds(files: MemoryFiles, clock: ManualClock, log: PartitionLog, cache: SegmentCache) -> None:
    other = open_log(files, clock, config=small_segments(), segment_cache=cache, directory="/data/other-0")
    for value in (b"a", b"b"):
        roll(other)
        other.append_as_leader(batch(value), leader_epoch=0)
    other.flush()
    cache.max_files = 1
    read(log, 1)
    read(other, 0)
    assert [log.segments[0] in cache, other.segments[0] in cache] == [False, True]
    assert log.segments[0].loaded_bytes == LOADED_BYTES


def with_aborted(files: MemoryFiles, clock: ManualClock, cache: SegmentCache) -> PartitionLog:
    """A flushed log with two sealed segments, each with an aborted transaction, and an active one."""
    log = open_log(files, clock, config=small_segments(), segment_cache=cache)
    for number in range(2):
        records = batch(
            b"v", producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True, timestamp_ms=number
        )
        log.append_as_leader(records, leader_epoch=0)
        aborted = marker(ControlType.ABORT, producer_id=1, timestamp_ms=number)
        log.append_as_leader(aborted, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        roll(log)
    log.flush()
    return log


def test_times_and_aborted_transactions_are_loaded_within_the_bounds(
    files: MemoryFiles, clock: ManualClock, cache: SegmentCache
) -> None:
    log = with_aborted(files, clock, cache)
    assert log.aborted_transactions(0, 4) == ((1, 0), (1, 2))
    assert len(cache) == 2
    found = log.offset_for_timestamp(1)
    assert found is not None
    assert found.offset == 2
    cache.max_files = 1
    log.aborted_transactions(0, 4)
    assert [segment.loaded_bytes > LOADED_BYTES for segment in log.segments[:2]] == [False, True]


def test_aborted_transactions_are_found_although_the_cache_holds_one_segment(
    files: MemoryFiles, clock: ManualClock, cache: SegmentCache
) -> None:
    cache.max_files = 1
    log = with_aborted(files, clock, cache)
    for segment in log.segments[:2]:
        segment.release()
        with pytest.raises(NotInMemoryError) as missing:
            log.aborted_transactions(0, 4, waits=False)
        lookup = SegmentLookup(missing.value, log.generation)
        lookup.run()
        log.adopt(lookup)
    assert log.aborted_transactions(0, 4, waits=False) == ((1, 0), (1, 2))
    log.append_as_leader(batch(b"v"), leader_epoch=0)
    roll(log)
    log.segments[0].release()
    with pytest.raises(NotInMemoryError):
        log.aborted_transactions(0, 4, waits=False)


# When the cache forgets segments


def read_all(log: PartitionLog, cache: SegmentCache) -> None:
    for offset in range(0, 2 * SEGMENTS, 2):
        read(log, offset)
    assert len(cache) == SEGMENTS - 1


def test_retention_forgets_the_segments_that_it_removes(log: PartitionLog, cache: SegmentCache) -> None:
    read_all(log, cache)
    gone, kept = log.segments[:2], log.segments[2]
    log.delete_records_before(4)
    assert log.delete_expired(0) == 2
    assert [segment in cache for segment in (*gone, kept)] == [False, False, True]


def test_a_truncation_forgets_the_new_active_segment(log: PartitionLog, cache: SegmentCache) -> None:
    read_all(log, cache)
    log.truncate_to(3)
    assert len(log.segments) == 2
    assert [segment in cache for segment in log.segments] == [True, False]
    assert len(cache) == 1
    cache.max_files = 0
    read(log, 0)
    log.append_as_leader(batch(b"new"), leader_epoch=0)
    assert b"new" in read(log, 3).load()


def test_a_new_start_forgets_everything(log: PartitionLog, cache: SegmentCache) -> None:
    read_all(log, cache)
    log.truncate_fully_and_start_at(100)
    assert len(cache) == 0


def test_a_swap_forgets_the_replaced_segments(
    files: MemoryFiles, clock: ManualClock, log: PartitionLog, cache: SegmentCache
) -> None:
    read_all(log, cache)
    log.checkpointed(log.recovery_point)
    old, kept = log.segments[:2], log.segments[2]
    assert log.swap_cleaned(write_cleaned(files, log, clock, 2))
    assert [segment in cache for segment in (*old, kept)] == [False, False, True]
    assert b"record 3" in read(log, 3).load()
    assert log.segments[0] in cache


@pytest.mark.parametrize("closes", [True, False])
def test_a_log_that_is_closed_or_abandoned_leaves_the_cache(
    log: PartitionLog, cache: SegmentCache, closes: bool
) -> None:
    read_all(log, cache)
    if closes:
        log.close()
    else:
        log.abandon()
    assert len(cache) == 0
    assert all(segment.loaded_bytes == LOADED_BYTES for segment in log.segments[:-1])


def test_a_flush_keeps_a_segment_that_is_being_read(files: MemoryFiles, log: PartitionLog, cache: SegmentCache) -> None:
    roll(log)
    log.append_as_leader(batch(b"8"), leader_epoch=0)
    read(log, 7)
    log.flush()
    readings = Readings(files)
    read(log, 7)
    assert log.segments[3] in cache
    assert readings.of_indexes() == 0
