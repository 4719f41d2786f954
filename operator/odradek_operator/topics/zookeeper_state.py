"""The state of a cluster in ZooKeeper, as immutable values. Pure.

`zookeeper_reader` creates a `Snapshot`, `topic_plan` decides from it, and `topic_status` reports it. Znodes are not
read at the same instant, so a snapshot may be inconsistent. This is harmless, because every write requires the versions
in the snapshot.
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
    """States by partition number. Partitions that have never had a leader are missing."""

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, after a reassignment in progress. Kafka defines it so."""
        first = min(self.assignment.partitions, default=None)
        return 0 if first is None else len(self.assignment.partitions[first].target)

    @property
    def reassigning(self) -> bool:
        """Whether replicas of some partition are being moved."""
        return any(part.adding or part.removing for part in self.assignment.partitions.values())

    def with_factor(self, factor: int) -> int:
        """Return how many partitions have this number of replicas, after reassignments in progress."""
        return sum(len(part.target) == factor for part in self.assignment.partitions.values())

    def under_replicated(self) -> list[int]:
        """Return the partitions with a replica outside the ISR, or without a state."""
        return [
            number
            for number, part in self.assignment.partitions.items()
            if number not in self.states or not set(part.replicas) <= set(self.states[number].isr)
        ]

    def offline(self) -> list[int]:
        """Return the partitions without a leader."""
        return [
            number
            for number in self.assignment.partitions
            if number not in self.states or self.states[number].leader == NO_BROKER
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedOwnership:
    """`/odradek/topics/T`: the record of which overrides belong to the topic's resource."""

    record: ManagedTopic | None
    """None if the znode is invalid, which counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBrokersRecord:
    """`/odradek/brokers`: the record of default properties and broker ids, by the Cluster that owns them."""

    record: ManagedBrokers | None
    """None if the znode is invalid, which counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a cluster in ZooKeeper."""

    cluster_id: str | None = None
    controller_id: int | None = None
    """Id of the broker that is the controller; None if there is no controller."""
    controller_epoch: int = 0
    controller_epoch_version: int | None = None
    """Version of `/controller_epoch`, which every write requires; None before the first controller was elected."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    """Registrations of the live brokers, by id."""
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    """All topics by name. A topic whose details were not read has no partitions and version -1."""
    configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """Configurations by topic. A deleted topic may have left one behind."""
    ownership: Mapping[str, ObservedOwnership] = field(default_factory=dict)
    """Records by topic. A record may belong to an earlier, deleted topic of that name."""
    broker_configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """`/config/brokers/NAME` by name: a broker's id, or `<default>` for all brokers."""
    brokers_record: ObservedBrokersRecord | None = None
    deleting: frozenset[str] = frozenset()
    """Topics that are being deleted."""
    reassigning: frozenset[TopicPartition] = frozenset()
    """Partitions in `/admin/reassign_partitions`."""
    reassignment_requested: bool = False
    """Whether `/admin/reassign_partitions` exists, even with invalid content. Until it is deleted, no other
    reassignment can be requested."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Messages about invalid znodes, by topic. Such a topic is in `topics` with its valid parts, possibly without
    partitions. Nothing must be concluded from the missing parts."""
    damaged: tuple[str, ...] = ()
    """Messages about other invalid znodes, which count as missing."""

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers; None for a broker without a rack."""
        return {broker: registration.rack for broker, registration in self.brokers.items()}

    def machines(self) -> dict[int, str]:
        """Return the machines of the live brokers, without brokers whose machine is unknown."""
        return {
            broker: registration.machine
            for broker, registration in self.brokers.items()
            if registration.machine is not None
        }


def state_paths(topics: Mapping[str, TopicAssignment]) -> dict[str, TopicPartition]:
    """Return the partitions of these topics by the paths of their state znodes."""
    partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    return {partition_state_path(partition): partition for partition in partitions}
