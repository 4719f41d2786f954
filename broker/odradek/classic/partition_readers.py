"""Fetches the partitions that a classic consumer owns, each in a task, and puts the messages into their streams.

Implements the port `Fetching` of `rebalancer`. Invariants: a partition has at most one task; after `stop`, neither a
fetch nor a message of the partition is left, and its offset is stored unless the partition is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek.base.errors import OdradekError, OffsetOutOfRangeError, ProtocolError
from odradek.base.tasks import TaskOwner
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from odradek.classic.assignment import ConsumerThread
from odradek.classic.consumer_config import ConsumerConfig
from odradek.classic.message_streams import MessageStream
from odradek.classic.offset_storage import OffsetStorage
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.raw_fetch import Range, RawFetcher
from odradek.client.offsets import list_offsets

log = logging.getLogger(__name__)

StreamOf = Callable[[str, int], MessageStream]
"""Returns the stream for a topic and the number of a thread."""


class PartitionReaders:
    """The fetches of one consumer. Runs on the loop of its connector."""

    def __init__(
        self,
        cluster: Cluster,
        storage: OffsetStorage,
        config: ConsumerConfig,
        stream_of: StreamOf,
        on_failure: Callable[[OdradekError], None],
    ) -> None:
        """`on_failure` is called if a partition cannot be read any more, such as with auto.offset.reset=fail."""
        self._cluster: Final = cluster
        self._raw: Final = RawFetcher(cluster)
        self._storage: Final = storage
        self._config: Final = config
        self._stream_of: Final = stream_of
        self._on_failure: Final = on_failure
        self._tasks: Final = TaskOwner(lambda name, error: on_failure(OdradekError(f"{name} failed: {error!r}")))
        self._readers: dict[TopicPartition, tuple[MessageStream, asyncio.Task[None]]] = {}
        self._stored: dict[TopicPartition, int] = {}

    async def start(self, owned: Mapping[TopicPartition, ConsumerThread]) -> None:
        """Fetch partitions from their stored offsets on, or from where auto.offset.reset says."""
        stored = await self._storage.read(owned)
        for partition, thread in owned.items():
            self._begin(partition, self._stream_of(partition.topic, thread.number), stored.get(partition))
            if partition in stored:
                self._stored[partition] = stored[partition]

    def _begin(self, partition: TopicPartition, stream: MessageStream, position: int | None) -> None:
        task = self._tasks.spawn(self._read(partition, stream, position), name=f"classic fetch of {partition}")
        self._readers[partition] = (stream, task)

    async def stop(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        """Stop to fetch partitions, and store their offsets unless `is_lost`."""
        consumed = await self._end(partitions)
        if self._config.auto_commit_enable and not is_lost:
            await self._commit(consumed)
        for partition in partitions:
            self._stored.pop(partition, None)

    async def _end(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """End the tasks. Return the next offset after the messages that the streams have delivered."""
        readers = [self._readers.pop(partition) for partition in partitions if partition in self._readers]
        for _, task in readers:
            task.cancel()
        await asyncio.gather(*(task for _, task in readers), return_exceptions=True)
        consumed: dict[TopicPartition, int] = {}
        for stream in {stream for stream, _ in readers}:
            consumed.update(stream.remove(partitions))
        return consumed

    async def commit(self) -> None:
        """Store the offsets of all messages that the streams have delivered."""
        consumed: dict[TopicPartition, int] = {}
        for stream, _ in list(self._readers.values()):
            consumed.update(stream.consumed())
        await self._commit(consumed)

    async def _commit(self, consumed: Mapping[TopicPartition, int]) -> None:
        changed = {each: offset for each, offset in consumed.items() if self._stored.get(each) != offset}
        if changed:
            await self._storage.store(changed)
            self._stored.update(changed)

    async def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue from other offsets. Partitions that this consumer does not own are ignored."""
        ours = {each: (self._readers[each][0], offset) for each, offset in offsets.items() if each in self._readers}
        await self._end(frozenset(ours))
        for partition, (stream, offset) in ours.items():
            self._begin(partition, stream, offset)

    async def close(self) -> None:
        """End all tasks."""
        await self._tasks.close()
        await self._raw.close()

    async def _read(self, partition: TopicPartition, stream: MessageStream, position: int | None) -> None:
        backoff_ms = self._config.refresh_leader_backoff_ms
        while True:
            try:
                if position is None:
                    position = await self._reset(partition)
                fetched = await self._raw.fetch(self._range(partition, position), read_ahead=False)
            except OffsetOutOfRangeError as error:
                log.warning("partition %s does not have offset %s: %s", partition, position, error)
                if self._config.auto_offset_reset == "fail":
                    self._on_failure(error)
                    return
                position = None
            except ProtocolError as error:
                if not error.retriable:
                    self._on_failure(error)
                    return
                log.warning("a fetch of %s failed, and is repeated: %s", partition, error)
                await self._cluster.clock.sleep_ms(backoff_ms)
            else:
                if len(fetched.records):
                    await stream.put(fetched)
                position = fetched.next_offset

    def _range(self, partition: TopicPartition, position: int) -> Range:
        config = self._config
        return Range(
            topic_partition=partition,
            offset=position,
            max_bytes=config.fetch_message_max_bytes,
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
        )

    async def _reset(self, partition: TopicPartition) -> int:
        """Return where to start without a valid offset. Raises `OffsetOutOfRangeError` with auto.offset.reset=fail."""
        if self._config.auto_offset_reset == "fail":
            raise OffsetOutOfRangeError(f"no offset of {partition} is stored, and auto.offset.reset=fail")
        timestamp = EARLIEST_TIMESTAMP if self._config.auto_offset_reset == "smallest" else LATEST_TIMESTAMP
        deadline = self._cluster.deadline(f"the reset of {partition}")
        found = await list_offsets(self._cluster, {partition: timestamp}, deadline=deadline)
        return found[partition].offset
