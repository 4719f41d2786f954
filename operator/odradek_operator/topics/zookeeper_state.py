"""What the operator sees of a cluster in ZooKeeper, at one time, as frozen values. Pure.

Enters: znodes that `zookeeper_reader` read. Leaves: a `Snapshot`, from which `topic_plan` decides and `status` reports.
A topic's znodes are read one after the other, so they may be of different moments; that does no harm, because every
write demands the versions that stand here.
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
    """`/brokers/topics/T` and what is below it."""

    assignment: TopicAssignment
    version: int
    states: Mapping[int, PartitionState] = field(default_factory=dict)
    """By partition; one that has never had a leader is missing."""

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, from which Kafka tells a topic's factor; a reassignment's target counts."""
        first = min(self.assignment.partitions, default=None)
        return 0 if first is None else len(self.assignment.partitions[first].target)

    @property
    def reassigning(self) -> bool:
        """Whether replicas of some partition are being moved."""
        return any(part.adding or part.removing for part in self.assignment.partitions.values())

    def with_factor(self, factor: int) -> int:
        """Of how many partitions the replicas, once what moves has moved, are so many."""
        return sum(len(part.target) == factor for part in self.assignment.partitions.values())

    def under_replicated(self) -> list[int]:
        """Partitions whose in-sync set lacks one of their replicas, or that have no state yet."""
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
    """`/odradek/topics/T`: which overrides of a topic are its resource's."""

    record: ManagedTopic | None
    """None: it cannot be understood, and counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBrokersRecord:
    """`/odradek/brokers`: which defaults of brokers, and which broker ids, are whose."""

    record: ManagedBrokers | None
    """None: it cannot be understood, and counts as missing."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster as ZooKeeper has it."""

    cluster_id: str | None = None
    controller_id: int | None = None
    """None while there is none."""
    controller_epoch: int = 0
    controller_epoch_version: int | None = None
    """Version of `/controller_epoch`, on which every write depends; None before the first controller."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    """The live ones."""
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    """Every topic's name; in depth those that were asked for, the others have no partitions here and version -1."""
    configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """By topic. May be there without the topic: a rest of an earlier one of that name."""
    ownership: Mapping[str, ObservedOwnership] = field(default_factory=dict)
    """By topic. May be there without the topic, or speak of an earlier one of that name."""
    broker_configs: Mapping[str, ObservedConfig] = field(default_factory=dict)
    """`/config/brokers/NAME` by name: a broker's id, or `<default>` for all of them."""
    brokers_record: ObservedBrokersRecord | None = None
    deleting: frozenset[str] = frozenset()
    """Topics whose deletion is under way."""
    reassigning: frozenset[TopicPartition] = frozenset()
    """Partitions in `/admin/reassign_partitions`."""
    reassignment_requested: bool = False
    """Whether that znode is there, whatever is in it: no other reassignment can be asked for until it is gone."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Topics with a znode that cannot be understood, and a sentence that names it. Such a topic is in `topics` with
    what could be understood, maybe with no partitions at all: nothing may be concluded from what it lacks."""
    damaged: tuple[str, ...] = ()
    """Sentences about other znodes that cannot be understood; they count as missing."""

    def racks(self) -> dict[int, str | None]:
        """The racks of the live brokers."""
        return {broker: registration.rack for broker, registration in self.brokers.items()}


def state_paths(topics: Mapping[str, TopicAssignment]) -> dict[str, TopicPartition]:
    """The paths of all partition states of these topics."""
    partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    return {partition_state_path(partition): partition for partition in partitions}
