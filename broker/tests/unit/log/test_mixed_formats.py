"""Logs whose segments contain entries of several record formats, as after an upgrade."""

from __future__ import annotations

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import UnsupportedForMessageFormatError
from odradek.compression import Codec
from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.entries import whole_batches
from odradek.log.values import TimestampOffset
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, old_set, open_log, small_segments
from odradek_testkit.loop import ManualClock

T0 = 1_600_000_000_000
CONFIG = small_segments(segment_bytes=1 << 20)
BEGINS = [0, 1, 2, 5, 6, 8, 9]
"""First offsets of the entries of `mixed`."""


def mixed(files: MemoryFiles, clock: ManualClock, config: TopicConfig = CONFIG) -> PartitionLog:
    """Format 0: the smallest message at 0, one at 1, a wrapper at 2..4; 1: 5, a wrapper at 6..7; 2: 8 and 9..10."""
    log = open_log(files, clock, config=config)
    for entry in (
        smallest(),
        old_set(b"b", magic=0, base_offset=1),
        old_set(b"c", b"d", b"e", magic=0, codec=Codec.GZIP, base_offset=2),
        old_set(b"f", magic=1, base_offset=5, timestamp_ms=T0 + 50),
        old_set(b"g", b"h", magic=1, codec=Codec.LZ4, base_offset=6, timestamp_ms=T0 + 60),
        batch(b"i", base_offset=8, leader_epoch=3, timestamp_ms=T0 + 40),
        batch(b"j", b"k", base_offset=9, leader_epoch=3, timestamp_ms=T0 + 90),
    ):
        log.append_as_follower(entry)
    log.high_watermark = log.log_end_offset
    return log


def smallest() -> memoryview:
    """A format 0 message without key and value: 26 bytes."""
    return memoryview(bytearray(encode_set([(0, -1, None, None)], magic=0)))


def records(log: PartitionLog) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes=200).load()
        for position, header in iterate_entries(content):
            found |= {r.offset: r.value for r in iterate_records(content, position, header, limit=1 << 20)}
            offset = header.next_offset
    return found


VALUES = {0: None, **{offset: bytes([96 + offset + 1]) for offset in range(1, 11)}}


@pytest.mark.parametrize("segment_bytes", [100, 200, 1 << 20])
@pytest.mark.parametrize("clean", [None, False, True])
def test_every_record_is_read_before_and_after_a_stop(
    files: MemoryFiles, clock: ManualClock, segment_bytes: int, clean: bool | None
) -> None:
    config = small_segments(segment_bytes=segment_bytes)
    log = mixed(files, clock, config)
    if clean is not None:
        if clean:
            log.close()
        log = open_log(files, clock, config=config, clean=clean)
    assert records(log) == VALUES
    assert log.log_end_offset == 11
    for offset in range(11):
        begins = [begin for begin in BEGINS if begin <= offset]
        content = log.read(offset, max_bytes=1).load()
        _, header = next(iterate_entries(content))
        assert header.last_offset == ([*BEGINS, 11][BEGINS.index(begins[-1]) + 1]) - 1


@pytest.mark.parametrize("offset", range(11))
@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
def test_truncation_takes_a_wrapper_as_a_whole(
    files: MemoryFiles, clock: ManualClock, offset: int, segment_bytes: int
) -> None:
    config = small_segments(segment_bytes=segment_bytes)
    log = mixed(files, clock, config)
    log.truncate_to(offset)
    end = max(begin for begin in BEGINS if begin <= offset)
    assert log.log_end_offset == end
    kept = {known: value for known, value in VALUES.items() if known < end}
    assert records(log) == kept
    log.append_as_leader(batch(b"next"), leader_epoch=9)
    assert records(log) == {**kept, end: b"next"}
    assert records(open_log(files, clock, config=config)) == {**kept, end: b"next"}


@pytest.mark.parametrize("offset", [5, 6])
def test_truncation_within_a_wrapper_that_begins_below_its_segment(
    files: MemoryFiles, clock: ManualClock, offset: int
) -> None:
    """The log of a follower whose leader's log begins within a wrapper begins and ends at the same offsets."""
    log = open_log(files, clock, config=CONFIG)
    log.truncate_fully_and_start_at(5)
    log.append_as_follower(old_set(b"d", b"e", b"f", b"g", magic=1, codec=Codec.GZIP, base_offset=3))
    log.append_as_follower(old_set(b"h", magic=1, base_offset=7))
    assert (log.segments[0].base_offset, log.log_start_offset, log.log_end_offset) == (5, 5, 8)
    log.truncate_to(offset)
    assert (log.segments[0].base_offset, log.log_start_offset, log.log_end_offset) == (3, 3, 3)
    log.append_as_follower(old_set(b"new", magic=1, base_offset=3))
    log.flush()
    again = open_log(files, clock, config=CONFIG)
    assert (again.log_start_offset, again.log_end_offset, records(again)) == (3, 4, {3: b"new"})


