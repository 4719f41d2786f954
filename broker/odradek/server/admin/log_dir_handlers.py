"""DescribeLogDirs and AlterReplicaLogDirs: the log directories of this broker's replicas (KIP-113).

The handlers combine what `LogManager` and `ReplicaManager` report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.errors import NONE, KafkaStorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.reports import DirectoryReport
from odradek.log.log_manager import LogManager
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.dispatch import Handler, RequestContext, route

UNKNOWN_LAG: Final = -1


class LogDirHandlers:
    """Handlers for the log directories of this broker."""

    def __init__(self, *, logs: LogManager, replicas: ReplicaManager) -> None:
        """Create the handlers. They query both for each request."""
        self._logs = logs
        self._replicas = replicas

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(AlterReplicaLogDirsRequest, self.alter_replica_log_dirs),
                route(DescribeLogDirsRequest, self.describe_log_dirs),
            ]
        )

    async def alter_replica_log_dirs(self, context: RequestContext, request: AlterReplicaLogDirsRequest) -> Message:
        """Start to move replicas between directories. If a replica is requested twice, the last directory is used, as
        in Kafka."""
        requested = {
            TopicPartition(topic.name, number): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for number in topic.partitions
        }
        topics: dict[str, list[Message]] = {}
        for (topic, number), code in self._replicas.log_dirs.alter(requested).items():
            topics.setdefault(topic, []).append({"partition_index": number, "error_code": code})
        results = [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]
        return {"throttle_time_ms": 0, "results": results}

    async def describe_log_dirs(self, context: RequestContext, request: DescribeLogDirsRequest) -> Message:
        """Return the sizes and lags of the requested replicas, or of all, and the space in their directories."""
        wanted = None
        if request.topics is not None:
            wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
        # The space is measured for each request, because a client may have just freed or filled a disk.
        await self._logs.space.look(self._logs.online_directories)
        results = [
            {
                "error_code": NONE if directory.failure is None else KafkaStorageError.code,
                "log_dir": directory.path,
                "topics": self._topics(directory, wanted),
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.free_bytes,
            }
            for directory in self._logs.directories()
        ]
        return {"throttle_time_ms": 0, "error_code": NONE, "results": results}

    def _topics(self, directory: DirectoryReport, wanted: Iterable[TopicPartition] | None) -> list[Message]:
        topics: dict[str, list[Message]] = {}
        for sizes, is_future in ((directory.sizes, False), (directory.future_sizes, True)):
            for topic_partition, size_bytes in sizes.items():
                if wanted is None or topic_partition in wanted:
                    topics.setdefault(topic_partition.topic, []).append(
                        {
                            "partition_index": topic_partition.partition,
                            "partition_size": size_bytes,
                            "offset_lag": self._lag(topic_partition, is_future=is_future),
                            "is_future_key": is_future,
                        }
                    )
        return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]

    def _lag(self, topic_partition: TopicPartition, *, is_future: bool) -> int:
        """Return the number of committed records that a replica lacks. A future log is compared with the current
        log."""
        current, future = self._logs.get(topic_partition), self._logs.future(topic_partition)
        if current is None:
            return UNKNOWN_LAG
        if is_future:
            return UNKNOWN_LAG if future is None else current.log_end_offset - future.log_end_offset
        return max(0, current.high_watermark - current.log_end_offset)
