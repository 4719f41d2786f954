"""Records on their way: gathered into batches by partition, handed out in order, kept until they are acknowledged.

In: records with the time, requests to take what is ready, batches that come back for another try. Out: closed
batches. Called by `producer` only. Invariants: the batches of a partition leave in the order in which their records
came, retries included; `used_bytes` is the sum of all batches that are neither acknowledged nor given up, and room is
denied above `buffer_memory` unless nothing is kept at all.

Theory of operation. Each partition has a queue and a set of batches in flight. The last batch of the queue may be open
for more records. The head may leave when it is ready (full, or older than `linger_ms`, or somebody waits for it) and
the partition's flight allows it: a batch on its first try when fewer than `max_in_flight` are out, one that came back
only when none is out. So after a failure everything that was behind it comes back first, and order is kept without
looking at sequence numbers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from odradek.base.errors import OdradekError
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.client.models import BatchMetadata, Headers, KeyValueTime
from odradek.client.producer.sequences import UNNUMBERED, Numbers

RECORD_OVERHEAD_BYTES: Final = 21
"""Upper bound of a record's own fields beside key, value and headers: length, attributes, three deltas and lengths."""


class Receipt(Protocol):
    """Somebody who waits for a batch."""

    def acknowledged(self, batch: BatchMetadata) -> None:
        """The batch is there."""
        ...

    def failed(self, error: OdradekError) -> None:
        """It never will be, as far as one can tell."""
        ...


class Builder(Protocol):
    """What gathers records into bytes: `records.batch.BatchBuilder` behind a thin form."""

    @property
    def record_count(self) -> int:
        """Records so far."""
        ...

    @property
    def size_bytes(self) -> int:
        """Uncompressed size so far."""
        ...

    def append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> bool:
        """Take a record; False, and nothing is taken, when it does not fit. An empty builder takes any."""
        ...

    def append_many(self, records: list[KeyValueTime], start: int) -> int:
        """Take records from `start` on until one does not fit; the index of the first that was not taken."""
        ...

    def build(self, numbers: Numbers) -> bytes:
        """The whole batch under these numbers; may be called again with others."""
        ...


class ProducerBatch:
    """Records of one partition that travel together."""

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
        """An open, empty batch; `order` grows from batch to batch."""
        self.topic_partition = topic_partition
        self.order = order
        self.builder = builder
        self.created_ms = now_ms
        self.receipts: list[Receipt] = []
        self.size_bytes = 0
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.leader_epoch = NO_EPOCH
        """Of the leader that it was last sent to."""
        self.in_doubt = False
        """Whether it came back in a way that makes one doubt that its leader still leads."""
        self.closed = False
        self.numbers = UNNUMBERED

    @property
    def record_count(self) -> int:
        """Records in it."""
        return self.builder.record_count

    def acknowledged(self, base_offset: int, timestamp: int) -> None:
        """Tell everybody who waits."""
        topic, partition = self.topic_partition
        metadata = BatchMetadata(topic, partition, base_offset, self.record_count, timestamp)
        for receipt in self.receipts:
            receipt.acknowledged(metadata)

    def failed(self, error: OdradekError) -> None:
        """Tell everybody who waits."""
        for receipt in self.receipts:
            receipt.failed(error)


class Limits(NamedTuple):
    """The settings that the accumulator obeys."""

    batch_size: int
    linger_ms: float
    buffer_memory: int
    delivery_timeout_ms: float
    max_in_flight: int


