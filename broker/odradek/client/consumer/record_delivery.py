"""Turns the records of batches into the records that a consumer returns: calls deserializers and interceptors.

`consumer` uses it. Without deserializers, a record costs about a tenth of its decoding, because it is built as a tuple.
Whole batches (`getmany_raw`) do not pass here. Invariant: if a record cannot be converted, the records before it are
returned, and the position stays at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.extensions.interceptors import ConsumerInterceptor, ConsumerInterceptors
from odradek.client.extensions.serializers import Deserialize, RecordDeserializationError
from odradek.client.models import ConsumerRecord
from odradek.client.telemetry.client_metrics import CONSUMER_COUNTS, CONSUMER_VALUES, ClientMetrics
from odradek.records.v2.record import Record

Records = dict[TopicPartition, list[ConsumerRecord]]


class RecordDelivery:
    """The records of one consumer on their way to the application."""

    def __init__(
        self,
        fetcher: Fetcher,
        metrics: ClientMetrics,
        *,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        """The owner of `fetcher` starts and closes it."""
        self._fetcher = fetcher
        self._metrics: Final = metrics
        metrics.declare(CONSUMER_COUNTS, CONSUMER_VALUES)
        self._of_key = key_deserializer
        self._of_value = value_deserializer
        self.interceptors: Final = ConsumerInterceptors(interceptors)

    def take(self, partitions: set[TopicPartition], limit: int) -> Records:
        """Return at most `limit` records of these partitions. Raises the error of a partition once."""
        taken = self._fetcher.take_records(partitions, limit)
        count = sum(map(len, taken.values()))
        self._metrics.count("records-consumed", count)
        self._metrics.measure("records-per-poll", count)
        plain = {partition: _delivered(partition, records) for partition, records in taken.items()}
        if self._of_key is not None or self._of_value is not None:
            plain = self._deserialized(plain)
        return self.interceptors.consumed(plain)

    def gauges(self, *, read_committed: bool) -> dict[str, float]:
        """Return the metrics that are read instead of counted. The lag is NaN until it is known."""
        states = list(self._fetcher.states.values())
        lags = [lag for state in states if (lag := state.lag(read_committed=read_committed)) is not None]
        return {"assigned-partitions": len(states), "records-lag-max": max(lags, default=math.nan)}

    def _deserialized(self, plain: Records) -> Records:
        found: Records = {}
        errors: list[RecordDeserializationError] = []
        for partition, records in plain.items():
            converted: list[ConsumerRecord] = []
            try:
                converted.extend(self._converted(records))
            except RecordDeserializationError as error:
                self._stay_at(error)
                errors.append(error)
            if converted:
                found[partition] = converted
        if errors and not found:
            self._fetcher.states[errors[0].topic_partition].error = None
            self._fetcher.wake()
            raise errors[0]
        return found

    def _stay_at(self, error: RecordDeserializationError) -> None:
        """Move the position back to the record. The error is raised by the next call, unless this one raises it."""
        state = self._fetcher.states[error.topic_partition]
        state.seek(error.offset)
        state.error = error

    def _converted(self, records: Iterable[ConsumerRecord]) -> Iterable[ConsumerRecord]:
        of_key, of_value = self._of_key, self._of_value
        for record in records:
            topic, headers = record.topic, record.headers
            key, value, origin = record.key, record.value, "key"
            try:
                if of_key is not None:
                    key = of_key(topic, key, headers)
                origin = "value"
                if of_value is not None:
                    value = of_value(topic, value, headers)
            except Exception as error:
                raise RecordDeserializationError(
                    f"the {origin}_deserializer failed for the record at offset {record.offset} of "
                    f"{topic}-{record.partition}: {error!r}; to skip the record, seek to the next offset",
                    record,
                    origin,
                ) from error
            yield record._replace(key=key, value=value)


def _delivered(topic_partition: TopicPartition, records: list[Record]) -> list[ConsumerRecord]:
    topic, partition = topic_partition
    new = tuple.__new__  # The constructor of a named tuple takes half as long again.
    return [
        new(ConsumerRecord, (topic, partition, offset, timestamp, timestamp_type, key, value, headers))
        for offset, timestamp, key, value, headers, timestamp_type in records
    ]
