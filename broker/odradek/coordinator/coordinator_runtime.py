"""Runs the state machines of a coordinator topic, one for each partition that this broker leads.

When leadership changes, `replication` calls `load` and `unload` through the coordinator. Requests use `call`. Each
partition has a `journal` for its appends. Operations are synchronous, so the event loop serializes them. Loading reads
in slices, between which other tasks run.

Invariants: a state machine serves requests only after its whole log was replayed; every task belongs to a partition and
ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    NotCoordinatorError,
    OdradekError,
    ProtocolError,
)
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import PartitionLogReader, PartitionWriter, RecordLog, Respond, Shard
from odradek.coordinator.journal import Journal
from odradek.metrics.load_times import LoadTimes

logger = logging.getLogger(__name__)

SLICE_RECORDS: Final = 500
"""Number of records that are replayed before other tasks run. This takes one or two milliseconds."""

LOAD_RETRY_MS: Final = 1000.0
LOAD_RETRY_MAX_MS: Final = 60_000.0
"""Pauses before a partition that could not be read is read again: a second at first, at most a minute."""

ShardT = TypeVar("ShardT", bound=Shard)
Result = TypeVar("Result")


class LoadState(Enum):
    """State of a partition. A new object is created whenever this broker becomes the leader."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Partition(Generic[ShardT]):
    """The state machine, the queue and the tasks of a partition that this broker leads."""

    def __init__(self, topic_partition: TopicPartition, shard: ShardT, journal: Journal) -> None:
        self.topic_partition = topic_partition
        self.shard = shard
        self.journal = journal
        self.state = LoadState.LOADING
        self.task: asyncio.Task[None] | None = None
        self.deferred: list[Callable[[ShardT], None]] = []
        """Operations to run when the partition is loaded."""


class CoordinatorRuntime(Generic[ShardT]):
    """The partitions of a coordinator topic."""

    def __init__(
        self, *, writer: PartitionWriter, reader: PartitionLogReader, clock: Clock, batch_limit_bytes: int
    ) -> None:
        """`batch_limit_bytes` is `max.message.bytes` of the topic."""
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._batch_limit_bytes = batch_limit_bytes
        self._partitions: dict[TopicPartition, _Partition[ShardT]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.load_times: Final = LoadTimes(clock)
        """How long the last loads took, from the election to the first request."""

    def limit_batches(self, limit_bytes: int) -> None:
        """Apply a changed `max.message.bytes` of the topic."""
        self._batch_limit_bytes = limit_bytes
        for partition in self._partitions.values():
            partition.journal.limit(limit_bytes)

    # Leadership

    def load(self, topic_partition: TopicPartition, epoch: int, make_shard: Callable[[RecordLog], ShardT]) -> None:
        """Start to replay a partition that this broker leads in `epoch`. Ignores older or equal epochs."""
        known = self._partitions.get(topic_partition)
        if self._is_closed:
            return
        if known is not None:
            # This broker was the leader before the election, too, so the state in memory matches the log.
            known.journal.leader_epoch = max(known.journal.leader_epoch, epoch)
            return
        journal = Journal(topic_partition, self._writer, self._clock, self._batch_limit_bytes, epoch)
        partition = _Partition(topic_partition, make_shard(journal), journal)
        self._partitions[topic_partition] = partition
        loop = asyncio.get_running_loop()
        partition.task = loop.create_task(self._load(partition, make_shard), name=f"load-{topic_partition}")

    async def _load(self, partition: _Partition[ShardT], make_shard: Callable[[RecordLog], ShardT]) -> None:
        retry_ms = LOAD_RETRY_MS
        began_ms = self._clock.monotonic_ms()
        while True:
            try:
                await self._replay(partition)
                break
            except OdradekError as error:
                logger.error(
                    "%s cannot be loaded; the broker tries again in %d ms: %s",
                    partition.topic_partition,
                    retry_ms,
                    error,
                )
            except Exception:
                # Without another attempt, clients would get COORDINATOR_LOAD_IN_PROGRESS forever.
                logger.exception(
                    "%s cannot be loaded; the broker tries again in %d ms", partition.topic_partition, retry_ms
                )
            await self._clock.sleep_ms(retry_ms)
            retry_ms = min(retry_ms * 2, LOAD_RETRY_MAX_MS)
            partition.shard = make_shard(partition.journal)
        partition.state = LoadState.ACTIVE
        partition.task = None
        self.load_times.observe(self._clock.monotonic_ms() - began_ms)
        partition.shard.on_loaded()
        deferred, partition.deferred = partition.deferred, []
        for operation in deferred:
            operation(partition.shard)

    async def _replay(self, partition: _Partition[ShardT]) -> None:
        replayed = 0
        async for records in self._reader.read(partition.topic_partition):
            for count in partition.shard.replay(records):
                replayed += count
                if replayed >= SLICE_RECORDS:
                    replayed = 0
                    await asyncio.sleep(0)

    def unload(self, topic_partition: TopicPartition) -> None:
        """Drop a partition that this broker no longer leads. Unknown partitions are ignored."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            closing = asyncio.get_running_loop().create_task(self._close(partition), name=f"unload-{topic_partition}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._end(partition)

    def _end(self, partition: _Partition[ShardT]) -> None:
        was_active = partition.state is LoadState.ACTIVE
        partition.state = LoadState.CLOSED
        if was_active:
            partition.shard.on_unloaded()

    async def _close(self, partition: _Partition[ShardT]) -> None:
        task = partition.task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await partition.journal.close()

    # Operations

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being replayed."""
        return any(partition.state is LoadState.LOADING for partition in self._partitions.values())

    def shards(self) -> Sequence[ShardT]:
        """Return all loaded state machines."""
        return [
            partition.shard for _, partition in sorted(self._partitions.items()) if partition.state is LoadState.ACTIVE
        ]

    def shard(self, topic_partition: TopicPartition) -> ShardT:
        """Return the loaded state machine. Raises `NotCoordinatorError` or `CoordinatorLoadInProgressError`."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise NotCoordinatorError(f"This broker does not lead {topic_partition}.")
        if partition.state is LoadState.LOADING:
            raise CoordinatorLoadInProgressError(f"{topic_partition} is being loaded.")
        return partition.shard

    async def call(
        self, topic_partition: TopicPartition, operation: Callable[[ShardT, Respond[Result]], None]
    ) -> Result:
        """Run an operation immediately and wait for its result. Raises its error."""
        shard = self.shard(topic_partition)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def respond(result: Result | ProtocolError) -> None:
            if future.done():
                return  # The caller was cancelled. The operation continues.
            if isinstance(result, ProtocolError):
                future.set_exception(result)
            else:
                future.set_result(result)

        operation(shard, respond)
        return await future

    def when_loaded(self, topic_partition: TopicPartition, operation: Callable[[ShardT], None]) -> None:
        """Run an operation now, or when the partition is loaded; see `Runtime`."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return
        if partition.state is LoadState.LOADING:
            partition.deferred.append(operation)
        else:
            operation(partition.shard)

    async def close(self) -> None:
        """Unload all partitions. Idempotent."""
        self._is_closed = True
        for topic_partition in sorted(self._partitions):
            self.unload(topic_partition)
        await asyncio.gather(*self._closing, return_exceptions=True)
