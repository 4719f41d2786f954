"""Sends the rows of one task: chooses partitions, encodes batches and gives them to a producer.

`TaskWriter` uses it with a shared producer, and a transaction with its own one. Invariant: `finish` returns only when
each row is acknowledged; otherwise `send` or `finish` raises the first error.
"""

from __future__ import annotations

import concurrent.futures
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.types import TopicPartition
from odradek.client.models import SendResult
from odradek.client.producer.accumulator import RECORD_OVERHEAD_BYTES
from odradek.client.producer.batch_builder import CODECS
from odradek.records.v2.batch import HEADER_SIZE
from odradek.records.v2.encode import EncodedRecords, RecordColumns, encode_groups
from odradek.records.v2.encode_fields import Integers
from pyspark_odradek.options.sink_options import ROUND_ROBIN, SinkOptions
from pyspark_odradek.sink.arrow_strings import byte_strings, header_strings, null_rows, numbers_or_null
from pyspark_odradek.sink.partitioning import RoundRobinPartitions, StickyPartitions, partitions_of_keys
from pyspark_odradek.sink.sink_schema import SinkColumns

ENCODED_BYTES: Final = 8 << 20
"""About the largest size of rows that are encoded together.

Rows are collected until each partition of the last topics can have a full batch, but at most this size. A larger batch
of rows is divided, so that its records do not take as much memory again.
"""

Acknowledgement = concurrent.futures.Future[SendResult]


class SinkProducer(Protocol):
    """The methods of `BlockingProducer` that the sink uses."""

    def partitions_for(self, topic: str, /, *, available: bool = ...) -> list[int]:
        """Return the partition numbers of a topic."""
        ...

    def send_encoded(self, batches: Mapping[TopicPartition, Sequence[EncodedRecords]], /) -> Acknowledgement:
        """Buffer batches."""
        ...


