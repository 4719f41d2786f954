"""Interceptors: classes of an application that see, and can change, the records of producers and consumers (KIP-42).

Producers and consumers call the methods on their event loop, so the methods must not block. An exception of an
interceptor is logged and changes nothing else: sending and reading continue with the result of the one before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from odradek.base.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from odradek.client.models import BatchMetadata, ConsumerRecord, HeadersToSend, OffsetAndMetadata, RecordMetadata

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")
Taken = dict[TopicPartition, list[ConsumerRecord]]
Records = Mapping[TopicPartition, list[ConsumerRecord]]


class ProducerRecord(NamedTuple):
    """A record to send, with the arguments of `Producer.send`. Key and value are not serialized yet."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersToSend = ()


class ProducerInterceptor:
    """Base class of the interceptors of a producer. Each method does nothing by default."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, the given one or another. Called before the serializers.

        Of the records of `send_many`, only key, value and timestamp can be changed.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when a record was acknowledged, or with an error when it could not be sent.

        With an error, the offset is -1, and so is the partition if none was chosen yet. After `send_many`, it is called
        once for each batch, with the offset of the first record of the batch.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Base class of the interceptors of a consumer. Each method does nothing by default."""

    def on_consume(self, records: Records) -> Records:
        """Return the records that the consumer returns, the given ones or others. Called after the deserializers.

        The position of the consumer moves past the given records in any case.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when offsets were committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class ProducerInterceptors:
    """The interceptors of one producer, in order."""

    def __init__(self, interceptors: Iterable[ProducerInterceptor]) -> None:
        """Each gets the result of the one before it."""
        self._interceptors: Final = tuple(interceptors)

    def sent(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send."""
        for each in self._interceptors:
            record = _result_of(each.on_send, record)
        return record

    def refused(self, record: ProducerRecord, error: Exception) -> None:
        """Handle that a record could not be added to the buffer."""
        partition = -1 if record.partition is None else record.partition
        self.acknowledged(RecordMetadata(record.topic, partition, NO_OFFSET, NO_TIMESTAMP), error)

    def acknowledged(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Handle that a record or batch was acknowledged, or has failed."""
        for each in self._interceptors:
            _call(each.on_acknowledgement, metadata, error)

    def receipt(
        self, topic_partition: TopicPartition, place: int = 0, timestamp_ms: int = NO_TIMESTAMP
    ) -> InterceptedReceipt:
        """Return what notifies the interceptors of the result of a batch, for the record at an index in it."""
        return InterceptedReceipt(self, topic_partition, place, timestamp_ms)

    def close(self) -> None:
        """Close all."""
        for each in self._interceptors:
            _call(each.close)


class InterceptedReceipt:
    """Notifies the interceptors of the result of a batch."""

    __slots__ = ("_interceptors", "_place", "_timestamp_ms", "_topic_partition")

    def __init__(
        self, interceptors: ProducerInterceptors, topic_partition: TopicPartition, place: int, timestamp_ms: int
    ) -> None:
        """`place` is the index of the record in its batch."""
        self._timestamp_ms = timestamp_ms
        self._interceptors = interceptors
        self._topic_partition = topic_partition
        self._place = place

    def acknowledged(self, batch: BatchMetadata) -> None:
        """Handle that the batch was acknowledged."""
        offset = batch.base_offset + self._place if batch.base_offset >= 0 else NO_OFFSET
        timestamp = batch.timestamp if batch.timestamp >= 0 else self._timestamp_ms
        self._interceptors.acknowledged(RecordMetadata(batch.topic, batch.partition, offset, timestamp), None)

    def failed(self, error: Exception) -> None:
        """Handle that the batch failed."""
        self._interceptors.acknowledged(RecordMetadata(*self._topic_partition, NO_OFFSET, NO_TIMESTAMP), error)


class ConsumerInterceptors:
    """The interceptors of one consumer, in order."""

    def __init__(self, interceptors: Iterable[ConsumerInterceptor]) -> None:
        """Each gets the result of the one before it."""
        self._interceptors: Final = tuple(interceptors)

    def consumed(
        self, records: dict[TopicPartition, list[ConsumerRecord]]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records for the application."""
        if not self._interceptors or not records:
            return records
        found: Records = records
        for each in self._interceptors:
            found = _result_of(each.on_consume, found)
        return {partition: kept for partition, kept in found.items() if kept}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle that offsets were committed."""
        for each in self._interceptors:
            _call(each.on_commit, offsets)

    def close(self) -> None:
        """Close all."""
        for each in self._interceptors:
            _call(each.close)


def _result_of(function: Callable[[T], T], given: T) -> T:
    try:
        result = function(given)
        if result is None:
            raise TypeError("it returned None")
    except Exception:  # noqa: BLE001 - the documented contract: whatever it raises, the call continues
        _LOG.exception("the interceptor %s failed", function.__qualname__)
        return given
    return result


def _call(function: Callable[..., None], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception:  # noqa: BLE001 - the documented contract: whatever it raises, the call continues
        _LOG.exception("the interceptor %s failed", function.__qualname__)
