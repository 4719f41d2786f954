"""The decisions of the stream reader, with a fake cluster that only has offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import DataLossError
from pyspark_odradek.options.source_options import Bound, parse
from pyspark_odradek.source.batch_reader import BatchReader
from pyspark_odradek.source.stream_reader import StreamReader

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Numbers:
    """A fake cluster: the first and the next offset of each partition, and a clock."""

    def __init__(self, latest: dict[TopicPartition, int]) -> None:
        self.first: dict[TopicPartition, int] = {}
        self.next = latest
        self.seconds = 0.0

    def assigned(self) -> tuple[TopicPartition, ...]:
        return tuple(self.next)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.first.get(partition, 0) for partition in partitions if partition in self.next}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.next[partition] for partition in partitions}

    def resolve(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        return self.latest(partitions) if bound.position == -1 else self.earliest(partitions)


def reader(numbers: Numbers, **options: str) -> StreamReader:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options})
    return StreamReader(parsed, lookup=numbers, now_seconds=lambda: numbers.seconds)


def ranges(
    stream: StreamReader, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
) -> list[tuple[int, int, int]]:
    return [
        (piece.value.topic_partition.partition, piece.value.start, piece.value.end)
        for piece in stream.partitions(start, end)
    ]


def test_a_stream_starts_at_the_latest_offsets_and_stays_with_its_first_answer() -> None:
    numbers = Numbers({A1: 7, A0: 5})
    stream = reader(numbers)
    assert stream.initialOffset() == {"a": {"0": 5, "1": 7}}
    numbers.next[A0] = 9
    assert stream.initialOffset() == {"a": {"0": 5, "1": 7}}
    assert reader(numbers, startingOffsets="earliest").initialOffset() == {"a": {"0": 0, "1": 0}}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3"}, ReadMaxRows(9)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_the_limit_that_spark_is_told(options: dict[str, str], limit: ReadLimit) -> None:
    assert reader(Numbers({A0: 1}), **options).getDefaultReadLimit() == limit


def test_a_maximum_is_shared_by_backlog_unless_all_is_asked_for() -> None:
    stream = reader(Numbers({A0: 300, A1: 100}), maxOffsetsPerTrigger="40")
    start = {"a": {"0": 0, "1": 0}}
    assert stream.latestOffset(start, ReadMaxRows(40)) == {"a": {"0": 30, "1": 10}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"a": {"0": 300, "1": 100}}
    assert stream.reportLatestOffset() == {"a": {"0": 300, "1": 100}}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    numbers = Numbers({A0: 10, A1: 10})
    numbers.first[A1] = 4
    stream = reader(numbers, maxOffsetsPerTrigger="8", failOnDataLoss="false")
    end = stream.latestOffset({"a": {"0": 0}}, ReadMaxRows(8))
    assert end == {"a": {"0": 5, "1": 7}}
    assert ranges(stream, {"a": {"0": 0}}, end) == [(0, 0, 5), (1, 4, 7)]


def test_a_minimum_waits_for_records_or_for_its_delay() -> None:
    numbers = Numbers({A0: 1})
    stream = reader(numbers, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    start = {"a": {"0": 1}}
    numbers.next[A0] = 3
    # The first trigger does not wait for the minimum.
    assert stream.latestOffset(start, ReadMinRows(10)) == {"a": {"0": 3}}
    start, numbers.next[A0] = {"a": {"0": 3}}, 12
    assert stream.latestOffset(start, ReadMinRows(10)) == start
    numbers.seconds = 60.0
    assert stream.latestOffset(start, ReadMinRows(10)) == {"a": {"0": 12}}
    numbers.next[A0] = 22
    assert stream.latestOffset({"a": {"0": 12}}, ReadMinRows(10)) == {"a": {"0": 22}}


def test_a_run_with_a_fixed_end_reaches_it_and_stops_there() -> None:
    numbers = Numbers({A0: 25, A1: 3})
    stream = reader(numbers, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10", startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    numbers.next = {A0: 1000, A1: 1000}
    offset, steps = stream.initialOffset(), 0
    while (following := stream.latestOffset(offset, ReadMaxRows(10))) != offset:
        offset, steps = following, steps + 1
        assert steps < 10
    assert offset == {"a": {"0": 25, "1": 3}}


def test_an_idle_query_keeps_the_very_text_of_its_offset() -> None:
    stream = reader(Numbers({A1: 7, A0: 5}))
    stored = json.loads('{"a": {"1": 7, "0": 5}}')
    assert json.dumps(stream.latestOffset(stored, ReadAllAvailable())) == '{"a": {"0": 5, "1": 7}}'


@pytest.mark.parametrize(
    ("start", "end", "kind"),
    [
        ({"0": 5, "1": 5}, {"0": 9}, "PARTITIONS_DELETED"),
        ({"0": 5}, {"0": 4}, "PARTITION_OFFSET_CHANGED"),
        ({"0": 5}, {"0": 9, "1": 9}, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"),
    ],
)
def test_data_loss_fails_the_query_unless_told_otherwise(start: dict[str, int], end: dict[str, int], kind: str) -> None:
    numbers = Numbers({A0: 9, A1: 9})
    numbers.first[A1] = 2
    with pytest.raises(DataLossError, match=kind):
        reader(numbers).partitions({"a": start}, {"a": end})
    reader(numbers, failOnDataLoss="false").partitions({"a": start}, {"a": end})


def test_tasks_are_cut_as_the_options_ask() -> None:
    stream = reader(Numbers({A0: 9}), maxRecordsPerPartition="4")
    assert ranges(stream, {"a": {"0": 0}}, {"a": {"0": 8}}) == [(0, 0, 4), (0, 4, 8)]


def batch(numbers: Numbers, **options: str) -> list[tuple[int, int, int]]:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options})
    planned = BatchReader(parsed, lookup=numbers).partitions()
    return [(piece.value.topic_partition.partition, piece.value.start, piece.value.end) for piece in planned]


def test_a_batch_reads_from_the_first_to_the_latest_offset_and_plans_no_empty_task() -> None:
    numbers = Numbers({A0: 9, A1: 4})
    numbers.first = {A0: 2, A1: 4}
    assert batch(numbers) == [(0, 2, 9)]
    assert batch(numbers, minPartitions="2") == [(0, 2, 5), (0, 5, 9)]


def test_a_batch_that_would_run_backwards() -> None:
    class Backwards(Numbers):
        def resolve(
            self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
        ) -> dict[TopicPartition, int]:
            return {A0: 5 if bound.option.startswith("starting") else 4}

    with pytest.raises(ConfigError, match="a-0"):
        batch(Backwards({A0: 9}))


def test_readers_travel_to_workers() -> None:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    for made in (StreamReader(parsed), BatchReader(parsed)):
        travelled = cloudpickle.loads(cloudpickle.dumps(made.read)).__self__
        assert travelled._options == parsed
