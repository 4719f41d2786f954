"""What brokers answer to the controller's requests, read from the entities of all their versions.

Pure: an entity enters, error codes by partition leave. Called by the runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from odradek.base.types import TopicPartition


def leader_and_isr_errors(response: Any, topic_names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """Error code of each partition of a LeaderAndIsr answer: by topic id from version 5, by name before."""
    topics = getattr(response, "topics", None)
    if topics is None:
        return _by_name(response)
    errors = {}
    for topic in topics:
        name = topic_names.get(topic.topic_id)
        if name is not None:
            for part in topic.partition_errors:
                errors[TopicPartition(name, int(part.partition_index))] = int(part.error_code)
    return errors


def stop_replica_errors(response: Any, asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Error code of each partition that was asked about; an error of the whole request is that of each."""
    whole = int(response.error_code)
    if whole:
        return dict.fromkeys(asked, whole)
    answered = _by_name(response)
    return {partition: answered.get(partition, 0) for partition in asked}


def _by_name(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(part.topic_name, int(part.partition_index)): int(part.error_code)
        for part in response.partition_errors
    }
