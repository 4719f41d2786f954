"""Queries the cluster for partitions and offsets, on the driver.

`reader` and `stream` use it for planning. Invariant: an answer covers exactly the requested partitions, or the call
raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from odradek.base.errors import ConfigError, OdradekError, ProtocolError
from odradek.base.types import INTERNAL_TOPICS, ZERO_UUID, TopicPartition
from odradek.client.models import OffsetAndTimestamp, TopicDescription
from odradek.client.settings import ClientSettings
from pyspark_odradek.offsets import EARLIEST, LATEST, PartitionOffsets, check_same_partitions
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.shared_client import shared_client

Answer = TypeVar("Answer")


class Assignment(NamedTuple):
    """The partitions that a query reads at a moment."""

    partitions: tuple[TopicPartition, ...]
    """In order."""
    topic_ids: Mapping[str, UUID]
    """The ids of their topics, without topics whose id is unknown (brokers before Kafka 2.8)."""


class Lookup(Protocol):
    """The queries for planning."""

    def assignment(self) -> Assignment:
        """Return the partitions that the query reads now, with one request for metadata."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        ...

    def latest(
        self, partitions: Iterable[TopicPartition], known: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Return the next offset of each partition; with read_committed the last stable one.

        Asks again, up to `fetchOffset.numRetries` times in total, while an offset is smaller than a `known` one:
        a broker may be behind (KAFKA-7703).
        """
        ...

    def positions(self, offsets: PartitionOffsets) -> dict[TopicPartition, int]:
        """Replace `EARLIEST` and `LATEST` by the offsets of this moment."""
        ...

    def bounds(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        """Return the offsets of an option for `partitions`, which may be `EARLIEST` or `LATEST`.

        Raises `ConfigError` if the option has other partitions, or if no record is as new as its timestamp and
        `latest_when_no_match` is false.
        """
        ...


class OffsetClient(Protocol):
    """The methods of `BlockingClient` that lookups use."""

    def describe_topics(self, topics: Iterable[str] | None = None, /) -> Mapping[str, TopicDescription]:
        """Return topics with their ids and partitions, with one request; by default all except internal ones."""
        ...

    def earliest_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        ...

    def latest_offsets(
        self, partitions: Iterable[TopicPartition], /, *, isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        ...

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after its time in ms."""
        ...


class OffsetLookup:
    """A `Lookup` that queries the brokers. Connects on first use."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Callable[[ClientSettings], OffsetClient] = shared_client,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Opens no connection: Spark creates and pickles readers that never look anything up."""
        self._options = options
        self._connect = connect
        self._sleep = sleep

    @property
    def _client(self) -> OffsetClient:
        return self._connect(self._options.client)

    def assignment(self) -> Assignment:
        """Return the partitions that the query reads now, with one request for metadata."""
        found = self._trying(self._topics)
        partitions = {
            TopicPartition(name, each.partition) for name, topic in found.items() for each in topic.partitions
        }
        if self._options.subscription.partitions:
            partitions &= set(self._options.subscription.partitions)
        ids = {name: topic.topic_id for name, topic in found.items() if topic.topic_id != ZERO_UUID}
        return Assignment(tuple(sorted(partitions)), ids)

    def assigned(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the query reads now, in order."""
        return self.assignment().partitions

    def _topics(self) -> Mapping[str, TopicDescription]:
        subscription = self._options.subscription
        if subscription.pattern is None:
            return self._client.describe_topics(subscription.topics or {topic for topic, _ in subscription.partitions})
        # Imports the tables of Java's character classes, which other subscriptions do not need.
        from odradek.client.java_regex.java_pattern import compile_pattern

        pattern = compile_pattern("subscribePattern", subscription.pattern)
        found = self._client.describe_topics()
        return {name: topic for name, topic in found.items() if pattern.search(name) and name not in INTERNAL_TOPICS}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        wanted = list(partitions)
        return self._trying(lambda: self._client.earliest_offsets(wanted)) if wanted else {}

    def latest(
        self, partitions: Iterable[TopicPartition], known: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Return the next offset of each partition; with read_committed the last stable one.

        Asks again, up to `fetchOffset.numRetries` times in total, while an offset is smaller than a `known` one:
        a broker may be behind (KAFKA-7703).
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        isolation = self._options.client.isolation_level
        for _ in range(self._options.fetch_offset_tries):
            found = self._trying(lambda: self._client.latest_offsets(wanted, isolation=isolation))
            if not any(offset < (known or {}).get(partition, 0) for partition, offset in found.items()):
                break
            self._sleep(self._options.fetch_offset_retry_ms / 1000)
        return found

    def positions(self, offsets: PartitionOffsets) -> dict[TopicPartition, int]:
        """Replace `EARLIEST` and `LATEST` by the offsets of this moment."""
        earliest = self.earliest(partition for partition, offset in offsets.items() if offset == EARLIEST)
        latest = self.latest(partition for partition, offset in offsets.items() if offset == LATEST)
        return {**offsets, **earliest, **latest}

    def bounds(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        """Return the offsets of an option for `partitions`, which may be `EARLIEST` or `LATEST`.

        Raises `ConfigError` if the option has other partitions, or if no record is as new as its timestamp and
        `latest_when_no_match` is false.
        """
        wanted = tuple(partitions)
        if bound.position is not None:
            return dict.fromkeys(wanted, bound.position)
        if bound.offsets is not None:
            check_same_partitions(bound.option, bound.offsets, wanted)
            return dict(bound.offsets)
        timestamps = bound.timestamps_ms
        if timestamps is None:
            timestamps = dict.fromkeys(wanted, bound.timestamp_ms or 0)
        check_same_partitions(bound.option, timestamps, wanted, timestamps=True)
        return self._at_timestamps(bound.option, timestamps, latest_when_no_match=latest_when_no_match)

    def _at_timestamps(
        self, option: str, timestamps_ms: Mapping[TopicPartition, int], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        if not timestamps_ms:
            return {}
        answers = self._trying(lambda: self._client.offsets_for_times(dict(timestamps_ms)))
        found = {partition: answer.offset for partition, answer in answers.items() if answer is not None}
        without = [partition for partition in timestamps_ms if partition not in found]
        if without and not latest_when_no_match:
            raise ConfigError(
                f"{option}: no offset matched the timestamp {timestamps_ms[without[0]]} in {without[0]}; "
                "startingOffsetsByTimestampStrategy=latest would start at the latest offset there"
            )
        return {**found, **dict.fromkeys(without, LATEST)}

    def _trying(self, call: Callable[[], Answer]) -> Answer:
        """Call it, with up to `fetchOffset.numRetries` attempts; the client retries within each attempt."""
        for _ in range(self._options.fetch_offset_tries - 1):
            try:
                return call()
            except OdradekError as error:
                if not (isinstance(error, ProtocolError) and error.retriable):
                    raise
            self._sleep(self._options.fetch_offset_retry_ms / 1000)
        return call()
