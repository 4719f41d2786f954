"""Collects records into batches by partition and keeps the batches until they are acknowledged.

Only `producer` uses it. Invariants: the batches of a partition are sent in the order of their records, including
retries. `used_bytes` is the total of all batches that are neither acknowledged nor failed; records that would exceed
`buffer_memory` must wait, unless the accumulator is empty.

Each partition has a queue and a list of batches in flight. The last batch of the queue may accept more records. The
first can be sent when it is ready (full, older than `linger_ms`, or waited for) and the batches in flight permit it: a
new batch if fewer than `window` are in flight, a returned one only if none is. So after a failure all batches that were
sent after it return first, and the order is kept without sequence numbers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from odradek.base.errors import OdradekError
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.client.models import BatchMetadata, Headers, KeyValueTime
from odradek.client.producer.sequences import UNNUMBERED, Numbers
from odradek.client.settings import ClientSettings

RECORD_OVERHEAD_BYTES: Final = 21
"""Upper bound of the size of a record besides key, value and headers: length, attributes, deltas and lengths."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of the size of a record in bytes."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        # A character takes up to four bytes, each of the two lengths up to five.
        size += 4 * len(name) + len(content or b"") + 10
    return size


class Receipt(Protocol):
    """Something that waits for the result of a batch."""

    def acknowledged(self, batch: BatchMetadata) -> None:
        """Handle that the batch was acknowledged."""
        ...

    def failed(self, error: OdradekError) -> None:
        """Handle that the batch failed. It was probably not appended."""
        ...


class Builder(Protocol):
    """Encodes the records of one batch; implemented by `batch_builder`."""

    @property
    def record_count(self) -> int:
        """Number of records."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size in memory: before compression, unless the batch was encoded before."""
        ...

    def append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> bool:
        """Append a record. Returns False without appending if it does not fit. An empty builder accepts any record."""
        ...

    def append_many(self, records: list[KeyValueTime], start: int) -> int:
        """Append records from `start` on while they fit. Returns the index of the first that was not appended."""
        ...

    def build(self, numbers: Numbers) -> Buffer:
        """Return the batch with these numbers. Can be called again with other numbers."""
        ...


class ProducerBatch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "attempts",
        "builder",
        "closed",
        "created_ms",
        "in_doubt",
        "leader_epoch",
        "numbers",
        "order",
        "receipts",
        "retry_at_ms",
        "size_bytes",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, order: int, builder: Builder, now_ms: float) -> None:
        """An open, empty batch. `order` increases from batch to batch."""
        self.topic_partition = topic_partition
        self.order = order
        self.builder = builder
        self.created_ms = now_ms
        self.receipts: list[Receipt] = []
        self.size_bytes = 0
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.leader_epoch = NO_EPOCH
        """Leader epoch when it was last sent."""
        self.in_doubt = False
        """Whether its last error suggests that the leader has changed."""
        self.closed = False
        self.numbers = UNNUMBERED

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self.builder.record_count

    def acknowledged(self, base_offset: int, timestamp: int) -> None:
        """Notify all waiters of the acknowledgement."""
        topic, partition = self.topic_partition
        metadata = BatchMetadata(topic, partition, base_offset, self.record_count, timestamp)
        for receipt in self.receipts:
            receipt.acknowledged(metadata)

    def failed(self, error: OdradekError) -> None:
        """Notify all waiters of the error."""
        for receipt in self.receipts:
            receipt.failed(error)


class Limits(NamedTuple):
    """The settings of the accumulator."""

    batch_size: int
    linger_ms: float
    buffer_memory: int
    delivery_timeout_ms: float
    max_in_flight: int

    @classmethod
    def of(cls, settings: ClientSettings) -> Limits:
        """Return the limits of a producer with these settings."""
        return cls(
            batch_size=settings.batch_size,
            linger_ms=settings.linger_ms,
            buffer_memory=settings.buffer_memory,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            max_in_flight=settings.max_in_flight_requests_per_connection,
        )


