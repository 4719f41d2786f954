"""The offsets of a stream with what the checkpoint has to remember beside them.

Spark stores the offsets of a micro-batch in the checkpoint and gives a Python source no place of its own there. So two
things travel in the offsets, as members without partitions. Spark's own source for Kafka reads such a member as a topic
without partitions, and ignores it, so either source can take over a checkpoint of the other:

    {"flights": {"0": 23}, "odradek topic ids: flights=2d0e...": {}, "odradek start: flights-0=20": {}}

- The ids of topics: a topic that was deleted and created again has another one (KIP-516).
- The start of the first micro-batch. If a query fails before it has committed this micro-batch, Spark requests the
  start again, and "latest" would have moved.

A topic name has neither blanks nor "=", so no topic has the name of a member. Pure; `stream_reader` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import SparkOffset, from_spark, to_spark

_IDS: Final = "odradek topic ids:"
_START: Final = "odradek start:"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offsets to read, and what identifies them."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """Without topics whose id is unknown: of brokers before Kafka 2.8, or in a checkpoint of another source."""
    first: Mapping[TopicPartition, int] | None = None
    """In the end of a query's first micro-batch: the start of this micro-batch."""

    @classmethod
    def parse(cls, offset: Mapping[str, Mapping[str, int]]) -> StreamOffset:
        """Parse the result of `to_spark`, or offsets of Spark's own source for Kafka. Raises `ConfigError` for a member
        that cannot be read."""
        ids: dict[str, UUID] = {}
        first: dict[TopicPartition, int] | None = None
        for name in offset:
            try:
                if name.startswith(_IDS):
                    ids = {topic: UUID(value) for topic, value in _pairs(name, _IDS)}
                elif name.startswith(_START):
                    first = {_partition(key): int(value) for key, value in _pairs(name, _START)}
            except ValueError as error:
                raise ConfigError(f"the checkpoint has an offset that cannot be read: {name!r}: {error}") from None
        return cls(from_spark(offset), ids, first)

    def to_spark(self) -> SparkOffset:
        """Convert into the form that Spark stores. Equal values have equal text."""
        found = to_spark(self.offsets)
        topics = found.keys()
        ids = [f"{topic}={self.topic_ids[topic].hex}" for topic in sorted(topics & self.topic_ids.keys())]
        if ids:
            found[f"{_IDS} {' '.join(ids)}"] = {}
        if self.first is not None:
            found[" ".join([_START, *(f"{each}={offset}" for each, offset in sorted(self.first.items()))])] = {}
        return found

    def created_again(self, topic_ids: Mapping[str, UUID]) -> frozenset[str]:
        """Return the topics that have another id in `topic_ids`: they were deleted and created again."""
        common = self.topic_ids.keys() & topic_ids.keys()
        return frozenset(topic for topic in common if self.topic_ids[topic] != topic_ids[topic])

    def without(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the offsets of other topics than these."""
        excluded = frozenset(topics)
        return {partition: offset for partition, offset in self.offsets.items() if partition.topic not in excluded}


def _pairs(name: str, prefix: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (item.partition("=") for item in name.removeprefix(prefix).split())]


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