class RowSender:
    """Sends the rows of one task through a producer, which it does not close."""

    def __init__(
        self,
        producer: SinkProducer,
        options: SinkOptions,
        columns: SinkColumns,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        """`wall_ms` returns the timestamp of records, and `uniform` returns numbers from [0, 1)."""
        self._producer: Final = producer
        self._options: Final = options
        self._columns: Final = columns
        self._wall_ms: Final = wall_ms
        self._uniform: Final = uniform
        settings = options.client
        self._batch_bytes: Final = min(settings.batch_size, settings.max_request_size)
        self._codec: Final = CODECS[settings.compression_type]
        self._sticky: dict[str, StickyPartitions] = {}
        self._turns: dict[str, RoundRobinPartitions] = {}
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._partition_count = 1
        self._pending: list[Acknowledgement] = []
        self._failure: BaseException | None = None
        self._records = 0

    def send(self, rows: pa.RecordBatch) -> None:
        """Send rows, now or together with later ones. Raises the error of earlier rows, if any."""
        self._check()
        if not rows.num_rows:
            return
        self._collected.append(rows)
        self._collected_bytes += rows.nbytes
        limit = min(ENCODED_BYTES, self._options.client.buffer_memory, self._batch_bytes * self._partition_count)
        if self._collected_bytes >= limit:
            self._send_collected()

    def finish(self) -> int:
        """Send the rest, wait for all acknowledgements, and return the number of records. Raises the first error."""
        self._send_collected()
        concurrent.futures.wait(self._pending)
        self._check()
        self._pending.clear()
        return self._records

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._pending = [future for future in self._pending if not future.done()]

    def _send_collected(self) -> None:
        if not self._collected:
            return
        batches, self._collected, self._collected_bytes = self._collected, [], 0
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        for rows in batches:
            step = math.ceil(rows.num_rows / max(1, math.ceil(rows.nbytes / ENCODED_BYTES)))
            for begin in range(0, rows.num_rows, step):
                self._send_rows(rows.slice(begin, step))

    def _send_rows(self, rows: pa.RecordBatch) -> None:
        columns = self._record_columns(rows)
        sizes = _estimated_bytes(columns)
        explicit = None if self._columns.partition is None else numbers_or_null(rows.column(self._columns.partition))
        encoded: dict[TopicPartition, list[EncodedRecords]] = {}
        partition_count = 0
        for topic, chosen in self._by_topic(rows):
            part = columns if chosen is None else columns.take(chosen)
            partitions = self._producer.partitions_for(topic)
            partition_count += len(partitions)
            given = explicit if explicit is None or chosen is None else (explicit[0][chosen], explicit[1][chosen])
            numbers = self._partitions(topic, part, sizes if chosen is None else sizes[chosen], partitions, given)
            order, found, ends = _grouped(numbers)
            ordered = part if len(ends) == 1 else part.take(order)
            batches = encode_groups(ordered, ends, limit_bytes=self._batch_bytes, codec=self._codec)
            encoded |= zip((TopicPartition(topic, number) for number in found), batches, strict=True)
        self._hand_over(encoded)
        self._partition_count = partition_count
        self._records += rows.num_rows

    def _hand_over(self, encoded: Mapping[TopicPartition, Sequence[EncodedRecords]]) -> None:
        sent = self._producer.send_encoded(encoded)
        self._pending.append(sent)
        sent.add_done_callback(self._note)
        self._check()

    def _note(self, sent: Acknowledgement) -> None:
        """Remember the first error. Runs in the thread of the producer."""
        error = sent.exception()
        if error is not None and self._failure is None:
            self._failure = error

    def _record_columns(self, rows: pa.RecordBatch) -> RecordColumns:
        key, headers = self._columns.key, self._columns.headers
        return RecordColumns(
            count=rows.num_rows,
            timestamp_ms=self._wall_ms(),
            keys=None if key is None else byte_strings(rows.column(key)),
            values=byte_strings(rows.column(self._columns.value)),
            headers=None if headers is None else header_strings(rows.column(headers)),
        )

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Integers | None]]:
        """Yield each topic with its rows; None stands for all."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        assert self._columns.topic is not None
        column = rows.column(self._columns.topic)
        if column.null_count:
            row = int(np.flatnonzero(null_rows(column))[0])
            raise OdradekError(
                "KAFKA_NULL_TOPIC_IN_DATA: the column `topic` is null in row "
                f"{row} of a batch of rows. Use the topic option for setting a topic"
            )
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], None
            return
        order, codes, ends = _grouped(encoded.indices.to_numpy().astype(np.int64))
        for code, members in zip(codes, np.split(order, ends[:-1]), strict=True):
            yield names[code], members

    def _partitions(
        self,
        topic: str,
        columns: RecordColumns,
        sizes: Integers,
        partitions: Sequence[int],
        explicit: tuple[Integers, np.ndarray[tuple[int], np.dtype[np.bool_]]] | None,
    ) -> Integers:
        """Return the partition of each record: the given one, or that of the partitioner."""
        numbers = np.full(columns.count, -1, dtype=np.int64)
        free = np.ones(columns.count, dtype=np.bool_)
        if explicit is not None:
            numbers[explicit[1]] = explicit[0][explicit[1]]
            free &= ~explicit[1]
            _check_given(topic, numbers[explicit[1]], partitions)
        if self._options.partitioner == ROUND_ROBIN:
            turns = self._turns.setdefault(topic, RoundRobinPartitions())
            numbers[free] = turns.choose(int(free.sum()), self._available(topic))
            return numbers
        if columns.keys is not None and not self._options.ignore_keys:
            keyed = free & (columns.keys.length >= 0)
            rows = np.flatnonzero(keyed)
            if len(rows):
                keys = columns.keys if len(rows) == columns.count else columns.keys.take(rows)
                numbers[rows] = partitions_of_keys(keys, len(partitions))
                free &= ~keyed
        rows = np.flatnonzero(free)
        if len(rows):
            sticky = self._sticky.get(topic)
            if sticky is None:
                run_bytes = self._batch_bytes - HEADER_SIZE
                sticky = self._sticky[topic] = StickyPartitions(self._uniform, run_bytes)
            numbers[rows] = sticky.choose(sizes[rows], self._available(topic))
        return numbers

    def _available(self, topic: str) -> list[int]:
        return self._producer.partitions_for(topic, available=True)


def write_rows(
    producer: SinkProducer, options: SinkOptions, columns: SinkColumns, batches: Iterable[pa.RecordBatch]
) -> int:
    """Send all rows and return their number when each is acknowledged. Raises the first error."""
    sender = RowSender(producer, options, columns)
    for rows in batches:
        sender.send(rows)
    return sender.finish()


def _check_given(topic: str, numbers: Integers, partitions: Sequence[int]) -> None:
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(partitions):
        wrong = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise ConfigError(
            f"the column `partition` has the value {wrong}, but topic {topic} has the partitions 0 to "
            f"{len(partitions) - 1}"
        )


def _estimated_bytes(columns: RecordColumns) -> Integers:
    """Return an upper bound of the size of each record."""
    sizes = np.full(columns.count, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for strings in (columns.keys, columns.values):
        if strings is not None:
            sizes += np.maximum(strings.length, 0)
    headers = columns.headers
    if headers is not None:
        each = np.maximum(headers.names.length, 0) + np.maximum(headers.values.length, 0) + 2 * _LENGTH_BYTES
        sums = np.zeros(len(each) + 1, dtype=np.int64)
        np.cumsum(each, out=sums[1:])
        sizes += sums[headers.first + headers.counts] - sums[headers.first]
    return sizes


_LENGTH_BYTES: Final = 5
"""Maximum size of a length in a header."""


def _grouped(numbers: Integers) -> tuple[Integers, list[int], list[int]]:
    """Return the positions of the numbers in the order of their numbers, each number once, and where each one ends."""
    # NumPy sorts numbers of 16 bits in linear time.
    order = np.argsort(numbers.astype(np.uint16) if int(numbers.max()) < 1 << 16 else numbers, kind="stable")
    ordered = numbers[order]
    ends = [*(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    return order, ordered[np.array(ends) - 1].tolist(), ends
