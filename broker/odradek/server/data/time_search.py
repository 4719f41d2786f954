"""Searches by timestamp for ListOffsets, which do not make the event loop wait for a disk."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.base.errors import OffsetNotAvailableError, ProtocolError
from odradek.base.types import MAX_TIMESTAMP, TopicPartition
from odradek.log.values import TimestampOffset
from odradek.protocol.messages.fetch import ListOffsetsRequestPartition
from odradek.replication.replica_manager import ReplicaManager

SEARCH_S: Final = 10
"""Maximum duration of a search in seconds. Clients wait at least as long, and retry after the error."""


def depends_on_time(item: ListOffsetsRequestPartition) -> bool:
    """Whether the offset depends on the timestamps of records."""
    return item.timestamp >= 0 or item.timestamp == MAX_TIMESTAMP


async def search_by_time(
    replicas: ReplicaManager, topic_partition: TopicPartition, item: ListOffsetsRequestPartition
) -> TimestampOffset | ProtocolError | None:
    """Return the record for a timestamp; None if there is none, or the error that prevents the search."""
    epoch = item.current_leader_epoch
    try:
        async with asyncio.timeout(SEARCH_S):
            while True:
                log = replicas.leader(topic_partition, epoch).log
                found: TimestampOffset | ProtocolError | None
                try:
                    if item.timestamp == MAX_TIMESTAMP:
                        found = await replicas.lookups.max_timestamp_offset(log)
                    else:
                        found = await replicas.lookups.offset_for_timestamp(log, item.timestamp)
                except ProtocolError as error:
                    found = error
                # The replica may have moved to another directory meanwhile.
                if replicas.leader(topic_partition, epoch).log is log:
                    return found
    except ProtocolError as error:
        return error
    except TimeoutError:
        return OffsetNotAvailableError(f"the disk of {topic_partition} did not answer within {SEARCH_S} s")
