"""What the controller knows of the cluster.

One mutable image, owned by the controller's event queue and touched by nothing else: with 10,000 partitions a copy for
each event would cost more than the events. It holds facts and answers questions; it decides nothing. State of
partitions and replicas moves through `machines` alone, which refuses illegal steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.base.types import NO_BROKER, ZERO_UUID, BrokerEpoch, TopicPartition
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment

_T = TypeVar("_T")

SLICE_PARTITIONS: Final = 500
"""Work of about 10 µs for each partition then blocks the event loop for about 5 ms."""

_NO_ASSIGNMENT: Final = ReplicaAssignment(replicas=())


class PartitionStatus(Enum):
    """Where a partition is in its life."""

    NON_EXISTENT = auto()
    NEW = auto()
    """Assigned, never led."""
    ONLINE = auto()
    """Has a leader."""
    OFFLINE = auto()
    """Its leader is gone."""


class ReplicaStatus(Enum):
    """Where a replica is in its life."""

    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()
    """Its deletion failed, or cannot begin as its broker is gone."""


class Replica(NamedTuple):
    """A partition's copy on one broker."""

    partition: TopicPartition
    broker: int


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker and the epoch of its registration."""

    registration: BrokerRegistration
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's state as it stands in ZooKeeper, with the znode's version: the partition epoch."""

    state: PartitionState
    partition_epoch: int


