"""DeleteRecords: deletes the records of partitions below given offsets (KIP-107).

The requests wait in the replica manager until all live replicas have raised their log start offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.base.errors import UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import DeleteRecordsRequest
from odradek.replication.leader.delete_records import DeletedRecords
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.dispatch import Handler, RequestContext, route


class RecordHandlers:
    """Handlers that delete records."""

    def __init__(self, *, replicas: ReplicaManager, view: MetadataCache) -> None:
        """`view` holds the metadata image. A partition that is not in it does not exist."""
        self._replicas = replicas
        self._view = view

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(DeleteRecordsRequest, self.delete_records)])

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
