"""Lag in seconds: estimates from earlier end offsets, and how many of these are kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.exporter.lag import SAMPLES, OffsetHistory


def history(*samples: tuple[int, float]) -> OffsetHistory:
    made = OffsetHistory()
    for offset, time in samples:
        made.note(offset, time)
    return made


GROWING = ((0, 0.0), (100, 10.0), (300, 20.0))
IDLE = ((0, 0.0), (100, 10.0), (100, 20.0), (100, 30.0), (200, 40.0))


@pytest.mark.parametrize(
    ("samples", "committed", "now", "seconds"),
    [
        (GROWING, 300, 25.0, 0.0),
        (GROWING, 301, 25.0, 0.0),
        (GROWING, 200, 25.0, 10.0),
        (GROWING, 100, 25.0, 15.0),
        (GROWING, 50, 25.0, 20.0),
        (GROWING, 0, 25.0, 25.0),
        (IDLE, 100, 40.0, 10.0),
        (IDLE, 150, 40.0, 5.0),
        (IDLE, 99, 40.0, 30.1),
        (((500, 10.0), (600, 20.0)), 400, 20.0, 20.0),
        (((500, 10.0), (500, 20.0)), 400, 25.0, 15.0),
        (((500, 10.0),), 400, 10.0, None),
        ((), 0, 10.0, None),
    ],
)
def test_the_age_of_the_first_unread_record(
    samples: tuple[tuple[int, float], ...], committed: int, now: float, seconds: float | None
) -> None:
    found = history(*samples).seconds_behind(committed, now)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_an_end_that_falls_voids_what_was_seen_above_it() -> None:
    seen = history((0, 0.0), (100, 10.0), (60, 20.0), (120, 30.0))
    assert seen.seconds_behind(60, 30.0) == pytest.approx(10.0)
    assert seen.seconds_behind(120, 30.0) == 0.0


def test_seeds_reach_back_before_the_first_look() -> None:
    seen = history((500, 1000.0), (510, 1010.0))
    assert not seen.reaches(400)
    assert not seen.is_seeded
    seen.seed([(100, 0.0), (300, 400.0), (450, 940.0)])
    assert seen.is_seeded
    assert seen.reaches(100)
    assert seen.seconds_behind(300, 1010.0) == pytest.approx(610.0)
    assert seen.seconds_behind(375, 1010.0) == pytest.approx(340.0)
    assert seen.seconds_behind(450, 1010.0) == pytest.approx(70.0)


@pytest.mark.parametrize(
    "odd",
    [[(600, 0.0)], [(100, 2000.0)], [(100, 1000.0)], [(100, 10.0), (50, 20.0)], [(100, 10.0), (120, 10.0)]],
    ids=["above", "later", "at the same time", "falling", "standing still"],
)
def test_seeds_that_contradict_are_left_out(odd: list[tuple[int, float]]) -> None:
    seen = history((500, 1000.0))
    seen.seed(odd)
    assert len(seen) <= 2
    assert seen.seconds_behind(500, 1000.0) == 0.0


steps = st.lists(st.tuples(st.integers(0, 1000), st.floats(0.5, 30.0)), min_size=1, max_size=300)


@given(steps, st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 10**5)), max_size=100))
def test_what_is_kept_is_bounded_and_in_order(growth: list[tuple[int, float]], seeds: list[tuple[int, float]]) -> None:
    seen, offset, time = OffsetHistory(), 10**6, 10.0**5 + 1
    for records, seconds in growth:
        offset, time = offset + records, time + seconds
        seen.note(offset, time)
    seen.seed(sorted(seeds))
    assert 1 <= len(seen) <= SAMPLES
    kept = list(zip(seen._offsets, seen._times, strict=True))
    assert all(one[0] <= other[0] and one[1] < other[1] for one, other in pairwise(kept))
    assert kept[-1] == (offset, time)


@given(steps, st.integers(0, 10**6))
def test_who_reads_further_is_never_later(growth: list[tuple[int, float]], behind: int) -> None:
    seen, offset, time = OffsetHistory(), 0, 0.0
    for records, seconds in growth:
        offset, time = offset + records, time + seconds
        seen.note(offset, time)
    now = time + 1.0
    at, ahead = max(0, offset - behind), max(0, offset - behind // 2)
    slow, fast = seen.seconds_behind(at, now), seen.seconds_behind(ahead, now)
    assert slow is None or fast is None or fast <= slow + 1e-6
    assert seen.seconds_behind(offset, now) == 0.0


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(1.0, 20.0)), min_size=2, max_size=SAMPLES - 1), st.data())
def test_the_error_is_at_most_the_time_between_two_looks(growth: list[tuple[int, float]], data: st.DataObject) -> None:
    """The test knows the time of each record and compares the estimate with it."""
    seen, offset, time = history((0, 0.0)), 0, 0.0
    written: list[float] = []
    for records, seconds in growth:
        written += sorted(data.draw(st.lists(st.floats(time, time + seconds), min_size=records, max_size=records)))
        offset, time = offset + records, time + seconds
        seen.note(offset, time)
    committed = data.draw(st.integers(0, offset - 1))
    found = seen.seconds_behind(committed, time)
    assert found is not None
    assert abs(found - (time - written[committed])) <= max(seconds for _, seconds in growth) + 1e-6
