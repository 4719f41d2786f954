"""Handler of ListOffsets: offsets by time, of the ends of a log, and of segments for version 0.

It reads offsets and indexes of the partitions that this broker leads. `server/data/time_search` searches by time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import (
    NONE,
    InvalidRequestError,
    LeaderNotAvailableError,
    OdradekError,
    OffsetNotAvailableError,
    ProtocolError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock
from odradek.base.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    READ_COMMITTED,
    TopicPartition,
)
from odradek.log.partition_log import PartitionLog
from odradek.log.values import TimestampOffset
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import ListOffsetsRequest, ListOffsetsRequestPartition
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.data.time_search import depends_on_time, search_by_time
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error

SINGLE_OFFSET_SINCE: Final = 1
"""First ListOffsets version with one offset and its timestamp. Version 0 returns base offsets of segments (KIP-79)."""
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
"""First ListOffsets version whose clients know the error (KIP-207). Others get LEADER_NOT_AVAILABLE."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
"""Timestamps of tiered storage (KIP-405). Without it, the local log starts at the log start, and no record is
tiered."""


class OffsetHandlers:
    """Returns offsets of partitions."""

    def __init__(self, *, replicas: ReplicaManager, clock: Clock) -> None:
        """The replica manager knows which partitions this broker leads."""
        self._replicas = replicas
        self._clock = clock

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(ListOffsetsRequest, self.list_offsets)])

    async def list_offsets(self, context: RequestContext, request: ListOffsetsRequest) -> Message:
        """Handle ListOffsets: return the offset for a timestamp (KIP-79), of the readable end, of the log start, or of
        the maximum timestamp."""
        if context.api_version < SINGLE_OFFSET_SINCE:
            return self._old_offsets(request)
        items = [(topic.name, item) for topic in request.topics for item in topic.partitions]
        counts = Counter((name, item.partition_index) for name, item in items)
        # Searches run at the same time: one whose disk does not answer does not delay those on other disks.
        searches = await asyncio.gather(
            *(
                search_by_time(self._replicas, TopicPartition(name, item.partition_index), item)
                for name, item in items
                if depends_on_time(item)
            )
        )
        searched = iter(searches)
        rows: dict[TopicPartition, Message] = {}
        for name, item in items:
            topic_partition = TopicPartition(name, item.partition_index)
            search = next(searched) if depends_on_time(item) else None
            try:
                if counts[topic_partition] > 1:
                    raise InvalidRequestError(f"{topic_partition} is in the request more than once")
                _check_timestamp(item.timestamp, context.api_version)
                found = self._listed(topic_partition, item, request, search)
                row = {"timestamp": found[0], "offset": found[1], "leader_epoch": found[2], "error_code": NONE}
            except ProtocolError as error:
                row = {"timestamp": NO_TIMESTAMP, "offset": NO_OFFSET, "error_code": error.code}
                if error.code == OffsetNotAvailableError.code and context.api_version < OFFSET_NOT_AVAILABLE_SINCE:
                    row["error_code"] = LeaderNotAvailableError.code
            rows[topic_partition] = {"partition_index": item.partition_index, **row}
        topics = [
            {
                "name": topic.name,
                "partitions": [rows[TopicPartition(topic.name, item.partition_index)] for item in topic.partitions],
            }
            for topic in request.topics
        ]
        return {"throttle_time_ms": 0, "topics": topics}

    def _listed(
        self,
        topic_partition: TopicPartition,
        item: ListOffsetsRequestPartition,
        request: ListOffsetsRequest,
        search: TimestampOffset | ProtocolError | None,
    ) -> tuple[int, int, int]:
        """Return timestamp, offset and leader epoch; -1 for each that does not exist.

        `search`: what `search_by_time` returned.
        """
        partition = self._replicas.leader(topic_partition, item.current_leader_epoch)
        log, timestamp = partition.log, item.timestamp
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return NO_TIMESTAMP, log.log_start_offset, log.epoch_of(log.log_start_offset)
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return _NOTHING
        end, is_behind = log.log_end_offset, False
        if request.replica_id == NO_BROKER:
            committed = request.isolation_level == READ_COMMITTED
            end = partition.last_stable_offset if committed else log.high_watermark
            # A new leader does not know yet up to which offset records were committed before.
            is_behind = log.high_watermark < (partition.leader_epoch_start_offset or 0)
        if timestamp == LATEST_TIMESTAMP and not is_behind:
            return NO_TIMESTAMP, end, partition.leader_epoch
        if timestamp != LATEST_TIMESTAMP:
            if isinstance(search, ProtocolError):
                raise search
            if search is not None and search.offset < end:
                return search.timestamp, search.offset, search.leader_epoch
        if is_behind:
            raise OffsetNotAvailableError(f"the high watermark of {topic_partition} is not known yet")
        return _NOTHING

    def _old_offsets(self, request: ListOffsetsRequest) -> Message:
        """Version 0: return the base offsets of segments that were last written at or before a time, and the log
        end."""
        topics = []
        for topic in request.topics:
            partitions: list[Message] = []
            for item in topic.partitions:
                topic_partition = TopicPartition(topic.name, item.partition_index)
                offsets, error_code = [], NONE
                try:
                    partition = self._replicas.leader(topic_partition)
                    offsets = offsets_before(partition.log, item.timestamp, self._clock.wall_ms())
                    if request.replica_id == NO_BROKER:
                        offsets = _committed(offsets, partition.log.high_watermark)
                except OdradekError as error:
                    error_code = wire_error(error).code
                partitions.append(
                    {
                        "partition_index": item.partition_index,
                        "error_code": error_code,
                        "old_style_offsets": offsets[: max(0, item.max_num_offsets)],
                    }
                )
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}


def offsets_before(log: PartitionLog, timestamp: int, now_ms: int) -> list[int]:
    """Return the base offsets of segments that were last written at or before `timestamp`, newest first.

    The time of a segment is when it was rolled, that of the active segment when it was created, and that of the log end
    now. LATEST_TIMESTAMP returns all offsets, EARLIEST_TIMESTAMP only the first. Raises `StorageError`.
    """
    segments = log.segments
    begins = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    if log.active_segment.size:
        begins.append(log.log_end_offset)
    if timestamp == EARLIEST_TIMESTAMP:
        count = 1
    elif timestamp == LATEST_TIMESTAMP or now_ms <= timestamp:
        count = len(begins)
    else:
        count = next((at for at in range(len(segments), 0, -1) if segments[at - 1].changed_ms <= timestamp), 0)
    return sorted(begins[:count], reverse=True)


def _committed(offsets: list[int], high_watermark: int) -> list[int]:
    """Replace offsets above the high watermark by the high watermark, because consumers may not see them."""
    below = [offset for offset in offsets if offset <= high_watermark]
    return offsets if len(below) == len(offsets) else [high_watermark, *below]


_SPECIAL_TIMESTAMPS_SINCE: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
"""First ListOffsets version that supports each special timestamp."""


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SPECIAL_TIMESTAMPS_SINCE.get(timestamp, version + 1):
        raise UnsupportedVersionError(f"the timestamp {timestamp} has no meaning in version {version} of ListOffsets")


_NOTHING: Final = (NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)
