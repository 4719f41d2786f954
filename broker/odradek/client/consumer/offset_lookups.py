"""Looks up offsets by time or position in the log, for partitions that need not be assigned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.models import OffsetAndTimestamp
from odradek.client.offsets import list_offsets


class OffsetLookups:
    """The lookups of a consumer, which inherits these methods."""

    def __init__(self, cluster: Cluster) -> None:
        """The subclass starts and closes `cluster`."""
        self._cluster: Final = cluster

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. The partitions need not be assigned."""
        return await self._offsets_at(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition. The partitions need not be assigned.

        This is the high watermark, or with `read_committed` the last stable offset.
        """
        return await self._offsets_at(partitions, LATEST_TIMESTAMP)

    async def _offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self._cluster,
            dict.fromkeys(partitions, timestamp),
            read_committed=self._cluster.settings.read_committed,
            deadline=self._cluster.deadline("listing offsets"),
        )
        return {partition: listed.offset for partition, listed in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offset and timestamp of the first record of each partition at or after a time; None without one.

        Times are milliseconds since 1970 UTC. The partitions need not be assigned.
        """
        found = await list_offsets(
            self._cluster,
            timestamps,
            read_committed=self._cluster.settings.read_committed,
            deadline=self._cluster.deadline("listing offsets"),
        )
        return {
            partition: None if listed.offset == NO_OFFSET else OffsetAndTimestamp(*listed)
            for partition, listed in found.items()
        }
