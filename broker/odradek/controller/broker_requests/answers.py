"""Reads the error codes of partitions from the responses of brokers, in all versions. Pure. The runtime calls it."""

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
