from __future__ import annotations

import pytest

from odradek.log.retention import Expired, RetentionRules, SegmentFacts, expired_segments

NOW_MS = 10_000
SEGMENTS = [SegmentFacts(10, 100, 1000), SegmentFacts(20, 100, 5000), SegmentFacts(30, 100, 9000)]


def expired(
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    log_start_offset: int = 0,
    high_watermark: int = 30,
    segments: list[SegmentFacts] = SEGMENTS,
) -> Expired:
    rules = RetentionRules(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )
    return expired_segments(segments, rules, NOW_MS)


def test_without_limits_nothing_is_removed() -> None:
    assert expired().total == 0


@pytest.mark.parametrize(("retention_ms", "count"), [(9000, 0), (8999, 1), (5000, 1), (4999, 2), (999, 3), (0, 3)])
def test_by_age_of_the_newest_record(retention_ms: int, count: int) -> None:
    assert expired(retention_ms=retention_ms) == Expired(count, 0, 0)


def test_a_young_segment_protects_older_looking_ones_behind_it() -> None:
    segments = [SegmentFacts(10, 100, 9999), SegmentFacts(20, 100, 1), SegmentFacts(30, 0, 0)]
    assert expired(retention_ms=100, segments=segments).total == 0


@pytest.mark.parametrize(("retention_bytes", "count"), [(300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (0, 3)])
def test_by_size_only_the_excess_is_removed(retention_bytes: int, count: int) -> None:
    assert expired(retention_bytes=retention_bytes) == Expired(0, count, 0)


@pytest.mark.parametrize(("start", "count"), [(9, 0), (10, 1), (29, 2), (30, 2)])
def test_by_log_start_offset_but_never_the_last(start: int, count: int) -> None:
    assert expired(log_start_offset=start) == Expired(0, 0, count)


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (29, 2), (30, 3)])
def test_only_below_the_high_watermark(high_watermark: int, count: int) -> None:
    assert expired(retention_ms=0, high_watermark=high_watermark).total == count


def test_an_empty_last_segment_stays() -> None:
    segments = [SegmentFacts(10, 100, 1), SegmentFacts(10, 0, 1)]
    assert expired(retention_ms=0, high_watermark=10, segments=segments).total == 1


def test_reasons_follow_each_other() -> None:
    assert expired(retention_ms=8000, retention_bytes=100, log_start_offset=20) == Expired(1, 1, 0)
