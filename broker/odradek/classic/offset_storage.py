"""Where a classic consumer stores offsets: in ZooKeeper, in Kafka, or in both during a migration.

An offset is that of the next message to consume. Invariant: with both, `read` returns the later of two offsets, so
consumers that still store in one place only lose nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from odradek.base.errors import ProtocolError
from odradek.base.types import TopicPartition
from odradek.classic.consumer_config import ConsumerConfig
from odradek.client.cluster_client import Cluster
from odradek.client.models import OffsetAndMetadata
from odradek.client.offsets import GroupMembership, commit_offsets, fetch_committed
from odradek.zk import layout
from odradek.zk.port import ZkClient, set_or_create

log = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int]


class OffsetStorage(Protocol):
    """Stores the offsets of one group."""

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets; partitions without one are missing."""
        ...

    async def store(self, offsets: Offsets) -> None:
        """Store offsets. Raises an `OdradekError` if that is not certain."""
        ...


class ZooKeeperStorage:
    """Offsets in `/consumers/GROUP/offsets`."""

    def __init__(self, zk: ZkClient, group_id: str) -> None:
        """`zk` belongs to the caller."""
        self._zk: Final = zk
        self._group_id: Final = group_id

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets. Raises `LayoutError` if one is not a number."""
        paths = {layout.consumer_offset_path(self._group_id, partition): partition for partition in partitions}
        found = await self._zk.get_many(paths)
        return {
            paths[path]: layout.decode_consumer_offset(path, node[0])
            for path, node in found.items()
            if node is not None
        }

    async def store(self, offsets: Offsets) -> None:
        """Store offsets."""
        await asyncio.gather(
            *(
                set_or_create(
                    self._zk,
                    layout.consumer_offset_path(self._group_id, partition),
                    layout.encode_consumer_offset(offset),
                )
                for partition, offset in offsets.items()
            )
        )


class KafkaStorage:
    """Offsets in `__consumer_offsets`. The coordinator of the group is found by GroupCoordinatorRequest, and again when
    it moves."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        """`cluster` belongs to the caller."""
        self._cluster: Final = cluster
        self._config: Final = config

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets. Waits while the coordinator loads them."""
        wanted = list(partitions)

        async def attempt() -> dict[TopicPartition, int]:
            deadline = self._cluster.deadline("a request for offsets", self._config.offsets_channel_socket_timeout_ms)
            found = await fetch_committed(self._cluster, self._config.group_id, wanted, deadline=deadline)
            return {partition: position.offset for partition, position in found.items()}

        return await self._trying(attempt) if wanted else {}

    async def store(self, offsets: Offsets) -> None:
        """Store offsets, with `offsets.commit.max.retries` repetitions."""

        async def attempt() -> None:
            deadline = self._cluster.deadline("a commit of offsets", self._config.offsets_channel_socket_timeout_ms)
            positions = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
            await commit_offsets(
                self._cluster, self._config.group_id, positions, member=GroupMembership(), deadline=deadline
            )

        if offsets:
            await self._trying(attempt)

    async def _trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(self._config.offsets_commit_max_retries):
            try:
                return await attempt()
            except ProtocolError as error:
                if not error.retriable:
                    raise
                log.warning("a request for the offsets of group %s failed: %s", self._config.group_id, error)
            await self._cluster.clock.sleep_ms(self._config.offsets_channel_backoff_ms)
        return await attempt()


class DualStorage:
    """Offsets in Kafka and in ZooKeeper, while a group moves from one to the other."""

    def __init__(self, kafka: OffsetStorage, zookeeper: OffsetStorage) -> None:
        """Both have the offsets of the same group."""
        self._kafka: Final = kafka
        self._zookeeper: Final = zookeeper

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the later of two offsets."""
        wanted = list(partitions)
        kafka, zookeeper = await asyncio.gather(self._kafka.read(wanted), self._zookeeper.read(wanted))
        return {
            partition: max(each[partition] for each in (kafka, zookeeper) if partition in each)
            for partition in kafka.keys() | zookeeper.keys()
        }

    async def store(self, offsets: Offsets) -> None:
        """Store offsets in both. If one fails, the other has them all the same, and the error is raised."""
        results = await asyncio.gather(
            self._kafka.store(offsets), self._zookeeper.store(offsets), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result


def storage_of(config: ConsumerConfig, zk: ZkClient, cluster: Cluster) -> OffsetStorage:
    """Return the storage that the settings name."""
    zookeeper = ZooKeeperStorage(zk, config.group_id)
    if not config.is_in_kafka:
        return zookeeper
    kafka = KafkaStorage(cluster, config)
    return DualStorage(kafka, zookeeper) if config.is_in_zookeeper else kafka
