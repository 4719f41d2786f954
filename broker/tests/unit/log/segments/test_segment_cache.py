"""The cache of loaded sealed segments: its bounds, the order of releases, and segments that leave it."""

from __future__ import annotations

import pytest

from odradek.log.segments.indexes import OffsetIndex, TimeIndex
from odradek.log.segments.segment import LOADED_BYTES, Segment
from odradek.log.segments.segment_cache import SegmentCache
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek_testkit.disk import MemoryFiles

ENTRIES = 100
SEGMENT_BYTES = LOADED_BYTES + 8 * ENTRIES


def sealed(files: MemoryFiles, base_offset: int, entries: int = ENTRIES) -> Segment:
    """Return a sealed, loaded segment without batches, whose offset index has some entries."""
    files.make_directories("/data")
    segment = Segment(files, "/data", base_offset, created_ms=0)
    segment.create()
    index = OffsetIndex()
    for number in range(entries):
        index.append(number, 100 * number)
    segment.set_indexes(index, TimeIndex(), TransactionIndex())
    segment.write_indexes()
    segment.indexes_written = True
    return segment


def is_loaded(segment: Segment) -> bool:
    return segment.loaded_bytes > LOADED_BYTES


@pytest.fixture
def segments(files: MemoryFiles) -> list[Segment]:
    return [sealed(files, base) for base in range(4)]


def test_memory_is_that_of_the_entries(files: MemoryFiles) -> None:
    segment = sealed(files, 0)
    times, aborted = TimeIndex(), TransactionIndex()
    times.append_if_later(5, 0)
    aborted.append(AbortedTxn(1, 0, 1, 2))
    assert (times.memory_bytes, segment.loaded_bytes) == (12, SEGMENT_BYTES)
    segment.set_indexes(segment.offset_index, times, aborted)
    assert segment.loaded_bytes == SEGMENT_BYTES + 12 + aborted.memory_bytes
    segment.indexes_written = True
    segment.release()
    assert segment.loaded_bytes == LOADED_BYTES
    segment.load()
    assert segment.loaded_bytes == SEGMENT_BYTES


@pytest.mark.parametrize(
    "cache",
    [SegmentCache(max_bytes=2 * SEGMENT_BYTES), SegmentCache(max_files=2)],
    ids=["bytes", "files"],
)
def test_the_least_recently_used_segment_is_released(cache: SegmentCache, segments: list[Segment]) -> None:
    first, second, third, fourth = segments
    cache.use(first)
    cache.use(second)
    cache.use(first)
    cache.use(third)
    assert [is_loaded(one) for one in (first, second, third)] == [True, False, True]
    assert (second in cache, len(cache), cache.total_bytes) == (False, 2, 2 * SEGMENT_BYTES)
    cache.use(fourth)
    assert [is_loaded(one) for one in (first, third, fourth)] == [False, True, True]


def test_the_segment_used_last_stays_whatever_its_size(segments: list[Segment]) -> None:
    cache = SegmentCache(max_bytes=0, max_files=0)
    for segment in segments[:2]:
        cache.use(segment)
        assert is_loaded(segment)
        assert (len(cache), cache.total_bytes) == (1, SEGMENT_BYTES)
    assert not is_loaded(segments[0])


def test_a_lower_bound_applies_at_the_next_use(segments: list[Segment]) -> None:
    cache = SegmentCache()
    for segment in segments:
        cache.use(segment)
    cache.max_bytes = 2 * SEGMENT_BYTES
    cache.use(segments[0])
    assert [is_loaded(one) for one in segments] == [True, False, False, True]


def test_an_index_that_is_loaded_later_is_counted_at_the_next_use(files: MemoryFiles) -> None:
    segment, other = sealed(files, 0), sealed(files, 1)
    times = TimeIndex()
    for number in range(1000):
        times.append_if_later(number, number)
    segment.set_indexes(segment.offset_index, times, TransactionIndex())
    segment.write_indexes()
    segment.indexes_written = True
    segment.release()
    cache = SegmentCache(max_bytes=10_000)
    cache.use(other)
    segment.load()
    cache.use(segment)
    assert cache.total_bytes == 2 * SEGMENT_BYTES
    segment.load(time_index=True)
    cache.use(segment)
    assert cache.total_bytes == SEGMENT_BYTES + 12 * 1000
    assert not is_loaded(other)


def test_a_forgotten_segment_stays_as_it_is(segments: list[Segment]) -> None:
    cache = SegmentCache()
    first, second, third, _ = segments
    cache.use(first)
    cache.use(second)
    cache.forget((first, third))
    assert is_loaded(first)
    assert (first in cache, second in cache, cache.total_bytes) == (False, True, SEGMENT_BYTES)
    cache.forget(segments)
    assert (len(cache), cache.total_bytes) == (0, 0)


def test_a_file_in_use_can_be_read_after_its_segment_was_released(segments: list[Segment]) -> None:
    cache = SegmentCache(max_files=1)
    first, second = segments[:2]
    first.file.pwritev((b"batches",), 0)
    held = first.file
    cache.use(first)
    cache.use(second)
    assert not first.holds(held)
    assert held.pread(7, 0) == b"batches"
