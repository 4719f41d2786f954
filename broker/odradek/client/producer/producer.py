"""The producer: buffers records, sends them in batches and returns futures of their offsets.

Invariant: `send` does no I/O once the topic is known and there is space in the buffer. The transactions are in
`transaction_requests`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, zip_longest
from typing import Any, Final, Self, Unpack

from odradek.base.errors import ConfigError, MessageTooLargeError, NetworkError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.tasks import at_most, finish
from odradek.base.types import NO_TIMESTAMP, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Connect
from odradek.client.extensions.interceptors import ProducerInterceptor, ProducerInterceptors, ProducerRecord
from odradek.client.extensions.serializers import Serializer, as_bytes, serialize_function
from odradek.client.keywords import ClientKeywords
from odradek.client.metadata import TopicView
from odradek.client.models import (
    GroupMetadata,
    HeadersToSend,
    KeyValueTime,
    OffsetAndMetadata,
    PreparedTransaction,
    RecordMetadata,
    SendResult,
)
from odradek.client.producer.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Limits, record_size
from odradek.client.producer.batch_builder import CODECS, ClientBatchBuilder, EncodedBatchBuilder
from odradek.client.producer.partitioning import DefaultPartitioner, Partitioner, partitioner_function
from odradek.client.producer.receipts import BulkReceipt, Countdown, SingleReceipt
from odradek.client.producer.sender import Sender
from odradek.client.producer.transaction_requests import Transactions
from odradek.client.settings import ClientSettings, as_settings
from odradek.client.telemetry.client_metrics import PRODUCER_COUNTS, PRODUCER_VALUES
from odradek.records.v2.batch import HEADER_SIZE
from odradek.records.v2.encode import EncodedRecords

_LOG: Final = logging.getLogger(__name__)

_BULK_CHUNK: Final = 2_000
"""Number of records that `send_many` buffers before other tasks of the loop run: a few milliseconds of work."""


class Producer:
    """Sends records.

    Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent and sends buffered records.

    Each record is acknowledged, or its future raises an error, within about `delivery_timeout_ms`. Records of one
    partition keep their order. Retries do not duplicate records unless `enable_idempotence` is off.

    A record with a key is sent to the partition that the hash of the key selects, as in the Java client. Records
    without key go to one random partition until a batch is full, then to another. `partitioner` changes that.

    With `transactional_id`, records are sent in transactions: call `init_transactions` once, then use `transaction`.
    Consumers with `read_committed` get the records of a transaction when it is committed, and never those of an aborted
    one. A second producer with the same id fences the first: each call of the first then raises `ProducerFencedError`.
    """

    def __init__(
        self,
        settings: ClientSettings | str | None = None,
        *,
        key_serializer: Serializer | Callable[[Any], bytes] | None = None,
        value_serializer: Serializer | Callable[[Any], bytes] | None = None,
        partitioner: Partitioner | str = "default",
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        connect: Connect | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `keywords` are single settings of
        `ClientSettings`, such as `linger_ms=5`, and override `settings`.

        Serializers convert the keys and values of records to bytes. Each is a function of the value, which is not
        called for None, or an object such as `JsonSerializer()`. Without one, they must be bytes.

        `partitioner` chooses the partitions of records: a function of the topic, the serialized key and value, the
        partitions of the topic, and those of them that have a leader. Or it is a name: `default`, `round_robin`,
        `random`, `murmur2` and `murmur2_random`, which hash keys as the Java client does, `consistent` and
        `consistent_random`, which hash them as librdkafka does. For records without key, those that end with `random`
        choose random partitions, and the other two always the same one. `interceptors` see and can change each record.

        Raises `ConfigError` for an invalid value, and `TypeError` for an unknown keyword.

        `clock` and `connect` are for tests.
        """
        self._settings: Final = as_settings(settings, **keywords)
        self._cluster: Final = Cluster(self._settings, clock=clock, connect=connect)
        self._cluster.metrics.declare(PRODUCER_COUNTS, PRODUCER_VALUES)
        self._clock: Final = self._cluster.clock
        codec = CODECS[self._settings.compression_type]
        # The builder counts the batch header, which batch.size does not include.
        limit_bytes = self._settings.batch_size
        in_transactions = self._settings.transactional_id is not None
        self._accumulator: Final = Accumulator(
            Limits.of(self._settings),
            lambda: ClientBatchBuilder(codec, limit_bytes, is_transactional=in_transactions),
        )
        self._sender: Final = Sender(self._cluster, self._accumulator, on_room=self._admit)
        self._custom_partitioner: Final = partitioner_function(partitioner, self._clock.random)
        self._partitioner: Final = DefaultPartitioner(self._clock.random, self._settings.batch_size)
        self._serialize_key: Final = serialize_function(key_serializer, "key_serializer")
        self._serialize_value: Final = serialize_function(value_serializer, "value_serializer")
        self._interceptors: Final = ProducerInterceptors(interceptors) if interceptors else None
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

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this producer by the names of the Java producer's, such as `record-send-rate`.

        Times are in milliseconds and sizes in bytes. Totals count from the start, all others cover the last 30 to 60
        seconds. A value is NaN if nothing was measured.
        """
        limit = self._settings.buffer_memory
        return {
            **self._cluster.read_metrics(),
            "requests-in-flight": self._sender.requests_in_flight,
            "buffer-total-bytes": limit,
            "buffer-available-bytes": max(0, limit - self._accumulator.used_bytes),
        }

    async def partitions_for(self, topic: str, *, available: bool = False) -> list[int]:
        """Return the partition numbers of a topic, in order. Waits up to `max_block_ms` for the topic to exist.

        With `available`, only those that have a leader now; all of them if none has. Raises
        `UnknownTopicOrPartitionError` if the topic does not exist.
        """
        view = await self._topic(topic)
        return list((available and view.available) or view.partitions)

    # Send

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToSend = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer a record. The future returns its offset, or raises the error when it could not be written.

        `partition` overrides the choice by key. `timestamp_ms` is in milliseconds since 1970 UTC, by default the
        current time. A record with value None is a tombstone: compaction removes its key.

        Waits up to `max_block_ms` while the topic is unknown or `buffer_memory` is exhausted, then raises
        `RequestTimedOutError` or `UnknownTopicOrPartitionError`. Raises `MessageTooLargeError` if the record is larger
        than `max_request_size`, `SerializationError` if a serializer fails, and `ConfigError` if the topic has no such
        partition. Raises `TypeError` for a key or value that is not bytes. With `transactional_id`, raises
        `InvalidTransactionStateError` without a transaction, and `TransactionAbortableError` after an error in it.
        """
        if self._interceptors is None:
            return await self._send((topic, value, key, partition, timestamp_ms, headers))
        record = self._interceptors.sent(ProducerRecord(topic, value, key, partition, timestamp_ms, headers))
        try:
            return await self._send(record)
        except Exception as error:
            self._interceptors.refused(record, error)
            raise

    async def _send(
        self, record: ProducerRecord | tuple[str, Any, Any, int | None, int | None, HeadersToSend]
    ) -> asyncio.Future[RecordMetadata]:
        topic, value, key, partition, timestamp_ms, given = record
        headers = tuple(given)
        if self._serialize_key is not None:
            key = self._serialize_key(topic, key, headers)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, value, headers)
        if type(value) is not bytes and value is not None:
            value = as_bytes(value, "value")
        if type(key) is not bytes and key is not None:
            key = as_bytes(key, "key")
        view = self._cluster.view.topics.get(topic)
        if view is None or not view.partitions:
            view = await self._topic(topic)
        size = record_size(key, value, headers)
        self._check_size(size)
        if self._waiting or not self._accumulator.has_room(size):
            await self._wait_for_room(size)
        self._check_sendable()
        topic_partition = TopicPartition(topic, self._choose(view, key, value, partition, size))
        time = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        now_ms = self._clock.monotonic_ms()
        batch, place = self._accumulator.append(topic_partition, (key, value, time), headers, now_ms=now_ms)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if self._interceptors is not None:
            batch.receipts.append(self._interceptors.receipt(topic_partition, place, time))
        batch.receipts.append(SingleReceipt(future, place, time))
        self._include(topic_partition, future)
        self._sender.wake()
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToSend = (),
    ) -> RecordMetadata:
        """Call `send`, wait until the record is acknowledged, and return its offset. Raises the error otherwise."""
        sent = await self.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await sent

    async def send_many(
        self, topic: str, records: Sequence[tuple[Any, Any, int]], *, partition: int | None = None
    ) -> asyncio.Future[SendResult]:
        """Buffer many records at a fraction of the cost of `send`, with one future for all of them.

        Each record is a tuple of key, value and timestamp in milliseconds since 1970 UTC. Records of the same partition
        keep their order. Raises the errors of `send`; then a part of the records may be sent all the same.
        """
        view = await self._topic(topic)
        delivered: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        bulk = BulkReceipt(delivered)
        for start in range(0, len(records), _BULK_CHUNK):
            chunk = self._serialized(topic, records[start : start + _BULK_CHUNK])
            size = self._chunk_size(chunk)
            if self._waiting or not self._accumulator.has_room(size):
                await self._wait_for_room(size)
            self._check_sendable()
            self._append_chunk(bulk, self._split(view, chunk, partition))
            self._sender.wake()
            await asyncio.sleep(0)
        bulk.complete(len(records))
        return delivered

    async def send_encoded(
        self, batches: Mapping[TopicPartition, Sequence[EncodedRecords]]
    ) -> asyncio.Future[SendResult]:
        """Buffer batches that `encode_records` made, with one future for all of them. Each can be sent only once.

        The batches of several partitions are buffered in turn, so that a request can carry one of each. Order, retries,
        transactions and `buffer_memory` are as for records of `send`; `linger_ms`, serializers, partitioner and
        interceptors have no effect. Raises the errors of `send`; then a part of the batches may be sent all the same.
        Raises `MessageTooLargeError` without sending any if one exceeds `max_request_size` before compression.
        """
        for (topic, partition), part in batches.items():
            self._checked_partition(await self._topic(topic), partition)
            for batch in part:
                self._check_size(batch.uncompressed_bytes - HEADER_SIZE, f"a batch for topic {topic} with records of")
        delivered: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        bulk = BulkReceipt(delivered)
        in_transaction = self._sender.transactions is not None
        turns = zip_longest(*([(partition, batch) for batch in part] for partition, part in batches.items()))
        for topic_partition, batch in filter(None, chain.from_iterable(turns)):
            if self._waiting or not self._accumulator.has_room(batch.size_bytes):
                await self._wait_for_room(batch.size_bytes)
            self._check_sendable()
            builder = EncodedBatchBuilder(batch, is_transactional=in_transaction)
            added = self._accumulator.append_encoded(topic_partition, builder, now_ms=self._clock.monotonic_ms())
            bulk.expect()
            added.receipts.append(bulk)
            self._include(topic_partition, delivered)
            self._sender.wake()
        bulk.complete(sum(batch.record_count for part in batches.values() for batch in part))
        return delivered

    def _serialized(self, topic: str, chunk: Sequence[tuple[Any, Any, int]]) -> Sequence[KeyValueTime]:
        if self._interceptors is not None:
            sent = [self._interceptors.sent(ProducerRecord(topic, r[1], r[0], None, r[2])) for r in chunk]
            chunk = [(r.key, r.value, NO_TIMESTAMP if r.timestamp_ms is None else r.timestamp_ms) for r in sent]
        key_of, value_of = self._serialize_key, self._serialize_value
        if key_of is None and value_of is None:
            return chunk
        return [
            (
                key if key_of is None else key_of(topic, key, ()),
                value if value_of is None else value_of(topic, value, ()),
                timestamp_ms,
            )
            for key, value, timestamp_ms in chunk
        ]

    def _append_chunk(self, bulk: BulkReceipt, parts: dict[TopicPartition, list[KeyValueTime]]) -> None:
        now_ms = self._clock.monotonic_ms()
        for topic_partition, part in parts.items():
            for batch in self._accumulator.append_many(topic_partition, part, now_ms=now_ms):
                if bulk not in batch.receipts:
                    bulk.expect()
                    if self._interceptors is not None:
                        batch.receipts.append(self._interceptors.receipt(topic_partition))
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
        is_custom = self._custom_partitioner is not None
        for record in chunk:
            key = record[0]
            if is_custom:
                number = self._choose(view, key, record[1], None, 0)
            elif key is None:
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

    def _choose(self, view: TopicView, key: bytes | None, value: bytes | None, partition: int | None, size: int) -> int:
        if partition is None and self._custom_partitioner is not None:
            partitions = list(view.partitions)
            partition = self._custom_partitioner(view.name, key, value, partitions, view.available or partitions)
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

    def _check_size(self, size: int, what: str = "a record of about") -> None:
        limit = min(self._settings.max_request_size, self._settings.buffer_memory)
        if size + HEADER_SIZE > limit:
            raise MessageTooLargeError(
                f"{what} {size} bytes exceeds {limit} bytes, the lower of max.request.size and buffer.memory"
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

        It fences an earlier producer with the same id, and waits until that one's open transaction is aborted. It does
        not end a prepared transaction, but waits until somebody else ends it. Waits up
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

    async def prepare_transaction(self) -> PreparedTransaction:
        """Send all buffered records, and prepare the transaction when each is acknowledged (after KIP-939).

        A prepared transaction has no timeout: it outlives this producer and all brokers until somebody commits or
        aborts it, which any client can do with the returned value (`Admin.commit_prepared`, `Admin.abort_prepared`).
        Until then, consumers with `read_committed` get no later records of its partitions, and `init_transactions` of
        another producer with the same `transactional_id` waits. This producer can begin no transaction before it has
        called `commit_transaction` or `abort_transaction`, also if another client has ended the prepared one; the call
        then confirms that, and the producer gets another epoch. `close` leaves a prepared transaction as it is. The
        block of `transaction` commits it at its end, and leaves it as it is after an error.

        Raises `UnsupportedVersionError` if the coordinator is not a broker of Odradek, and `PolicyViolationError` if
        its `prepared.transactions.enable` is false. Nothing has changed then: commit or abort the transaction instead.
        Raises `InvalidTransactionStateError` without a transaction or if it is empty, and the errors of
        `commit_transaction`. Waits up to `max_block_ms`, then raises `RequestTimedOutError`; the next call waits for
        the same result.
        """
        return await self._transactions.prepare(self.flush)

    async def detach_transaction(self) -> PreparedTransaction:
        """Send all buffered records, and leave the open transaction to another client, which ends it with
        `Admin.end_transaction` and the returned value.

        For brokers without prepared transactions (Apache Kafka): the coordinator still aborts the transaction
        `transaction_timeout_ms` after its first record, and another producer with the same id aborts it. `close` leaves
        it as it is. Otherwise it is like `prepare_transaction`.
        """
        return await self._transactions.detach(self.flush)

    async def commit_transaction(self) -> None:
        """Send all buffered records, and commit the transaction when each is acknowledged.

        Raises `TransactionAbortableError` if a record or another part of the transaction has failed: call
        `abort_transaction`. Raises `ProducerFencedError` if another producer has the `transactional_id` now, and
        `InvalidTransactionStateError` without a transaction. Waits up to `max_block_ms`, then raises
        `RequestTimedOutError`; it is unknown then whether the transaction will be committed, and the next call waits
        for the result.

        It also commits a prepared transaction, unless another client has aborted it: then it raises
        `InvalidTransactionStateError`, and the producer must be closed.
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
        return self._transactions.whole(self.flush)

    # Flush and close

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Send all buffered records without waiting for `linger_ms`. Return when each is acknowledged or has failed.

        Errors are raised by the futures of the records. With `timeout_ms`, raises `RequestTimedOutError` after that
        time in milliseconds; the records stay in the buffer and are sent all the same.
        """
        batches = self._accumulator.batches()
        if not batches:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        countdown = Countdown(ended, len(batches))
        for batch in batches:
            batch.receipts.append(countdown)
        self._flushing += 1
        self._update_send_now()
        try:
            async with at_most(timeout_ms) as limit:
                await ended
        finally:
            self._flushing -= 1
            self._update_send_now()
        if limit.expired():
            raise RequestTimedOutError(f"some records were neither acknowledged nor failed after {timeout_ms} ms")

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Send buffered records, then close all connections. An open transaction is aborted. Idempotent.

        Records that are not acknowledged within `delivery_timeout_ms` fail. With `timeout_ms`, those that are not
        acknowledged after that time in milliseconds fail with a `NetworkError`, and an open transaction stays open
        until the coordinator aborts it; 0 means not to wait. If cancelled, it closes immediately.
        """
        if self._closed:
            return
        self._closed = True
        self._admit()
        try:
            async with at_most(timeout_ms) as limit:
                if self._sender.transactions is not None:
                    await self._sender.transactions.end_before_close(self.flush)
                await self.flush()
            if limit.expired():
                _LOG.warning(
                    "the producer is closed after %s ms without the acknowledgements of all records", timeout_ms
                )
        finally:
            await finish(self._shut_down())

    async def _shut_down(self) -> None:
        try:
            await self._sender.close()
        finally:
            if self._interceptors is not None:
                self._interceptors.close()
            await self._cluster.close()


def _read_error(delivered: asyncio.Future[Any]) -> None:
    if not delivered.cancelled():
        delivered.exception()
