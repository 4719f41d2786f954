"""The producer: buffers records, sends them in batches and returns futures of their offsets.

Invariant: `send` does no I/O once the topic is known and there is space in the buffer. The transactions are in
`transaction_requests`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self

from odradek.base.errors import ConfigError, MessageTooLargeError, NetworkError, OdradekError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.tasks import finish
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Connect
from odradek.client.metadata import TopicView
from odradek.client.models import (
    BatchMetadata,
    GroupMetadata,
    Headers,
    KeyValueTime,
    OffsetAndMetadata,
    RecordMetadata,
    SendResult,
)
from odradek.client.producer.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Limits
from odradek.client.producer.batch_builder import CODECS, ClientBatchBuilder
from odradek.client.producer.partitioning import DefaultPartitioner
from odradek.client.producer.sender import Sender
from odradek.client.producer.transaction_requests import Transactions
from odradek.client.settings import ClientSettings, as_settings
from odradek.records.v2.batch import HEADER_SIZE

_BULK_CHUNK: Final = 2_000
"""Number of records that `send_many` buffers before other tasks of the loop run: a few milliseconds of work."""


class _Single:
    """The result of one `send`."""

    __slots__ = ("_future", "_place", "_timestamp_ms")

    def __init__(self, future: asyncio.Future[RecordMetadata], place: int, timestamp_ms: int) -> None:
        self._future = future
        self._place = place
        self._timestamp_ms = timestamp_ms

    def acknowledged(self, batch: BatchMetadata) -> None:
        if self._future.done():
            return
        offset = batch.base_offset + self._place if batch.base_offset >= 0 else -1
        timestamp = batch.timestamp if batch.timestamp >= 0 else self._timestamp_ms
        self._future.set_result(RecordMetadata(batch.topic, batch.partition, offset, timestamp))

    def failed(self, error: OdradekError) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class _Bulk:
    """The result of one `send_many`, shared by the batches that contain its records."""

    __slots__ = ("_batches", "_expected", "_records", "future")

    def __init__(self, future: asyncio.Future[SendResult]) -> None:
        self.future: Final = future
        self._expected = 0
        self._records: int | None = None
        self._batches: list[BatchMetadata] = []

    def expect(self) -> None:
        """Count one more batch that contains records of this call."""
        self._expected += 1

    def complete(self, records: int) -> None:
        """Note that all records are in batches. `records` is their number."""
        self._records = records
        self._check()

    def acknowledged(self, batch: BatchMetadata) -> None:
        self._batches.append(batch)
        self._check()

    def failed(self, error: OdradekError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _check(self) -> None:
        if self._records is not None and len(self._batches) == self._expected and not self.future.done():
            self.future.set_result(SendResult(self._records, tuple(self._batches)))


class _Countdown:
    """The result of a `flush`: complete when every batch was acknowledged or failed."""

    __slots__ = ("_future", "_left")

    def __init__(self, future: asyncio.Future[None], batches: int) -> None:
        self._future = future
        self._left = batches

    def acknowledged(self, batch: BatchMetadata) -> None:
        self._ended()

    def failed(self, error: OdradekError) -> None:
        self._ended()

    def _ended(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._future.done():
            self._future.set_result(None)


class Producer:
    """Sends records.

    Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent and sends buffered records.

    Each record is acknowledged, or its future raises an error, within about `delivery_timeout_ms`. Records of one
    partition keep their order. Retries do not duplicate records unless `enable_idempotence` is off.

    A record with a key is sent to the partition that the hash of the key selects, as in the Java client. Records
    without key go to one random partition until a batch is full, then to another.

    With `transactional_id`, records are sent in transactions: call `init_transactions` once, then use `transaction`.
    Consumers with `read_committed` get the records of a transaction when it is committed, and never those of an aborted
    one. A second producer with the same id fences the first: each call of the first then raises `ProducerFencedError`.
    """

    def __init__(
        self, settings: ClientSettings | str, *, clock: Clock | None = None, connect: Connect | None = None
    ) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `clock` and `connect` are for tests."""
        self._settings: Final = as_settings(settings)
        self._cluster: Final = Cluster(self._settings, clock=clock, connect=connect)
        self._clock: Final = self._cluster.clock
        codec = CODECS[self._settings.compression_type]
        # The builder counts the batch header, which batch.size does not include.
        limit_bytes = self._settings.batch_size
        in_transactions = self._settings.transactional_id is not None
        self._accumulator: Final = Accumulator(
            _limits(self._settings),
            lambda: ClientBatchBuilder(codec, limit_bytes, is_transactional=in_transactions),
        )
        self._sender: Final = Sender(self._cluster, self._accumulator, on_room=self._admit)
        self._partitioner: Final = DefaultPartitioner(self._clock.random, self._settings.batch_size)
        self._waiting: deque[object] = deque()
        self._room = asyncio.Event()
        self._flushing = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        """Call `start` and return the object."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Call `close`, which sends buffered records."""
        await self.close()

    async def start(self) -> None:
        """Connect and fetch the metadata of the cluster. Raises `NetworkError` if no bootstrap server answers."""
        await self._cluster.start()
        self._sender.start()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, in order. Waits up to `max_block_ms` for the topic to exist.

        Raises `UnknownTopicOrPartitionError` if it does not.
        """
        return list((await self._topic(topic)).partitions)

    # Send

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer a record. The future returns its offset, or raises the error when it could not be written.

        `partition` overrides the choice by key. `timestamp_ms` is in milliseconds since 1970 UTC, by default the
        current time. A record with value None is a tombstone: compaction removes its key.

        Waits up to `max_block_ms` while the topic is unknown or `buffer_memory` is exhausted, then raises
        `RequestTimedOutError` or `UnknownTopicOrPartitionError`. Raises `MessageTooLargeError` if the record is larger
        than `max_request_size`, and `ConfigError` if the topic has no such partition. With `transactional_id`, raises
        `InvalidTransactionStateError` without a transaction, and `TransactionAbortableError` after an error in it.
        """
        view = self._cluster.view.topics.get(topic)
        if view is None or not view.partitions:
            view = await self._topic(topic)
        size = self._size(key, value, headers)
        self._check_size(size)
        if self._waiting or not self._accumulator.has_room(size):
            await self._wait_for_room(size)
        self._check_sendable()
        topic_partition = TopicPartition(topic, self._choose(view, key, partition, size))
        time = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        now_ms = self._clock.monotonic_ms()
        batch, place = self._accumulator.append(topic_partition, (key, value, time), headers, now_ms=now_ms)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        batch.receipts.append(_Single(future, place, time))
        self._include(topic_partition, future)
        self._sender.wake()
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Call `send`, wait until the record is acknowledged, and return its offset. Raises the error otherwise."""
        sent = await self.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await sent

    async def send_many(
        self, topic: str, records: Sequence[KeyValueTime], *, partition: int | None = None
    ) -> asyncio.Future[SendResult]:
        """Buffer many records at a fraction of the cost of `send`, with one future for all of them.

        Each record is a tuple of key, value and timestamp in milliseconds since 1970 UTC. Records of the same partition
        keep their order. Raises the errors of `send`; then a part of the records may be sent all the same.
        """
        view = await self._topic(topic)
        delivered: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        bulk = _Bulk(delivered)
        for start in range(0, len(records), _BULK_CHUNK):
            chunk = records[start : start + _BULK_CHUNK]
            size = self._chunk_size(chunk)
            if self._waiting or not self._accumulator.has_room(size):
                await self._wait_for_room(size)
            self._check_sendable()
            self._append_chunk(bulk, self._split(view, chunk, partition))
            self._sender.wake()
            await asyncio.sleep(0)
        bulk.complete(len(records))
        return delivered

    def _append_chunk(self, bulk: _Bulk, parts: dict[TopicPartition, list[KeyValueTime]]) -> None:
        now_ms = self._clock.monotonic_ms()
        for topic_partition, part in parts.items():
            for batch in self._accumulator.append_many(topic_partition, part, now_ms=now_ms):
                if bulk not in batch.receipts:
                    bulk.expect()
                    batch.receipts.append(bulk)
            self._include(topic_partition, bulk.future)

    def _chunk_size(self, chunk: Sequence[KeyValueTime]) -> int:
        total = 0
        largest = 0
        for key, value, _ in chunk:
            size = (len(key) if key else 0) + (len(value) if value else 0)
            total += size
            if size > largest:
                largest = size
        self._check_size(largest + RECORD_OVERHEAD_BYTES)
        return total + RECORD_OVERHEAD_BYTES * len(chunk)

    def _split(
        self, view: TopicView, chunk: Sequence[KeyValueTime], partition: int | None
    ) -> dict[TopicPartition, list[KeyValueTime]]:
        if partition is not None:
            return {TopicPartition(view.name, self._checked_partition(view, partition)): list(chunk)}
        parts: dict[int, list[KeyValueTime]] = {}
        of_key, count = self._partitioner.of_key, len(view.partitions)
        available = view.available or list(view.partitions)
        for record in chunk:
            key = record[0]
            if key is None:
                size = RECORD_OVERHEAD_BYTES + len(record[1] or b"")
                number = self._partitioner.without_key(view.name, available, size)
            else:
                number = of_key(key, count)
            part = parts.get(number)
            if part is None:
                parts[number] = [record]
            else:
                part.append(record)
        return {TopicPartition(view.name, number): part for number, part in parts.items()}

    def _choose(self, view: TopicView, key: bytes | None, partition: int | None, size: int) -> int:
        if partition is not None:
            return self._checked_partition(view, partition)
        if key is not None:
            return self._partitioner.of_key(key, len(view.partitions))
        return self._partitioner.without_key(view.name, view.available or list(view.partitions), size)

    def _checked_partition(self, view: TopicView, partition: int) -> int:
        if partition not in view.partitions:
            raise ConfigError(
                f"topic {view.name} has no partition {partition}: it has the partitions 0 to {len(view.partitions) - 1}"
            )
        return partition

    @staticmethod
    def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
        size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            # A character takes up to four bytes, each of the two lengths up to five.
            size += 4 * len(name) + len(content or b"") + 10
        return size

    def _check_size(self, size: int) -> None:
        limit = min(self._settings.max_request_size, self._settings.buffer_memory)
        if size + HEADER_SIZE > limit:
            raise MessageTooLargeError(
                f"a record of about {size} bytes exceeds {limit} bytes, the lower of max.request.size and buffer.memory"
            )

    async def _topic(self, topic: str) -> TopicView:
        self._check_open()
        deadline = self._cluster.deadline(f"metadata of topic {topic}", self._settings.max_block_ms)
        return await self._cluster.topic(topic, deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise NetworkError("the producer is closed")
        if self._sender.failure is not None:
            raise RuntimeError(
                "the producer failed with an internal error and must be closed"
            ) from self._sender.failure

    def _check_sendable(self) -> None:
        self._check_open()
        if self._sender.transactions is not None:
            self._sender.transactions.machine.check_open()

    def _include(self, topic_partition: TopicPartition, delivered: asyncio.Future[Any]) -> None:
        """Make records of a partition part of the transaction."""
        if self._sender.transactions is not None:
            self._sender.transactions.include(topic_partition)
            # The commit raises the error too, so it is not lost if nobody reads the future.
            delivered.add_done_callback(_read_error)

    # Buffer space

    async def _wait_for_room(self, size: int) -> None:
        ticket = object()
        self._waiting.append(ticket)
        self._update_send_now()
        deadline = self._cluster.deadline("waiting for free buffer.memory", self._settings.max_block_ms)
        try:
            while self._waiting[0] is not ticket or not self._accumulator.has_room(size):
                self._room.clear()
                try:
                    await asyncio.wait_for(self._room.wait(), deadline.left_ms() / 1000)
                except TimeoutError:
                    raise RequestTimedOutError(
                        f"buffer.memory had no space for the record within max.block.ms={self._settings.max_block_ms}"
                    ) from None
                self._check_sendable()
        finally:
            self._waiting.remove(ticket)
            self._update_send_now()
            self._admit()

    def _admit(self) -> None:
        """Wake the waiting calls, because memory was freed or a waiting call was cancelled."""
        self._room.set()

    def _update_send_now(self) -> None:
        self._accumulator.send_now = bool(self._waiting) or self._flushing > 0
        self._sender.wake()

    # Transactions

    @property
    def _transactions(self) -> Transactions:
        self._check_open()
        if self._sender.transactions is None:
            raise ConfigError("transactional.id is missing: a producer with transactions needs one")
        return self._sender.transactions

    async def init_transactions(self) -> None:
        """Get a producer id and an epoch for `transactional_id`. Call it once, before the first transaction.

        It fences an earlier producer with the same id, and waits until that one's open transaction is aborted. Waits up
        to `max_block_ms`, then raises `RequestTimedOutError`; the next call waits for the same result. After another
        error, it can be called again. Raises `TransactionalIdAuthorizationFailedError`,
        `InvalidTransactionTimeoutError` if `transaction_timeout_ms` exceeds the brokers' `transaction.max.timeout.ms`,
        and `ConfigError` without `transactional_id`, like every method for transactions.
        """
        await self._transactions.initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction. No request is sent: the coordinator aborts it `transaction_timeout_ms` after the first
        record.

        Raises `InvalidTransactionStateError` before `init_transactions` or during another transaction, and
        `ProducerFencedError` if another producer has the `transactional_id` now.
        """
        self._transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit offsets of a consumer group if and when the transaction is committed (KIP-447).

        An offset is that of the next record to read. `group` comes from `Consumer.group_metadata`; the consumer must
        not commit automatically. Waits up to `max_block_ms`, then raises `RequestTimedOutError`.

        Raises `IllegalGenerationError`, `UnknownMemberIdError` or `FencedInstanceIdError` if the partitions may belong
        to other members now, and `GroupAuthorizationFailedError`. Then the transaction must be aborted. Raises the
        errors of `send` without a transaction or after an error in it.
        """
        stored = {
            partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for partition, offset in offsets.items()
        }
        await self._transactions.send_offsets(stored, group)

    async def commit_transaction(self) -> None:
        """Send all buffered records, and commit the transaction when each is acknowledged.

        Raises `TransactionAbortableError` if a record or another part of the transaction has failed: call
        `abort_transaction`. Raises `ProducerFencedError` if another producer has the `transactional_id` now, and
        `InvalidTransactionStateError` without a transaction. Waits up to `max_block_ms`, then raises
        `RequestTimedOutError`; it is unknown then whether the transaction will be committed, and the next call waits
        for the result.
        """
        await self._transactions.commit(self.flush)

    async def abort_transaction(self) -> None:
        """Abort the transaction. The futures of records that are not acknowledged raise `TransactionAbortableError`.

        The producer can begin another transaction then. Waits up to `max_block_ms`, then raises `RequestTimedOutError`;
        the next call waits for the same result. Raises `ProducerFencedError` and `InvalidTransactionStateError` as
        `commit_transaction`.
        """
        await self._transactions.abort(self.flush)

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that begins a transaction, and commits it at the end of the block.

        If the block or the commit raises an error, or is cancelled, the transaction is aborted and the error is raised.
        A commit that takes longer than `max_block_ms` goes on, as that of `commit_transaction`.
        """
        return self._whole_transaction()

    @asynccontextmanager
    async def _whole_transaction(self) -> AsyncIterator[None]:
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            await finish(self._transactions.abort_if_open(self.flush))
            raise

    # Flush and close

    async def flush(self) -> None:
        """Send all buffered records without waiting for `linger_ms`. Return when each is acknowledged or has failed.

        Errors are raised by the futures of the records.
        """
        batches = self._accumulator.batches()
        if not batches:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        countdown = _Countdown(ended, len(batches))
        for batch in batches:
            batch.receipts.append(countdown)
        self._flushing += 1
        self._update_send_now()
        try:
            await ended
        finally:
            self._flushing -= 1
            self._update_send_now()

    async def close(self) -> None:
        """Send buffered records, then close all connections. An open transaction is aborted. Idempotent.

        Records that are not acknowledged within `delivery_timeout_ms` fail. If cancelled, it closes immediately.
        """
        if self._closed:
            return
        self._closed = True
        self._admit()
        try:
            if self._sender.transactions is not None:
                await self._sender.transactions.end_before_close(self.flush)
            await self.flush()
        finally:
            await finish(self._shut_down())

    async def _shut_down(self) -> None:
        try:
            await self._sender.close()
        finally:
            await self._cluster.close()


def _read_error(delivered: asyncio.Future[Any]) -> None:
    if not delivered.cancelled():
        delivered.exception()


def _limits(settings: ClientSettings) -> Limits:
    return Limits(
        batch_size=settings.batch_size,
        linger_ms=settings.linger_ms,
        buffer_memory=settings.buffer_memory,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        max_in_flight=settings.max_in_flight_requests_per_connection,
    )
