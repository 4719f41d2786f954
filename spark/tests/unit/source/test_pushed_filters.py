"""Pushed filters: ranges become smaller, and never lose a record that matches."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.base.types import TopicPartition
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.offsets import OffsetRange
from pyspark_odradek.options.source_options import Bound, parse
from pyspark_odradek.source.batch_reader import BatchReader, FilteringBatchReader, batch_reader
from pyspark_odradek.source.lookup import Assignment
from pyspark_odradek.source.pushed_filters import Interval, Narrowing, narrowing

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = RowSchema.full(include_headers=False)


def at(microseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Narrowing()),
        ([EqualTo(("offset",), 5)], Narrowing(offsets=Interval(5, 5))),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 9)], Narrowing(offsets=Interval(6, 8))),
        ([GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)], Narrowing(offsets=Interval(5, 9))),
        ([In(("partition",), (3, 1, 7))], Narrowing(partitions=Interval(1, 7))),
        ([In(("topic",), ("a", "b")), EqualTo(("topic",), "b")], Narrowing(topics=frozenset("b"))),
        ([In(("topic",), ("a", None))], Narrowing(topics=frozenset("a"))),
        # Records have milliseconds: 1.5 ms is after the record at 1 ms and before that at 2 ms.
        ([GreaterThan(("timestamp",), at(1500))], Narrowing(earliest_ms=2)),
        ([GreaterThan(("timestamp",), at(2000))], Narrowing(earliest_ms=3)),
        ([GreaterThanOrEqual(("timestamp",), at(2000)), GreaterThan(("timestamp",), at(0))], Narrowing(earliest_ms=2)),
        ([EqualTo(("timestamp",), at(7000))], Narrowing(earliest_ms=7)),
        # Timestamps need not ascend, so an upper bound cuts nothing.
        ([LessThan(("timestamp",), at(7000))], Narrowing()),
        # Records without a timestamp have -1.
        ([GreaterThanOrEqual(("timestamp",), at(-5000))], Narrowing()),
        ([IsNotNull(("offset",)), Not(EqualTo(("offset",), 5)), EqualTo(("key",), b"k")], Narrowing()),
        ([EqualTo(("headers", "offset"), 5), EqualTo(("offset",), 5.5), EqualTo(("offset",), True)], Narrowing()),
    ],
)  # fmt: skip
def test_filters_become_bounds(filters: list[Filter], expected: Narrowing) -> None:
    assert narrowing(filters) == expected


def test_ranges_are_cut() -> None:
    found = Narrowing(offsets=Interval(5, 9))
    assert found.cut(OffsetRange(A0, 0, 100)) == OffsetRange(A0, 5, 10)
    assert found.cut(OffsetRange(A0, 7, 8)) == OffsetRange(A0, 7, 8)
    assert found.cut(OffsetRange(A0, 0, 100), 8) == OffsetRange(A0, 8, 10)
    for outside in (OffsetRange(A0, 10, 20), OffsetRange(A0, 0, 5)):
        assert found.cut(outside).size == 0


class Fixed:
    """A lookup with three partitions of offsets 0 to 100; the record at offset n has the timestamp 10 n."""

    def assignment(self) -> Assignment:
        return Assignment((A0, A1, B0), {})

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def positions(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict(offsets)

    def bounds(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if bound.timestamp_ms is not None:
            assert latest_when_no_match
            return dict.fromkeys(wanted, min(100, -(-bound.timestamp_ms // 10)))
        return dict.fromkeys(wanted, 0 if "starting" in bound.option else 100)


def ranges(*filters: Filter) -> list[OffsetRange]:
    options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a,b", "pushFilters": "true"})
    reader = FilteringBatchReader(options, ALL, lookup=Fixed())
    # Spark has to evaluate all of them again.
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return [part.value for part in reader.partitions()]


def test_a_plan_has_only_ranges_that_can_match() -> None:
    assert ranges() == [OffsetRange(each, 0, 100) for each in (A0, A1, B0)]
    assert ranges(EqualTo(("topic",), "a"), GreaterThan(("partition",), 0)) == [OffsetRange(A1, 0, 100)]
    assert ranges(GreaterThanOrEqual(("timestamp",), at(455_000)), LessThan(("offset",), 60)) == [
        OffsetRange(each, 46, 60) for each in (A0, A1, B0)
    ]
    assert ranges(GreaterThan(("timestamp",), at(10**9))) == []
    assert ranges(GreaterThan(("offset",), 99)) == []


def test_only_the_option_selects_the_reader_that_overrides_the_method() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    plain, filtering = batch_reader(parse(given), ALL), batch_reader(parse({**given, "pushFilters": "true"}), ALL)
    assert type(plain) is BatchReader
    assert type(plain).pushFilters is DataSourceReader.pushFilters
    assert type(filtering) is FilteringBatchReader