class Accumulator:
    """All batches of one producer."""

    def __init__(self, limits: Limits, new_builder: Callable[[], Builder]) -> None:
        """`new_builder` creates an empty builder for `limits.batch_size` bytes."""
        self._limits = limits
        self._new_builder = new_builder
        self._queues: dict[TopicPartition, list[ProducerBatch]] = {}
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._order = 0
        self._used_bytes = 0
        self.window: Callable[[TopicPartition], int] = lambda _: limits.max_in_flight
        """Batches of a partition that may be in flight, at most `max_in_flight`; the sender may reduce it."""
        self.send_now = False
        """While a flush or a call waits for memory, every batch is ready immediately."""

    @property
    def used_bytes(self) -> int:
        """Uncompressed size of all batches."""
        return self._used_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no batch is queued or in flight."""
        return not self._queues and not self._in_flight

    def has_room(self, size_bytes: int) -> bool:
        """Whether records of this size fit into `buffer_memory` now."""
        return self._used_bytes == 0 or self._used_bytes + size_bytes <= self._limits.buffer_memory

    def batches(self) -> list[ProducerBatch]:
        """All batches, queued and in flight."""
        kept = [batch for queue in self._queues.values() for batch in queue]
        return kept + [batch for flight in self._in_flight.values() for batch in flight]

    # Records

    def append(
        self, topic_partition: TopicPartition, record: KeyValueTime, headers: Headers, *, now_ms: float
    ) -> tuple[ProducerBatch, int]:
        """Add a record. Returns its batch and its index there. The caller has checked `has_room`.

        Raises `TypeError` for a key or value that is not bytes, and changes nothing.
        """
        key, value, timestamp_ms = record
        batch = self._open_batch(topic_partition, now_ms)
        place = batch.record_count
        try:
            if not batch.builder.append(key, value, timestamp_ms, headers):
                batch = self._next_batch(topic_partition, now_ms)
                place = 0
                batch.builder.append(key, value, timestamp_ms, headers)
        except BaseException:
            self._forget_if_empty(topic_partition)
            raise
        self._account(batch)
        return batch, place

    def append_many(
        self, topic_partition: TopicPartition, records: list[KeyValueTime], *, now_ms: float
    ) -> list[ProducerBatch]:
        """Add records in order. Return the batches that contain them. The caller has checked `has_room`.

        Raises `TypeError` for a key or value that is not bytes. Records before that one are sent.
        """
        if not records:
            return []
        batch = self._open_batch(topic_partition, now_ms)
        taken = []
        position = 0
        while True:
            before = position
            try:
                position = batch.builder.append_many(records, position)
            except BaseException:
                self._account(batch)
                self._forget_if_empty(topic_partition)
                raise
            if position > before:
                self._account(batch)
                taken.append(batch)
            if position == len(records):
                return taken
            batch = self._next_batch(topic_partition, now_ms)

    def append_encoded(self, topic_partition: TopicPartition, builder: Builder, *, now_ms: float) -> ProducerBatch:
        """Add a batch that takes no more records. It is ready at once. The caller has checked `has_room`."""
        batch = self._next_batch(topic_partition, now_ms, builder)
        self._account(batch)
        batch.closed = True
        return batch

    def _open_batch(self, topic_partition: TopicPartition, now_ms: float) -> ProducerBatch:
        queue = self._queues.get(topic_partition)
        if queue and not queue[-1].closed:
            return queue[-1]
        return self._next_batch(topic_partition, now_ms)

    def _next_batch(
        self, topic_partition: TopicPartition, now_ms: float, builder: Builder | None = None
    ) -> ProducerBatch:
        queue = self._queues.setdefault(topic_partition, [])
        if queue:
            queue[-1].closed = True
        self._order += 1
        batch = ProducerBatch(topic_partition, self._order, builder or self._new_builder(), now_ms)
        queue.append(batch)
        return batch

    def _forget_if_empty(self, topic_partition: TopicPartition) -> None:
        """Remove a batch without records, which could not be sent."""
        queue = self._queues[topic_partition]
        if not queue[-1].record_count:
            self._used_bytes -= queue.pop().size_bytes
            if not queue:
                del self._queues[topic_partition]

    def _account(self, batch: ProducerBatch) -> None:
        size = batch.builder.size_bytes
        self._used_bytes += size - batch.size_bytes
        batch.size_bytes = size
        if size >= self._limits.batch_size:
            batch.closed = True

    # Batches

    def ready(self, now_ms: float) -> tuple[list[TopicPartition], float | None]:
        """Return the partitions whose first batch can be sent now, and when the next one is due, if any."""
        ready = []
        next_ms: float | None = None
        for topic_partition, queue in self._queues.items():
            if not self._can_send(topic_partition, queue[0]):
                continue
            due_ms = self._due_ms(queue)
            if due_ms <= now_ms:
                ready.append(topic_partition)
            elif next_ms is None or due_ms < next_ms:
                next_ms = due_ms
        return ready, next_ms

    def _can_send(self, topic_partition: TopicPartition, head: ProducerBatch) -> bool:
        in_flight = self._in_flight.get(topic_partition)
        if not in_flight:
            return True
        return head.attempts == 0 and len(in_flight) < self.window(topic_partition)

    def _due_ms(self, queue: list[ProducerBatch]) -> float:
        head = queue[0]
        if head.attempts:
            return head.retry_at_ms
        if head.closed or len(queue) > 1 or self.send_now:
            return 0.0
        return head.created_ms + self._limits.linger_ms

    def head_bytes(self, topic_partition: TopicPartition) -> int:
        """Size of the batch that `take` would return, before compression."""
        return self._queues[topic_partition][0].size_bytes

    def take(self, topic_partition: TopicPartition) -> ProducerBatch:
        """Close the first batch of a ready partition and move it in flight. Other partitions come first next time."""
        queue = self._queues.pop(topic_partition)
        batch = queue.pop(0)
        if queue:
            self._queues[topic_partition] = queue
        batch.closed = True
        batch.attempts += 1
        self._in_flight.setdefault(topic_partition, []).append(batch)
        return batch

    # Results

    def retry(self, batch: ProducerBatch, at_ms: float) -> None:
        """Put a batch back at its position in the queue. It can be sent again from `at_ms` on."""
        self._landed(batch)
        batch.retry_at_ms = at_ms
        insort(self._queues.setdefault(batch.topic_partition, []), batch, key=_by_order)

    def returned(self) -> Iterator[ProducerBatch]:
        """The returned batches that wait for a retry."""
        return (batch for queue in self._queues.values() for batch in queue if batch.attempts)

    def done(self, batch: ProducerBatch) -> None:
        """Remove a batch in flight that was acknowledged or has failed."""
        self._landed(batch)
        self._used_bytes -= batch.size_bytes

    def _landed(self, batch: ProducerBatch) -> None:
        in_flight = self._in_flight[batch.topic_partition]
        in_flight.remove(batch)
        if not in_flight:
            del self._in_flight[batch.topic_partition]

    # Timeouts

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Remove and return the queued batches older than `delivery_timeout_ms`, oldest first."""
        limit = now_ms - self._limits.delivery_timeout_ms
        return self._discard(batch for queue in self._queues.values() for batch in queue if batch.created_ms <= limit)

    def next_expiry_ms(self) -> float | None:
        """Return when the oldest queued batch expires; None if no batch is queued."""
        if not self._queues:
            return None
        return min(queue[0].created_ms for queue in self._queues.values()) + self._limits.delivery_timeout_ms

    def discard_waiting(self) -> list[ProducerBatch]:
        """Remove and return all queued batches, oldest first."""
        return self._discard(batch for queue in self._queues.values() for batch in queue)

    def discard_topic(self, topic: str) -> list[ProducerBatch]:
        """Remove and return the queued batches of a topic that does not exist or cannot be written, oldest first."""
        return self._discard(batch for (name, _), queue in self._queues.items() if name == topic for batch in queue)

    def _discard(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        found = sorted(batches, key=_by_order)
        for batch in found:
            queue = self._queues[batch.topic_partition]
            queue.remove(batch)
            if not queue:
                del self._queues[batch.topic_partition]
            self._used_bytes -= batch.size_bytes
        return found


def _by_order(batch: ProducerBatch) -> int:
    return batch.order