class Accumulator:
    """All batches of one producer."""

    def __init__(self, limits: Limits, new_builder: Callable[[], Builder]) -> None:
        """`new_builder` makes an empty builder that holds `limits.batch_size` bytes."""
        self._limits = limits
        self._new_builder = new_builder
        self._queues: dict[TopicPartition, list[ProducerBatch]] = {}
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._order = 0
        self._used_bytes = 0
        self.window: Callable[[TopicPartition], int] = lambda _: limits.max_in_flight
        """Batches of a partition that may be under way now, at most `max_in_flight`; the sender may narrow it."""
        self.send_now = False
        """Somebody flushes, or waits for room: every batch is ready at once."""

    @property
    def used_bytes(self) -> int:
        """Memory of all batches that are kept, by the uncompressed size of their records."""
        return self._used_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._queues and not self._in_flight

    def has_room(self, size_bytes: int) -> bool:
        """Whether records of this size may be added now."""
        return self._used_bytes == 0 or self._used_bytes + size_bytes <= self._limits.buffer_memory

    def batches(self) -> list[ProducerBatch]:
        """Every batch that is kept."""
        kept = [batch for queue in self._queues.values() for batch in queue]
        return kept + [batch for flight in self._in_flight.values() for batch in flight]

    # ------------------------------------------------------------------------------------------------ records in

    def append(
        self, topic_partition: TopicPartition, record: KeyValueTime, headers: Headers, *, now_ms: float
    ) -> tuple[ProducerBatch, int]:
        """Add a record; the batch that took it and its place in there. The caller has asked for room."""
        key, value, timestamp_ms = record
        batch = self._open_batch(topic_partition, now_ms)
        place = batch.record_count
        if not batch.builder.append(key, value, timestamp_ms, headers):
            batch = self._next_batch(topic_partition, now_ms)
            place = 0
            batch.builder.append(key, value, timestamp_ms, headers)
        self._account(batch)
        return batch, place

    def append_many(
        self, topic_partition: TopicPartition, records: list[KeyValueTime], *, now_ms: float
    ) -> list[ProducerBatch]:
        """Add records in their order; the batches that took some. The caller has asked for room."""
        if not records:
            return []
        batch = self._open_batch(topic_partition, now_ms)
        taken = []
        position = 0
        while True:
            before = position
            position = batch.builder.append_many(records, position)
            if position > before:
                self._account(batch)
                taken.append(batch)
            if position == len(records):
                return taken
            batch = self._next_batch(topic_partition, now_ms)

    def _open_batch(self, topic_partition: TopicPartition, now_ms: float) -> ProducerBatch:
        queue = self._queues.get(topic_partition)
        if queue and not queue[-1].closed:
            return queue[-1]
        return self._next_batch(topic_partition, now_ms)

    def _next_batch(self, topic_partition: TopicPartition, now_ms: float) -> ProducerBatch:
        queue = self._queues.setdefault(topic_partition, [])
        if queue:
            queue[-1].closed = True
        self._order += 1
        batch = ProducerBatch(topic_partition, self._order, self._new_builder(), now_ms)
        queue.append(batch)
        return batch

    def _account(self, batch: ProducerBatch) -> None:
        size = batch.builder.size_bytes
        self._used_bytes += size - batch.size_bytes
        batch.size_bytes = size
        if size >= self._limits.batch_size:
            batch.closed = True

    # ------------------------------------------------------------------------------------------------ batches out

    def ready(self, now_ms: float) -> tuple[list[TopicPartition], float | None]:
        """Partitions whose head may leave now, and the time of the next one that only has to wait (None: no such)."""
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
        """Size of the batch that `take` would give, before compression."""
        return self._queues[topic_partition][0].size_bytes

    def take(self, topic_partition: TopicPartition) -> ProducerBatch:
        """Close the head of a ready partition and count it as in flight; other partitions come first next time."""
        queue = self._queues.pop(topic_partition)
        batch = queue.pop(0)
        if queue:
            self._queues[topic_partition] = queue
        batch.closed = True
        batch.attempts += 1
        self._in_flight.setdefault(topic_partition, []).append(batch)
        return batch

    # ------------------------------------------------------------------------------------------------ answers

    def retry(self, batch: ProducerBatch, at_ms: float) -> None:
        """The batch came back: it goes to its old place in the queue and may leave from `at_ms` on."""
        self._landed(batch)
        batch.retry_at_ms = at_ms
        insort(self._queues.setdefault(batch.topic_partition, []), batch, key=_by_order)

    def returned(self) -> Iterator[ProducerBatch]:
        """The batches that came back and wait for their time."""
        return (batch for queue in self._queues.values() for batch in queue if batch.attempts)

    def done(self, batch: ProducerBatch) -> None:
        """The batch in flight was acknowledged or given up: its memory is free."""
        self._landed(batch)
        self._used_bytes -= batch.size_bytes

    def _landed(self, batch: ProducerBatch) -> None:
        in_flight = self._in_flight[batch.topic_partition]
        in_flight.remove(batch)
        if not in_flight:
            del self._in_flight[batch.topic_partition]

    # ------------------------------------------------------------------------------------------------ time out

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Take out the batches that waited `delivery_timeout_ms` and are not in flight, oldest first."""
        limit = now_ms - self._limits.delivery_timeout_ms
        return self._discard(batch for queue in self._queues.values() for batch in queue if batch.created_ms <= limit)

    def next_expiry_ms(self) -> float | None:
        """When `expire` will find something."""
        if not self._queues:
            return None
        return min(queue[0].created_ms for queue in self._queues.values()) + self._limits.delivery_timeout_ms

    def discard_waiting(self) -> list[ProducerBatch]:
        """Take out everything that is not in flight, oldest first."""
        return self._discard(batch for queue in self._queues.values() for batch in queue)

    def discard_topic(self, topic: str) -> list[ProducerBatch]:
        """Take out what waits for a topic that does not exist or may not be written, oldest first."""
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
