"""What the data path counts for each topic: plain integers, so that counting costs an addition.

Added to by `server/data`, read by `collector` at a scrape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.metrics.series import Reading


class TopicStats:
    """What the data path counts for one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch",
        "failed_produce",
        "messages_in",
        "total_fetch",
        "total_produce",
    )

    def __init__(self) -> None:
        """All zero."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.total_produce = 0
        self.failed_produce = 0
        self.total_fetch = 0
        self.failed_fetch = 0

    def add(self, other: TopicStats) -> None:
        """Add another topic's counts to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicStats:
    """`TopicStats` of every topic seen; the broker-wide sums never fall when a topic goes."""

    __slots__ = ("_retired", "topics")

    def __init__(self) -> None:
        """No topic yet."""
        self.topics: dict[str, TopicStats] = {}
        self._retired = TopicStats()

    def of(self, topic: str) -> TopicStats:
        """The counts of a topic, to be added to."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def retire(self, topic: str) -> None:
        """The topic was deleted: its series ends, its counts stay in the sums."""
        stats = self.topics.pop(topic, None)
        if stats is not None:
            self._retired.add(stats)

    def readings(self, name: str) -> Iterator[Reading]:
        """One count for the broker and for each topic."""
        yield {}, getattr(self._retired, name) + sum(getattr(stats, name) for stats in self.topics.values())
        for topic, stats in self.topics.items():
            yield {"topic": topic}, getattr(stats, name)
