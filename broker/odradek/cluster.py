"""The metadata image: what this broker knows of the cluster. It is immutable and replaced as a whole.

`ClusterImage.updated` applies the UpdateMetadata requests of the controller. Request handlers, replication and the
coordinators read the image. An image never changes, so a handler that awaits keeps a consistent view. An update copies
the table of topics (references only) and shares every unchanged topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from odradek.base.types import NO_BROKER, ZERO_UUID, Endpoint, TopicPartition

LEADER_DURING_DELETE: Final = -2
"""The leader id that the controller sends for a partition whose topic is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedBroker:
    """A live broker, as in the controller's last UpdateMetadata request."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the broker's endpoint of a listener; None if it has no listener with that name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """Leader, ISR and assignment of one partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    partition_epoch: int = 0
    """The znode version of the partition's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """One consistent view of brokers, topics and controller."""

    controller_id: int = NO_BROKER
    brokers: Mapping[int, AnnouncedBroker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    announced: Mapping[UUID, str] = field(default_factory=dict)
    """Names by topic id of hosted topics that are so far known only from LeaderAndIsr requests."""

    def with_announced(self, names: Mapping[UUID, str]) -> ClusterImage:
        """Return the image with the topic ids of a LeaderAndIsr request.

        The leader must know them before UpdateMetadata arrives: otherwise it would refuse the fetch of a follower that
        received its role earlier.
        """
        news = {topic_id: name for topic_id, name in names.items() if topic_id not in self.topic_names}
        news.pop(ZERO_UUID, None)
        return replace(self, announced={**self.announced, **news}) if news else self

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if it is unknown."""
        return self.topic_names.get(topic_id) or self.announced.get(topic_id)

    def updated(
        self,
        *,
        controller_id: int,
        brokers: Iterable[AnnouncedBroker],
        partitions: Iterable[tuple[TopicPartition, UUID, PartitionMetadata]],
    ) -> ClusterImage:
        """Return the next image. It replaces all brokers and the given partitions, and drops those being deleted."""
        changed: dict[str, dict[int, PartitionMetadata]] = {}
        ids: dict[str, UUID] = {}
        for (name, number), topic_id, state in partitions:
            if name not in changed:
                known = self.topics.get(name)
                same = known is not None and topic_id in (ZERO_UUID, known.topic_id)
                changed[name] = dict(known.partitions) if known is not None and same else {}
                ids[name] = known.topic_id if known is not None and same else topic_id
            if state.leader == LEADER_DURING_DELETE:
                changed[name].pop(number, None)
            else:
                changed[name][number] = state
        image = replace(self, controller_id=controller_id, brokers={broker.broker_id: broker for broker in brokers})
        return image._with_topics(changed, ids) if changed else image

    def _with_topics(
        self, changed: Mapping[str, dict[int, PartitionMetadata]], ids: Mapping[str, UUID]
    ) -> ClusterImage:
        topics, names = dict(self.topics), dict(self.topic_names)
        for name, states in changed.items():
            old = topics.pop(name, None)
            if old is not None:
                names.pop(old.topic_id, None)
            if states:
                ordered = dict(sorted(states.items()))
                topics[name] = Topic(name=name, topic_id=ids[name], partitions=ordered)
                if ids[name] != ZERO_UUID:
                    names[ids[name]] = name
        announced = {topic_id: name for topic_id, name in self.announced.items() if name not in changed}
        return replace(self, topics=topics, topic_names=names, announced=announced)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """Return the state of one partition; None if it is unknown."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader_endpoint(self, topic_partition: TopicPartition, listener: str) -> tuple[int, Endpoint] | None:
        """Return id and endpoint of a partition's leader; None if no live leader has this listener."""
        state = self.partition(topic_partition)
        if state is None:
            return None
        broker = self.brokers.get(state.leader)
        endpoint = None if broker is None else broker.endpoint(listener)
        return None if endpoint is None else (state.leader, endpoint)

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic; `ZERO_UUID` if it has none or is unknown."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id


class MetadataCache:
    """A reference to the current image. One owner replaces `image`; all others only read it."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        """Start with an empty image."""
        self.image = ClusterImage()
