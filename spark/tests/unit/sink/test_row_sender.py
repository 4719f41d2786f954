"""Rows become records of the right partitions, and the first error ends a task."""

from __future__ import annotations

import concurrent.futures
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from odradek.base.errors import ConfigError, MessageTooLargeError, OdradekError
from odradek.base.types import TopicPartition
from odradek.client.models import SendResult
from odradek.client.producer.partitioning import partition_of_key
from odradek.records.v2.batch import read_header
from odradek.records.v2.encode import EncodedRecords
from odradek.records.v2.record import Record, decode_batch
from pyspark_odradek.options.sink_options import parse_sink
from pyspark_odradek.sink.row_sender import Acknowledgement, RowSender
from pyspark_odradek.sink.sink_schema import sink_columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class Producer:
    """A producer that keeps batches. It acknowledges them at once, or with `hold` when told to."""

    topics: dict[str, int]
    hold: bool = False
    batches: dict[TopicPartition, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    pending: list[Acknowledgement] = field(default_factory=list)

    def partitions_for(self, topic: str, *, available: bool = False) -> list[int]:
        return list(range(self.topics[topic]))

    def send_encoded(self, batches: Mapping[TopicPartition, Sequence[EncodedRecords]]) -> Acknowledgement:
        for topic_partition, part in batches.items():
            self.batches[topic_partition] += [bytes(batch.build()) for batch in part]
        sent: Acknowledgement = concurrent.futures.Future()
        self.pending.append(sent)
        if not self.hold:
            sent.set_result(SendResult(0, ()))
        return sent

    def records(self, topic: str, partition: int) -> list[Record]:
        found = []
        for batch in self.batches[TopicPartition(topic, partition)]:
            found += decode_batch(batch, 0, read_header(batch), limit=1 << 30)
        return found


def draws() -> Callable[[], float]:
    values = iter([0.0, 0.9] * 1_000)
    return lambda: next(values)


def sender(producer: Producer, rows: pa.RecordBatch, **options: str) -> RowSender:
    parsed = parse_sink({"kafka.bootstrap.servers": "h:1", **options})
    columns = sink_columns(from_arrow_schema(rows.schema), parsed.topic)
    return RowSender(producer, parsed, columns, wall_ms=lambda: 77, uniform=draws())


def rows_of(types: dict[str, pa.DataType], rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    schema = pa.schema(list(types.items()))
    return pa.RecordBatch.from_pylist([dict(zip(types, row, strict=True)) for row in rows], schema=schema)


def sent(rows: pa.RecordBatch, topics: dict[str, int], **options: str) -> Producer:
    producer = Producer(topics)
    sending = sender(producer, rows, **options)
    # Slices have other offsets in their buffers than whole arrays.
    for begin in range(0, rows.num_rows, 3):
        sending.send(rows.slice(begin, 3))
    assert sending.finish() == rows.num_rows
    return producer


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.binary()])
def test_every_column_arrives(text: pa.DataType) -> None:
    types = {"key": text, "value": text, "topic": pa.string(), "partition": pa.int32(), "headers": HEADERS}
    pairs = [{"key": "a", "value": b"1"}, {"key": "", "value": None}]
    rows = rows_of(
        types,
        [
            ("k1", "v1", "t", 1, pairs),
            (None, None, "t", 0, None),
            ("", "", "t", 1, []),
            ("k2", "v2", "u", None, pairs[:1]),
            ("k3", "v3", "t", 1, pairs[1:]),
        ],
    )
    producer = sent(rows, {"t": 2, "u": 1})
    found = [(record.key, record.value, record.timestamp, record.headers) for record in producer.records("t", 1)]
    assert found == [
        (b"k1", b"v1", 77, (("a", b"1"), ("", None))),
        (b"", b"", 77, ()),
        (b"k3", b"v3", 77, (("", None),)),
    ]
    assert [(record.key, record.value) for record in producer.records("t", 0)] == [(None, None)]
    assert [(record.value, record.headers) for record in producer.records("u", 0)] == [(b"v2", (("a", b"1"),))]


def test_keys_are_hashed_and_keep_their_order() -> None:
    rows = rows_of({"key": pa.string(), "value": pa.string()}, [(f"k{n % 20}", str(n)) for n in range(100)])
    producer = sent(rows, {"t": 3}, topic="t")
    for partition in range(3):
        expected = [str(n) for n in range(100) if partition_of_key(f"k{n % 20}".encode(), 3) == partition]
        assert [record.value.decode() for record in producer.records("t", partition) if record.value] == expected


def test_rows_without_key_fill_batches_and_change_the_partition() -> None:
    rows = rows_of({"value": pa.string()}, [("x" * 100,) for _ in range(90)])
    producer = sent(rows, {"t": 2}, topic="t", **{"kafka.batch.size": "1500"})
    batches = producer.batches[TopicPartition("t", 0)] + producer.batches[TopicPartition("t", 1)]
    assert all(producer.batches[TopicPartition("t", number)] for number in range(2))
    assert max(map(len, batches)) <= 1500
    assert sum(len(producer.records("t", number)) for number in range(2)) == 90


