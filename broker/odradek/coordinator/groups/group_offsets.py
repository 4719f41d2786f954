"""The committed offsets of one group, including pending and expired ones.

`classic_group` creates it, and `offset_commits` and `group_replay` change it. Invariants: an offset is visible only
after its record is committed; the latest record in the log determines an offset, in whatever order the results arrive;
pending offsets and offsets of open transactions do not expire and are not stable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.base.types import NO_TIMESTAMP, Offset, TopicPartition
from odradek.coordinator.groups.group_records import OffsetValue


class Committed(NamedTuple):
    """A committed offset and the log position of its record."""

    value: OffsetValue
    record_offset: int


Transactions = dict[int, dict[TopicPartition, deque[Committed]]]
"""Offsets of open transactions by producer id and partition, in the order of the log."""

MAX_OPEN: Final = 8
"""Maximum number of open offsets of one producer for one partition. Older ones are dropped.

A later offset replaces an earlier one of the same transaction. A marker may lie between them that is completed later;
then they belong to two transactions. It is completed after a few results at most, so eight are enough.
"""


class GroupOffsets:
    """Offsets by partition."""

    __slots__ = ("_committed", "_in_flight", "open_transactions")

    def __init__(self) -> None:
        """Create an object without offsets."""
        self._committed: dict[TopicPartition, Committed] = {}
        self._in_flight: dict[TopicPartition, int] = {}
        self.open_transactions: Transactions = {}

    @property
    def count(self) -> int:
        """Number of committed offsets."""
        return len(self._committed)

    @property
    def has_pending(self) -> bool:
        """Whether any offset is pending or part of an open transaction."""
        return bool(self._in_flight or self.open_transactions)

    @property
    def is_idle(self) -> bool:
        """Whether no offset is committed, pending or part of an open transaction."""
        return not (self._committed or self._in_flight or self.open_transactions)

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions with an offset that is committed, pending or part of an open transaction."""
        return self._committed.keys() | self._unstable()

    def _unstable(self) -> set[TopicPartition]:
        return set(self._in_flight).union(*self.open_transactions.values())

    def committed(self) -> Mapping[TopicPartition, OffsetValue]:
        """Return all committed offsets."""
        return {topic_partition: entry.value for topic_partition, entry in self._committed.items()}

    def get(self, topic_partition: TopicPartition) -> OffsetValue | None:
        """Return the committed offset of a partition."""
        entry = self._committed.get(topic_partition)
        return None if entry is None else entry.value

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Whether a newer offset of the partition may still become visible (KIP-447)."""
        return topic_partition in self._in_flight or any(
            topic_partition in offsets for offsets in self.open_transactions.values()
        )

    def begin(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Mark the offsets of these partitions as pending while their records are appended."""
        for topic_partition in topic_partitions:
            self._in_flight[topic_partition] = self._in_flight.get(topic_partition, 0) + 1

    def finish(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """End an append for which `begin` was called."""
        for topic_partition in topic_partitions:
            left = self._in_flight[topic_partition] - 1
            if left:
                self._in_flight[topic_partition] = left
            else:
                del self._in_flight[topic_partition]

    def take(self, committed: dict[TopicPartition, Committed]) -> None:
        """Make the offsets of a replayed log visible, and keep the dictionary. There must be no others yet."""
        if self._committed:
            raise RuntimeError("the group has offsets already")
        self._committed = committed

    def put(self, topic_partition: TopicPartition, entry: Committed) -> None:
        """Make an offset visible, unless an offset with a later record is already visible."""
        known = self._committed.get(topic_partition)
        if known is None or known.record_offset <= entry.record_offset:
            self._committed[topic_partition] = entry

    def open(self, producer_id: int, topic_partition: TopicPartition, entry: Committed) -> None:
        """Add an offset of an open transaction. Its record must follow those of earlier calls."""
        offsets = self.open_transactions.setdefault(producer_id, {})
        offsets.setdefault(topic_partition, deque(maxlen=MAX_OPEN)).append(entry)

    def complete(self, producer_id: int, marker_offset: Offset, *, is_commit: bool) -> bool:
        """End a producer's transaction: make its offsets before the marker visible, or drop them.

        Returns whether later offsets of the producer are open.
        """
        later: dict[TopicPartition, deque[Committed]] = {}
        for topic_partition, entries in self.open_transactions.pop(producer_id, {}).items():
            while entries and entries[0].record_offset < marker_offset:
                entry = entries.popleft()
                if is_commit:
                    self.put(topic_partition, entry)
            if entries:
                later[topic_partition] = entries
        if later:
            self.open_transactions[producer_id] = later
        return bool(later)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Remove the offsets of these partitions, including those of open transactions."""
        for topic_partition in topic_partitions:
            self._committed.pop(topic_partition, None)
            for producer_id, offsets in list(self.open_transactions.items()):
                offsets.pop(topic_partition, None)
                if not offsets:
                    del self.open_transactions[producer_id]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        base_ms: Callable[[OffsetValue], int],
        keep_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions whose offset has expired.

        The retention begins at `base_ms` (KIP-211). An offset with its own expiry time (OffsetCommit versions 2 to 4)
        expires at that time. Offsets of `keep_topics` do not expire, nor those of partitions that have a pending offset
        or one of an open transaction: the tombstone would delete this, too.
        """
        unstable = self._unstable()

        def is_due(value: OffsetValue) -> bool:
            if value.expire_timestamp_ms != NO_TIMESTAMP:
                return now_ms >= value.expire_timestamp_ms
            return now_ms - base_ms(value) >= retention_ms

        return [
            topic_partition
            for topic_partition, entry in self._committed.items()
            if topic_partition.topic not in keep_topics and topic_partition not in unstable and is_due(entry.value)
        ]
