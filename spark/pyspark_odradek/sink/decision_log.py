"""The decision topic: the last decision of each sink, in a compacted topic.

Tasks and the driver read it; only the driver that has the sink's transactional id appends. Invariants: the decisions of
a sink are in one partition, which depends only on the sink id; a decision is one record in one transaction; the driver
reads to the high watermark, even if transactions of other sinks are open before it.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from typing import Final

from odradek.base.errors import ConfigError, RequestTimedOutError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import ConfigResource, NewTopic
from pyspark_odradek.sink.decisions import Decision

PARTITIONS: Final = 16
"""Number of partitions that hold decisions. The topic may have more: the others stay empty, so that partitions that
somebody adds do not hide decisions."""
REPLICAS: Final = 3
MAX_DECISION_BYTES: Final = 8 << 20
"""Maximum size of a compressed decision. One of 10,000 tasks has about 300 KB."""
TOPIC_CONFIGS: Final = (
    ("cleanup.policy", "compact"),
    ("max.message.bytes", str(MAX_DECISION_BYTES)),
    # Old decisions are removed soon, so that a read of the whole partition stays short.
    ("segment.bytes", str(16 << 20)),
    ("segment.ms", "86400000"),
    ("unclean.leader.election.enable", "false"),
)
_WAIT_MS: Final = 200
"""How long a fetch waits for the end of a transaction."""
_POLL_SECONDS: Final = 0.1
"""Pause between two questions about a topic that was just created."""
_FIRST_WINDOW: Final = 8
"""Number of offsets to search first. The last decision is usually followed by its marker only."""
_WINDOW_GROWTH: Final = 8


def partition_of(sink_id: str) -> int:
    """Return the partition of the decision topic that has the decisions of a sink."""
    return zlib.crc32(sink_id.encode()) % PARTITIONS


class DecisionLog:
    """The decisions of one sink."""

    def __init__(self, client: BlockingClient, topic: str, sink_id: str) -> None:
        """`client` belongs to the caller."""
        self._client: Final = client
        self.topic: Final = topic
        self.sink_id: Final = sink_id
        self.partition: Final = TopicPartition(topic, partition_of(sink_id))

    def create_topic(self) -> None:
        """Create the topic unless it exists. Raises `ConfigError` if it exists and cannot be used."""
        admin = self._client.admin
        try:
            partitions = len(self._client.partitions(self.topic))
        except UnknownTopicOrPartitionError:
            brokers = len(admin.describe_cluster().brokers)
            new = NewTopic(
                name=self.topic,
                partitions=PARTITIONS,
                replication_factor=min(REPLICAS, brokers),
                configs=TOPIC_CONFIGS,
            )
            with suppress(TopicAlreadyExistsError):
                admin.create_topics([new])
                return
            partitions = self._await_partitions()
        resource = ConfigResource.topic(self.topic)
        policy = admin.describe_configs([resource], keys=["cleanup.policy"])[resource]["cleanup.policy"].value
        if policy != "compact":
            raise ConfigError(
                f"the decision topic {self.topic} has cleanup.policy={policy}, which removes decisions: set it to"
                " compact, or choose another topic with the option decisionTopic"
            )
        if partitions < PARTITIONS:
            raise ConfigError(
                f"the decision topic {self.topic} has {partitions} partitions, but {PARTITIONS} are needed: create it"
                " with as many, or choose another topic with the option decisionTopic"
            )

    def _await_partitions(self) -> int:
        """Return the number of partitions of a topic that exists, but that brokers may not know yet."""
        deadline = time.monotonic() + self._client.settings.default_api_timeout_ms / 1000
        while True:
            try:
                return len(self._client.partitions(self.topic))
            except UnknownTopicOrPartitionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def known(self) -> Decision | None:
        """Return the last decision that consumers see now. Another one may be stored already. For tasks."""
        try:
            partitions = self._client.partitions(self.topic)
        except UnknownTopicOrPartitionError:
            return None
        if self.partition.partition not in partitions:
            # The driver refuses such a topic, so it has no decisions.
            return None
        return self._search(self._end(read_committed=True))

    def last(self) -> Decision | None:
        """Return the last decision of those that were stored before the call. For the driver.

        An open transaction of another sink in the same partition delays it. Raises `RequestTimedOutError` if that does
        not end within `default_api_timeout_ms`.
        """
        end = self._end(read_committed=False)
        self._wait_for(end)
        return self._search(end)

    def wait_until_visible(self, offset: int) -> None:
        """Return when consumers see the record at an offset. Raises as `last`."""
        self._wait_for(offset + 1)

    def _end(self, *, read_committed: bool) -> int:
        isolation = "read_committed" if read_committed else "read_uncommitted"
        return self._client.latest_offsets([self.partition], isolation=isolation)[self.partition]

    def _wait_for(self, end: int) -> None:
        """Return when all transactions below an offset have ended."""
        limit_ms = self._client.settings.default_api_timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        while (stable := self._end(read_committed=True)) < end:
            if time.monotonic() > deadline:
                raise RequestTimedOutError(
                    f"the transaction at offset {stable} of the decision topic's partition {self.partition} has not"
                    f" ended within default.api.timeout.ms={limit_ms}: the driver of another sink may have died. The"
                    " coordinator will abort it after its transaction.timeout.ms; try again then"
                )
            # A fetch at the last stable offset returns when that moves.
            self._client.fetch_raw(
                self.partition, stable, max_wait_ms=_WAIT_MS, isolation="read_committed", read_ahead=False
            )

    def _search(self, end: int) -> Decision | None:
        """Return the sink's last decision below an offset. Searches backwards, in windows that grow."""
        start = self._client.earliest_offsets([self.partition])[self.partition]
        window, high = _FIRST_WINDOW, end
        while high > start:
            low = max(start, high - window)
            found = self._between(low, high)
            if found:
                # A record without a value is a deleted decision.
                return None if found[-1] is None else Decision.from_json(self.sink_id, found[-1])
            high, window = low, window * _WINDOW_GROWTH
        return None

    def _between(self, low: int, high: int) -> list[bytes | None]:
        """Return the values of the sink in a range of offsets."""
        key, found, position = self.sink_id.encode(), [], low
        while position < high:
            fetch = self._client.fetch_raw(
                self.partition, position, max_wait_ms=_WAIT_MS, isolation="read_committed", read_ahead=False
            )
            if not len(fetch.records) and fetch.last_stable_offset >= high:
                # Compaction has removed the last batches.
                break
            for records, _ in iterate_records(fetch):
                found += [record.value for record in records if record.key == key and record.offset < high]
            position = fetch.next_offset
        return found
