"""The fetches of a task: ranges that begin or end inside batches, gaps, lost records, brokers that send nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from odradek.base.errors import CorruptMessageError, MessageTooLargeError, OffsetOutOfRangeError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.client.models import AbortedTransaction, RawFetch
from odradek.compression import Codec
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.batches import iterate
from pyspark_odradek.decoding import task_reader
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.decoding.task_reader import TaskMemory, TaskReader
from pyspark_odradek.offsets import DataLossError, OffsetRange
from pyspark_odradek.options.source_options import parse

A0 = TopicPartition("a", 0)
ALL = RowSchema.full(include_headers=False)


def batch_at(offset: int, count: int, *, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for number in range(count):
        builder.append(b"%d" % (offset + number), b"v", timestamp_ms=0)
    return builder.build(base_offset=offset, producer_id=producer_id, is_transactional=producer_id >= 0)


@dataclass
class Log:
    """A fake client of one partition. A fetch returns the batch that contains the offset, or else the next batch."""

    batches: list[bytes]
    start: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    fetched: list[int] = field(default_factory=list)
    dropped: list[TopicPartition] = field(default_factory=list)

    def fetch_raw(self, topic_partition: TopicPartition, offset: int, **_: object) -> RawFetch:
        self.fetched.append(offset)
        if offset < self.start:
            raise OffsetOutOfRangeError("before the start")
        following, records = offset, b""
        for raw in self.batches:
            (_, header), *_rest = iterate(raw)
            if header.next_offset > offset:
                following, records = header.next_offset, raw
                break
        return RawFetch(
            topic_partition=topic_partition,
            records=records,
            fetch_offset=offset,
            next_offset=following,
            high_watermark=1000,
            aborted=self.aborted,
        )

    def drop_read_ahead(self, topic_partition: TopicPartition) -> None:
        self.dropped.append(topic_partition)

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)


def read(log: Log, start: int, end: int, **options: str) -> list[int]:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options})
    reader = TaskReader(parsed, ALL, connect=lambda _: log)
    batches = list(reader.read(InputPartition(OffsetRange(A0, start, end))))
    assert all(made.num_rows for made in batches)
    return [offset for made in batches for offset in made.column("offset").to_pylist()]


THREE = [batch_at(0, 4), batch_at(4, 4), batch_at(8, 4)]


def test_a_range_cuts_the_batches_at_its_ends() -> None:
    log = Log(THREE)
    assert read(log, 2, 9) == [2, 3, 4, 5, 6, 7, 8]
    assert log.fetched == [2, 4, 8]


def test_gaps_are_not_loss() -> None:
    assert read(Log([batch_at(0, 2), batch_at(7, 2)]), 0, 8) == [0, 1, 7]
    assert read(Log([batch_at(0, 2), batch_at(7, 2)]), 3, 6) == []


def test_control_records_and_aborted_transactions_are_left_out() -> None:
    marker = marker_batch(
        ControlType.ABORT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=2
    )
    batches = [batch_at(0, 2, producer_id=5), marker, batch_at(3, 1, producer_id=5)]
    assert read(Log(batches), 0, 4) == [0, 1, 3]
    # Each fetch returns all aborted transactions. A real broker returns only those in the fetched range.
    assert read(Log(batches[:2], aborted=(AbortedTransaction(5, 0),)), 0, 3) == []


def test_an_empty_plan_has_one_task_without_a_range() -> None:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    assert list(TaskReader(parsed, ALL).read(InputPartition(None))) == []


def test_lost_records_fail_the_task() -> None:
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE: offsets 0 to 12 of a-0"):
        read(Log(THREE[1:], start=5), 0, 12)


def test_lost_records_may_be_left_out() -> None:
    assert read(Log(THREE[1:], start=5), 0, 9, failOnDataLoss="false") == [5, 6, 7, 8]
    assert read(Log(THREE[2:], start=8), 0, 6, failOnDataLoss="false") == []


def test_records_lost_in_the_middle_of_a_task_are_left_out_exactly() -> None:
    class Shrinking(Log):
        def fetch_raw(self, topic_partition: TopicPartition, offset: int, **_: object) -> RawFetch:
            found = super().fetch_raw(topic_partition, offset)
            self.start = 6
            return found

    assert read(Shrinking(THREE), 0, 12, failOnDataLoss="false") == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


@dataclass
class Asked(Log):
    """Records the arguments of its calls."""

    options: list[dict[str, object]] = field(default_factory=list)

    def fetch_raw(self, topic_partition: TopicPartition, offset: int, **options: object) -> RawFetch:
        self.options.append(options)
        return super().fetch_raw(topic_partition, offset)


def test_the_size_of_a_fetch_is_that_of_the_option() -> None:
    log = Asked(THREE)
    read(log, 0, 4)
    read(log, 0, 4, **{"kafka.max.partition.fetch.bytes": "1000"})
    assert [options["max_bytes"] for options in log.options] == [4 << 20, 1000]


def test_checksums_are_checked_unless_the_option_says_otherwise() -> None:
    damaged = bytearray(THREE[0])
    damaged[17] ^= 1  # The first byte of the CRC, which follows offset, length, epoch and magic.
    with pytest.raises(CorruptMessageError):
        read(Log([bytes(damaged)]), 0, 4)
    assert read(Log([bytes(damaged)]), 0, 4, **{"kafka.check.crcs": "false"}) == [0, 1, 2, 3]


def test_silence_has_an_end() -> None:
    with pytest.raises(RequestTimedOutError, match=r"pollTimeoutMs=1\b"):
        read(Log(THREE), 10, 13, **{"kafkaConsumer.pollTimeoutMs": "1"})


def sizes(raw: bytes, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[int]:
    monkeypatch.setattr(task_reader, "BATCH_ROWS", 8)
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options})
    reader = TaskReader(parsed, ALL, connect=lambda _: Log([raw]))
    whole = OffsetRange(A0, 0, batch.read_header(raw).next_offset)
    return [made.num_rows for made in reader.read(InputPartition(whole))]


def test_small_batches_are_gathered_and_large_ones_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whole(Log):
        def fetch_raw(self, topic_partition: TopicPartition, offset: int, **_: object) -> RawFetch:
            found = super().fetch_raw(topic_partition, offset)
            return replace(found, records=b"".join(self.batches), next_offset=12)

    monkeypatch.setattr(task_reader, "BATCH_ROWS", 8)
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    reader = TaskReader(parsed, ALL, connect=lambda _: Whole(THREE))
    assert [made.num_rows for made in reader.read(InputPartition(OffsetRange(A0, 0, 12)))] == [8, 4]
    assert sizes(batch_at(0, 12), monkeypatch) == [8, 4]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [(("offset",), [12]), (("partition", "timestampType"), [12]), (("offset", "topic"), [8, 4])],
)
def test_rows_of_numbers_from_batch_headers_come_in_larger_batches(
    monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...], rows: list[int]
) -> None:
    # A topic may have 249 characters, so rows with it are as large as records.
    monkeypatch.setattr(task_reader, "BATCH_ROWS", 8)
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    wanted = ALL.project(StructType([ALL.spark[name] for name in columns]))
    reader = TaskReader(parsed, wanted, connect=lambda _: Log([batch_at(0, 12)]))
    made = list(reader.read(InputPartition(OffsetRange(A0, 0, 12))))
    assert [each.num_rows for each in made] == rows
    assert {tuple(each.schema.names) for each in made} == {columns}


def test_batches_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for size in (300, 300, 300, 5000, 100, 900, 25):
        builder.append(None, bytes(size), timestamp_ms=0)
    assert sizes(builder.build(), monkeypatch, maxBatchBytes="1k") == [3, 1, 2, 1]


def test_what_is_fetched_ahead_is_dropped_when_a_task_ends_early() -> None:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    log = Log(THREE)
    rows = TaskReader(parsed, ALL, connect=lambda _: log).read(InputPartition(OffsetRange(A0, 0, 12)))
    next(rows)
    assert log.dropped == []
    rows.close()  # type: ignore[attr-defined]
    assert log.dropped == [A0]
    read(log, 0, 12)
    assert log.dropped == [A0]


def test_the_memory_of_a_task_bounds_fetches_and_decompressed_batches() -> None:
    log = Asked(THREE)
    options = {"maxTaskMemory": "16m"}
    read(log, 0, 4, **options)
    assert [(asked["max_bytes"], asked["end_offset"]) for asked in log.options] == [(2 << 20, 4)]
    builder = BatchBuilder(limit_bytes=1 << 30, codec=Codec.ZSTD)
    builder.append(None, bytes(5 << 20), timestamp_ms=0)
    with pytest.raises(CorruptMessageError, match="maxTaskMemory=16777216"):
        read(Log([builder.build()]), 0, 1, **options)
    plain = BatchBuilder(limit_bytes=1 << 30)
    plain.append(None, bytes(5 << 20), timestamp_ms=0)
    with pytest.raises(MessageTooLargeError, match="maxTaskMemory=16777216"):
        read(Log([plain.build()]), 0, 1, **options)
    assert read(Log([plain.build()]), 0, 1) == read(Log([builder.build()]), 0, 1) == [0]


def test_a_task_never_holds_more_than_its_memory() -> None:
    """Arrow's and numpy's memory while batches that compress well are read."""
    builder = BatchBuilder(limit_bytes=1 << 30, codec=Codec.ZSTD)
    for number in range(4):
        builder.append(None, bytes(900 << 10), timestamp_ms=number)
    raw = b"".join(
        batch.assemble(batch.read_header(one)._replace(base_offset=4 * number), one[batch.HEADER_SIZE :])
        for number, one in enumerate([builder.build()] * 40)
    )

    class Whole(Log):
        def fetch_raw(self, topic_partition: TopicPartition, offset: int, **_: object) -> RawFetch:
            found = super().fetch_raw(topic_partition, offset)
            return replace(found, records=raw, next_offset=160)

    memory = TaskMemory(16 << 20)
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", "maxTaskMemory": "16m"})
    reader = TaskReader(parsed, ALL, connect=lambda _: Whole([raw[: len(raw) // 40]]))
    tracemalloc.start()
    try:
        held, most = pa.total_allocated_bytes(), 0
        for made in reader.read(InputPartition(OffsetRange(A0, 0, 160))):
            most = max(most, pa.total_allocated_bytes() - held + tracemalloc.get_traced_memory()[1])
            tracemalloc.reset_peak()
            del made
    finally:
        tracemalloc.stop()
    assert 4 << 20 < most < memory.total
