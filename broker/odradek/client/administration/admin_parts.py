"""What the parts of `Admin` share: requests with retries, and answers of brokers as the values that it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from odradek.base.errors import error_for
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.client.admin_kinds import ConfigResourceType, ConfigSource, ConfigType, ConsumerGroupState
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.group_protocol import PROTOCOL_TYPE, decode_assignment
from odradek.client.metadata import topics_of
from odradek.client.models import (
    ConfigEntry,
    ConfigSynonym,
    ConsumerGroupDescription,
    ConsumerGroupMember,
    GroupDescription,
    LogDirDescription,
    MemberDescription,
    ReplicaSize,
)
from odradek.client.offsets import leaderless_error
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.configs import DescribeConfigsResponseResourceResult
from odradek.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseMember,
)
from odradek.protocol.messages.groups import (
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
)
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponseResult

T = TypeVar("T")

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
"""Types of members in ConsumerGroupDescribe."""
_NO_CONFIG_SOURCE: Final = -1
"""The source of a property in DescribeConfigs before version 1."""


class AdminPart:
    """Asks the brokers of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """The cluster is started and closed by the caller."""
        self._cluster: Final = cluster

    async def _retrying(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        return await self._cluster.retrying(attempt, self._cluster.deadline(what))

    async def _by_leader(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader. Raises `LeaderNotAvailableError` and `UnknownTopicOrPartitionError`."""
        cluster = self._cluster
        await asyncio.gather(*(cluster.topic(topic) for topic in sorted(topics_of(partitions))))
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = cluster.view.leader(partition)
            if leader == NO_BROKER:
                raise leaderless_error(cluster, partition)
            found.setdefault(leader, []).append(partition)
        return found

    async def _ask_any(self, expected: type[Response], message: Message, *, at_least: int = 0) -> Response:
        """Send a request to any broker, with retries. `at_least` is that of `Cluster.ask_any`."""

        async def attempt() -> Response:
            return await self._cluster.ask_any(expected, message, at_least=at_least)

        return await self._retrying(attempt, f"the {expected.API_KEY.name} request")


def check_answer(code: int, text: str | None, what: str) -> None:
    """Raise the error if `code` is one. `text` is the broker's error message, `what` describes the failed request."""
    if code:
        raise error_for(code, f"{what}: {text}" if text else what)


def described_log_dir(result: DescribeLogDirsResponseResult) -> LogDirDescription:
    """Return a log directory with its replicas."""
    return LogDirDescription(
        path=result.log_dir,
        error_code=result.error_code,
        replicas={
            TopicPartition(topic.name, replica.partition_index): ReplicaSize(
                size_bytes=replica.partition_size,
                offset_lag=replica.offset_lag,
                future=replica.is_future_key,
            )
            for topic in result.topics
            for replica in topic.partitions
        },
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
    )


def config_entry(entry: DescribeConfigsResponseResourceResult, resource_type: ConfigResourceType) -> ConfigEntry:
    """Return a property."""
    source = ConfigSource(entry.config_source)
    if entry.config_source == _NO_CONFIG_SOURCE:
        # Version 0 says only whether a value is a default.
        own = ConfigSource.TOPIC_CONFIG if resource_type is ConfigResourceType.TOPIC else ConfigSource.UNKNOWN
        source = ConfigSource.DEFAULT_CONFIG if entry.is_default else own
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=source,
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        config_type=ConfigType(entry.config_type),
        documentation=entry.documentation or None,
        synonyms=tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in entry.synonyms),
    )


def described_group(group: DescribeGroupsResponseDescribedGroup, coordinator: int) -> GroupDescription:
    """Return a group. `coordinator` is the broker that answered."""
    return GroupDescription(
        group_id=group.group_id,
        state=ConsumerGroupState(group.group_state),
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_described_member(group, member) for member in group.members),
    )


def _described_member(
    group: DescribeGroupsResponseDescribedGroup, member: DescribeGroupsResponseDescribedGroupMember
) -> MemberDescription:
    # Only the assignments of consumers have a known format.
    of_consumer = group.protocol_type == PROTOCOL_TYPE
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=decode_assignment(member.member_assignment) if of_consumer else (),
    )


def described_consumer_group(
    group: ConsumerGroupDescribeResponseDescribedGroup, coordinator: int
) -> ConsumerGroupDescription:
    """Return a group of the type `consumer`. `coordinator` is the broker that answered."""
    return ConsumerGroupDescription(
        group_id=group.group_id,
        state=ConsumerGroupState(group.group_state),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        coordinator=coordinator,
        members=tuple(_consumer_group_member(member) for member in group.members),
    )


def _consumer_group_member(member: ConsumerGroupDescribeResponseMember) -> ConsumerGroupMember:
    known_type = member.member_type in (_CLASSIC_MEMBER, _CONSUMER_MEMBER)
    return ConsumerGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_epoch=member.member_epoch,
        subscribed_topics=member.subscribed_topic_names,
        subscribed_regex=member.subscribed_topic_regex or None,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        is_classic=member.member_type == _CLASSIC_MEMBER if known_type else None,
    )


def _partitions(assignment: ConsumerGroupDescribeResponseAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def as_group(group: ConsumerGroupDescription) -> GroupDescription:
    """Return a group of the type `consumer` in the form that groups of either type have."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.state,
        protocol_type=PROTOCOL_TYPE,
        protocol=group.assignor,
        coordinator=group.coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=member.assignment,
            )
            for member in group.members
        ),
        group_type="consumer",
    )
