"""The subscriptions and assignments that the members of a consumer group exchange, versions 0 to 3.

`group_member` and `admin` use it for the bytes in JoinGroup, SyncGroup and DescribeGroups, which brokers do not read.
The messages are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, after their version as an int16.
Newer versions only add fields at the end, so a newer version is read as version 3, and the rest is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Any, Final, TypeVar

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.protocol.codec import decode_struct, encode_struct
from odradek.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3

_VERSION: Final = Struct(">h")
_Message = TypeVar("_Message", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription of a member. `owned` are the partitions that it had in the generation `generation_id`, or -1."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """Encode a subscription. Fields that the version lacks are omitted."""
    message = {
        "topics": subscription.topics,
        "user_data": subscription.user_data,
        "owned_partitions": _by_topic(subscription.owned),
        "generation_id": subscription.generation_id,
        "rack_id": subscription.rack_id,
    }
    return _VERSION.pack(version) + encode_struct(ConsumerProtocolSubscription, version, message)


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription. Raises `MalformedFrameError`."""
    message = _decode(ConsumerProtocolSubscription, SUBSCRIPTION_VERSION, data)
    return Subscription(
        topics=message.topics,
        user_data=message.user_data,
        owned=_partitions(message.owned_partitions),
        generation_id=message.generation_id,
        rack_id=message.rack_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = ASSIGNMENT_VERSION) -> bytes:
    """Encode an assignment without user data."""
    message = {"assigned_partitions": _by_topic(partitions), "user_data": None}
    return _VERSION.pack(version) + encode_struct(ConsumerProtocolAssignment, version, message)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode the partitions of an assignment; no bytes mean no partitions. Raises `MalformedFrameError`."""
    if not data:
        return ()
    return _partitions(_decode(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, data).assigned_partitions)


def _decode(message_type: type[_Message], highest: int, data: bytes) -> _Message:
    if len(data) < _VERSION.size:
        raise MalformedFrameError(f"a message of the consumer protocol has {len(data)} bytes, too few for its version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedFrameError(f"a message of the consumer protocol has the version {version}")
    return decode_struct(message_type, min(version, highest), data, _VERSION.size, allow_more=True)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": [partition for _, partition in members]}
        for topic, members in groupby(sorted(partitions), key=lambda found: found.topic)
    ]


def _partitions(
    topics: Iterable[ConsumerProtocolAssignmentTopicPartition | ConsumerProtocolSubscriptionTopicPartition],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)
