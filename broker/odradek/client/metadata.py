"""What a client knows of the cluster, when it asks again, and how long it waits after failures.

In: Metadata responses, times and random numbers. Out: an immutable `ClusterView`, and pauses in milliseconds. Called
by `cluster`, which does the asking. Invariant: a partition's leader epoch never falls from one view to the next while
the topic is the same (KIP-320), so an answer from a broker that lags cannot bring a deposed leader back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.base.errors import UnknownTopicOrPartitionError
from odradek.base.types import NO_BROKER, NO_EPOCH, ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from odradek.protocol.messages.cluster import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

_NONE: Final = 0
_JITTER: Final = 0.2
"""Pauses vary by this share, so that clients do not return all at once (KIP-580)."""


class Node(NamedTuple):
    """A broker as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic. With an error code there are no partitions."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    error_code: int = _NONE

    @property
    def available(self) -> list[int]:
        """Partitions that have a leader."""
        return [p.partition for p in self.partitions.values() if p.leader != NO_BROKER]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster at one time."""

    cluster_id: str | None = None
    controller_id: int = NO_BROKER
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        """What is known of a partition."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> int:
        """The leader's id, -1 when none is known."""
        partition = self.partition(topic_partition)
        return NO_BROKER if partition is None else partition.leader

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The leader's epoch, -1 when none is known."""
        partition = self.partition(topic_partition)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def updated(self, answer: ClusterView, *, complete: bool) -> ClusterView:
        """This view after `answer`; `complete` when the answer was to a question for all topics.

        A topic that the answer calls unknown loses its partitions; one with another error (an election, say) keeps what
        was known of them and takes the error.
        """
        topics = {} if complete else dict(self.topics)
        for name, found in answer.topics.items():
            topics[name] = _merged(self.topics.get(name), found)
        return dataclasses.replace(answer, topics=topics)

    def with_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int) -> ClusterView:
        """This view with a newer leader, as Produce and Fetch answers tell it (KIP-951); older news change nothing."""
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
    """Read a Metadata response of any version from 1 on."""
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


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential pauses with jitter (KIP-580)."""

    initial_ms: float
    maximum_ms: float

    def delay_ms(self, failures: int, random: float) -> float:
        """The pause after so many failures in a row, at least 1; `random` is from [0, 1)."""
        ceiling = max(self.initial_ms, self.maximum_ms)
        # The exponent is bounded, since a float overflows after some thousand failures.
        delay = min(ceiling, self.initial_ms * 2.0 ** min(failures - 1, 60))
        return delay * (1 - _JITTER + 2 * _JITTER * random)


class RefreshSchedule:
    """When to ask for metadata: on request but not faster than the back-off, and when the answer has grown old."""

    def __init__(self, backoff: Backoff, max_age_ms: float) -> None:
        """Never asked yet: due at once."""
        self._backoff = backoff
        self._max_age_ms = max_age_ms
        self._due_ms = 0.0
        self._not_before_ms = 0.0
        self._failures = 0

    def due_in_ms(self, now_ms: float) -> float:
        """Time until the next question; 0 when it is due."""
        return max(0.0, max(self._due_ms, self._not_before_ms) - now_ms)

    def request(self, *, urgent: bool = False) -> None:
        """Somebody found the view wanting. `urgent`: it is about something new, so a recent answer does not count."""
        self._due_ms = 0.0
        if urgent and not self._failures:
            self._not_before_ms = 0.0

    def succeeded(self, now_ms: float, random: float) -> None:
        """An answer came."""
        self._failures = 0
        self._due_ms = now_ms + self._max_age_ms
        self._not_before_ms = now_ms + self._backoff.delay_ms(1, random)

    def failed(self, now_ms: float, random: float) -> None:
        """No answer came from any broker."""
        self._failures += 1
        self._due_ms = 0.0
        self._not_before_ms = now_ms + self._backoff.delay_ms(self._failures, random)


def topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    """The topics that some partitions belong to."""
    return {topic for topic, _ in partitions}
