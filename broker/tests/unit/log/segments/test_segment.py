from __future__ import annotations

import struct

import pytest

from odradek.base.errors import CorruptMessageError, StorageError
from odradek.base.types import NO_TIMESTAMP
from odradek.log.segments.entries import BatchPlace, whole_batches
from odradek.log.segments.expired_files import mark_deleted
from odradek.log.segments.segment import Segment, file_name
from odradek.records.v2.batch import read_header
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import batch

BASE = 100
T0 = 1_700_000_000_000


@pytest.fixture
def segment(files: MemoryFiles) -> Segment:
    files.make_directories("/data")
    made = Segment(files, "/data", BASE, created_ms=5)
    made.create()
    return made


def fill(segment: Segment, *counts: int, interval: int = 0, timestamps: tuple[int, ...] = ()) -> list[BatchPlace]:
    """Append one batch for each number of records. Returns their positions."""
    places = []
    offset = BASE
    for place, count in enumerate(counts):
        timestamp_ms = timestamps[place] if timestamps else T0 + place * 10
        records = batch(*[b"v"] * count, timestamp_ms=timestamp_ms, base_offset=offset)
        places.append(BatchPlace(segment.size, len(records), offset, offset + count - 1))
        segment.append(records, (read_header(records),), offset, interval)
        offset += count
    return places


def test_file_names_are_kafkas() -> None:
    assert file_name(368769, ".log") == "00000000000000368769.log"
    assert file_name(0, ".timeindex") == "00000000000000000000.timeindex"


@pytest.mark.parametrize("interval", [0, 100, 10**6])
def test_every_offset_is_located_with_dense_sparse_and_no_index(segment: Segment, interval: int) -> None:
    places = fill(segment, 1, 5, 2, 1, 30, 1, interval=interval)
    for place in places:
        for offset in range(place.base_offset, place.last_offset + 1):
            assert segment.locate(offset) == place
    assert segment.locate(places[-1].last_offset + 1) is None
    assert segment.locate(BASE - 50) == places[0]


def test_a_batch_above_the_bound_is_not_located(segment: Segment) -> None:
    places = fill(segment, 2, 2)
    assert segment.locate(BASE + 2, within=places[1].position) is None
    assert segment.locate(BASE, within=places[1].position) == places[0]


def test_large_batches_are_stepped_over(segment: Segment) -> None:
    records = batch(b"x" * 50_000, base_offset=BASE)
    segment.append(records, (read_header(records),), BASE, 10**6)
    later = batch(b"y", base_offset=BASE + 1)
    segment.append(later, (read_header(later),), BASE + 1, 10**6)
    place = segment.locate(BASE + 1)
    assert place is not None
    assert place.position == len(records)
    assert [header.base_offset for _, header in segment.headers()] == [BASE, BASE + 1]


def test_index_entries_come_after_the_interval(segment: Segment) -> None:
    size = len(batch(b"v"))
    fill(segment, 1, 1, 1, 1, 1, interval=2 * size)
    # An entry is added after MORE than the interval: before the fourth batch.
    assert segment.offset_index.encode() == struct.pack(">ii", 3, 3 * size)
    assert segment.time_index.encode() == struct.pack(">qi", T0 + 30, 3)


def test_a_gap_of_offsets_reads_the_next_batch(segment: Segment) -> None:
    for offset in (BASE, BASE + 50):
        records = batch(b"v", base_offset=offset)
        segment.append_at(records, (read_header(records),), 0)
    place = segment.locate(BASE + 10)
    assert place is not None
    assert place.base_offset == BASE + 50
    assert segment.next_offset() == BASE + 51


def test_the_largest_timestamp_is_that_of_the_newest_record_not_of_the_last(segment: Segment) -> None:
    fill(segment, 1, 1, 1, timestamps=(T0 + 10, T0 + 90, T0 + 50))
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (T0 + 90, BASE + 1)
    assert segment.load_first_timestamp() == T0 + 10


def test_truncation_removes_the_batch_that_contains_the_offset(segment: Segment) -> None:
    places = fill(segment, 2, 3, 2, timestamps=(T0 + 50, T0 + 90, T0 + 60))
    assert segment.truncate(BASE + 3) == places[1].base_offset
    assert segment.size == segment.file.size() == places[1].position
    assert segment.next_offset() == BASE + 2
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (T0 + 51, BASE + 1)
    assert segment.truncate(BASE + 2) is None
    assert segment.truncate(0) == places[0].base_offset
    assert (segment.size, segment.max_timestamp) == (0, NO_TIMESTAMP)


