"""Runs of offsets: what they translate, and what is forgotten."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.mirror.offset_translation import MAX_RUNS, OffsetRun, OffsetRuns, OffsetTranslation

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


def test_a_run_is_followed_by_later_ones() -> None:
    run = OffsetRun(0, 0, 10, 2, 8)
    assert run.followed_by(OffsetRun(10, 8, 5, 1, 12)) == OffsetRun(0, 0, 15, 3, 12)
    assert run.followed_by(OffsetRun(12, 9, 5, 0, 14)) == OffsetRun(0, 0, 17, 3, 14)
    assert run.followed_by(OffsetRun(5, 8, 5, 0, 13)) == OffsetRun(5, 8, 5, 0, 13)


def test_a_run_can_replace_the_end_of_the_last_one() -> None:
    runs = OffsetRuns()
    runs.add(OffsetRun(0, 0, 100, 0, 100))
    runs.add(OffsetRun(50, 60, 100, 0, 160))
    assert [runs.translate(offset) for offset in (40, 50, 149)] == [40, 60, 159]


def test_the_number_of_runs_is_bounded_and_the_latest_are_exact() -> None:
    runs = OffsetRuns()
    for number in range(10_000):
        # A fetch of ten records and the marker of its transaction.
        runs.add(OffsetRun(number * 10, number * 11, 10, 0, number * 11 + 10))
    assert len(runs) <= MAX_RUNS
    assert runs.translate(99_995) == 9_999 * 11 + 5
    for distance in (10, 1_000, 90_000):
        offset = 100_000 - distance
        translated = runs.translate(offset)
        assert translated is not None
        exact = offset + offset // 10
        assert exact - distance <= translated <= exact
