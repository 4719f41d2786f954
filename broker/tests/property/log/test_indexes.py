"""The checks of index files give the same results as a plain loop over the entries."""

from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from odradek.log.segments.indexes import OffsetIndex, TimeIndex

UINT32 = st.integers(0, 2**32 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def rising(values: st.SearchStrategy[int], size: int) -> st.SearchStrategy[list[int]]:
    """Return strictly increasing lists."""
    return st.lists(values, min_size=size, max_size=size, unique=True).map(sorted)


@st.composite
def files(draw: st.DrawFn, form: str, first: st.SearchStrategy[int]) -> bytes:
    """Return a file whose columns rise, with up to two damages: an entry copied or overwritten, or a cut end."""
    count = draw(st.integers(0, 40))
    entries = list(zip(draw(rising(first, count)), draw(rising(UINT32, count)), strict=True))
    for _ in range(draw(st.integers(0, 2)) if entries else 0):
        place = draw(st.integers(0, count - 1))
        other = draw(st.sampled_from(entries) | st.tuples(first, UINT32) | st.just((0, 0)))
        column = draw(st.sampled_from(["both", "first", "second"]))
        known = entries[place]
        entries[place] = (known[0] if column == "second" else other[0], known[1] if column == "first" else other[1])
    content = b"".join(struct.pack(form, *entry) for entry in entries)
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 5)) == 0 else content


def expected_offsets(content: bytes) -> list[tuple[int, int]] | None:
    if len(content) % 8:
        return None
    entries = list(struct.iter_unpack(">II", content))
    for (offset, position), (later_offset, later_position) in pairwise(entries):
        if later_offset <= offset or later_position <= position:
            return None
    return entries


def expected_times(content: bytes) -> list[tuple[int, int]] | None:
    """Offsets are not checked: they may repeat."""
    if len(content) % 12:
        return None
    entries = list(struct.iter_unpack(">qI", content))
    return None if any(later[0] <= earlier[0] for earlier, later in pairwise(entries)) else entries


@given(content=files(">II", UINT32) | st.binary(max_size=64))
@example(b"")
@example(struct.pack(">II", 0, 0))
@example(struct.pack(">IIII", 0, 0, 2**31, 2**31 + 1))
@example(struct.pack(">IIII", 2**31, 5, 2**31 - 1, 6))
@example(struct.pack(">IIII", 1, 2**32 - 1, 2, 0))
@example(struct.pack(">IIIIII", 1, 10, 2, 20, 2, 30))
@example(b"\xff" * 16)
def test_an_offset_index_is_checked_like_entry_by_entry(content: bytes) -> None:
    entries = expected_offsets(content)
    index = OffsetIndex.decode(content)
    assert (index is None) == (entries is None)
    if index is not None and entries is not None:
        assert index.encode() == content
        assert len(index) == len(entries)
        assert index.last() == (entries[-1] if entries else (0, 0))
        assert all(index.floor_position(offset) == position for offset, position in entries)


@given(content=files(">qI", INT64) | st.binary(max_size=96))
@example(b"")
@example(struct.pack(">qI", 0, 0))
@example(struct.pack(">qIqI", -1, 5, 0, 5))
@example(struct.pack(">qIqI", 5, 9, 6, 3))
@example(struct.pack(">qIqI", 5, 1, 5, 2))
@example(struct.pack(">qIqI", -(2**63), 2**32 - 1, 2**63 - 1, 2**31))
def test_a_time_index_is_checked_like_entry_by_entry(content: bytes) -> None:
    entries = expected_times(content)
    index = TimeIndex.decode(content)
    assert (index is None) == (entries is None)
    if index is not None and entries is not None:
        assert index.encode() == content
        assert len(index) == len(entries)
        assert index.last() == (entries[-1] if entries else None)
        assert all(index.floor(timestamp) == (timestamp, offset) for timestamp, offset in entries)


def test_an_index_can_grow_after_it_was_decoded() -> None:
    index = OffsetIndex.decode(struct.pack(">IIII", 1, 10, 2, 20))
    assert index is not None
    index.append(3, 30)
    assert index.encode() == struct.pack(">IIIIII", 1, 10, 2, 20, 3, 30)
    index.truncate(2)
    assert len(index) == 1
