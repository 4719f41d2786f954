"""The state of a cluster in ZooKeeper at one time, as immutable values. Pure.

`zookeeper_reader` creates a `Snapshot`; `topic_plan` decides from it, and `topic_status` reports it. The znodes of a
topic are read one after the other, so they may be of different times. This does no harm, because every write requires
the versions in the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.base.types import NO_BROKER, TopicPartition
from odradek.zk.layout import (
    BrokerRegistration,
    PartitionState,
    TopicAssignment,
    partition_state_path,
)
from odradek.zk.ownership import ManagedBrokers, ManagedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedConfig:
    """`/config/topics/T` or `/config/brokers/B`: the overrides of a topic, a broker, or all brokers."""

    values: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTopic:
    """`/brokers/topics/T` and the znodes below it."""

    assignment: TopicAssignment
    version: int
    states: Mapping[int, PartitionState] = field(default_factory=dict)
    """By partition; without those that never had a leader."""

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, which is the topic's factor in Kafka; after a reassignment in progress."""
        first = min(self.assignment.partitions, default=None)
        return 0 if first is None else len(self.assignment.partitions[first].target)

    @property
    def reassigning(self) -> bool:
        """Whether replicas of some partition are being moved."""
        return any(part.adding or part.removing for part in self.assignment.partitions.values())

    def with_factor(self, factor: int) -> int:
        """Number of partitions that have this many replicas, after reassignments in progress."""
        return sum(len(part.target) == factor for part in self.assignment.partitions.values())

    def under_replicated(self) -> list[int]:
        """Partitions with a replica outside the ISR, or without a state."""
        return [
            number
            for number, part in self.assignment.partitions.items()
            if number not in self.states or not set(part.replicas) <= set(self.states[number].isr)
        ]

    def offline(self) -> list[int]:
        """Partitions without a leader."""
        return [
            number
            for number in self.assignment.partitions
            if number not in self.states or self.states[number].leader == NO_BROKER
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedOwnership:
    """`/odradek/topics/T`: the overrides that belong to the topic's resource."""

    record: ManagedTopic | None
    """None if it is invalid, which counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBrokersRecord:
    """`/odradek/brokers`: the brokers' default settings and ids, by owner."""

    record: ManagedBrokers | None
    """None if it is invalid, which counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a cluster in ZooKeeper."""

    cluster_id: str | None = None
    controller_id: int | None = None
    """None if there is none."""
    controller_epoch: int = 0
    controller_epoch_version: int | None = None
    """Version of `/controller_epoch`, on which every write depends; None before the first controller."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    """Live brokers."""
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    """All topics by name. Those that were not read in detail have no partitions here and version -1."""
    configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """By topic. It may exist without the topic, left by an earlier one of that name."""
    ownership: Mapping[str, ObservedOwnership] = field(default_factory=dict)
    """By topic. It may exist without the topic, or be for an earlier one of that name."""
    broker_configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """`/config/brokers/NAME` by name: a broker's id, or `<default>` for all of them."""
    brokers_record: ObservedBrokersRecord | None = None
    deleting: frozenset[str] = frozenset()
    """Topics that are being deleted."""
    reassigning: frozenset[TopicPartition] = frozenset()
    """Partitions in `/admin/reassign_partitions`."""
    reassignment_requested: bool = False
    """Whether that znode exists, even if it is invalid: no other reassignment can be requested until it is deleted."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Topics with an invalid znode, and a message that names it. Such a topic is in `topics` with its valid parts,
    possibly without partitions: nothing must be concluded from missing parts."""
    damaged: tuple[str, ...] = ()
    """Messages about other invalid znodes, which count as missing."""

    def racks(self) -> dict[int, str | None]:
        """The racks of the live brokers."""
        return {broker: registration.rack for broker, registration in self.brokers.items()}


def state_paths(topics: Mapping[str, TopicAssignment]) -> dict[str, TopicPartition]:
    """The paths of all partition states of these topics."""
    partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    return {partition_state_path(partition): partition for partition in partitions}
