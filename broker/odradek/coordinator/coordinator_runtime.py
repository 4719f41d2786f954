"""Runs the state machines of a coordinator topic, one for each partition that this broker leads.

When leadership changes, `replication` calls `load` and `unload` through the coordinator. Requests use `call`. Each
partition has a queue of appends: at most one append is in progress, queued ones are combined into the next one, and
results are delivered in order. Operations are synchronous, so the event loop serializes them. Loading reads in slices,
between which other tasks run.

Invariants: a state machine serves requests only after its whole log was replayed; every queued append gets exactly one
result, which is NOT_COORDINATOR if the partition is unloaded before; every task belongs to a partition and ends with
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaStorageError,
    NotCoordinatorError,
    OdradekError,
    ProtocolError,
    UnknownServerError,
)
from odradek.base.ports import Clock
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.coordinator_ports import (
    KeyValue,
    PartitionLogReader,
    PartitionWriter,
    RecordLog,
    Respond,
    Shard,
)
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder

logger = logging.getLogger(__name__)

SLICE_RECORDS: Final = 500
"""Number of records that are replayed before other tasks run. This takes one or two milliseconds."""

LOAD_RETRY_MS: Final = 1000.0
LOAD_RETRY_MAX_MS: Final = 60_000.0
"""Pauses before a partition that could not be read is read again: a second at first, at most a minute."""

MAX_QUEUED_APPENDS: Final = 100_000
"""Maximum number of queued appends of a partition. Further ones are rejected, so that clients retry later."""

ShardT = TypeVar("ShardT", bound=Shard)
Result = TypeVar("Result")


class LoadState(Enum):
    """State of a partition. A new object is created whenever this broker becomes the leader."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Append(NamedTuple):
    records: Sequence[KeyValue]
    size_bytes: int
    done: Callable[[Offset | ProtocolError], None]


class Journal:
    """The queue of appends of one partition. Implements the `RecordLog` of its state machine."""

    def __init__(
        self, topic_partition: TopicPartition, writer: PartitionWriter, clock: Clock, limit_bytes: int
    ) -> None:
        """`limit_bytes` is the maximum size of a batch, unless a single append is larger."""
        self._topic_partition = topic_partition
        self._writer = writer
        self._clock = clock
        self.limit(limit_bytes)
        self._queue: deque[_Append] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def limit(self, limit_bytes: int) -> None:
        """Set the limit of future batches."""
        self._limit_bytes = limit_bytes - HEADER_SIZE

    def append(self, records: Sequence[KeyValue], done: Callable[[Offset | ProtocolError], None]) -> None:
        """Queue records; see `RecordLog`."""
        if self._is_closed or len(self._queue) >= MAX_QUEUED_APPENDS:
            asyncio.get_running_loop().call_soon(done, self._refusal())
            return
        size_bytes = sum(_record_bytes(record) for record in records)
        self._queue.append(_Append(records, size_bytes, done))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"journal-{self._topic_partition}")

    async def _run(self) -> None:
        batch: list[_Append] = []
        try:
            while self._queue:
                batch = self._next_batch()
                outcome = await self._append(batch)
                batch, answered = [], batch
                self._answer(answered, outcome)
        finally:
            self._task = None
            self._answer(batch, self._refusal())

    def _refusal(self) -> ProtocolError:
        if self._is_closed:
            return NotCoordinatorError(f"This broker no longer leads {self._topic_partition}.")
        return CoordinatorNotAvailableError(f"Too many appends to {self._topic_partition} are waiting: try again.")

    def _next_batch(self) -> list[_Append]:
        batch = [self._queue.popleft()]
        size_bytes = batch[0].size_bytes
        while self._queue and size_bytes + self._queue[0].size_bytes <= self._limit_bytes:
            batch.append(self._queue.popleft())
            size_bytes += batch[-1].size_bytes
        return batch

    async def _append(self, batch: Sequence[_Append]) -> Offset | ProtocolError:
        now_ms = self._clock.wall_ms()
        try:
            builder = BatchBuilder(limit_bytes=1 << 31)
            for entry in batch:
                for key, value in entry.records:
                    builder.append(key, value, timestamp_ms=now_ms)
            return await self._writer.append(self._topic_partition, builder.build())
        except ProtocolError as error:
            return error
        except OdradekError as error:
            return KafkaStorageError(str(error))
        except Exception:
            # After a bug, the group must not wait forever, so it gets an error.
            logger.exception("the append of %d queued writes to %s failed", len(batch), self._topic_partition)
            return UnknownServerError("The broker failed to handle the request: see its log.")

    def _answer(self, batch: Sequence[_Append], outcome: Offset | ProtocolError) -> None:
        for entry in batch:
            try:
                entry.done(outcome)
            except Exception:
                # A bug in the code of one group must not affect the results of others.
                logger.exception("the result of an append to %s could not be applied", self._topic_partition)

    async def close(self) -> None:
        """End queued appends with NOT_COORDINATOR and stop. Idempotent."""
        self._is_closed = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        waiting = list(self._queue)
        self._queue.clear()
        self._answer(waiting, self._refusal())


def _record_bytes(record: KeyValue) -> int:
    # Lengths, timestamp and offset of a record need at most 25 bytes.
    key, value = record
    return 25 + len(key) + (0 if value is None else len(value))


class _Partition(Generic[ShardT]):
    """The state machine, the queue and the tasks of a partition that this broker leads."""

    def __init__(self, topic_partition: TopicPartition, epoch: int, shard: ShardT, journal: Journal) -> None:
        self.topic_partition = topic_partition
        self.epoch = epoch
        self.shard = shard
        self.journal = journal
        self.state = LoadState.LOADING
        self.task: asyncio.Task[None] | None = None


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
            known.epoch = max(known.epoch, epoch)
            return
        journal = Journal(topic_partition, self._writer, self._clock, self._batch_limit_bytes)
        partition = _Partition(topic_partition, epoch, make_shard(journal), journal)
        self._partitions[topic_partition] = partition
        loop = asyncio.get_running_loop()
        partition.task = loop.create_task(self._load(partition, make_shard), name=f"load-{topic_partition}")

    async def _load(self, partition: _Partition[ShardT], make_shard: Callable[[RecordLog], ShardT]) -> None:
        retry_ms = LOAD_RETRY_MS
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
        partition.shard.on_loaded()

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

    async def close(self) -> None:
        """Unload all partitions. Idempotent."""
        self._is_closed = True
        for topic_partition in sorted(self._partitions):
            self.unload(topic_partition)
        await asyncio.gather(*self._closing, return_exceptions=True)
