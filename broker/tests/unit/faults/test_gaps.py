"""The computation of the longest time without an acknowledgement."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordeal.gaps import longest_gaps
from ordeal.records import ACK, Acks


def acks(*entries: tuple[int, float]) -> Acks:
    """Return acknowledgements from pairs of partition and time in seconds."""
    return np.array([(partition, 0, 0, at) for partition, at in entries], ACK)


def test_a_gap_counts_from_the_fault() -> None:
    found = longest_gaps(acks((0, 9.9), (0, 12.5), (0, 12.6)), 1, 10.0, 12.7)
    assert found == pytest.approx([2500.0])


def test_a_gap_may_come_later_than_the_fault() -> None:
    """A controlled shutdown takes some time before the first leader moves."""
    assert longest_gaps(acks((0, 10.1), (0, 10.2), (0, 10.9), (0, 11.0)), 1, 10.0, 11.1) == pytest.approx([700.0])


def test_a_partition_that_stays_away_has_the_whole_time() -> None:
    assert longest_gaps(acks((0, 10.5)), 2, 10.0, 11.0) == pytest.approx([500.0, 1000.0])


def test_acknowledgements_of_several_clients_need_no_order() -> None:
    assert longest_gaps(acks((1, 10.8), (0, 10.5), (1, 10.4)), 2, 10.0, 11.0) == pytest.approx([500.0, 400.0])


def test_a_time_cannot_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="end is before the beginning"):
        longest_gaps(acks(), 1, 2.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10))), st.floats(0, 5), st.floats(5, 10))
def test_the_longest_gap_is_as_if_counted_one_by_one(
    entries: list[tuple[int, float]], begin: float, end: float
) -> None:
    found = longest_gaps(acks(*entries), 4, begin, end)
    for partition in range(4):
        times = sorted(at for number, at in entries if number == partition and begin < at <= end)
        points = [begin, *times, end]
        assert found[partition] == pytest.approx(max(b - a for a, b in pairwise(points)) * 1000)
