"""What consumers tell each other through their group: subscriptions up to the leader, assignments back (v0-v3).

In and out: bytes of JoinGroup and SyncGroup, which brokers do not read. Called by `group_member` and `admin`. Sources:
the messages ConsumerProtocolSubscription and ConsumerProtocolAssignment; each is led by its version as an int16. A
reader takes a newer version by what it knows of it, since later versions only add fields at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from odradek.base.types import TopicPartition
from odradek.protocol.wire import Reader, Writer

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants. `generation_id` is that of the ownership, -1 when it owns nothing."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """The bytes of a subscription; what the version lacks is left out."""
    writer = Writer()
    writer.int16(version)
    writer.array_length(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    writer.blob(subscription.user_data)
    if version >= 1:
        _write_partitions(writer, subscription.owned)
    if version >= 2:
        writer.int32(subscription.generation_id)
    if version >= 3:
        writer.string(subscription.rack_id)
    return bytes(writer.data)


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription. Raises `MalformedFrameError` on bytes that are none."""
    reader = Reader(data)
    version = reader.int16()
    return Subscription(
        topics=tuple(reader.string() for _ in range(reader.array_length(2))),
        user_data=reader.nullable_blob(),
        owned=_read_partitions(reader) if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else -1,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = ASSIGNMENT_VERSION) -> bytes:
    """The bytes of an assignment without user data."""
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, partitions)
    writer.blob(None)
    return bytes(writer.data)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Read an assignment; no bytes at all are an empty one. Raises `MalformedFrameError` on bytes that are none."""
    if not data:
        return ()
    reader = Reader(data)
    reader.int16()
    return _read_partitions(reader)


def _write_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> None:
    topics = [(topic, list(group)) for topic, group in groupby(sorted(partitions), key=lambda tp: tp.topic)]
    writer.array_length(len(topics))
    for topic, members in topics:
        writer.string(topic)
        writer.array_length(len(members))
        for _, partition in members:
            writer.int32(partition)


def _read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for _ in range(reader.array_length(6)):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length(4))]
    return tuple(found)
