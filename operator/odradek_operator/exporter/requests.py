"""Builds the exporter's requests, each for many partitions or groups, and decodes the responses.

`collection` uses it. Invariant: if one partition or group has an error, such as a leader that moved or a group that is
being loaded, only this partition or group is missing in the result. The next collection queries it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from odradek.base.errors import MalformedFrameError, error_for
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.client.consumer.group_protocol import PROTOCOL_TYPE, decode_assignment
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from odradek.protocol.messages.fetch import ListOffsetsResponse
from odradek.protocol.messages.groups import DescribeGroupsResponse, ListGroupsResponse
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponse
from odradek.protocol.messages.offsets import OffsetFetchResponse, OffsetFetchResponseGroup
from odradek_operator.exporter.readings import Members

PARTITIONS_AT_ONCE: Final = 5_000
"""Maximum number of partitions per ListOffsets request. A broker takes tens of milliseconds for a request of this
size."""

GROUPS_AT_ONCE: Final = 100
"""Maximum number of groups per DescribeGroups, ConsumerGroupDescribe or OffsetFetch request."""

MANY_GROUPS_SINCE: Final = 8
"""First version of OffsetFetch that supports several groups (KIP-709)."""

_CONSUMER_REPLICA: Final = -1
_CONSUMER_GROUP_TYPE: Final = "consumer"
"""Type of a group in ListGroups from version 5 on (KIP-848)."""

T = TypeVar("T")


def portions(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`, in order."""
    rest = list(items)
    for begin in range(0, len(rest), size):
        yield rest[begin : begin + size]


def list_offsets(partitions: Iterable[TopicPartition], timestamp: int) -> Message:
    """Return a request for the offset of each partition at a time.

    `timestamp`: milliseconds since the epoch, or one of Kafka's special values for the log start and end. The leader
    epoch is omitted, because fencing is not needed.
    """
    return {
        "replica_id": _CONSUMER_REPLICA,
        "isolation_level": 0,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "current_leader_epoch": NO_EPOCH, "timestamp": timestamp}
                    for number in numbers
                ],
            }
            for topic, numbers in grouped_by_topic(partitions).items()
        ],
    }


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    """Return the offset of each partition; -1 if no record is at or after the requested time."""
    return {
        TopicPartition(topic.name, item.partition_index): item.offset
        for topic in response.topics
        for item in topic.partitions
        if not item.error_code
    }


def listed_groups(response: ListGroupsResponse) -> dict[str, bool]:
    """Return the groups that a broker coordinates, and whether each is a consumer group of KIP-848. Raises the error in
    the response."""
    if response.error_code:
        raise error_for(response.error_code, "the consumer groups cannot be listed")
    return {group.group_id: group.group_type.lower() == _CONSUMER_GROUP_TYPE for group in response.groups}


def describe_groups(groups: Sequence[str]) -> Message:
    """Return a request for the members of groups."""
    return {"groups": list(groups), "include_authorized_operations": False}


def described_groups(response: DescribeGroupsResponse) -> dict[str, Members]:
    """Return the members of each group."""
    return {
        group.group_id: Members(
            len(group.members),
            frozenset(
                partition
                for member in group.members
                if group.protocol_type == PROTOCOL_TYPE
                for partition in _assigned(member.member_assignment)
            ),
        )
        for group in response.groups
        if not group.error_code
    }


def describe_consumer_groups(groups: Sequence[str]) -> Message:
    """Return a request for the members of consumer groups (KIP-848), which DescribeGroups does not show."""
    return {"group_ids": list(groups), "include_authorized_operations": False}


def described_consumer_groups(response: ConsumerGroupDescribeResponse) -> dict[str, Members]:
    """Return the members of each consumer group, with the partitions that they have now."""
    return {
        group.group_id: Members(
            len(group.members),
            frozenset(
                TopicPartition(topic.topic_name, number)
                for member in group.members
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for group in response.groups
        if not group.error_code
    }


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the assignment of a member. It is empty for invalid bytes, which clients may send."""
    try:
        return decode_assignment(assignment)
    except MalformedFrameError:
        return ()


def fetch_commits(groups: Sequence[str]) -> Message:
    """Return a request for all commits of groups. Versions before `MANY_GROUPS_SINCE` only contain the first group."""
    return {
        "group_id": groups[0],
        "topics": None,
        "groups": [{"group_id": group, "topics": None} for group in groups],
        "require_stable": False,
    }


def fetched_commits(response: OffsetFetchResponse, groups: Sequence[str]) -> dict[str, Mapping[TopicPartition, int]]:
    """Return the commits of each group. `groups`: the groups of the request."""
    answers: Sequence[OffsetFetchResponse | OffsetFetchResponseGroup] = response.groups or (response,)
    return {
        group: {
            TopicPartition(topic.name, item.partition_index): item.committed_offset
            for topic in answer.topics
            for item in topic.partitions
            if not item.error_code and item.committed_offset >= 0
        }
        for group, answer in zip(groups, answers, strict=False)
        if not answer.error_code
    }


def log_sizes(response: DescribeLogDirsResponse, led: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log sizes of the leader replicas on a broker.

    If a replica is being moved to another directory, its size in the current directory counts.
    """
    sizes: dict[TopicPartition, int] = {}
    for directory in response.results:
        for topic in directory.topics:
            for replica in topic.partitions:
                partition = TopicPartition(topic.name, replica.partition_index)
                if partition in led and not replica.is_future_key:
                    sizes[partition] = replica.partition_size
    return sizes
