"""Which partitions and offsets the filters of a batch query can match.

`batch_reader` narrows its ranges with the result. Spark evaluates every filter again, so the invariant is: a range
keeps all records that match. Filters on other columns, and other kinds of filters, narrow nothing.

Timestamps need not ascend within a partition. So a lower bound only skips the records before the first one that is new
enough, and an upper bound skips none.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import OffsetRange

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """The whole numbers from `low` to `high`, both included."""

    low: int = _LOWEST
    high: int = _HIGHEST

    def intersect(self, other: Interval) -> Interval:
        """Return the numbers in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __contains__(self, number: int) -> bool:
        """Whether the number is in the interval."""
        return self.low <= number <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What records must have to match the filters."""

    topics: frozenset[str] | None = None
    """None for all."""
    partitions: Interval = Interval()
    offsets: Interval = Interval()
    earliest_ms: int | None = None
    """The lowest timestamp that matches, in milliseconds since 1970 UTC; None for all."""

    def keeps(self, topic_partition: TopicPartition) -> bool:
        """Whether records of a partition can match."""
        topic, partition = topic_partition
        return (self.topics is None or topic in self.topics) and partition in self.partitions

    def cut(self, offsets: OffsetRange, first_new_enough: int | None = None) -> OffsetRange:
        """Return the part of a range that can match, perhaps empty. `first_new_enough`: the first offset with a
        timestamp of at least `earliest_ms`."""
        start = max(offsets.start, self.offsets.low, first_new_enough or 0)
        end = min(offsets.end, self.offsets.high + 1)
        return OffsetRange(offsets.topic_partition, min(start, offsets.end), max(end, min(start, offsets.end)))


def narrowing(filters: Iterable[Filter]) -> Narrowing:
    """Return what a record must have to match all filters."""
    found = Narrowing()
    for each in filters:
        match getattr(each, "attribute", None):
            case ("topic",):
                found = _with_topics(found, each)
            case ("partition",):
                found = replace(found, partitions=found.partitions.intersect(_interval(each, _whole)))
            case ("offset",):
                found = replace(found, offsets=found.offsets.intersect(_interval(each, _whole)))
            case ("timestamp",):
                low = _interval(each, _milliseconds).low
                # The broker's answers for negative times have other meanings.
                if low >= 0:
                    found = replace(found, earliest_ms=max(low, found.earliest_ms or 0))
    return found


def _with_topics(found: Narrowing, each: Filter) -> Narrowing:
    match each:
        case EqualTo(value=str(name)) | EqualNullSafe(value=str(name)):
            topics = frozenset({name})
        case In(value=names):
            topics = frozenset(name for name in names if isinstance(name, str))
        case _:
            return found
    return replace(found, topics=topics if found.topics is None else found.topics & topics)


def _whole(value: Any) -> tuple[int, int] | None:
    return (value, value) if type(value) is int else None


def _milliseconds(value: Any) -> tuple[int, int] | None:
    """Return the last millisecond not after a time, and the first one not before it."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    elapsed = value - _EPOCH
    return elapsed // _MILLISECOND, -(-elapsed // _MILLISECOND)


def _interval(each: Filter, convert: Any) -> Interval:
    """Return the numbers that match a filter. `convert` returns the whole numbers around a value, None if unknown."""
    if isinstance(each, In):
        found = [convert(value) for value in each.value if value is not None]
        if not found or None in found:
            return Interval()
        return Interval(min(low for _, low in found), max(high for high, _ in found))
    around = convert(getattr(each, "value", None))
    if around is None:
        return Interval()
    below, above = around
    match each:
        case EqualTo() | EqualNullSafe():
            return Interval(above, below)
        case GreaterThan():
            return Interval(low=below + 1)
        case GreaterThanOrEqual():
            return Interval(low=above)
        case LessThan():
            return Interval(high=above - 1)
        case LessThanOrEqual():
            return Interval(high=below)
    return Interval()
