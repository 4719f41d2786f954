"""Tracks followers that are about to fetch partitions which this broker has just begun to lead.

A follower learns of a new partition or leader epoch a moment after its leader. By then, one of its fetches usually
waits here for other partitions, for up to half a second, and the first acks=all records would wait as long. Therefore
the leader answers that fetch at once, and shortens the wait of the follower's fetches until it requests the new
partitions.

`replica_manager` reports new leader epochs and fetches. Invariant: a follower is awaited for at most `AWAITED_MS`;
after that its fetches wait as usual, even if it has not requested the new partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from odradek.base.types import TopicPartition
from odradek.replication.replica_requests import Fetchable

AWAITED_MS: Final = 1_000.0
"""The controller updates all replicas at once: a follower that is later than this is slow for other reasons."""

SHORT_WAIT_MS: Final = 10
"""Maximum wait of a fetch by an awaited follower."""


class Parked(Protocol):
    """A fetch that waits."""

    @property
    def is_completed(self) -> bool:
        """Whether it was answered."""
        ...

    def complete(self) -> bool:
        """Answer it now. Returns False if it was already answered."""
        ...


class _Awaited(NamedTuple):
    leader_epoch: int
    until_ms: float


class AwaitedFollowers:
    """The awaited followers with their partitions, and waiting fetches. Times are monotonic milliseconds."""

    __slots__ = ("_by_follower", "_parked")

    def __init__(self) -> None:
        """Start without awaited followers."""
        self._by_follower: dict[int, dict[TopicPartition, _Awaited]] = {}
        self._parked: dict[int, list[Parked]] = {}

    def expect(
        self, topic_partition: TopicPartition, leader_epoch: int, followers: Iterable[int], now_ms: float
    ) -> list[Parked]:
        """Await followers after this broker became leader. Returns their waiting fetches, to be answered now."""
        waiting: list[Parked] = []
        for broker_id in followers:
            awaited = self._by_follower.setdefault(broker_id, {})
            awaited.pop(topic_partition, None)  # re-insert at the end: entries are ordered by their end times
            awaited[topic_partition] = _Awaited(leader_epoch, now_ms + AWAITED_MS)
            waiting += self._parked.pop(broker_id, ())
        return [fetch for fetch in waiting if not fetch.is_completed]

    def fetched(self, broker_id: int, entries: Iterable[Fetchable], now_ms: float) -> bool:
        """Record a follower's fetch. Returns whether it still has to request other partitions."""
        awaited = self._by_follower.get(broker_id)
        if awaited is None:
            return False
        for entry in entries:
            known = awaited.get(entry.topic_partition)
            if known is not None and not 0 <= entry.current_leader_epoch < known.leader_epoch:
                del awaited[entry.topic_partition]
        while awaited:
            first = next(iter(awaited))
            if awaited[first].until_ms > now_ms:
                return True
            del awaited[first]
        del self._by_follower[broker_id]
        return False

    def park(self, broker_id: int, fetch: Parked) -> None:
        """Record a waiting fetch of a follower. Followers have few connections, so that few fetches wait at a time."""
        waiting = [other for other in self._parked.get(broker_id, ()) if not other.is_completed]
        self._parked[broker_id] = [*waiting, fetch]
