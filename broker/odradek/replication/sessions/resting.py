"""Resting entries of fetch sessions: their last read returned nothing, and their partition has not changed since.

`fetch_session` makes an entry rest after a response; `replica_manager` reports every change of a partition, which wakes
the entries that rest on it. A request of an idle session therefore costs nothing for unchanged partitions.

Invariant: reading a resting entry would give the same empty result as last time. Every change of a role, an epoch, a
log end, a high watermark or an ISR is therefore reported here. Log start offsets are not: they change with retention,
and the sessions check them themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol

from odradek.base.types import TopicPartition
from odradek.replication.partition import RemoteReplica
from odradek.replication.partition_table import HostedPartition


class Rest(NamedTuple):
    """State of a partition when an entry began to rest on it."""

    partition: HostedPartition
    leader_epoch: int
    is_leader: bool
    replica: RemoteReplica | None
    """The leader's view of the follower that fetches; None for consumers."""


class Sleeper(Protocol):
    """An entry that rests."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition on which it rests."""
        ...

    def wake(self) -> Hashable | None:
        """Wake up after a change of the partition. Returns the key under which a request waits for it, if one does."""
        ...


class RestingEntries:
    """The resting entries by partition."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        """Start without entries."""
        self._sleepers: dict[TopicPartition, dict[Sleeper, None]] = {}
        # Dictionaries, not sets, whose order depends on memory addresses: the first one woken is answered first.

    def __len__(self) -> int:
        """Return the number of resting entries."""
        return sum(map(len, self._sleepers.values()))

    def put(self, entry: Sleeper) -> None:
        """Add an entry, which wakes with the next change of its partition."""
        sleepers = self._sleepers.get(entry.topic_partition)
        if sleepers is None:
            self._sleepers[entry.topic_partition] = {entry: None}
        else:
            sleepers[entry] = None

    def take(self, entry: Sleeper) -> None:
        """Remove an entry that is awake again or was removed from its session."""
        sleepers = self._sleepers.get(entry.topic_partition)
        if sleepers is not None:
            sleepers.pop(entry, None)
            if not sleepers:
                del self._sleepers[entry.topic_partition]

    def changed(self, topic_partition: TopicPartition) -> Iterable[Hashable]:
        """Wake the entries that rest on the partition. Returns the keys of the requests that wait for them."""
        if not self._sleepers:
            return ()
        sleepers = self._sleepers.pop(topic_partition, None)
        if sleepers is None:
            return ()
        keys = [entry.wake() for entry in sleepers]
        return [key for key in keys if key is not None]
