"""The order of records of consumer groups that Kafka's coordinator accepts."""

from __future__ import annotations

from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType, decode_current
from odradek.coordinator.groups.consumer.consumer_records import ConsumerRecordKey


class StrictReplay:
    """The checks with which Kafka's coordinator refuses records."""

    def __init__(self) -> None:
        """Without records."""
        self.members: set[str] = set()
        self.targets: set[str] = set()
        self.owned: dict[str, set[tuple[UUID, int]]] = {}
        self.has_target_epoch = False

    def apply(self, key: ConsumerRecordKey, value: bytes | None) -> None:
        """Apply a record. Raises `AssertionError` if Kafka would refuse it."""
        match key.type:
            case ConsumerRecordType.MEMBER_METADATA if value is None:
                assert key.name not in self.owned
                assert key.name not in self.targets
                self.members.discard(key.name)
            case ConsumerRecordType.MEMBER_METADATA:
                self.members.add(key.name)
            case ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER if value is None:
                self.targets.discard(key.name)
            case ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER:
                assert key.name in self.members
                self.targets.add(key.name)
            case ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT if value is None:
                self.owned.pop(key.name, None)
            case ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT:
                assert value is not None
                self._assign(key.name, value)
            case ConsumerRecordType.TARGET_ASSIGNMENT_METADATA:
                assert value is not None or not self.targets
                self.has_target_epoch = value is not None
            case ConsumerRecordType.GROUP_METADATA if value is None:
                assert not (self.members or self.targets or self.has_target_epoch)

    def _assign(self, member_id: str, value: bytes) -> None:
        assert member_id in self.members
        current = decode_current(value)
        owned = {
            (topic_id, partition)
            for topics in (current.assigned, current.revoking)
            for topic_id, partitions in topics.items()
            for partition in partitions
        }
        self.owned.pop(member_id, None)
        assert all(owned.isdisjoint(others) for others in self.owned.values())
        self.owned[member_id] = owned
