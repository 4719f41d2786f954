"""The controller's view of the cluster: brokers, topics, assignments, leaders and deletions.

The context is mutable, and only handlers of the controller's events use it: with 10,000 partitions, a copy for each
event would cost more than the event. It stores facts and makes no decisions. Only `machines` changes the states of
partitions and replicas, and it refuses illegal transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.base.types import NO_BROKER, ZERO_UUID, BrokerEpoch, TopicPartition
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment

_T = TypeVar("_T")

SLICE_PARTITIONS: Final = 500
"""Number of partitions that are processed before other tasks run. At 10 µs for each, this takes about 5 ms."""

_NO_ASSIGNMENT: Final = ReplicaAssignment(replicas=())


class PartitionStatus(Enum):
    """State of a partition in the controller's state machine."""

    NON_EXISTENT = auto()
    NEW = auto()
    """The partition is assigned and never had a leader."""
    ONLINE = auto()
    """The partition has a leader."""
    OFFLINE = auto()
    """The leader of the partition is offline."""


class ReplicaStatus(Enum):
    """State of a replica in the controller's state machine."""

    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()
    """The deletion of the replica failed, or cannot start because its broker is offline."""


class Replica(NamedTuple):
    """A replica: a partition on one broker."""

    partition: TopicPartition
    broker: int


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker and the epoch of its registration."""

    registration: BrokerRegistration
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Leadership:
    """The state of a partition in ZooKeeper and the version of its znode, which is the partition epoch.

    `mzxid` is the ZooKeeper transaction that wrote the state; 0 if this controller wrote it.
    """

    state: PartitionState
    partition_epoch: int
    mzxid: int = field(default=0, compare=False)


class ControllerContext:
    """Brokers, topics, assignments, leaders and deletions."""

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
        """Create an empty context."""
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.offline_directory_replicas: set[Replica] = set()
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.reassigning: set[TopicPartition] = set()
        """Partitions that are being reassigned."""
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.deletions: set[str] = set()
        """Topics that are being deleted."""
        self.deferred_deletions: set[str] = set()
        """Topics to delete when their reassignments are complete. Until then they are served as usual."""
        self.deletions_begun: set[str] = set()
        """Topics that are being deleted and whose partitions are already offline."""
        self.blocked_deletions: dict[str, str] = {}
        """The reason why a deletion waits, by topic."""

    # Brokers

    @property
    def eligible_brokers(self) -> set[int]:
        """Live brokers that are not shutting down: only these may become leaders or join an ISR."""
        return self.brokers.keys() - self.shutting_down

    def is_online(self, broker: int, partition: TopicPartition, *, or_shutting_down: bool = False) -> bool:
        """Whether the broker is alive and the log directory of this replica is online."""
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
        """Remove a broker that is no longer registered."""
        self.brokers.pop(broker, None)
        self.shutting_down.discard(broker)
        self.offline_directory_replicas = {
            replica for replica in self.offline_directory_replicas if replica.broker != broker
        }

    # Topics

    def put_topic(self, assignment: TopicAssignment) -> list[TopicPartition]:
        """Store the id and assignment of a topic. Returns the partitions that are new."""
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
        """Store the replicas of a partition."""
        self.assignments.setdefault(partition.topic, {})[partition.partition] = assignment
        if assignment.is_being_reassigned:
            self.reassigning.add(partition)
        else:
            self.reassigning.discard(partition)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic with its partitions and its deletion."""
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
        """Return the topic's id, `ZERO_UUID` if it has none."""
        return self.topic_ids.get(topic, ZERO_UUID)

    # Partitions

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the assignment of a partition. For an unknown partition, it has no replicas."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, _NO_ASSIGNMENT)

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over all partitions."""
        for topic, assignments in self.assignments.items():
            for number in assignments:
                yield TopicPartition(topic, number)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of a topic."""
        return [TopicPartition(topic, number) for number in self.assignments.get(topic, {})]

    def replicas_of(self, topic: str) -> list[Replica]:
        """Return all replicas of a topic."""
        return [
            Replica(TopicPartition(topic, number), broker)
            for number, assignment in self.assignments.get(topic, {}).items()
            for broker in assignment.replicas
        ]

    def replicas_on(self, brokers: Iterable[int]) -> list[Replica]:
        """Return all replicas on these brokers."""
        wanted = set(brokers)
        return [
            Replica(TopicPartition(topic, number), broker)
            for topic, assignments in self.assignments.items()
            for number, assignment in assignments.items()
            for broker in assignment.replicas
            if broker in wanted
        ]

    def leader(self, partition: TopicPartition) -> int:
        """Return the leader, -1 if there is none."""
        leadership = self.leaderships.get(partition)
        return NO_BROKER if leadership is None else leadership.state.leader

    def has_offline_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition had a leader that is now offline. A leader that is shutting down is still online."""
        leadership = self.leaderships.get(partition)
        return leadership is not None and not self.is_online(leadership.state.leader, partition, or_shutting_down=True)

    def has_restarted_leader(self, partition: TopicPartition) -> bool:
        """Whether the leader registered after the state was written.

        Then it restarted while there was no controller, for example because all brokers lost power. It may have lost
        records that followers have, so it must not write others at their offsets in the same leader epoch.
        """
        leadership = self.leaderships.get(partition)
        broker = None if leadership is None else self.brokers.get(leadership.state.leader)
        return leadership is not None and broker is not None and 0 < leadership.mzxid < broker.epoch

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the topic is being deleted."""
        return topic in self.deletions

    def is_marked_for_deletion(self, topic: str) -> bool:
        """Whether the topic is being deleted, or is deleted after its reassignments."""
        return topic in self.deletions or topic in self.deferred_deletions

    def is_being_reassigned(self, topic: str) -> bool:
        """Whether a partition of the topic is being reassigned."""
        return any(assignment.is_being_reassigned for assignment in self.assignments.get(topic, {}).values())

    # Counts for metrics

    def offline_partition_count(self) -> int:
        """Count partitions without a leader, except those being deleted."""
        return sum(
            1
            for partition, status in self.partition_status.items()
            if status in (PartitionStatus.OFFLINE, PartitionStatus.NEW) and partition.topic not in self.deletions
        )

    def preferred_imbalance_count(self) -> int:
        """Count partitions that are not led by their preferred leader, except those being deleted.

        As in Kafka, a partition whose preferred leader is being added counts only when that replica is in sync.
        """
        return sum(
            1
            for partition, leadership in self.leaderships.items()
            if not self.is_marked_for_deletion(partition.topic)
            and not _has_preferred_leader(self.assignment(partition), leadership.state)
        )

    def partition_count(self) -> int:
        """Count all partitions."""
        return sum(len(assignments) for assignments in self.assignments.values())


def _has_preferred_leader(assignment: ReplicaAssignment, state: PartitionState) -> bool:
    preferred = assignment.preferred_leader
    if preferred in assignment.adding:
        return preferred not in state.isr
    return state.leader == preferred


def slices(items: Iterable[_T], size: int = SLICE_PARTITIONS) -> Iterator[list[_T]]:
    """Yield the items in order, in non-empty lists of at most `size` items, so that the caller can await in between.

    The items are copied first, because their source may change while the caller awaits.
    """
    every = list(items)
    for start in range(0, len(every), size):
        yield every[start : start + size]
