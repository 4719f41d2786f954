"""Encodes and decodes the values of a consumer group in `__consumer_offsets`, byte for byte like Apache Kafka.

All values have version 0, which is flexible: Kafka 3.9 and 4.1 read and write it. Lists are sorted, so that a state has
only one encoding. Every function that decodes raises `MalformedFrameError` for an unknown version or invalid bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from odradek.base.errors import MalformedFrameError
from odradek.coordinator.groups.consumer.consumer_values import (
    ClassicMetadata,
    ClassicProtocol,
    ConsumerMember,
    PartitionSet,
    ReconciliationState,
    ResolvedRegex,
    TopicShape,
)
from odradek.protocol.codec import decode_struct, encode_struct
from odradek.protocol.encoder import Message
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassicMemberMetadata,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupPartitionMetadataValueTopicMetadata,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.wire import Reader

VALUE_VERSION: Final = 0

_VERSION_BYTES: Final = 2
_MOST_PARTITIONS_WITH_RACKS: Final = 1 << 20
"""Maximum number of partitions of a topic with racks: their tuple needs memory for each partition."""

_Value = TypeVar("_Value")


class ConsumerRecordType(IntEnum):
    """What a record of a consumer group contains. The number is the version of its key."""

    GROUP_METADATA = 3
    PARTITION_METADATA = 4
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


class CurrentAssignment(NamedTuple):
    """What a member has, and how far it has come on its way to its target assignment."""

    epoch: int
    previous_epoch: int
    state: ReconciliationState
    assigned: PartitionSet
    revoking: PartitionSet


class _TopicPartitions(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


def _encode(value_type: type[Any], message: Message) -> bytes:
    return VALUE_VERSION.to_bytes(_VERSION_BYTES, "big") + encode_struct(value_type, VALUE_VERSION, message)


def _decode(value_type: type[_Value], data: bytes) -> _Value:
    version = Reader(data).int16()
    if version != VALUE_VERSION:
        raise MalformedFrameError(f"{value_type.__name__} has version {version}; only version 0 is supported")
    # The size of a record is limited by that of its batch, so only its size limits the number of elements.
    return decode_struct(value_type, VALUE_VERSION, data, _VERSION_BYTES, element_budget=len(data))


_TYPES: Final[Mapping[ConsumerRecordType, type[Any]]] = {
    ConsumerRecordType.GROUP_METADATA: ConsumerGroupMetadataValue,
    ConsumerRecordType.PARTITION_METADATA: ConsumerGroupPartitionMetadataValue,
    ConsumerRecordType.MEMBER_METADATA: ConsumerGroupMemberMetadataValue,
    ConsumerRecordType.TARGET_ASSIGNMENT_METADATA: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerRecordType.REGULAR_EXPRESSION: ConsumerGroupRegularExpressionValue,
}


def decode_consumer_value(record_type: ConsumerRecordType, data: bytes) -> Any:
    """Decode a value into an object of its generated class."""
    return _decode(_TYPES[record_type], data)


def encode_group_epoch(epoch: int) -> bytes:
    """Encode the epoch of a group, without the hash of its topics, which only Kafka 4.1 has."""
    return _encode(ConsumerGroupMetadataValue, {"epoch": epoch})


def decode_group_epoch(data: bytes) -> int:
    """Decode the epoch of a group."""
    return _decode(ConsumerGroupMetadataValue, data).epoch


def encode_assignment_epoch(epoch: int) -> bytes:
    """Encode the group epoch for which the target assignment was computed."""
    return _encode(ConsumerGroupTargetAssignmentMetadataValue, {"assignment_epoch": epoch})


def decode_assignment_epoch(data: bytes) -> int:
    """Decode the group epoch for which the target assignment was computed."""
    return _decode(ConsumerGroupTargetAssignmentMetadataValue, data).assignment_epoch


def encode_topics(topics: Mapping[str, TopicShape]) -> bytes:
    """Encode the subscribed topics. Like Kafka 3.9, partitions without racks are omitted from the list of racks."""
    shown = [
        {
            "topic_id": topic.topic_id,
            "topic_name": topic.name,
            "num_partitions": topic.partition_count,
            "partition_metadata": [
                {"partition": partition, "racks": sorted(racks)} for partition, racks in enumerate(topic.racks) if racks
            ],
        }
        for _, topic in sorted(topics.items())
    ]
    return _encode(ConsumerGroupPartitionMetadataValue, {"topics": shown})


def decode_topics(data: bytes) -> dict[str, TopicShape]:
    """Decode the subscribed topics, by name."""
    return {topic.topic_name: _shape(topic) for topic in _decode(ConsumerGroupPartitionMetadataValue, data).topics}


def _shape(topic: ConsumerGroupPartitionMetadataValueTopicMetadata) -> TopicShape:
    count = topic.num_partitions
    racks: tuple[frozenset[str], ...] = ()
    if topic.partition_metadata:
        if not 0 <= count <= _MOST_PARTITIONS_WITH_RACKS:
            raise MalformedFrameError(f"topic {topic.topic_name} has {count} partitions with racks")
        by_partition = {each.partition: frozenset(each.racks) for each in topic.partition_metadata}
        racks = tuple(by_partition.get(partition, frozenset()) for partition in range(count))
    return TopicShape(topic.topic_id, topic.topic_name, count, racks)


def encode_member(member: ConsumerMember) -> bytes:
    """Encode what a member has told about itself. An absent regular expression is an empty string, as in Kafka."""
    classic = member.classic
    return _encode(
        ConsumerGroupMemberMetadataValue,
        {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topics),
            "subscribed_topic_regex": member.regex or "",
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
            "classic_member_metadata": None
            if classic is None
            else {
                "session_timeout_ms": classic.session_timeout_ms,
                "supported_protocols": [
                    {"name": protocol.name, "metadata": protocol.metadata} for protocol in classic.protocols
                ],
            },
        },
    )


def decode_member(member_id: str, data: bytes) -> ConsumerMember:
    """Decode what a member has told about itself. The member has no epoch and no partitions."""
    value = _decode(ConsumerGroupMemberMetadataValue, data)
    return ConsumerMember(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=_classic(value.classic_member_metadata),
    )


def _classic(value: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None) -> ClassicMetadata | None:
    if value is None:
        return None
    protocols = tuple(ClassicProtocol(each.name, each.metadata) for each in value.supported_protocols)
    return ClassicMetadata(session_timeout_ms=value.session_timeout_ms, protocols=protocols)


def encode_target(target: PartitionSet) -> bytes:
    """Encode the partitions that a member should have."""
    return _encode(ConsumerGroupTargetAssignmentMemberValue, {"topic_partitions": _lists(target)})


def decode_target(data: bytes) -> PartitionSet:
    """Decode the partitions that a member should have."""
    return _partition_set(_decode(ConsumerGroupTargetAssignmentMemberValue, data).topic_partitions)


def encode_current(member: ConsumerMember) -> bytes:
    """Encode what a member has, and its progress."""
    return _encode(
        ConsumerGroupCurrentMemberAssignmentValue,
        {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _lists(member.assigned),
            "partitions_pending_revocation": _lists(member.revoking),
        },
    )


def decode_current(data: bytes) -> CurrentAssignment:
    """Decode what a member has, and its progress. Raises `MalformedFrameError` for an unknown state, too."""
    value = _decode(ConsumerGroupCurrentMemberAssignmentValue, data)
    try:
        state = ReconciliationState(value.state)
    except ValueError as error:
        raise MalformedFrameError(f"unknown state {value.state} of a member") from error
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _partition_set(value.assigned_partitions),
        _partition_set(value.partitions_pending_revocation),
    )


def encode_regex(regex: ResolvedRegex) -> bytes:
    """Encode the topics of a regular expression."""
    return _encode(
        ConsumerGroupRegularExpressionValue,
        {"topics": sorted(regex.topics), "version": regex.version, "timestamp": regex.resolved_ms},
    )


def decode_regex(data: bytes) -> ResolvedRegex:
    """Decode the topics of a regular expression."""
    value = _decode(ConsumerGroupRegularExpressionValue, data)
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def _lists(partitions: PartitionSet) -> list[Message]:
    return [{"topic_id": topic_id, "partitions": sorted(partitions[topic_id])} for topic_id in sorted(partitions)]


def _partition_set(topics: Iterable[_TopicPartitions]) -> PartitionSet:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
