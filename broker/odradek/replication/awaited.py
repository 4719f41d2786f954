"""Followers that are about to fetch partitions which this broker has just begun to lead.

A follower learns of a new partition, or of a new reign, a moment after its leader, and mostly while a fetch of its own
waits here for other partitions, for up to half a second. The first acks=all records would wait as long. So the leader
answers such a fetch at once, and lets none of that follower wait for long until it asks for what is new.

Reigns enter from `leadership`, fetches from `manager`; leaves whether a follower is awaited. Invariant: nobody is
awaited for longer than `AWAITED_MS`: a follower that cannot come, and one that has left, fetch as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from odradek.base.types import TopicPartition
from odradek.replication.requests import Fetchable

AWAITED_MS: Final = 1_000.0
"""The controller tells all replicas at once; whoever has not heard by then is slow for other reasons."""

HURRIED_WAIT_MS: Final = 10
"""How long a fetch of an awaited follower may wait."""


class Parked(Protocol):
    """A fetch that waits."""

    @property
    def is_completed(self) -> bool:
        """Whether it was answered."""
        ...

    def complete(self) -> bool:
        """Answer it now; False when it was answered before."""
        ...


class _News(NamedTuple):
    leader_epoch: int
    until_ms: float


class AwaitedFollowers:
    """Who is awaited for what, and the fetches of followers that wait. Times are monotonic milliseconds."""

    __slots__ = ("_news", "_parked")

    def __init__(self) -> None:
        """Nobody is awaited."""
        self._news: dict[int, dict[TopicPartition, _News]] = {}
        self._parked: dict[int, list[Parked]] = {}

    def expect(
        self, topic_partition: TopicPartition, leader_epoch: int, followers: Iterable[int], now_ms: float
    ) -> list[Parked]:
        """A reign has begun whose records wait for these followers; their fetches that are to be answered now."""
        waiting: list[Parked] = []
        for broker_id in followers:
            news = self._news.setdefault(broker_id, {})
            news.pop(topic_partition, None)  # to the end: the entries are in the order of their ends
            news[topic_partition] = _News(leader_epoch, now_ms + AWAITED_MS)
            waiting += self._parked.pop(broker_id, ())
        return [fetch for fetch in waiting if not fetch.is_completed]

    def fetched(self, broker_id: int, entries: Iterable[Fetchable], now_ms: float) -> bool:
        """A follower asks for these partitions; whether there are others that it is still to ask for."""
        news = self._news.get(broker_id)
        if news is None:
            return False
        for entry in entries:
            known = news.get(entry.topic_partition)
            if known is not None and not 0 <= entry.current_leader_epoch < known.leader_epoch:
                del news[entry.topic_partition]
        while news:
            first = next(iter(news))
            if news[first].until_ms > now_ms:
                return True
            del news[first]
        del self._news[broker_id]
        return False

    def park(self, broker_id: int, fetch: Parked) -> None:
        """A follower's fetch waits. Followers have few connections, so that few of theirs wait at a time."""
        waiting = [other for other in self._parked.get(broker_id, ()) if not other.is_completed]
        self._parked[broker_id] = [*waiting, fetch]
