"""The values of a cluster at one time, as immutable values.

`readings` creates an `ExporterSnapshot`; `series` and `report` read it. None means that a value is unknown or expired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

NOTHING_COMMITTED: Final = -1


class Broker(NamedTuple):
    """A live broker and its address."""

    broker_id: int
    address: str
    """host:port"""


class PartitionReading(NamedTuple):
    """One partition; `leader` is -1 if there is none."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: int
    """Size of the ISR."""
    start: int | None = None
    """Log start offset."""
    end: int | None = None
    """Log end offset for consumers."""
    size_bytes: int | None = None
    """Size of the leader's log."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync."""
        return self.in_sync < len(self.replicas)

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the preferred leader leads."""
        return bool(self.replicas) and self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """A topic and its partitions, in the order of their numbers."""

    name: str
    partitions: tuple[PartitionReading, ...]


class Position(NamedTuple):
    """The position of a group in a partition."""

    topic: str
    partition: int
    committed: int
    """Committed offset; -1 if the partition is assigned to a member and has no commit yet."""
    lag: int | None = None
    """Number of records between the committed offset and the log end offset."""
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """A consumer group."""

    name: str
    members: int | None
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSnapshot:
    """All values of the cluster; empty before the first collection."""

    brokers: tuple[Broker, ...] = ()
    topics: tuple[TopicReading, ...] = ()
    groups: tuple[GroupReading, ...] = ()
    zookeeper_groups: tuple[GroupReading, ...] = field(default=())
    """Groups with offsets in ZooKeeper; their members are not known."""
