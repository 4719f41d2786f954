"""The cleanable range of a log, the choice of the dirtiest log, and the grouping of segments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.log.compaction.cleaning_decisions import (
    INT32_MAX,
    INT64_MAX,
    CleaningRange,
    LogFacts,
    SegmentSizes,
    cleaning_range,
    dirtiest,
    group_segments,
)
from odradek.log.values import SegmentView

NOW_MS = 1_000_000


def view(base_offset: int, next_offset: int, *, size: int = 100, newest_ms: int = 0) -> SegmentView:
    return SegmentView(
        base_offset=base_offset,
        next_offset=next_offset,
        size=size,
        newest_ms=newest_ms,
        path=f"/data/t-0/{base_offset:020d}.log",
        changed_ms=newest_ms,
    )


SEGMENTS = (view(0, 10), view(10, 20, size=200), view(20, 30, size=300))


def facts(segments: Sequence[SegmentView] = SEGMENTS, **changes: object) -> LogFacts:
    values: dict[str, object] = {
        "segments": segments,
        "log_start_offset": 0,
        "log_end_offset": 35,
        "checkpointed_offset": None,
        "min_dirty_ratio": 0.5,
        "min_lag_ms": 0,
        "max_lag_ms": INT64_MAX,
        "deletes": False,
        **changes,
    }
    return LogFacts(**values)  # type: ignore[arg-type]


def never(_: SegmentView) -> int:
    raise AssertionError("called although it is not needed")


@pytest.mark.parametrize(
    ("checkpointed", "expected"),
    [
        (None, (0, 30, 0, 600)),
        (0, (0, 30, 0, 600)),
        (10, (10, 30, 100, 500)),
        # In the middle of a segment: its bytes count as clean and as dirty, because they are read for both.
        (15, (15, 30, 300, 500)),
        (20, (20, 30, 300, 300)),
        (30, (30, 30, 600, 0)),
        (33, (33, 33, 600, 0)),
    ],
)
def test_the_dirty_part_begins_at_the_checkpointed_offset(checkpointed: int | None, expected: tuple[int, ...]) -> None:
    found = cleaning_range(facts(checkpointed_offset=checkpointed), NOW_MS, never)
    assert found[:4] == expected
    assert not found.reset_reason


@pytest.mark.parametrize(
    ("checkpointed", "start", "deletes", "reason"),
    [
        (5, 10, False, "is below the log start 10"),
        (5, 10, True, ""),
        (36, 10, False, "is above the log end 35"),
        (36, 10, True, "is above the log end 35"),
    ],
)
def test_an_impossible_offset_is_reset_to_the_log_start(
    checkpointed: int, start: int, deletes: bool, reason: str
) -> None:
    found = cleaning_range(
        facts(SEGMENTS[1:], checkpointed_offset=checkpointed, log_start_offset=start, deletes=deletes), NOW_MS, never
    )
    assert (found.first_dirty_offset, found.reset_reason) == (10, reason)


def test_nothing_to_clean() -> None:
    found = cleaning_range(facts(()), NOW_MS, never)
    assert found == CleaningRange(0, 0, 0, 0, 0)
    assert found.ratio == 0.0
    assert not found.is_due(0.0)


def test_the_first_segment_with_a_young_record_ends_the_range() -> None:
    segments = (view(0, 10, newest_ms=NOW_MS - 500), view(10, 20, newest_ms=NOW_MS - 99), view(20, 30, newest_ms=0))
    found = cleaning_range(facts(segments, min_lag_ms=100), NOW_MS, never)
    assert (found.end_offset, found.cleanable_bytes) == (10, 100)
    assert cleaning_range(facts(segments, min_lag_ms=99), NOW_MS, never).end_offset == 30
    # Clean records do not delay the cleaning of others.
    assert cleaning_range(facts(segments, min_lag_ms=100, checkpointed_offset=20), NOW_MS, never).end_offset == 30


def test_an_old_record_makes_a_log_due_at_any_dirty_ratio() -> None:
    timestamps = {0: 1, 10: NOW_MS - 300, 20: -1}

    def first_timestamp(segment: SegmentView) -> int:
        return timestamps[segment.base_offset]

    for max_lag_ms, delay_ms in ((200, 100), (300, 0), (301, 0)):
        found = cleaning_range(facts(checkpointed_offset=10, max_lag_ms=max_lag_ms), NOW_MS, first_timestamp)
        assert found.delay_ms == delay_ms
        assert found.is_due(1.0) is (delay_ms > 0)
    # Nothing in it may be cleaned yet, so it waits.
    young = tuple(view(each.base_offset, each.next_offset, newest_ms=NOW_MS) for each in SEGMENTS)
    found = cleaning_range(facts(young, checkpointed_offset=10, max_lag_ms=200, min_lag_ms=1), NOW_MS, first_timestamp)
    assert (found.delay_ms, found.is_due(0.0)) == (100, False)


def test_the_ratio_has_to_be_passed() -> None:
    found = CleaningRange(10, 20, clean_bytes=100, cleanable_bytes=100, delay_ms=0)
    assert found.ratio == 0.5
    assert not found.is_due(0.5)
    assert found.is_due(0.49)


def test_the_dirtiest_of_those_that_are_due() -> None:
    half = CleaningRange(0, 9, 100, 100, 0)
    most = CleaningRange(0, 9, 100, 300, 0)
    late = CleaningRange(0, 9, 100, 1, 5)
    assert dirtiest({"half": (half, 0.1), "most": (most, 0.1)}) == "most"
    assert dirtiest({"half": (half, 0.1), "most": (most, 0.9)}) == "half"
    assert dirtiest({"half": (half, 0.9), "late": (late, 0.9)}) == "late"
    assert dirtiest({"half": (half, 0.9)}) is None
    assert dirtiest({}) is None


def sizes(*segments: tuple[int, int, int, int, int]) -> list[SegmentSizes]:
    return [SegmentSizes(*segment) for segment in segments]


@pytest.mark.parametrize(
    ("segments", "groups"),
    [
        ([], []),
        (sizes((0, 5, 40, 1, 1), (5, 9, 60, 1, 1), (9, 12, 1, 1, 1)), [(0, 5), (9,)]),
        (sizes((0, 5, 500, 1, 1), (5, 9, 500, 1, 1)), [(0,), (5,)]),
        (sizes((0, 5, 1, 6, 1), (5, 9, 1, 5, 1)), [(0,), (5,)]),
        (sizes((0, 5, 1, 1, 6), (5, 9, 1, 1, 5)), [(0,), (5,)]),
        (sizes((0, 5, 1, 5, 5), (5, 9, 1, 5, 5)), [(0, 5)]),
        (sizes((0, 5, 1, 0, 0), (5, INT32_MAX + 1, 1, 0, 0)), [(0, 5)]),
        (sizes((0, 5, 1, 0, 0), (5, INT32_MAX + 2, 1, 0, 0)), [(0,), (5,)]),
        # An empty segment has no offsets in its index.
        (sizes((0, 5, 1, 0, 0), (5, INT32_MAX + 9, 0, 0, 0)), [(0, 5)]),
    ],
)
def test_neighbours_are_grouped_as_far_as_one_segment_may_reach(
    segments: list[SegmentSizes], groups: list[tuple[int, ...]]
) -> None:
    assert group_segments(segments, 100, 10) == groups
