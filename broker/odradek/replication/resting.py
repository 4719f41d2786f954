"""What of the fetch sessions rests: entries that had no news and whose partition nobody has touched since.

`fetch_session` puts an entry to rest after an answer; `manager` tells of every change of a partition, which wakes all
that rest on it. So a request of an idle session costs nothing for the partitions without news.

Invariant: a resting entry, if it were read, would give the same empty result as last time. Every change of a role, an
epoch, a log end, a high watermark or an in-sync set is therefore told here. The start of a log is not: it moves with
retention, and the sessions look at it themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol

from odradek.base.types import TopicPartition
from odradek.replication.partition import RemoteReplica
from odradek.replication.table import HostedPartition


class Rest(NamedTuple):
    """How a partition stood when an entry came to rest on it."""

    partition: HostedPartition
    leader_epoch: int
    is_leader: bool
    replica: RemoteReplica | None
    """What the leader knows of the follower that fetches; None for consumers."""


class Sleeper(Protocol):
    """An entry that rests."""

    @property
    def topic_partition(self) -> TopicPartition:
        """What it rests on."""
        ...

    def wake(self) -> Hashable | None:
        """Its partition changed: read it again. Gives the key under which a request waits for that, if one does."""
        ...


class RestingEntries:
    """The entries at rest, by partition."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        """Nothing rests."""
        self._sleepers: dict[TopicPartition, dict[Sleeper, None]] = {}
        # Not sets: their order is that of addresses in memory, and whoever is woken first is answered first.

    def __len__(self) -> int:
        """How many entries rest."""
        return sum(map(len, self._sleepers.values()))

    def put(self, entry: Sleeper) -> None:
        """Wake this entry with the next change of its partition."""
        sleepers = self._sleepers.get(entry.topic_partition)
        if sleepers is None:
            self._sleepers[entry.topic_partition] = {entry: None}
        else:
            sleepers[entry] = None

    def take(self, entry: Sleeper) -> None:
        """The entry is awake again, or gone."""
        sleepers = self._sleepers.get(entry.topic_partition)
        if sleepers is not None:
            sleepers.pop(entry, None)
            if not sleepers:
                del self._sleepers[entry.topic_partition]

    def changed(self, topic_partition: TopicPartition) -> Iterable[Hashable]:
        """Wake what rests on the partition; the keys of the requests that wait for one of these."""
        if not self._sleepers:
            return ()
        sleepers = self._sleepers.pop(topic_partition, None)
        if sleepers is None:
            return ()
        keys = [entry.wake() for entry in sleepers]
        return [key for key in keys if key is not None]
