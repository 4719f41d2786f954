"""Turns a classic group of consumers into a consumer group, and back (KIP-848, `group.consumer.migration.policy`).

A classic group is upgraded when a member of the new protocol joins it. Its members become members with the classic
protocol, and the generation becomes the epoch. A consumer group is downgraded when its last member of the new protocol
leaves. Both only compute the new group: the caller writes it, and lets the classic members join again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import UUID

from odradek.base.errors import GroupIdNotFoundError, MalformedFrameError
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.classic.classic_member import ClassicMember
from odradek.coordinator.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupImage,
    ConsumerGroupSettings,
    ConsumerMember,
    PartitionSet,
    RuleContext,
    Topics,
)
from odradek.coordinator.groups.consumer.subscriptions import subscribed_shapes
from odradek.coordinator.groups.group_kinds import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.groups.group_records import GroupValue, MemberValue
from odradek.protocol.codec import decode_struct, encode_struct
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

HIGHEST_VERSION: Final = 3
"""Highest version of the messages that consumers exchange. Newer versions only add fields at the end."""

_VERSION: Final = Struct(">h")
_Message = TypeVar("_Message", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


def can_upgrade(group: ClassicGroup, settings: ConsumerGroupSettings) -> bool:
    """Return whether a classic group may become a consumer group: its members are consumers and not too many."""
    return (
        settings.allows_upgrade
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.members) <= settings.max_size
    )


def upgraded(group: ClassicGroup, context: RuleContext) -> ConsumerGroupImage:
    """Return a classic group as a consumer group.

    Raises `GroupIdNotFoundError` if the subscription or assignment of a member is malformed, as Kafka does.
    """
    taken: set[tuple[UUID, int]] = set()
    members: dict[str, ConsumerMember] = {}
    for member_id, member in group.members.items():
        try:
            members[member_id] = _upgraded_member(group, member, context.topics, taken)
        except MalformedFrameError as error:
            raise GroupIdNotFoundError(
                f"Group {group.group_id!r} cannot become a consumer group, because member {member_id!r} sent a "
                f"malformed message: {error}"
            ) from error
    names = {name for member in members.values() for name in member.topics}
    # A group with members has an epoch. In its first rebalance, a classic group has no generation yet.
    epoch = max(group.generation, 1)
    return ConsumerGroupImage(
        epoch=epoch,
        assignment_epoch=epoch,
        members=MappingProxyType(members),
        target=MappingProxyType({member_id: member.assigned for member_id, member in members.items()}),
        topics=subscribed_shapes(names, context),
    )


def _upgraded_member(
    group: ClassicGroup, member: ClassicMember, topics: Topics, taken: set[tuple[UUID, int]]
) -> ConsumerMember:
    # During the first rebalance, the group has not chosen a protocol yet. All have the same topics.
    metadata = member.metadata(group.protocol_name) or next((data for _, data in member.protocols), b"")
    subscription = decode_message(ConsumerProtocolSubscription, metadata)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms,
            protocols=tuple(ClassicProtocol(name, data) for name, data in member.protocols),
        ),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=_assigned(member, subscription, topics, taken),
    )


def _assigned(
    member: ClassicMember, subscription: ConsumerProtocolSubscription, topics: Topics, taken: set[tuple[UUID, int]]
) -> PartitionSet:
    """Return the partitions that a member has by topic id, without those that are taken.

    Assignors of consumers may give a partition to several members. Here only the first one keeps it. A member without
    an assignment, because the group rebalances, has the partitions that it reported when it joined.
    """
    listed: Iterable[tuple[str, Collection[int]]]
    if member.assignment:
        message = decode_message(ConsumerProtocolAssignment, member.assignment)
        listed = ((topic.topic, topic.partitions) for topic in message.assigned_partitions)
    else:
        listed = ((topic.topic, topic.partitions) for topic in subscription.owned_partitions)
    given = partitions_by_id(listed, topics)
    partitions: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in given.items():
        free = frozenset(number for number in numbers if (topic_id, number) not in taken)
        if free:
            taken.update((topic_id, number) for number in free)
            partitions[topic_id] = free
    return MappingProxyType(partitions)


def partitions_by_id(partitions: Iterable[tuple[str, Collection[int]]], topics: Topics) -> PartitionSet:
    """Return partitions of topic names by topic id, without topics that do not exist."""
    found: dict[UUID, frozenset[int]] = {}
    for name, numbers in partitions:
        shape = topics.shape(name)
        if shape is not None and numbers:
            found[shape.topic_id] = found.get(shape.topic_id, frozenset()).union(numbers)
    return MappingProxyType(found)


def can_downgrade(
    state: ConsumerGroupImage, leaving: Collection[str], settings: ConsumerGroupSettings, classic_max_size: int
) -> bool:
    """Return whether a consumer group may become a classic group without these members: the others use the classic
    protocol and support a common assignor. `classic_max_size` is `group.max.size`."""
    staying = _staying(state, leaving)
    return (
        settings.allows_downgrade
        and 0 < len(staying) <= classic_max_size
        and all(member.classic is not None for member in staying)
        and bool(_common_protocols(staying))
    )


def downgraded(state: ConsumerGroupImage, leaving: Collection[str], *, now_ms: int) -> GroupValue:
    """Return a consumer group as a classic group without the members that leave. `can_downgrade` must be true.

    The epoch of the target assignment becomes the generation, so that the members that have reached it know the
    generation. The target assignment becomes the assignment. The first member leads.
    """
    staying = _staying(state, leaving)
    candidates = _common_protocols(staying)
    votes = Counter(next(name for name, _ in _protocols(member) if name in candidates) for member in staying)
    protocol = votes.most_common(1)[0][0]
    names = names_by_id(state)
    return GroupValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.assignment_epoch,
        protocol=protocol,
        leader=staying[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(
            _downgraded_member(member, protocol, state.target.get(member.member_id, NO_PARTITIONS), names)
            for member in staying
        ),
    )


def _downgraded_member(
    member: ConsumerMember, protocol: str, target: PartitionSet, names: Mapping[UUID, str]
) -> MemberValue:
    metadata = next(data for name, data in _protocols(member) if name == protocol)
    return MemberValue(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=_classic(member).session_timeout_ms,
        subscription=metadata,
        assignment=encode_assignment(target, names, metadata),
    )


def _staying(state: ConsumerGroupImage, leaving: Collection[str]) -> list[ConsumerMember]:
    return [member for member_id, member in state.members.items() if member_id not in leaving]


def _classic(member: ConsumerMember) -> ClassicMetadata:
    if member.classic is None:
        raise ValueError(f"member {member.member_id!r} does not use the classic protocol")
    return member.classic


def _protocols(member: ConsumerMember) -> tuple[ClassicProtocol, ...]:
    return _classic(member).protocols


def _common_protocols(members: Iterable[ConsumerMember]) -> frozenset[str]:
    names = [frozenset(name for name, _ in _protocols(member)) for member in members]
    return frozenset.intersection(*names) if names else frozenset()


def names_by_id(state: ConsumerGroupImage) -> Mapping[UUID, str]:
    """Return the names of the subscribed topics by topic id."""
    return {shape.topic_id: name for name, shape in state.topics.items()}


def decode_message(message_type: type[_Message], data: bytes) -> _Message:
    """Decode a message that consumers exchange. Raises `MalformedFrameError`."""
    if len(data) < _VERSION.size:
        raise MalformedFrameError(f"a message of the consumer protocol has {len(data)} bytes, too few for its version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedFrameError(f"a message of the consumer protocol has the version {version}")
    return decode_struct(message_type, min(version, HIGHEST_VERSION), data, _VERSION.size, allow_more=True)


def encode_assignment(partitions: PartitionSet, names: Mapping[UUID, str], subscription: bytes) -> bytes:
    """Return partitions as an assignment for a classic member, in the version of its encoded subscription.

    Topics without a name in `names` are left out. `subscription` must have been decoded before.
    """
    (version,) = _VERSION.unpack_from(subscription)
    version = min(version, HIGHEST_VERSION)
    named = sorted((names[topic_id], sorted(numbers)) for topic_id, numbers in partitions.items() if topic_id in names)
    message = {
        "assigned_partitions": [{"topic": topic, "partitions": numbers} for topic, numbers in named],
        "user_data": None,
    }
    return _VERSION.pack(version) + encode_struct(ConsumerProtocolAssignment, version, message)
