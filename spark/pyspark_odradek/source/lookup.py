"""Queries the cluster for partitions and offsets, on the driver.

`reader` and `stream` use it for planning. Invariant: an answer covers exactly the requested partitions, or the call
raises.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from odradek.base.errors import ConfigError, OdradekError, ProtocolError
from odradek.base.types import INTERNAL_TOPICS, TopicPartition
from odradek.client.models import OffsetAndTimestamp
from odradek.client.settings import ClientSettings
from pyspark_odradek.offsets import EARLIEST, LATEST, PartitionOffsets, check_same_partitions
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.shared_client import shared_client

Answer = TypeVar("Answer")


class Lookup(Protocol):
    """The queries for planning."""

    def assigned(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the query reads now, in order."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        ...

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset of each partition; with read_committed the last stable one."""
        ...

    def resolve(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        """Resolve the offsets of an option for `partitions` to numbers.

        Raises `ConfigError` if the option has other partitions, or if no record is as new as its timestamp and
        `latest_when_no_match` is false.
        """
        ...


class OffsetClient(Protocol):
    """The methods of `BlockingClient` that lookups use."""

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
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

    def assigned(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the query reads now, in order."""
        return self._trying(self._assigned)

    def _assigned(self) -> tuple[TopicPartition, ...]:
        subscription = self._options.subscription
        client = self._client
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = [name for name in client.topics() if pattern.search(name) and name not in INTERNAL_TOPICS]
        elif subscription.partitions:
            topics = sorted({topic for topic, _ in subscription.partitions})
        else:
            topics = list(subscription.topics)
        found = {TopicPartition(topic, number) for topic in topics for number in client.partitions(topic)}
        if subscription.partitions:
            found &= set(subscription.partitions)
        return tuple(sorted(found))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        wanted = list(partitions)
        return self._trying(lambda: self._client.earliest_offsets(wanted)) if wanted else {}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset of each partition; with read_committed the last stable one."""
        wanted = list(partitions)
        isolation = self._options.client.isolation_level
        return self._trying(lambda: self._client.latest_offsets(wanted, isolation=isolation)) if wanted else {}

    def resolve(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        """Resolve the offsets of an option for `partitions` to numbers.

        Raises `ConfigError` if the option has other partitions, or if no record is as new as its timestamp and
        `latest_when_no_match` is false.
        """
        wanted = tuple(partitions)
        if bound.position is not None:
            return self._positions(dict.fromkeys(wanted, bound.position))
        if bound.offsets is not None:
            check_same_partitions(bound.option, bound.offsets, wanted)
            return self._positions(bound.offsets)
        timestamps = bound.timestamps_ms
        if timestamps is None:
            timestamps = dict.fromkeys(wanted, bound.timestamp_ms or 0)
        check_same_partitions(bound.option, timestamps, wanted)
        return self._at_timestamps(bound.option, timestamps, latest_when_no_match=latest_when_no_match)

    def _positions(self, offsets: PartitionOffsets) -> dict[TopicPartition, int]:
        earliest = self.earliest(partition for partition, offset in offsets.items() if offset == EARLIEST)
        latest = self.latest(partition for partition, offset in offsets.items() if offset == LATEST)
        return {**offsets, **earliest, **latest}

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
        return {**found, **self.latest(without)}

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
