"""The topics of the cluster as consumer groups see them: the `Topics` of their rules.

They come from the metadata image. All groups of a broker share one object, which keeps the shapes of topics until they
change, because every heartbeat looks at them after a change of the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from odradek.base.types import ZERO_UUID
from odradek.cluster import ClusterImage, Topic
from odradek.coordinator.groups.consumer.consumer_values import TopicShape


class _Known(NamedTuple):
    topic: Topic
    racks: Mapping[int, str]
    shape: TopicShape


class ClusterTopics:
    """The topics of the current metadata image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        """`image` returns the current image."""
        self._image: Final = image
        self._shapes: Final[dict[str, _Known]] = {}

    @property
    def version(self) -> object:
        """An object that is replaced when the metadata of the cluster change."""
        return self._image()

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._image().topics.keys()

    def shape(self, name: str) -> TopicShape | None:
        """Return the shape of a topic; None if it does not exist or has no id."""
        image = self._image()
        topic = image.topics.get(name)
        if topic is None or topic.topic_id == ZERO_UUID:
            self._shapes.pop(name, None)
            return None
        racks = {broker.broker_id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
        known = self._shapes.get(name)
        if known is None or known.topic is not topic or known.racks != racks:
            known = self._shapes[name] = _Known(topic, racks, _shape(topic, racks))
        return known.shape


def _shape(topic: Topic, racks: Mapping[int, str]) -> TopicShape:
    of_partitions: tuple[frozenset[str], ...] = ()
    if racks:
        of_partitions = tuple(
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for _, partition in sorted(topic.partitions.items())
        )
    return TopicShape(
        topic_id=topic.topic_id, name=topic.name, partition_count=len(topic.partitions), racks=of_partitions
    )
