"""What the exporter asks of a broker and how it reads the answers: requests about many things at once.

In: partitions, groups. Out: `Message`s that are not too large, and values out of the responses. Called by
`collection`. Invariant: what an answer refuses (a leader that moved, a group that is loading) is left out and nothing
else; the next collection asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from odradek.base.errors import MalformedFrameError, error_for
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.client.consumer.group_protocol import PROTOCOL_TYPE, decode_assignment
from odradek.client.offsets import grouped_by_topic
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import ListOffsetsResponse
from odradek.protocol.messages.groups import DescribeGroupsResponse, ListGroupsResponse
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponse
from odradek.protocol.messages.offsets import OffsetFetchResponse, OffsetFetchResponseGroup
from odradek_operator.exporter.readings import Members

PARTITIONS_AT_ONCE: Final = 5_000
"""Partitions of one ListOffsets request: its answer then takes a broker some tens of milliseconds."""

GROUPS_AT_ONCE: Final = 100
"""Groups of one DescribeGroups or OffsetFetch request."""

MANY_GROUPS_SINCE: Final = 8
"""First version of OffsetFetch that takes several groups (KIP-709)."""

_CONSUMER_REPLICA: Final = -1

T = TypeVar("T")


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """The things in lists of at most `size`, in their order."""
    rest = list(things)
    for begin in range(0, len(rest), size):
        yield rest[begin : begin + size]


def list_offsets(partitions: Iterable[TopicPartition], timestamp: int) -> Message:
    """Ask for the offset of each partition for a time in ms or a special one. No leader epoch: a hint, not a fence."""
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
    """The offset of each partition; -1 where no record is as new as was asked for."""
    return {
        TopicPartition(topic.name, item.partition_index): item.offset
        for topic in response.topics
        for item in topic.partitions
        if not item.error_code
    }


def listed_groups(response: ListGroupsResponse) -> frozenset[str]:
    """The groups that a broker coordinates. Raises the answer's error."""
    if response.error_code:
        raise error_for(response.error_code, "the groups cannot be listed")
    return frozenset(group.group_id for group in response.groups)


def describe_groups(groups: Sequence[str]) -> Message:
    """Ask who is in some groups."""
    return {"groups": list(groups), "include_authorized_operations": False}


def described_groups(response: DescribeGroupsResponse) -> dict[str, Members]:
    """The members of each group."""
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


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a member is to read; a client may put anything there, so what is no assignment counts as none."""
    try:
        return decode_assignment(assignment)
    except MalformedFrameError:
        return ()


def fetch_commits(groups: Sequence[str]) -> Message:
    """Ask for all that some groups have committed; before `MANY_GROUPS_SINCE` the first alone counts."""
    return {
        "group_id": groups[0],
        "topics": None,
        "groups": [{"group_id": group, "topics": None} for group in groups],
        "require_stable": False,
    }


def fetched_commits(response: OffsetFetchResponse, groups: Sequence[str]) -> dict[str, Mapping[TopicPartition, int]]:
    """What each group has committed; the same `groups` as in the request."""
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
    """Bytes of those replicas of a broker that lead; what is on its way to another directory counts where it is."""
    sizes: dict[TopicPartition, int] = {}
    for directory in response.results:
        for topic in directory.topics:
            for replica in topic.partitions:
                partition = TopicPartition(topic.name, replica.partition_index)
                if partition in led and not replica.is_future_key:
                    sizes[partition] = replica.partition_size
    return sizes
