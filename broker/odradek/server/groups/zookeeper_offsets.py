"""OffsetCommit 0 and OffsetFetch 0, with which consumers before Kafka 0.8.2 store offsets in ZooKeeper.

`server/groups/offset_handlers` uses it. Such consumers can also access the same znodes directly. Invariants: an error
of one partition does not affect others, and for any group id only znodes below `/consumers` are accessed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.base.errors import (
    NONE,
    InvalidGroupIdError,
    OdradekError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import NO_OFFSET, TopicPartition
from odradek.server.failures import wire_error
from odradek.zk import layout
from odradek.zk.port import ZkClient, set_or_create

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 64
"""Maximum number of concurrent ZooKeeper requests of one commit."""


class KeptOffset(NamedTuple):
    """A stored offset, or -1 and an error code. Metadata is not stored."""

    offset: int
    error_code: int = NONE


class ZooKeeperOffsets:
    """Reads and writes `/consumers/GROUP/offsets/TOPIC/PARTITION`."""

    def __init__(self, zk: ZkClient, *, metadata_max: int) -> None:
        """`metadata_max` is `offset.metadata.max.bytes`. Longer metadata is rejected, other metadata is ignored."""
        self._zk: Final = zk
        self._metadata_max: Final = metadata_max

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, tuple[int, str]]
    ) -> dict[TopicPartition, int]:
        """Store the offset of each partition. Returns the error code of each."""
        turns = asyncio.Semaphore(MAX_IN_FLIGHT)

        async def one(topic_partition: TopicPartition, offset: int, metadata: str) -> int:
            try:
                if _java_length(metadata) > self._metadata_max:
                    raise OffsetMetadataTooLargeError(f"The metadata of {topic_partition} is too long.")
                async with turns:
                    path = _path(group_id, topic_partition)
                    await set_or_create(self._zk, path, layout.encode_consumer_offset(offset))
            except OdradekError as error:
                return _code(error, group_id, topic_partition)
            return NONE

        codes = await asyncio.gather(*(one(partition, *given) for partition, given in offsets.items()))
        return dict(zip(offsets, codes, strict=True))

    async def fetch(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KeptOffset]:
        """Return the offset of each partition. As in Kafka, one without an offset gets UNKNOWN_TOPIC_OR_PARTITION."""
        wanted = list(dict.fromkeys(partitions))
        try:
            paths = {partition: _path(group_id, partition) for partition in wanted}
            found = await self._zk.get_many(paths.values())
        except OdradekError as error:
            code = wire_error(error).code
            return dict.fromkeys(wanted, KeptOffset(NO_OFFSET, code))
        kept = {}
        for partition, path in paths.items():
            node = found[path]
            if node is None or not node[0]:
                kept[partition] = KeptOffset(NO_OFFSET, UnknownTopicOrPartitionError.code)
                continue
            try:
                kept[partition] = KeptOffset(layout.decode_consumer_offset(path, node[0]))
            except OdradekError as error:
                kept[partition] = KeptOffset(NO_OFFSET, _code(error, group_id, partition))
        return kept


def _path(group_id: str, topic_partition: TopicPartition) -> str:
    """Return the path of an offset. Raises `InvalidGroupIdError` if the group id is not a valid znode name."""
    if not layout.is_node_name(group_id):
        raise InvalidGroupIdError("The group id is not valid as the name of a znode.")
    return layout.consumer_offset_path(group_id, topic_partition)


def _code(error: OdradekError, group_id: str, topic_partition: TopicPartition) -> int:
    known = wire_error(error)
    if known is not error:
        logger.warning("the offset of %s for group %s cannot be stored or read: %s", topic_partition, group_id, error)
    return known.code


def _java_length(text: str) -> int:
    """Return the length in UTF-16 code units. Kafka counts these, although the name of the setting says bytes."""
    return len(text) + sum(character > "\uffff" for character in text)
