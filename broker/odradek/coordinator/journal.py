"""The queue of appends of one coordinator partition.

`coordinator_runtime` creates one for each partition that this broker leads, and state machines use it as their
`RecordLog`. At most one append is in progress. Those that wait meanwhile are combined into the next batch, unless they
belong to transactions of different producers. Invariants: results are delivered in the order of the appends; every
queued append gets exactly one result, which is NOT_COORDINATOR if the partition is unloaded before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    KafkaStorageError,
    NotCoordinatorError,
    OdradekError,
    ProtocolError,
    UnknownServerError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Offset, TopicPartition
from odradek.coordinator.coordinator_ports import KeyValue, PartitionWriter, TransactionalWriter
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder

logger = logging.getLogger(__name__)

MAX_QUEUED_APPENDS: Final = 100_000
"""Maximum number of queued appends of a partition. Further ones are rejected, so that clients retry later."""


class _Append(NamedTuple):
    records: Sequence[KeyValue]
    size_bytes: int
    done: Callable[[Offset | ProtocolError], None]
    transaction: TransactionalWriter | None


class Journal:
    """The queue of appends of one partition. Implements the `RecordLog` of its state machine."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        writer: PartitionWriter,
        clock: Clock,
        limit_bytes: int,
        leader_epoch: int,
    ) -> None:
        """`limit_bytes` is the maximum size of a batch, unless a single append is larger."""
        self.leader_epoch = leader_epoch
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

    def append(
        self,
        records: Sequence[KeyValue],
        done: Callable[[Offset | ProtocolError], None],
        transaction: TransactionalWriter | None = None,
    ) -> None:
        """Queue records; see `RecordLog`."""
        if self._is_closed or len(self._queue) >= MAX_QUEUED_APPENDS:
            asyncio.get_running_loop().call_soon(done, self._refusal())
            return
        size_bytes = sum(_record_bytes(record) for record in records)
        self._queue.append(_Append(records, size_bytes, done, transaction))
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
        size_bytes, transaction = batch[0].size_bytes, batch[0].transaction
        while (
            self._queue
            and self._queue[0].transaction == transaction
            and size_bytes + self._queue[0].size_bytes <= self._limit_bytes
        ):
            batch.append(self._queue.popleft())
            size_bytes += batch[-1].size_bytes
        return batch

    async def _append(self, batch: Sequence[_Append]) -> Offset | ProtocolError:
        now_ms, transaction = self._clock.wall_ms(), batch[0].transaction
        try:
            builder = BatchBuilder(limit_bytes=1 << 31)
            for entry in batch:
                for key, value in entry.records:
                    builder.append(key, value, timestamp_ms=now_ms)
            records = builder.build(
                producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
                producer_epoch=NO_EPOCH if transaction is None else transaction.producer_epoch,
                # As in Kafka, each batch of a coordinator's transaction begins with the sequence number 0.
                base_sequence=NO_SEQUENCE if transaction is None else 0,
                is_transactional=transaction is not None,
            )
            return await self._writer.append(self._topic_partition, records, transaction)
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
