"""Converts the controller's requests to old versions, and reads the error codes in responses of all versions.

Old versions do not group partitions by topic. They are used while `inter.broker.protocol.version` is an old release.
Pure. `request_sender` calls it with a message of `request_batch` and a version, and gets the messages to send. Usually
this is the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.internal import (
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)

_GROUPED_SINCE: Final[Mapping[ApiKey, int]] = {
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.UPDATE_METADATA: 5,
    ApiKey.STOP_REPLICA: 3,
}
_GROUPED_STOPS_SINCE: Final = 1
_LATER: Final = frozenset({"adding_replicas", "removing_replicas", "leader_recovery_state"})
"""Fields that the old versions do not have."""


def is_grouped(api_key: ApiKey, version: int) -> bool:
    """Return whether the version groups partitions by topic. Such versions also have broker epochs (KIP-380)."""
    return version >= _GROUPED_SINCE[api_key]


def messages_for(api_key: ApiKey, version: int, message: Message) -> list[Message]:
    """Return the messages to send, in order, instead of this one.

    Only StopReplica can become two messages, because old versions have one `delete_partitions` flag for all partitions.
    The message with the deletions is the last one, because the caller evaluates only the last response.
    """
    if is_grouped(api_key, version):
        return [message]
    if api_key is ApiKey.STOP_REPLICA:
        wanted = [(delete, list(_partitions(message, delete))) for delete in (False, True)]
        form = _by_topic if version >= _GROUPED_STOPS_SINCE else _one_by_one
        return [{**message, "delete_partitions": delete, **form(parts)} for delete, parts in wanted if parts]
    states = [
        {"topic_name": topic["topic_name"], **{name: value for name, value in state.items() if name not in _LATER}}
        for topic in _topics(message)
        for state in topic["partition_states"]
    ]
    return [{**message, "ungrouped_partition_states": states}]


_Partitions = list[tuple[str, int]]


def _topics(message: Message) -> Iterator[Mapping[str, Any]]:
    topics: Any = message["topic_states"]
    yield from topics


def _partitions(message: Message, delete: bool) -> Iterator[tuple[str, int]]:
    for topic in _topics(message):
        for state in topic["partition_states"]:
            if state["delete_partition"] is delete:
                yield topic["topic_name"], state["partition_index"]


def _by_topic(partitions: _Partitions) -> dict[str, object]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return {"topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]}


def _one_by_one(partitions: _Partitions) -> dict[str, object]:
    return {"ungrouped_partitions": [{"topic_name": topic, "partition_index": number} for topic, number in partitions]}


def leader_and_isr_errors(response: LeaderAndIsrResponse, topic_names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """Return the error codes in a LeaderAndIsr response. It has topic names up to version 4, and topic ids later."""
    errors = _by_name(response.partition_errors)
    for topic in response.topics:
        name = topic_names.get(topic.topic_id)
        if name is not None:
            for part in topic.partition_errors:
                errors[TopicPartition(name, part.partition_index)] = part.error_code
    return errors


def stop_replica_errors(response: StopReplicaResponse, asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the error code of each partition of the request. An error of the whole request applies to all of them."""
    if response.error_code:
        return dict.fromkeys(asked, response.error_code)
    answered = _by_name(response.partition_errors)
    return {partition: answered.get(partition, 0) for partition in asked}


def _by_name(
    errors: Iterable[LeaderAndIsrResponsePartitionError | StopReplicaResponsePartitionError],
) -> dict[TopicPartition, int]:
    return {TopicPartition(part.topic_name, part.partition_index): part.error_code for part in errors}
