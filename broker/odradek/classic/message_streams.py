"""Message streams: each is an iterator for one thread, and merges the partitions that the group gives it.

The loop of the connector puts fetched chunks into a stream, and the thread of the application takes messages out of it.
Invariants: a message is counted as consumed when the iterator returns it; after `remove` has returned, no message of
the partitions is returned any more; a stream holds at most `limit` chunks.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import RawFetch
from odradek.records.v2.record import Record

Decoder = Callable[[bytes | None], Any]
"""Makes a key or a message of its bytes."""


class ConsumerTimeoutError(OdradekError):
    """No message arrived within `consumer.timeout.ms`. The stream can be iterated again."""


@dataclass(frozen=True, slots=True)
class MessageAndMetadata:
    """A message with its metadata. `timestamp_ms` is -1 if it has none."""

    topic: str
    partition: int
    offset: int
    key: Any
    message: Any
    timestamp_ms: int = -1


class MessageStream:
    """An iterator over messages. One thread at a time may use it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: int,
        timeout_ms: int,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> None:
        """`loop` is that of `put`. `timeout_ms`: how long an iteration waits for a message; -1 means for ever."""
        self._loop: Final = loop
        self._limit: Final = limit
        self._timeout_s: Final = None if timeout_ms < 0 else timeout_ms / 1000
        self._key_decoder: Final = key_decoder
        self._value_decoder: Final = value_decoder
        self._changed: Final = threading.Condition()
        self._room: Final = asyncio.Event()
        self._chunks: deque[RawFetch] = deque()
        self._current: Iterator[Record] | None = None
        self._of_current: TopicPartition | None = None
        self._consumed: dict[TopicPartition, int] = {}
        self._failure: OdradekError | None = None
        self._closed = False

    # The thread of the application

    def __iter__(self) -> MessageStream:
        """Return the stream."""
        return self

    def __next__(self) -> MessageAndMetadata:
        """Return the next message; it counts as consumed. Waits for one, at most `consumer.timeout.ms`.

        Raises `StopIteration` after the shutdown of the connector, `ConsumerTimeoutError`, the error that ended the
        connector, and `CorruptMessageError`.
        """
        with self._changed:
            while True:
                record = None if self._current is None else next(self._current, None)
                if record is not None:
                    partition = self._of_current
                    assert partition is not None
                    self._consumed[partition] = record.offset + 1
                    break
                self._next_chunk()
        # Outside of the lock, because a decoder may take long.
        return self._decoded(partition, record)

    def _decoded(self, partition: TopicPartition, record: Record) -> MessageAndMetadata:
        key = record.key if self._key_decoder is None else self._key_decoder(record.key)
        value = record.value if self._value_decoder is None else self._value_decoder(record.value)
        return MessageAndMetadata(partition.topic, partition.partition, record.offset, key, value, record.timestamp)

    def _next_chunk(self) -> None:
        if self._of_current is not None:
            self._current = self._of_current = None
        if not self._changed.wait_for(self._is_ready, self._timeout_s):
            raise ConsumerTimeoutError("no message arrived within consumer.timeout.ms")
        if self._chunks:
            chunk = self._chunks.popleft()
            self._current, self._of_current = _records(chunk), chunk.topic_partition
            self._loop.call_soon_threadsafe(self._room.set)
            return
        if self._failure is not None:
            raise self._failure
        raise StopIteration

    def _is_ready(self) -> bool:
        return bool(self._chunks) or self._closed or self._failure is not None

    # The loop of the connector

    async def put(self, chunk: RawFetch) -> None:
        """Add fetched messages. Waits while the stream is full."""
        while True:
            with self._changed:
                if len(self._chunks) < self._limit:
                    self._chunks.append(chunk)
                    self._changed.notify_all()
                    return
                self._room.clear()
            await self._room.wait()

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Drop messages of partitions that are not delivered yet. Return the next offset after the delivered ones."""
        gone = set(partitions)
        with self._changed:
            kept = [chunk for chunk in self._chunks if chunk.topic_partition not in gone]
            self._chunks = deque(kept)
            if self._of_current in gone:
                self._current = self._of_current = None
            self._room.set()
            return {each: self._consumed.pop(each) for each in gone if each in self._consumed}

    def consumed(self) -> dict[TopicPartition, int]:
        """Return the offset after the last returned message of each partition."""
        with self._changed:
            return dict(self._consumed)

    def fail(self, error: OdradekError) -> None:
        """Let the iterator raise an error when it has returned what is fetched."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop all messages and end the iterator. Idempotent."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._current = self._of_current = None
            self._changed.notify_all()


def _records(chunk: RawFetch) -> Iterator[Record]:
    return (record for records, _ in iterate_records(chunk) for record in records)
