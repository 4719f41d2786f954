"""A cluster as the exporter knows it at one time: frozen values between what was read and what is told.

Made by `readings`, read by `series` and `report`. None stands for what is not known, or was not told for too long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

NOTHING_COMMITTED: Final = -1


class Broker(NamedTuple):
    """A live broker as clients reach it."""

    broker_id: int
    address: str
    """host:port"""


class PartitionReading(NamedTuple):
    """One partition; `leader` is -1 while there is none."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: int
    """Size of the in-sync set."""
    start: int | None = None
    """Log start offset."""
    end: int | None = None
    """Log end offset as a consumer may read up to it."""
    size_bytes: int | None = None
    """Of the leader's log."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync."""
        return self.in_sync < len(self.replicas)

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return bool(self.replicas) and self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """A topic and its partitions in order."""

    name: str
    partitions: tuple[PartitionReading, ...]


class Position(NamedTuple):
    """Where a group is in a partition."""

    topic: str
    partition: int
    committed: int
    """-1 where a member reads and nothing was committed yet."""
    lag: int | None = None
    """Records between the commit and the end of the log."""
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """A consumer group."""

    name: str
    members: int | None
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSnapshot:
    """The cluster; everything is empty while nothing is known."""

    brokers: tuple[Broker, ...] = ()
    topics: tuple[TopicReading, ...] = ()
    groups: tuple[GroupReading, ...] = ()
    zookeeper_groups: tuple[GroupReading, ...] = field(default=())
    """Groups of old consumers, whose offsets are in ZooKeeper; their members are not known."""
