"""What brokers answer to the controller's requests, in all their versions.

Pure: a response enters, error codes by partition leave. Called by the runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from odradek.base.types import TopicPartition
from odradek.protocol.messages.internal import (
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)


def leader_and_isr_errors(response: LeaderAndIsrResponse, topic_names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """Error code of each partition of a LeaderAndIsr answer: by topic id from version 5, by name before."""
    errors = _by_name(response.partition_errors)
    for topic in response.topics:
        name = topic_names.get(topic.topic_id)
        if name is not None:
            for part in topic.partition_errors:
                errors[TopicPartition(name, part.partition_index)] = part.error_code
    return errors


def stop_replica_errors(response: StopReplicaResponse, asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Error code of each partition that was asked about; an error of the whole request is that of each."""
    if response.error_code:
        return dict.fromkeys(asked, response.error_code)
    answered = _by_name(response.partition_errors)
    return {partition: answered.get(partition, 0) for partition in asked}


def _by_name(
    errors: Iterable[LeaderAndIsrResponsePartitionError | StopReplicaResponsePartitionError],
) -> dict[TopicPartition, int]:
    return {TopicPartition(part.topic_name, part.partition_index): part.error_code for part in errors}
