"""Finds where the last records of partitions begin.

Offsets have gaps, after compaction and at the markers of transactions, so the last N records may begin before the end
offset minus N. Records are therefore read backwards, in growing ranges of offsets, until there are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from odradek.base.types import TopicPartition
    from odradek.client.consumer.consumer import Consumer

_POLL_MS: Final = 500
_GROWTH: Final = 4
"""Factor by which the range of offsets grows if it has too few records."""


class RecordPlace(NamedTuple):
    """The place of a record."""

    timestamp: int
    offset: int


async def last_places(
    consumer: Consumer, ends: Mapping[TopicPartition, int], count: int
) -> dict[TopicPartition, list[RecordPlace]]:
    """Return the places of the last `count` records before the end offset of each partition, the oldest first.

    Changes the assignment of the consumer. Raises the errors of `Consumer.getmany`.
    """
    begins = await consumer.beginning_offsets(ends)
    return {
        partition: await _tail(consumer, partition, range(begins[partition], end), count)
        for partition, end in ends.items()
    }


async def _tail(consumer: Consumer, partition: TopicPartition, log: range, count: int) -> list[RecordPlace]:
    found: deque[RecordPlace] = deque(maxlen=count)
    size = count
    while log:
        found.clear()
        start = max(log.start, log.stop - size)
        consumer.assign([partition])
        consumer.seek(partition, start)
        while await consumer.position(partition) < log.stop:
            records = (await consumer.getmany(partition, timeout_ms=_POLL_MS)).get(partition, [])
            found += [RecordPlace(record.timestamp, record.offset) for record in records if record.offset < log.stop]
        if len(found) == count or start == log.start:
            break
        size *= _GROWTH
    return list(found)


def starts_of_each(
    places: Mapping[TopicPartition, Sequence[RecordPlace]], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where the found records of each partition begin; its end if there are none. Pure."""
    return {partition: found[0].offset if found else ends[partition] for partition, found in places.items()}


def starts_in_all(
    places: Mapping[TopicPartition, Sequence[RecordPlace]], ends: Mapping[TopicPartition, int], count: int
) -> dict[TopicPartition, int]:
    """Return where the `count` newest records of all partitions together begin. Pure.

    Partitions are merged from their ends by timestamp, so the records of a partition are always its last ones.
    """
    left = {partition: list(found) for partition, found in places.items()}
    starts = dict(ends)
    for _ in range(min(count, sum(map(len, left.values())))):
        newest = max((found[-1].timestamp, partition) for partition, found in left.items() if found)[1]
        starts[newest] = left[newest].pop().offset
    return starts
