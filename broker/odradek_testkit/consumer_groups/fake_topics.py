"""Topics of a cluster for the tests of consumer groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import TopicShape


class FakeTopics:
    """The topics of a cluster. The id of a topic is new whenever it is created."""

    def __init__(self, **partition_counts: int) -> None:
        self._shapes: dict[str, TopicShape] = {}
        self._created = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int) -> UUID:
        """Create a topic, or create it again with another id."""
        self._created += 1
        topic_id = UUID(int=self._created)
        self._shapes[name] = TopicShape(topic_id, name, partition_count)
        return topic_id

    def grow(self, name: str, partition_count: int) -> None:
        """Change the number of partitions."""
        self._shapes[name] = replace(self._shapes[name], partition_count=partition_count)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._shapes[name]

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return list(self._shapes)

    def shape(self, name: str) -> TopicShape | None:
        """Return the shape of a topic."""
        return self._shapes.get(name)

    def id(self, name: str) -> UUID:
        """Return the id of a topic that exists."""
        return self._shapes[name].topic_id
