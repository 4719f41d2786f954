"""Compares the starts of records found in runs with those found by following the lengths one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.records.v2.record_starts import find_record_starts
from odradek.records.v2.varint import encode_varint

LENGTHS = st.integers(1, 200) | st.integers(8000, 8400)


@given(
    st.lists(st.tuples(LENGTHS, st.integers(1, 120)), max_size=12),
    st.lists(LENGTHS, max_size=120),
    st.integers(0, 20),
)
def test_begins_are_those_of_one_record_after_the_other(
    runs: list[tuple[int, int]], others: list[int], before: int
) -> None:
    lengths = [length for length, count in runs for _ in range(count)] + others
    records = [encode_varint(length) + b"\x05" * length for length in lengths]
    data = b"\xff" * before + b"".join(records)
    expected = (before + np.cumsum([0, *map(len, records)])).tolist()
    parts, end = find_record_starts(data, before, len(records))
    assert [begin for part in parts for begin in part.tolist()] == expected[:-1]
    assert end == expected[-1]


@given(st.lists(LENGTHS, min_size=1, max_size=60), st.data())
def test_a_truncated_record_is_detected(lengths: list[int], data: st.DataObject) -> None:
    whole = b"".join(encode_varint(length) + b"\x05" * length for length in lengths)
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        _, end = find_record_starts(whole[:cut], 0, len(lengths))
    except CorruptMessageError:
        return
    # If the length of the last record is complete, its end shows the caller that its bytes are missing.
    assert end > cut
