"""Handlers of DeleteRecords (KIP-107) and OffsetForLeaderEpoch (KIP-101, KIP-320).

DeleteRecords deletes the records below given offsets. The requests wait in the replica manager until all live replicas
have raised their log start offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.base.errors import NONE, ProtocolError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import DeleteRecordsRequest, OffsetForLeaderEpochRequest
from odradek.replication.leader.delete_records import DeletedRecords
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.dispatch import Handler, RequestContext, route


class RecordHandlers:
    """Handlers that delete records, and that tell where a leader epoch ends."""

    def __init__(self, *, replicas: ReplicaManager, view: MetadataCache) -> None:
        """`view` holds the metadata image. A partition that is not in it does not exist."""
        self._replicas = replicas
        self._view = view

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(DeleteRecordsRequest, self.delete_records),
                route(OffsetForLeaderEpochRequest, self.offset_for_leader_epoch),
            ]
        )

    async def offset_for_leader_epoch(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Message:
        """Handle OffsetForLeaderEpoch: return the end offset of a leader epoch, so that followers and consumers can
        find where their log diverges (KIP-101, KIP-320)."""
        topics = []
        for topic in request.topics:
            partitions = []
            for item in topic.partitions:
                row: dict[str, object] = {"partition": item.partition, "error_code": NONE}
                try:
                    partition = self._replicas.leader(
                        TopicPartition(topic.topic, item.partition), item.current_leader_epoch
                    )
                    found = partition.log.end_offset_for_epoch(item.leader_epoch)
                    row |= {"leader_epoch": found.leader_epoch, "end_offset": found.end_offset}
                except ProtocolError as error:
                    row["error_code"] = error.code
                partitions.append(row)
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"throttle_time_ms": 0, "topics": topics}

    async def delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> Message:
        """Handle DeleteRecords: raise the log start offset of partitions that this broker leads; -1 means the high
        watermark."""
        image = self._view.image
        offsets: dict[TopicPartition, int] = {}
        results: dict[TopicPartition, DeletedRecords] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if image.partition(topic_partition) is None:
                    results[topic_partition] = DeletedRecords(UnknownTopicOrPartitionError.code)
                else:
                    offsets[topic_partition] = partition.offset
        if offsets:
            results |= await self._delete(offsets, request.timeout_ms)
        topics: dict[str, list[Message]] = {}
        for (name, number), result in results.items():
            topics.setdefault(name, []).append(
                {
                    "partition_index": number,
                    "low_watermark": result.low_watermark,
                    "error_code": result.error_code,
                }
            )
        return {
            "throttle_time_ms": 0,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }

    async def _delete(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: float
    ) -> Mapping[TopicPartition, DeletedRecords]:
        outcome: asyncio.Future[dict[TopicPartition, DeletedRecords]] = asyncio.get_running_loop().create_future()

        def respond(results: dict[TopicPartition, DeletedRecords]) -> None:
            if not outcome.done():  # if the connection was closed, the task of the request is cancelled
                outcome.set_result(results)

        self._replicas.deletion.delete(offsets, timeout_ms, respond)
        return await outcome
