from __future__ import annotations

import struct

import pytest

from odradek.log.segments.indexes import OffsetIndex, TimeEntry, TimeIndex


def test_the_offset_index_file_is_big_endian_pairs() -> None:
    index = OffsetIndex()
    index.append(3, 0)
    index.append(2**31 - 1, 4097)
    assert index.encode() == struct.pack(">iiii", 3, 0, 2**31 - 1, 4097)
    decoded = OffsetIndex.decode(index.encode())
    assert decoded is not None
    assert decoded.last() == (2**31 - 1, 4097)


def test_the_time_index_file_is_big_endian_entries_of_twelve_bytes() -> None:
    index = TimeIndex()
    index.append_if_later(1_700_000_000_000, 9)
    index.append_if_later(1_700_000_000_001, 300)
    assert index.encode() == struct.pack(">qiqi", 1_700_000_000_000, 9, 1_700_000_000_001, 300)
    decoded = TimeIndex.decode(index.encode())
    assert decoded is not None
    assert decoded.last() == TimeEntry(1_700_000_000_001, 300)


@pytest.mark.parametrize(("offset", "position"), [(0, 0), (4, 0), (5, 100), (9, 100), (10, 200), (10_000, 200)])
def test_the_position_at_or_below_an_offset(offset: int, position: int) -> None:
    index = OffsetIndex()
    index.append(5, 100)
    index.append(10, 200)
    assert index.floor_position(offset) == position


def test_empty_indexes() -> None:
    assert OffsetIndex().floor_position(7) == 0
    assert OffsetIndex().last() == (0, 0)
    assert TimeIndex().floor(7) is None
    assert TimeIndex().last() is None
    assert OffsetIndex().encode() == TimeIndex().encode() == b""


def test_time_entries_only_rise() -> None:
    index = TimeIndex()
    for timestamp, offset in ((10, 1), (10, 2), (9, 3), (11, 4)):
        index.append_if_later(timestamp, offset)
    assert len(index) == 2
    assert index.floor(10) == TimeEntry(10, 1)
    assert index.floor(9) is None
    assert index.floor(99) == TimeEntry(11, 4)


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (5, 0), (6, 1), (10, 1), (11, 2)])
def test_truncation_drops_entries_at_and_above(offset: int, left: int) -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    for relative, position, timestamp in ((5, 100, 1000), (10, 200, 2000)):
        offsets.append(relative, position)
        times.append_if_later(timestamp, relative)
    offsets.truncate(offset)
    times.truncate(offset)
    assert len(offsets) == len(times) == left


@pytest.mark.parametrize(
    "content",
    [
        b"1234567",
        struct.pack(">iiii", 5, 0, 5, 100),
        struct.pack(">iiii", 5, 100, 6, 100),
        struct.pack(">iiii", 5, 100, 0, 0),
    ],
    ids=["cut short", "same offset", "same position", "zeros at the end, as in a preallocated index after a crash"],
)
def test_a_corrupt_offset_index_is_detected(content: bytes) -> None:
    assert OffsetIndex.decode(content) is None


@pytest.mark.parametrize(
    "content", [b"12345678901", struct.pack(">qiqi", 5, 1, 5, 2), struct.pack(">qiqi", 5, 1, 0, 0)]
)
def test_a_corrupt_time_index_is_detected(content: bytes) -> None:
    assert TimeIndex.decode(content) is None