class ControllerContext:
    """The image of brokers, topics, leaders and deletions."""

    __slots__ = (
        "assignments",
        "blocked_deletions",
        "brokers",
        "deferred_deletions",
        "deletions",
        "deletions_begun",
        "leaderships",
        "offline_directory_replicas",
        "partition_status",
        "reassigning",
        "replica_status",
        "shutting_down",
        "topic_ids",
        "topic_names",
    )

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.offline_directory_replicas: set[Replica] = set()
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.reassigning: set[TopicPartition] = set()
        """Partitions whose replicas come or go."""
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.deletions: set[str] = set()
        """Topics that are to be deleted."""
        self.deferred_deletions: set[str] = set()
        """Topics that are to be deleted once their reassignments are done; until then they live as before."""
        self.deletions_begun: set[str] = set()
        """Those of them whose partitions were taken offline."""
        self.blocked_deletions: dict[str, str] = {}
        """Why the deletion of a topic waits."""

    # Brokers

    @property
    def eligible_brokers(self) -> set[int]:
        """Live brokers that are not shutting down: only these may lead or join an in-sync set."""
        return self.brokers.keys() - self.shutting_down

    def is_online(self, broker: int, partition: TopicPartition, *, or_shutting_down: bool = False) -> bool:
        """Whether the broker lives and the directory of this replica works."""
        if broker not in self.brokers or (broker in self.shutting_down and not or_shutting_down):
            return False
        return Replica(partition, broker) not in self.offline_directory_replicas

    def online_replicas(self, partition: TopicPartition, *, or_shutting_down: bool = False) -> tuple[int, ...]:
        """The assigned brokers that are online, in the order of the assignment."""
        replicas = self.assignment(partition).replicas
        return tuple(
            broker for broker in replicas if self.is_online(broker, partition, or_shutting_down=or_shutting_down)
        )

    def remove_broker(self, broker: int) -> None:
        """Forget a broker that is gone."""
        self.brokers.pop(broker, None)
        self.shutting_down.discard(broker)
        self.offline_directory_replicas = {
            replica for replica in self.offline_directory_replicas if replica.broker != broker
        }

    # Topics

    def put_topic(self, assignment: TopicAssignment) -> list[TopicPartition]:
        """Take over a topic's id and assignment; returns the partitions that are new."""
        name = assignment.topic
        known = self.assignments.setdefault(name, {})
        fresh = [TopicPartition(name, number) for number in assignment.partitions if number not in known]
        for number in fresh:
            self.set_assignment(number, assignment.partitions[number.partition])
        if assignment.topic_id is not None:
            self.topic_ids[name] = assignment.topic_id
            self.topic_names[assignment.topic_id] = name
        return fresh

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """A partition has these replicas now."""
        self.assignments.setdefault(partition.topic, {})[partition.partition] = assignment
        if assignment.is_being_reassigned:
            self.reassigning.add(partition)
        else:
            self.reassigning.discard(partition)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic and all that concerns it."""
        for number, assignment in self.assignments.pop(topic, {}).items():
            partition = TopicPartition(topic, number)
            self.leaderships.pop(partition, None)
            self.partition_status.pop(partition, None)
            self.reassigning.discard(partition)
            for broker in assignment.replicas:
                self.replica_status.pop(Replica(partition, broker), None)
                self.offline_directory_replicas.discard(Replica(partition, broker))
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        self.deletions.discard(topic)
        self.deferred_deletions.discard(topic)
        self.deletions_begun.discard(topic)
        self.blocked_deletions.pop(topic, None)

    def topic_id(self, topic: str) -> UUID:
        """The topic's id, `ZERO_UUID` when it has none."""
        return self.topic_ids.get(topic, ZERO_UUID)

    # Partitions

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The replicas of a partition; none when it is unknown."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, _NO_ASSIGNMENT)

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition."""
        for topic, assignments in self.assignments.items():
            for number in assignments:
                yield TopicPartition(topic, number)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Every partition of a topic."""
        return [TopicPartition(topic, number) for number in self.assignments.get(topic, {})]

    def replicas_of(self, topic: str) -> list[Replica]:
        """Every replica of a topic."""
        return [
            Replica(TopicPartition(topic, number), broker)
            for number, assignment in self.assignments.get(topic, {}).items()
            for broker in assignment.replicas
        ]

    def replicas_on(self, brokers: Iterable[int]) -> list[Replica]:
        """Every replica on these brokers."""
        wanted = set(brokers)
        return [
            Replica(TopicPartition(topic, number), broker)
            for topic, assignments in self.assignments.items()
            for number, assignment in assignments.items()
            for broker in assignment.replicas
            if broker in wanted
        ]

    def leader(self, partition: TopicPartition) -> int:
        """The leader, -1 when there is none."""
        leadership = self.leaderships.get(partition)
        return NO_BROKER if leadership is None else leadership.state.leader

    def has_offline_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition was led, and its leader is not online; one that is shutting down still is."""
        leadership = self.leaderships.get(partition)
        return leadership is not None and not self.is_online(leadership.state.leader, partition, or_shutting_down=True)

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the deletion of the topic may go on."""
        return topic in self.deletions

    def is_marked_for_deletion(self, topic: str) -> bool:
        """Whether the topic is to be deleted, now or after its reassignments."""
        return topic in self.deletions or topic in self.deferred_deletions

    def is_being_reassigned(self, topic: str) -> bool:
        """Whether replicas of a partition of the topic come or go."""
        return any(assignment.is_being_reassigned for assignment in self.assignments.get(topic, {}).values())

    # Counts for metrics

    def offline_partition_count(self) -> int:
        """Partitions without a leader, except those being deleted."""
        return sum(
            1
            for partition, status in self.partition_status.items()
            if status in (PartitionStatus.OFFLINE, PartitionStatus.NEW) and partition.topic not in self.deletions
        )

    def preferred_imbalance_count(self) -> int:
        """Partitions that another than their first replica leads, except those being deleted.

        As in Kafka, one that gets a new first replica counts once that is in sync.
        """
        return sum(
            1
            for partition, leadership in self.leaderships.items()
            if not self.is_marked_for_deletion(partition.topic)
            and not _has_preferred_leader(self.assignment(partition), leadership.state)
        )

    def partition_count(self) -> int:
        """All partitions."""
        return sum(len(assignments) for assignments in self.assignments.values())


def _has_preferred_leader(assignment: ReplicaAssignment, state: PartitionState) -> bool:
    preferred = assignment.preferred_leader
    if preferred in assignment.adding:
        return preferred not in state.isr
    return state.leader == preferred


def slices(items: Iterable[_T], size: int = SLICE_PARTITIONS) -> Iterator[list[_T]]:
    """Yield the items in order in non-empty lists of up to `size`, so that the caller can await in between.

    The items are copied first: their source may change while the caller awaits.
    """
    every = list(items)
    for start in range(0, len(every), size):
        yield every[start : start + size]
