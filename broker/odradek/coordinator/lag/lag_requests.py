"""The requests of the lag monitor, as from a consumer without a group, and the results of their responses. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import FetchResponse, FetchResponsePartitionData, ListOffsetsResponse
from odradek.records.first_record import RecordSearch

_CONSUMER_REPLICA: Final = -1
FETCH_BY_NAME: Final = 12
"""Last Fetch version with names of topics instead of ids (KIP-516)."""


def list_offsets(partitions: Sequence[TopicPartition], timestamp: int) -> Message:
    """Return a ListOffsets request."""
    return {
        "replica_id": _CONSUMER_REPLICA,
        "isolation_level": 0,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "current_leader_epoch": NO_EPOCH,
                        "timestamp": timestamp,
                        "max_num_offsets": 1,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in grouped_by_topic(partitions).items()
        ],
    }


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    """Return the offsets of the partitions without an error."""
    return {
        TopicPartition(topic.name, item.partition_index): item.offset
        for topic in response.topics
        for item in topic.partitions
        if not item.error_code and item.offset >= 0
    }


def fetch(searches: Mapping[TopicPartition, RecordSearch], max_bytes: int) -> Message:
    """Return a Fetch request, for versions up to `FETCH_BY_NAME`, that does not wait for records."""
    return {
        "replica_id": _CONSUMER_REPLICA,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "topics": [
            {
                "topic": partition.topic,
                "partitions": [
                    {
                        "partition": partition.partition,
                        "fetch_offset": search.offset,
                        "partition_max_bytes": search.limit_bytes,
                    }
                ],
            }
            for partition, search in searches.items()
        ],
        "forgotten_topics_data": [],
    }


def fetched(response: FetchResponse) -> dict[TopicPartition, FetchResponsePartitionData]:
    """Return the answers by partition; none if the request failed as a whole."""
    return {
        TopicPartition(topic.topic, row.partition_index): row
        for topic in response.responses
        for row in topic.partitions
        if not response.error_code
    }
