"""Runs of offsets: what they translate, and what is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.mirror.offset_translation import (
    MAX_RUNS,
    MAX_SLACK,
    RUN_OFFSETS,
    OffsetRun,
    OffsetRuns,
    OffsetTranslation,
    joined_runs,
    runs_with,
)

PARTITION = TopicPartition("orders", 0)


def test_a_run_without_gaps_is_exact() -> None:
    run = OffsetRun(100, 7).extended(110, 17)
    assert [run.translate(offset) for offset in (100, 105, 110, 500)] == [7, 12, 17, 17]


def test_a_run_with_lost_records_is_never_too_high() -> None:
    # Of the source offsets 0 to 9, the target has six records.
    run = OffsetRun(0, 0).extended(10, 6)
    assert run == OffsetRun(0, 0, 10, 4, 6)
    assert [run.translate(offset) for offset in (0, 4, 5, 9, 10)] == [0, 0, 1, 5, 6]


def test_markers_in_the_target_do_not_raise_a_translation() -> None:
    run = OffsetRun(0, 0).extended(10, 11).extended(20, 22)
    assert run == OffsetRun(0, 0, 20, 0, 22)
    assert [run.translate(offset) for offset in (0, 10, 19, 20)] == [0, 10, 19, 22]


def test_a_sync_of_mirrormaker_is_one_record() -> None:
    run = OffsetRun.from_record(5, 3, None)
    assert [run.translate(offset) for offset in (5, 6, 100)] == [3, 4, 4]


def test_the_header_keeps_the_run() -> None:
    run = OffsetRun(5, 3, 10, 2, 11)
    assert OffsetRun.from_record(5, 3, run.to_header()) == run
    with pytest.raises(ConfigError, match="has 3 bytes"):
        OffsetRun.from_record(5, 3, b"abc")
    with pytest.raises(ConfigError, match="not possible"):
        OffsetRun.from_record(12, 12, run.to_header())


def test_offsets_before_all_runs_are_unknown() -> None:
    translation = OffsetTranslation()
    assert translation.translate(PARTITION, 5) is None
    translation.add(PARTITION, OffsetRun(10, 0, 5, 0, 5))
    assert translation.translate(PARTITION, 9) is None
    assert translation.translate(PARTITION, 12) == 2
    translation.forget(PARTITION)
    assert translation.translate(PARTITION, 12) is None


def test_a_partition_that_is_copied_again_is_translated_to_the_new_copy() -> None:
    runs = OffsetRuns()
    runs.add(OffsetRun(0, 0, 100, 0, 100))
    runs.add(OffsetRun(100, 100, 50, 0, 150))
    runs.add(OffsetRun(20, 150, 10, 0, 160))
    assert len(runs) == 1
    assert [runs.translate(offset) for offset in (10, 25, 120)] == [None, 155, 160]


def test_a_target_that_begins_again_is_noticed() -> None:
    runs = OffsetRuns()
    runs.add(OffsetRun(0, 1000, 100, 0, 1100))
    runs.add(OffsetRun(100, 0, 10, 0, 10))
    assert [runs.translate(offset) for offset in (50, 105)] == [None, 5]


def test_a_late_run_of_the_earlier_owner_is_ignored() -> None:
    runs = OffsetRuns()
    runs.add(OffsetRun(100, 100, 10, 0, 110))
    runs.add(OffsetRun(50, 50, 20, 0, 70))
    runs.add(OffsetRun(102, 102, 4, 0, 106))
    assert len(runs) == 1
    assert runs.translate(105) == 105


def test_a_run_that_arrives_a_second_time_is_ignored() -> None:
    runs = OffsetRuns()
    for run in (OffsetRun(0, 0, 10, 0, 10), OffsetRun(10, 11, 10, 2, 19), OffsetRun(20, 20, 5, 0, 25)):
        runs.add(run)
    runs.add(OffsetRun(10, 11, 15, 2, 25))
    assert [runs.translate(offset) for offset in (3, 10, 20, 23, 25)] == [3, 11, 20, 23, 25]


def test_a_run_can_replace_the_end_of_the_last_one() -> None:
    runs = OffsetRuns()
    runs.add(OffsetRun(0, 0, 100, 0, 100))
    runs.add(OffsetRun(50, 60, 100, 0, 160))
    assert [runs.translate(offset) for offset in (40, 50, 149)] == [40, 60, 159]


def test_the_slack_is_what_the_target_lacks_and_has_in_addition() -> None:
    run = OffsetRun(0, 0)
    assert run.extended(10, 10).slack == 0
    assert run.extended(10, 7).slack == 3
    assert run.extended(10, 12).slack == 2
    assert run.extended(10, 7).extended(20, 19).slack == 5


def runs_of(pairs: Iterable[tuple[int, int]]) -> list[OffsetRun]:
    runs: list[OffsetRun] = []
    for source, target in pairs:
        runs[-1:] = runs_with(runs[-1] if runs else None, source, target)
    return runs


def test_a_run_does_not_grow_when_it_gets_inexact() -> None:
    # Transactions of 50 records and a marker, all copied at once.
    runs = runs_of((51 * number, 50 * number) for number in range(1_000))
    assert all(run.slack <= MAX_SLACK for run in runs)
    assert all(first.end_source == second.source for first, second in pairwise(runs))
    assert len(runs) == 100


def test_a_run_without_gaps_grows() -> None:
    assert runs_of((number, number + 7) for number in range(10 * RUN_OFFSETS)) == [
        OffsetRun(0, 7, 10 * RUN_OFFSETS - 1, 0, 10 * RUN_OFFSETS + 6)
    ]


def test_a_pair_before_the_end_begins_a_run() -> None:
    run = OffsetRun(0, 0, 100, 0, 100)
    assert runs_with(run, 99, 100) == (OffsetRun(99, 100),)
    assert runs_with(run, 100, 99) == (OffsetRun(100, 99),)
    assert runs_with(run, 100, 100) == (run,)


def test_joining_keeps_what_is_exact() -> None:
    runs = [OffsetRun(number * 10, number * 10, 10, 0, number * 10 + 10) for number in range(100)]
    assert joined_runs(runs, 2)[0].slack == 0
    gap = [*runs[:50], *(OffsetRun(each.source + 5, each.target, 10, 0, each.end_target) for each in runs[50:])]
    first, second = joined_runs(gap, 2)
    assert (first, second) == (OffsetRun(0, 0, 500, 0, 500), OffsetRun(505, 500, 500, 0, 1000))


def test_the_last_run_is_kept_if_it_does_not_touch_the_one_before() -> None:
    runs = [OffsetRun(number * 100, number * 100, 1, 0, number * 100 + 1) for number in range(10)]
    assert joined_runs(runs, 3)[-1] == runs[-1]


def test_the_number_of_runs_is_bounded_and_the_latest_are_exact() -> None:
    runs = OffsetRuns()
    for number in range(10_000):
        # A fetch of ten records and the marker of its transaction.
        runs.add(OffsetRun(number * 10, number * 11, 10, 0, number * 11 + 10))
    assert len(runs) <= MAX_RUNS
    assert runs.translate(99_995) == 9_999 * 11 + 5
    for distance in range(10, 100_000, 7):
        offset = 100_000 - distance
        translated = runs.translate(offset)
        assert translated is not None
        exact = offset + offset // 10
        assert exact - max(10, distance // 20) <= translated <= exact
