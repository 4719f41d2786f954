"""The rebalancing algorithms of the ZooKeeper consumers: which thread of a group owns which partition.

Every consumer of a group computes the assignment for itself, from the same znodes, so all of them must get the same
result, also those of Apache Kafka 0.8.2 and 0.9. Invariants: each partition has exactly one owner if there is a thread,
and the result depends only on the sets that are given, not on their order.

A thread is one stream of a consumer. Its name is `CONSUMER-NUMBER`, and names are compared as text, as Java does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition

STRATEGIES: Final = ("range", "roundrobin")
"""Values of `partition.assignment.strategy`; the first is the default."""


class ConsumerThread(NamedTuple):
    """One stream of a consumer. Its number counts from 0 for each topic."""

    consumer_id: str
    number: int

    @property
    def name(self) -> str:
        """The name in the owner registry."""
        return f"{self.consumer_id}-{self.number}"


def threads_of(consumer_id: str, streams: int) -> tuple[ConsumerThread, ...]:
    """Return the threads of a consumer that reads a topic with this number of streams."""
    return tuple(ConsumerThread(consumer_id, number) for number in range(streams))


def assign_range(
    partitions: Mapping[str, Iterable[int]], threads: Mapping[str, Iterable[ConsumerThread]]
) -> dict[TopicPartition, ConsumerThread]:
    """Divide the partitions of each topic evenly among the threads that read it.

    Both are by topic. The sorted partitions are cut into one run for each thread, in the order of the threads' names.
    If they cannot be divided evenly, the first threads get one partition more. Threads beyond the number of partitions
    get none.
    """
    owners: dict[TopicPartition, ConsumerThread] = {}
    for topic, wanted in threads.items():
        numbers = sorted(partitions.get(topic, ()))
        readers = sorted(wanted, key=lambda thread: thread.name)
        if not readers:
            continue
        each, more = divmod(len(numbers), len(readers))
        start = 0
        for position, thread in enumerate(readers):
            end = start + each + (position < more)
            owners.update((TopicPartition(topic, number), thread) for number in numbers[start:end])
            start = end
    return owners


def assign_round_robin(
    partitions: Mapping[str, Iterable[int]], threads: Mapping[str, Iterable[ConsumerThread]]
) -> dict[TopicPartition, ConsumerThread]:
    """Deal out the partitions of all topics in turn.

    The partitions are ordered by the Java hash of `[TOPIC,PARTITION]`, so that those of a topic do not follow each
    other. Raises `ConfigError` unless every consumer reads the same topics with the same number of streams.
    """
    by_topic = {topic: sorted(wanted, key=lambda thread: thread.name) for topic, wanted in threads.items()}
    names = {topic: [thread.name for thread in readers] for topic, readers in by_topic.items()}
    if len({tuple(readers) for readers in names.values()}) > 1:
        first, *others = sorted(names)
        different = next(topic for topic in others if names[topic] != names[first])
        raise ConfigError(
            "partition.assignment.strategy=roundrobin needs the same topics and streams in every consumer of a group,"
            f" but the topics {first} and {different} have different threads: use range"
        )
    if not by_topic:
        return {}
    dealt = sorted(
        (TopicPartition(topic, number) for topic in by_topic for number in partitions.get(topic, ())),
        key=lambda partition: (java_hash(f"[{partition.topic},{partition.partition}]"), partition),
    )
    readers = next(iter(by_topic.values()))
    return dict(zip(dealt, cycle(readers), strict=False)) if readers else {}


def assigned_to(
    consumer_id: str, owners: Mapping[TopicPartition, ConsumerThread]
) -> dict[TopicPartition, ConsumerThread]:
    """Return the part of an assignment that one consumer gets."""
    return {partition: thread for partition, thread in owners.items() if thread.consumer_id == consumer_id}


def java_hash(text: str) -> int:
    """Return what `String.hashCode` of Java returns: a signed number of 32 bits over UTF-16 units."""
    value = 0
    units: Sequence[int] = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
