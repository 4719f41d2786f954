"""The metadata of a client, the schedule of its refreshes, and backoff after failures. Pure; used by `cluster_client`.

Invariant: the leader epoch of a partition never decreases while the topic is the same (KIP-320), so the response of a
broker that is behind cannot restore an old leader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.base.errors import UnknownTopicOrPartitionError, error_for
from odradek.base.types import NO_BROKER, NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.client.models import PartitionDescription, TopicDescription

if TYPE_CHECKING:
    from odradek.protocol.messages.cluster import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

_NONE: Final = 0
_JITTER: Final = 0.2
"""Relative jitter of pauses, so that clients do not reconnect all at once (KIP-580)."""


class Node(NamedTuple):
    """A broker with its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition. `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic. It has no partitions if it has an error code."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    error_code: int = _NONE

    @property
    def available(self) -> list[int]:
        """Return the partitions that have a leader."""
        return [p.partition for p in self.partitions.values() if p.leader != NO_BROKER]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Metadata of the cluster."""

    cluster_id: str | None = None
    controller_id: int = NO_BROKER
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        """Return a partition; None if it is unknown."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> int:
        """Return the leader's id; -1 if unknown."""
        partition = self.partition(topic_partition)
        return NO_BROKER if partition is None else partition.leader

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch; -1 if unknown."""
        partition = self.partition(topic_partition)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def updated(self, answer: ClusterView, *, complete: bool) -> ClusterView:
        """Return this view updated with `answer`. `complete`: whether the request was for all topics.

        An unknown topic loses its partitions. A topic with another error, such as during an election, keeps its
        partitions and gets the error.
        """
        topics = {} if complete else dict(self.topics)
        for name, found in answer.topics.items():
            topics[name] = _merged(self.topics.get(name), found)
        return dataclasses.replace(answer, topics=topics)

    def with_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int) -> ClusterView:
        """Return this view with a newer leader from a Produce or Fetch response (KIP-951). Ignores older leaders."""
        topic = self.topics.get(topic_partition.topic)
        known = self.partition(topic_partition)
        if topic is None or known is None or leader_epoch <= known.leader_epoch or leader not in self.nodes:
            return self
        partition = known._replace(leader=leader, leader_epoch=leader_epoch)
        changed = dataclasses.replace(topic, partitions={**topic.partitions, partition.partition: partition})
        return dataclasses.replace(self, topics={**self.topics, topic.name: changed})


def _merged(known: TopicView | None, found: TopicView) -> TopicView:
    if known is None or found.error_code == UnknownTopicOrPartitionError.code:
        return found
    if found.error_code != _NONE:
        return dataclasses.replace(known, error_code=found.error_code)
    if known.topic_id != found.topic_id:
        return found
    partitions = dict(found.partitions)
    for number, before in known.partitions.items():
        after = partitions.get(number)
        if after is not None and after.leader_epoch < before.leader_epoch and after.leader_epoch != NO_EPOCH:
            partitions[number] = before
    return dataclasses.replace(found, partitions=partitions)


def view_of(response: MetadataResponse) -> ClusterView:
    """Convert a Metadata response of version 1 or later."""
    return ClusterView(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        nodes={b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
        topics={str(topic.name): _topic_of(topic) for topic in response.topics if topic.name is not None},
    )


def _topic_of(topic: MetadataResponseTopic) -> TopicView:
    return TopicView(
        name=str(topic.name),
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions={p.partition_index: _partition_of(p) for p in sorted(topic.partitions, key=_index)},
        error_code=topic.error_code,
    )


def _index(partition: MetadataResponsePartition) -> int:
    return partition.partition_index


def _partition_of(partition: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.offline_replicas,
    )


def described_topic(name: str, topic: TopicView | None) -> TopicDescription:
    """Return a topic. Raises its error, `UnknownTopicOrPartitionError` if it does not exist."""
    if topic is None or topic.error_code == UnknownTopicOrPartitionError.code:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    if topic.error_code and not topic.partitions:
        raise error_for(topic.error_code, f"topic {name} cannot be described")
    return TopicDescription(
        name=name,
        topic_id=topic.topic_id,
        internal=topic.internal,
        partitions=tuple(
            PartitionDescription(
                partition=p.partition,
                leader=p.leader,
                leader_epoch=p.leader_epoch,
                replicas=p.replicas,
                isr=p.isr,
                offline_replicas=p.offline_replicas,
            )
            for p in topic.partitions.values()
        ),
    )


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential pauses with jitter (KIP-580)."""

    initial_ms: float
    maximum_ms: float

    def delay_ms(self, failures: int, random: float) -> float:
        """Return the pause after this many failures in a row, at least 1. `random` is in [0, 1)."""
        ceiling = max(self.initial_ms, self.maximum_ms)
        # Limit the exponent, because a float overflows after about a thousand failures.
        delay = min(ceiling, self.initial_ms * 2.0 ** min(failures - 1, 60))
        return delay * (1 - _JITTER + 2 * _JITTER * random)


class RefreshSchedule:
    """When to request metadata: on demand, limited by the backoff, and when it is too old."""

    def __init__(self, backoff: Backoff, max_age_ms: float) -> None:
        """The first request is due immediately."""
        self._backoff = backoff
        self._max_age_ms = max_age_ms
        self._due_ms = 0.0
        self._not_before_ms = 0.0
        self._failures = 0

    def due_in_ms(self, now_ms: float) -> float:
        """Return the milliseconds until the next request; 0 if it is due."""
        return max(0.0, max(self._due_ms, self._not_before_ms) - now_ms)

    def request(self, *, urgent: bool = False) -> None:
        """Request a refresh. `urgent` means that a response to an earlier request cannot contain what is needed."""
        self._due_ms = 0.0
        if urgent and not self._failures:
            self._not_before_ms = 0.0

    def succeeded(self, now_ms: float, random: float) -> None:
        """Note that metadata was received."""
        self._failures = 0
        self._due_ms = now_ms + self._max_age_ms
        self._not_before_ms = now_ms + self._backoff.delay_ms(1, random)

    def failed(self, now_ms: float, random: float) -> None:
        """Note that no broker responded."""
        self._failures += 1
        self._due_ms = 0.0
        self._not_before_ms = now_ms + self._backoff.delay_ms(self._failures, random)


def topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    """Return the topics of partitions."""
    return {topic for topic, _ in partitions}
