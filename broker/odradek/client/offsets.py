"""Requests for offsets of many partitions: start, end, by timestamp, and committed offsets of groups.

The consumer, the admin client and the blocking client use it. Each leader gets one request per attempt, all leaders at
the same time. Retriable errors are retried until the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import NO_BROKER, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster, Deadline
from odradek.client.metadata import topics_of
from odradek.client.models import ListedOffset, OffsetAndMetadata
from odradek.protocol.messages.fetch import ListOffsetsResponse
from odradek.protocol.messages.offsets import OffsetCommitResponse, OffsetFetchResponse

_CONSUMER_REPLICA: Final = -1
_OF_PARTITIONS: Final = (UnknownTopicOrPartitionError, TopicAuthorizationFailedError, OffsetMetadataTooLargeError)
"""Errors of a commit that concern one partition. Others concern the group, although each partition has them."""


class GroupMembership(NamedTuple):
    """The identity of a member in its group, for commits. The defaults are those of a consumer that is not a member."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    """Id of a static member; None for a dynamic one."""


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False, deadline: Deadline
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of each partition for a timestamp in milliseconds, or for a special one of `base.types`.

    The offset is -1 if no record has such a timestamp. Raises the error of a partition that remains at the deadline.
    """
    found: dict[TopicPartition, ListedOffset] = {}
    for topic in sorted(topics_of(wanted)):
        await cluster.topic(topic, deadline)

    async def one_round() -> None:
        left = {partition: timestamp for partition, timestamp in wanted.items() if partition not in found}
        failure = await _ask_leaders(cluster, left, read_committed, found)
        if failure is not None:
            raise failure

    await cluster.retrying(one_round, deadline)
    return found


async def _ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, ListedOffset],
) -> ProtocolError | None:
    failure: ProtocolError | None = None
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        by_leader.setdefault(cluster.view.leader(partition), []).append(partition)
    if leaderless := by_leader.pop(NO_BROKER, None):
        failure = leaderless_error(cluster, leaderless[0])
    requests = (
        cluster.ask(leader, ListOffsetsResponse, _list_offsets_message(cluster, wanted, partitions, read_committed))
        for leader, partitions in by_leader.items()
    )
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, ProtocolError):
            failure = _worse(failure, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            failure = _worse(failure, _take_offsets(answer, found))
    return failure


def leaderless_error(cluster: Cluster, partition: TopicPartition) -> ProtocolError:
    """Return why a request about a partition cannot be sent: it does not exist, or it has no leader now."""
    topic = cluster.view.topics.get(partition.topic)
    if topic is not None and topic.partitions and partition.partition not in topic.partitions:
        return error_for(3, f"topic {partition.topic} has no partition {partition.partition}")
    return LeaderNotAvailableError(f"partition {partition} has no leader")


def _worse(known: ProtocolError | None, new: ProtocolError | None) -> ProtocolError | None:
    """Return the error to raise: a final one rather than a retriable one."""
    if known is None or (new is not None and known.retriable and not new.retriable):
        return new
    return known


def _list_offsets_message(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], partitions: list[TopicPartition], read_committed: bool
) -> dict[str, object]:
    return {
        "replica_id": _CONSUMER_REPLICA,
        "isolation_level": int(read_committed),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "current_leader_epoch": cluster.view.leader_epoch(TopicPartition(topic, number)),
                        "timestamp": wanted[TopicPartition(topic, number)],
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in grouped_by_topic(partitions).items()
        ],
    }


def _take_offsets(response: ListOffsetsResponse, found: dict[TopicPartition, ListedOffset]) -> ProtocolError | None:
    failure: ProtocolError | None = None
    for topic in response.topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, item.partition_index)
            if item.error_code:
                error = error_for(item.error_code, f"the offsets of partition {partition} cannot be listed")
                failure = _worse(failure, error)
            else:
                epoch = item.leader_epoch
                found[partition] = ListedOffset(item.offset, item.timestamp, epoch)
    return failure