def test_keys_are_ignored_on_request() -> None:
    rows = rows_of({"key": pa.string(), "value": pa.string()}, [(f"k{n}", "v") for n in range(30)])
    producer = sent(rows, {"t": 4}, topic="t", **{"kafka.partitioner.ignore.keys": "true"})
    assert [len(producer.records("t", number)) for number in range(4)].count(0) == 3


def test_round_robin() -> None:
    rows = rows_of({"key": pa.string(), "value": pa.string()}, [("k", str(n)) for n in range(9)])
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    producer = sent(rows, {"t": 3}, topic="t", **{"kafka.partitioner.class": name})
    assert [[record.value for record in producer.records("t", number)] for number in range(3)] == [
        [b"%d" % value for value in range(number, 9, 3)] for number in range(3)
    ]


@pytest.mark.parametrize(
    ("types", "row", "error", "message"),
    [
        ({"value": pa.string(), "topic": pa.string()}, ("v", None), OdradekError, "KAFKA_NULL_TOPIC_IN_DATA"),
        (
            {"value": pa.string(), "topic": pa.string(), "partition": pa.int32()},
            ("v", "t", 2),
            ConfigError,
            "the column `partition` has the value 2, but topic t has the partitions 0 to 1",
        ),
        (
            {"value": pa.string(), "topic": pa.string(), "partition": pa.int32()},
            ("v", "t", -1),
            ConfigError,
            "the column `partition` has the value -1",
        ),
        (
            {"value": pa.string(), "topic": pa.string(), "headers": HEADERS},
            ("v", "t", [{"key": None, "value": b""}]),
            OdradekError,
            "a header in the column `headers` has no key",
        ),
        (
            {"value": pa.string(), "topic": pa.string(), "headers": HEADERS},
            ("v", "t", [None]),
            OdradekError,
            "a header in the column `headers` has no key",
        ),
    ],
)
def test_wrong_values_are_errors(
    types: dict[str, pa.DataType], row: Sequence[Any], error: type[Exception], message: str
) -> None:
    rows = rows_of(types, [row])
    with pytest.raises(error, match=message):
        sent(rows, {"t": 2})


def test_a_null_header_without_rows_that_use_it_is_no_error() -> None:
    rows = rows_of({"value": pa.string(), "headers": HEADERS}, [("a", [{"key": None, "value": b""}]), ("b", [])])
    producer = Producer({"t": 1})
    sending = sender(producer, rows, topic="t")
    sending.send(rows.slice(1))
    assert sending.finish() == 1


def test_the_first_error_is_raised_by_the_next_call() -> None:
    rows = rows_of({"value": pa.string()}, [("v",)])
    producer = Producer({"t": 1}, hold=True)
    sending = sender(producer, rows, topic="t", **{"kafka.batch.size": "1"})
    sending.send(rows)
    sending.send(rows)
    producer.pending[1].set_exception(MessageTooLargeError("the first"))
    producer.pending[0].set_exception(MessageTooLargeError("the second"))
    with pytest.raises(MessageTooLargeError, match="the first"):
        sending.send(rows)
    with pytest.raises(MessageTooLargeError, match="the first"):
        sending.finish()
    assert len(producer.pending) == 2


def test_finish_waits_for_every_acknowledgement() -> None:
    rows = rows_of({"value": pa.string()}, [("a",)])
    producer = Producer({"t": 2}, hold=True)
    sending = sender(producer, rows, topic="t", **{"kafka.batch.size": "1"})
    sending.send(rows)
    sending.send(rows)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        finished = pool.submit(sending.finish)
        while len(producer.pending) < 2:
            assert not finished.done()
        producer.pending[0].set_result(SendResult(1, ()))
        assert not finished.done()
        producer.pending[1].set_result(SendResult(1, ()))
        assert finished.result() == 2


def test_large_batches_of_rows_are_divided() -> None:
    texts = [f"{number:03}".ljust(100_000) for number in range(200)]
    rows = rows_of({"value": pa.string()}, [(text,) for text in texts])
    producer = sent(rows, {"t": 1}, topic="t")
    together = Producer({"t": 1})
    sending = sender(together, rows, topic="t")
    sending.send(rows)
    assert sending.finish() == 200
    for found in (producer, together):
        assert [record.value.decode() for record in found.records("t", 0) if record.value] == texts
    assert len(together.pending) == 3  # 20 MB, at most 8 MiB each.


def test_no_rows_send_nothing() -> None:
    rows = rows_of({"value": pa.string()}, [])
    producer = Producer({})
    sending = sender(producer, rows, topic="t")
    sending.send(rows)
    assert (sending.finish(), producer.pending) == (0, [])
