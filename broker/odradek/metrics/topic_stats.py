"""Counters of the data path by topic: plain integers, so that counting costs an addition.

`server/data/produce_and_fetch`, `server/data/conversion` and the fetch loops of followers
count; `collector` reads them at a scrape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.base.errors import RecordFault

if TYPE_CHECKING:
    from odradek.metrics.series import Reading


COUNTS: Final = (
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "failed_fetch",
    "failed_produce",
    "fetch_conversions",
    "invalid_crc",
    "invalid_magic",
    "invalid_offset_or_sequence",
    "messages_in",
    "no_key",
    "produce_conversions",
    "total_fetch",
    "total_produce",
)
"""Names of the counters of a topic."""


class TopicStats:
    """Counters of one topic."""

    __slots__ = COUNTS

    def __init__(self) -> None:
        """All zero."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.total_produce = 0
        self.failed_produce = 0
        self.total_fetch = 0
        self.failed_fetch = 0
        self.bytes_rejected = 0
        self.produce_conversions = 0
        self.fetch_conversions = 0
        self.invalid_crc = 0
        self.invalid_magic = 0
        self.invalid_offset_or_sequence = 0
        self.no_key = 0

    def add(self, other: TopicStats) -> None:
        """Add another topic's counts to these."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count_fault(self, fault: tuple[RecordFault, int] | None) -> None:
        """Count rejected records, by their fault and number."""
        if fault is not None:
            name = _FAULTS[fault[0]]
            setattr(self, name, getattr(self, name) + fault[1])


_FAULTS: Final = {
    RecordFault.CRC: "invalid_crc",
    RecordFault.FORMAT: "invalid_magic",
    RecordFault.OFFSET_OR_SEQUENCE: "invalid_offset_or_sequence",
    RecordFault.NO_KEY: "no_key",
}

SPARSE: Final = frozenset(
    {"bytes_rejected", "fetch_conversions", "produce_conversions", *_FAULTS.values()},
)
"""Counts that are zero for most topics: as in Kafka, a topic has such a series from the first event on."""


class BrokerTopicStats:
    """`TopicStats` of all topics. The totals of the broker never decrease when a topic is deleted."""

    __slots__ = ("_retired", "replication_bytes_in", "replication_bytes_out", "topics")

    def __init__(self) -> None:
        """Without topics."""
        self.topics: dict[str, TopicStats] = {}
        self._retired = TopicStats()
        self.replication_bytes_in = 0
        """Bytes that this broker's followers fetched from leaders."""
        self.replication_bytes_out = 0
        """Bytes sent to followers on other brokers."""

    def of(self, topic: str) -> TopicStats:
        """Return the counters of a topic."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def retire(self, topic: str) -> None:
        """Drop the series of a deleted topic; its counts stay in the totals."""
        stats = self.topics.pop(topic, None)
        if stats is not None:
            self._retired.add(stats)

    def readings(self, name: str) -> Iterator[Reading]:
        """Return one counter, for the broker and for each topic."""
        yield {}, getattr(self._retired, name) + sum(getattr(stats, name) for stats in self.topics.values())
        for topic, stats in self.topics.items():
            count = getattr(stats, name)
            if count or name not in SPARSE:
                yield {"topic": topic}, count