def test_an_unreadable_wrapper_is_truncated_as_well(files: MemoryFiles, clock: ManualClock) -> None:
    log = mixed(files, clock)
    begin = log.active_segment.locate(3)
    assert begin is not None
    log.active_segment.file.pwritev((bytes(begin.size - 30),), begin.position + 30)
    log.truncate_to(3)
    assert log.log_end_offset == 3
    assert log.active_segment.size == begin.position


@pytest.mark.parametrize("damaged", range(7))
def test_a_wrong_entry_of_any_format_ends_the_log(files: MemoryFiles, clock: ManualClock, damaged: int) -> None:
    log = mixed(files, clock)
    place = log.active_segment.locate(BEGINS[damaged])
    assert place is not None
    (last,) = log.active_segment.file.pread(1, place.position + place.size - 1)
    log.active_segment.file.pwritev((bytes([last ^ 1]),), place.position + place.size - 1)
    again = open_log(files, clock, config=CONFIG)
    assert again.log_end_offset == BEGINS[damaged]
    assert files.size(f"{DIRECTORY}/{0:020d}.log") == place.position


@pytest.mark.parametrize("reopened", [False, True])
def test_times_are_found_in_every_format_that_has_them(files: MemoryFiles, clock: ManualClock, reopened: bool) -> None:
    log = mixed(files, clock)
    if reopened:
        log.close()
        log = open_log(files, clock, config=CONFIG, clean=True)
    assert log.offset_for_timestamp(0) == TimestampOffset(T0 + 50, 5, -1)
    assert log.offset_for_timestamp(T0 + 61) == TimestampOffset(T0 + 61, 7, -1)
    assert log.offset_for_timestamp(T0 + 62) == TimestampOffset(T0 + 90, 9, 3)
    assert log.max_timestamp_offset() == TimestampOffset(T0 + 91, 10, 3)
    assert log.offset_for_timestamp(T0 + 92) is None


def test_the_newest_record_may_be_inside_a_wrapper(files: MemoryFiles, clock: ManualClock) -> None:
    log = mixed(files, clock)
    log.truncate_to(9)
    assert log.max_timestamp_offset() == TimestampOffset(T0 + 61, 7, -1)
    log.truncate_to(5)
    assert log.max_timestamp_offset() is None
    assert log.active_segment.max_timestamp == -1


def test_a_topic_without_times_is_not_searched_by_them(files: MemoryFiles, clock: ManualClock) -> None:
    log = mixed(files, clock)
    log.update_config(TopicConfig(message_format_version="0.9.0"))
    with pytest.raises(UnsupportedForMessageFormatError):
        log.offset_for_timestamp(T0)


def test_an_old_entry_makes_the_epochs_unknown(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    """The epoch of an old message is unknown, so truncation must use the high watermark (KIP-101)."""
    log = mixed(files, clock)
    assert log.end_offset_for_epoch(3) == EpochEndOffset(3, 11)
    log.append_as_follower(old_set(b"l", magic=1, base_offset=11))
    assert (log.latest_epoch, log.end_offset_for_epoch(3)) == (-1, EpochEndOffset(-1, -1))
    old = open_log(MemoryFiles(), clock, config=TopicConfig(message_format_version="0.10.2"))
    old.append_as_leader(batch(b"v"), leader_epoch=5)
    assert old.latest_epoch == -1


def test_segments_without_times_are_trusted_after_a_clean_stop(files: MemoryFiles, clock: ManualClock) -> None:
    config = small_segments(segment_bytes=100)
    log = open_log(files, clock, config=config)
    for offset in range(9):
        log.append_as_follower(old_set(b"v" * 20, magic=0, base_offset=offset))
    assert len(log.segments) > 3
    log.close()
    walked: list[str] = []
    files.fail = lambda operation, where: walked.append(where) if operation == "truncate" else None  # type: ignore[func-returns-value]
    again = open_log(files, clock, config=config, clean=True)
    assert not walked
    assert again.log_end_offset == 9
    assert [segment.indexes_written for segment in again.segments[:-1]] == [True] * (len(again.segments) - 1)


@pytest.mark.parametrize("cut", [1, 10, 15, 16, 17, 25])
def test_an_entry_that_a_fetch_truncated_is_ignored(cut: int) -> None:
    whole = bytes(old_set(b"a", magic=0)) + bytes(old_set(b"b", magic=1, base_offset=1))
    assert whole_batches(whole) == len(whole)
    assert whole_batches(whole + bytes(batch(b"c", base_offset=2))[:cut]) == len(whole)
    assert whole_batches(whole + bytes(old_set(b"c", magic=0, base_offset=2))[:cut]) == len(whole)