def test_sealed_indexes_come_back_from_their_files(segment: Segment, files: MemoryFiles) -> None:
    places = fill(segment, 1, 1, 1, 1, timestamps=(T0, T0 + 5, T0 + 9, T0 + 7))
    segment.seal()
    segment.write_indexes()
    segment.indexes_written = True
    segment.release()
    assert segment.locate(BASE + 2) == places[2]
    assert files.read("/data/00000000000000000100.timeindex")[-12:] == struct.pack(">qi", T0 + 9, 2)


def test_release_keeps_indexes_that_are_not_written(segment: Segment) -> None:
    places = fill(segment, 1, 1, 1)
    segment.release()
    assert len(segment.offset_index) == 2
    assert segment.locate(BASE + 2) == places[2]


def test_a_corrupt_index_file_counts_as_empty(segment: Segment, files: MemoryFiles) -> None:
    places = fill(segment, 1, 1, 1)
    segment.seal()
    segment.write_indexes()
    segment.indexes_written = True
    segment.release()
    files.write_atomically("/data/00000000000000000100.index", b"garbage")
    files.remove("/data/00000000000000000100.timeindex")
    assert segment.locate(BASE + 1) == places[1]
    assert [header.base_offset for _, header in segment.batches_for_timestamp(T0 + 10, 0)] == [BASE + 1, BASE + 2]


@pytest.mark.parametrize(("timestamp", "first"), [(0, 0), (T0, 0), (T0 + 1, 1), (T0 + 90, 1), (T0 + 91, None)])
def test_batches_for_a_timestamp(segment: Segment, timestamp: int, first: int | None) -> None:
    fill(segment, 1, 1, 1, timestamps=(T0, T0 + 90, T0 + 60))
    found = [header.base_offset - BASE for _, header in segment.batches_for_timestamp(timestamp, 0)]
    assert (found[0] if found else None) == first


def test_the_index_is_full_at_its_bound(segment: Segment) -> None:
    segment.limit_indexes(48)
    fill(segment, 1, 1, 1)
    assert not segment.index_full
    last = batch(b"v", timestamp_ms=T0 + 30, base_offset=BASE + 3)
    segment.append(last, (read_header(last),), BASE + 3, 0)
    # 48 bytes have space for six offset entries and four time entries, one of which is reserved for sealing.
    assert segment.index_full
    segment.limit_indexes(60)
    assert not segment.index_full


def test_a_failed_write_changes_nothing(segment: Segment, files: MemoryFiles) -> None:
    fill(segment, 1)
    size, entries = segment.size, len(segment.offset_index)
    files.capacity_bytes = files.capacity_bytes - files.room() + 10
    records = batch(b"v" * 100, base_offset=BASE + 1)
    with pytest.raises(StorageError) as caught:
        segment.append(records, (read_header(records),), BASE + 1, 0)
    assert caught.value.full
    assert (segment.size, len(segment.offset_index)) == (size, entries)
    assert segment.file.size() == size + 10
    segment.cut_debris()
    assert segment.file.size() == size


def test_bytes_that_are_not_batches_are_detected(segment: Segment) -> None:
    segment.file.pwritev((bytes(200),), 0)
    segment.size = 200
    with pytest.raises(CorruptMessageError):
        segment.locate(BASE + 5)
    with pytest.raises(CorruptMessageError):
        list(segment.headers())


def test_marking_deleted_renames_all_files(segment: Segment, files: MemoryFiles) -> None:
    fill(segment, 1)
    segment.write_indexes()
    files.write_atomically(segment.path(".snapshot"), b"")
    reader = segment.file
    renamed = mark_deleted(segment)
    assert files.list("/data") == sorted(path.removeprefix("/data/") for path in renamed)
    assert all(path.endswith(".deleted") for path in renamed)
    assert len(renamed) == 4
    assert len(reader.pread(61, 0)) == 61


def test_complete_batches_of_a_truncated_record_set() -> None:
    first, second = bytes(batch(b"a")), bytes(batch(b"bb"))
    both = first + second
    assert whole_batches(both) == len(both)
    assert whole_batches(both[:-1]) == len(first)
    assert whole_batches(both[: len(first) + 5]) == len(first)
    assert whole_batches(first[:-1]) == 0
    assert whole_batches(b"") == 0
    lying = first + bytes(61)
    assert whole_batches(lying) == len(lying)