# ---------------------------------------------------------------------------------------------------- of groups


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    member: GroupMembership,
    deadline: Deadline,
    waits_for_topics: bool = False,
) -> None:
    """Commit the offsets of a group.

    Raises `RebalanceInProgressError`, `IllegalGenerationError`, `StaleMemberEpochError` or `UnknownMemberIdError` if
    `member` is out of date. Raises `UnknownTopicOrPartitionError` for a topic that does not exist, with
    `waits_for_topics` at the deadline, because a coordinator that has just started may not know all topics yet
    (KAFKA-6829). The other offsets are then committed.
    """
    if not offsets:
        return

    async def attempt() -> UnknownTopicOrPartitionError | None:
        failure: ProtocolError | None = None
        for error in (await _commit(cluster, group_id, offsets, member)).values():
            failure = _worse(failure, error)
        if isinstance(failure, UnknownTopicOrPartitionError) and not waits_for_topics:
            # A retry could last until the deadline, in a rebalance because of the deletion.
            return failure
        _raise_group_error(cluster, group_id, failure)
        return None

    missing = await cluster.retrying(attempt, deadline)
    if missing is not None:
        raise missing


async def commit_each(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, deadline: Deadline
) -> dict[TopicPartition, ProtocolError | None]:
    """Commit offsets of a group without members. Return the error of each partition; None means success.

    Raises an error of the group, such as `UnknownMemberIdError` if it has members.
    """
    if not offsets:
        return {}

    async def attempt() -> dict[TopicPartition, ProtocolError | None]:
        errors = await _commit(cluster, group_id, offsets, GroupMembership())
        for error in errors.values():
            if not isinstance(error, _OF_PARTITIONS):
                _raise_group_error(cluster, group_id, error)
        return errors

    return await cluster.retrying(attempt, deadline)


async def _commit(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMembership
) -> dict[TopicPartition, ProtocolError | None]:
    message = {
        "group_id": group_id,
        "generation_id_or_member_epoch": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "topics": committed_topics(offsets),
    }
    response = await cluster.ask_coordinator(group_id, OffsetCommitResponse, message)
    errors: dict[TopicPartition, ProtocolError | None] = {}
    for topic in response.topics:
        for item in topic.partitions:
            text = f"group {group_id} cannot commit an offset of {topic.name}-{item.partition_index}"
            partition = TopicPartition(topic.name, item.partition_index)
            errors[partition] = error_for(item.error_code, text) if item.error_code else None
    return errors


def committed_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, object]]:
    """Return the topics of an OffsetCommit or TxnOffsetCommit request."""
    return [
        {"name": topic, "partitions": [_committed_partition(offsets, topic, number) for number in numbers]}
        for topic, numbers in grouped_by_topic(offsets).items()
    ]


def _committed_partition(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: str, number: int
) -> dict[str, object]:
    position = offsets[TopicPartition(topic, number)]
    return {
        "partition_index": number,
        "committed_offset": position.offset,
        "committed_leader_epoch": position.leader_epoch,
        "committed_metadata": position.metadata,
    }


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    member: GroupMembership | None = None,
    require_stable: bool = False,
    deadline: Deadline,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group for these partitions, or for all if None.

    The result lacks partitions for which nothing is committed. With `require_stable`, it waits for the commits of open
    transactions. With a `member` of the new group protocol, the coordinator checks its epoch (KIP-848). Raises
    `UnknownMemberIdError` or `StaleMemberEpochError` if `member` is out of date.
    """
    topics: list[dict[str, object]] | None = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers} for topic, numbers in grouped_by_topic(partitions).items()
        ]
    message = {
        "group_id": group_id,
        "topics": topics,
        "groups": [
            {
                "group_id": group_id,
                "topics": topics,
                "member_id": None if member is None else member.member_id,
                "member_epoch": -1 if member is None else member.generation_id,
            }
        ],
        "require_stable": require_stable,
    }

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        response = await cluster.ask_coordinator(group_id, OffsetFetchResponse, message)
        answer = response.groups[0] if response.groups else response
        code = answer.error_code
        failure = error_for(code, f"the offsets of group {group_id} cannot be read") if code else None
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in answer.topics:
            for item in topic.partitions:
                if item.error_code:
                    text = f"the offset of group {group_id} for {topic.name}-{item.partition_index} cannot be read"
                    failure = _worse(failure, error_for(item.error_code, text))
                elif item.committed_offset != NO_OFFSET:
                    epoch = item.committed_leader_epoch
                    position = OffsetAndMetadata(item.committed_offset, item.metadata or "", epoch)
                    found[TopicPartition(topic.name, item.partition_index)] = position
        _raise_group_error(cluster, group_id, failure)
        return found

    return await cluster.retrying(attempt, deadline)


def _raise_group_error(cluster: Cluster, group_id: str, failure: ProtocolError | None) -> None:
    if failure is None:
        return
    if isinstance(failure, NotCoordinatorError | CoordinatorNotAvailableError):
        cluster.forget_coordinator(group_id)
    raise failure
