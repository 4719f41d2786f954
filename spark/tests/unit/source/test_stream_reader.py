"""The decisions of the stream reader, with a fake cluster that only has offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.client.settings import ClientSettings
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.observation import ProgressCommits
from pyspark_odradek.offsets import EARLIEST, LATEST, DataLossError, OffsetRange, PlannedOffsetsError, SparkOffset
from pyspark_odradek.options.source_options import Bound, parse
from pyspark_odradek.source.batch_reader import BatchReader
from pyspark_odradek.source.lookup import Assignment
from pyspark_odradek.source.stream_reader import StreamReader

ALL = RowSchema.full(include_headers=False)
IDS = "odradek topic ids: a=00000000000000000000000000000001"
AGAIN = "odradek topic ids: a=00000000000000000000000000000002"

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Numbers:
    """A fake cluster: the first and the next offset of each partition, and a clock."""

    def __init__(self, latest: dict[TopicPartition, int]) -> None:
        self.first: dict[TopicPartition, int] = {}
        self.next = latest
        self.seconds = 0.0
        self.topic_id = UUID(int=1)
        self.queries = 0

    def assignment(self) -> Assignment:
        self.queries += 1
        return Assignment(tuple(sorted(self.next)), {"a": self.topic_id})

    def positions(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        special = {EARLIEST: self.earliest, LATEST: self.latest}
        return {each: special[at]([each])[each] if at < 0 else at for each, at in offsets.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.first.get(partition, 0) for partition in partitions if partition in self.next}

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        return {partition: self.next[partition] for partition in partitions}

    def bounds(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
    ) -> dict[TopicPartition, int]:
        assert bound.position is not None
        return dict.fromkeys(partitions, bound.position)


def reader(numbers: Numbers, **options: str) -> StreamReader:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options})
    return StreamReader(parsed, ALL, lookup=numbers, now_seconds=lambda: numbers.seconds)


def plain(offset: SparkOffset | None) -> SparkOffset:
    """Return offsets without what travels beside them."""
    assert offset is not None
    return {topic: partitions for topic, partitions in offset.items() if partitions}


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
    assert stream.initialOffset() == {"a": {"0": 5, "1": 7}, IDS: {}}
    numbers.next[A0] = 9
    assert stream.initialOffset() == {"a": {"0": 5, "1": 7}, IDS: {}}
    assert plain(reader(numbers, startingOffsets="earliest").initialOffset()) == {"a": {"0": 0, "1": 0}}


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
    assert plain(stream.latestOffset(start, ReadMaxRows(40))) == {"a": {"0": 30, "1": 10}}
    assert plain(stream.latestOffset(start, ReadAllAvailable())) == {"a": {"0": 300, "1": 100}}
    assert stream.reportLatestOffset() == {"a": {"0": 300, "1": 100}}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    numbers = Numbers({A0: 10, A1: 10})
    numbers.first[A1] = 4
    stream = reader(numbers, maxOffsetsPerTrigger="8", failOnDataLoss="false")
    end = stream.latestOffset({"a": {"0": 0}}, ReadMaxRows(8))
    assert plain(end) == {"a": {"0": 5, "1": 7}}
    assert ranges(stream, {"a": {"0": 0}}, end) == [(0, 0, 5), (1, 4, 7)]


def test_a_minimum_waits_for_records_or_for_its_delay() -> None:
    numbers = Numbers({A0: 1})
    stream = reader(numbers, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    start = {"a": {"0": 1}}
    numbers.next[A0] = 3
    # The first trigger does not wait for the minimum.
    assert plain(stream.latestOffset(start, ReadMinRows(10))) == {"a": {"0": 3}}
    start, numbers.next[A0] = {"a": {"0": 3}}, 12
    assert stream.latestOffset(start, ReadMinRows(10)) == start
    numbers.seconds = 60.0
    assert plain(stream.latestOffset(start, ReadMinRows(10))) == {"a": {"0": 12}}
    numbers.next[A0] = 22
    assert plain(stream.latestOffset({"a": {"0": 12}}, ReadMinRows(10))) == {"a": {"0": 22}}


def test_a_run_with_a_fixed_end_reaches_it_and_stops_there() -> None:
    numbers = Numbers({A0: 25, A1: 3})
    stream = reader(numbers, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10", startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    numbers.next = {A0: 1000, A1: 1000}
    offset, steps = stream.initialOffset(), 0
    while (following := stream.latestOffset(offset, ReadMaxRows(10))) != offset:
        offset, steps = following, steps + 1
        assert steps < 10
    assert plain(offset) == {"a": {"0": 25, "1": 3}}


def test_an_idle_query_keeps_the_very_text_of_its_offset() -> None:
    numbers = Numbers({A1: 7, A0: 5})
    stream = reader(numbers)
    initial = stream.initialOffset()
    first = stream.latestOffset(initial, ReadAllAvailable())
    for stored in (json.loads('{"a": {"1": 7, "0": 5}}'), first):
        assert json.dumps(stream.latestOffset(stored, ReadAllAvailable())) == json.dumps(stored)
    numbers.next[A0] = 6
    assert stream.latestOffset(first, ReadAllAvailable()) == {"a": {"0": 6, "1": 7}, IDS: {}}


def test_the_first_micro_batch_starts_where_it_did_before_a_failure() -> None:
    numbers = Numbers({A0: 5})
    stream = reader(numbers)
    numbers.next[A0], initial = 8, stream.initialOffset()
    end = stream.latestOffset(initial, ReadAllAvailable())
    assert end == {"a": {"0": 8}, IDS: {}, "odradek start: a-0=5": {}}
    assert ranges(stream, initial, end) == [(0, 5, 8)]

    numbers.next[A0] = 20
    restarted = reader(numbers)
    moved = restarted.initialOffset()
    assert plain(moved) == {"a": {"0": 20}}
    assert ranges(restarted, moved, json.loads(json.dumps(end))) == [(0, 5, 8)]
    following = restarted.latestOffset(end, ReadAllAvailable())
    assert following == {"a": {"0": 20}, IDS: {}}
    assert ranges(restarted, end, following) == [(0, 8, 20)]
    assert following == moved
    assert restarted.latestOffset(following, ReadAllAvailable()) == following, "this is not the first micro-batch"


@pytest.mark.parametrize("grown", [3, 50])
def test_a_topic_that_was_created_again_is_noticed_by_its_id(grown: int) -> None:
    numbers = Numbers({A0: 10})
    start = {"a": {"0": 10}, IDS: {}}
    numbers.next[A0], numbers.topic_id = grown, UUID(int=2)
    strict = reader(numbers)
    end = strict.latestOffset(start, ReadAllAvailable())
    assert end == {"a": {"0": grown}, AGAIN: {}}
    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED: topic a was deleted and created again"):
        strict.partitions(start, end)
    lenient = reader(numbers, failOnDataLoss="false", maxOffsetsPerTrigger="100")
    assert lenient.latestOffset(start, ReadMaxRows(100)) == end
    assert ranges(lenient, start, end) == [(0, 0, grown)], "all records of the new topic"


def test_a_topic_of_equal_size_that_was_created_again_is_noticed() -> None:
    numbers = Numbers({A0: 10})
    numbers.topic_id = UUID(int=2)
    start = {"a": {"0": 10}, IDS: {}}
    assert reader(numbers).latestOffset(start, ReadAllAvailable()) == {"a": {"0": 10}, AGAIN: {}}


def test_a_stored_plan_of_a_topic_that_was_created_again_cannot_be_read() -> None:
    numbers = Numbers({A0: 10, A1: 10})
    numbers.topic_id = UUID(int=2)
    start, end = {"a": {"0": 5, "1": 5}, IDS: {}}, {"a": {"0": 9, "1": 9}, IDS: {}}
    with pytest.raises(DataLossError, match="created again"):
        reader(numbers).partitions(start, end)
    assert ranges(reader(numbers, failOnDataLoss="false"), start, end) == []


def test_offsets_of_another_source_have_no_ids() -> None:
    numbers = Numbers({A0: 10})
    assert ranges(reader(numbers), {"a": {"0": 5}}, {"a": {"0": 9}}) == [(0, 5, 9)]
    assert numbers.queries == 0


@pytest.mark.parametrize(
    ("end", "change", "error_class"),
    [
        ({"a": {"0": 9}}, {}, "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"),
        ({"a": {"0": 9, "1": 11}}, {}, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"),
        ({"a": {"0": 9, "1": 9}}, {A1: None}, "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
        (
            {"a": {"0": 9, "1": 9}},
            {A1: 8},
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
        ),
        ({"a": {"0": 9, "1": 9}, AGAIN: {}}, {}, "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
    ],
)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_run_with_a_fixed_end_checks_every_plan(
    end: SparkOffset, change: dict[TopicPartition, int | None], error_class: str, fails: str
) -> None:
    numbers = Numbers({A0: 10, A1: 10})
    stream = reader(numbers, failOnDataLoss=fails)
    stream.prepareForTriggerAvailableNow()
    stream.latestOffset({"a": {"0": 0, "1": 0}}, ReadAllAvailable())
    assert ranges(stream, {"a": {"0": 0, "1": 0}}, {"a": {"0": 9, "1": 9}}) == [(0, 0, 9), (1, 0, 9)]
    numbers.next = {each: at for each, at in {**numbers.next, **change}.items() if at is not None}
    with pytest.raises(PlannedOffsetsError, match=rf"^\[{error_class}\] .*Start the query again|start the query again"):
        stream.partitions({"a": {"0": 0, "1": 0}}, end)


def test_a_plan_of_the_checkpoint_may_have_fewer_partitions_than_a_new_run() -> None:
    stream = reader(Numbers({A0: 10, A1: 10}))
    stream.prepareForTriggerAvailableNow()
    assert ranges(stream, {"a": {"0": 0}}, {"a": {"0": 9}, IDS: {}}) == [(0, 0, 9)]


def test_a_query_does_not_wait_for_a_minimum_of_a_topic_that_was_created_again() -> None:
    numbers = Numbers({A0: 10})
    stream = reader(numbers, minOffsetsPerTrigger="5", failOnDataLoss="false")
    start = stream.latestOffset({"a": {"0": 0}, IDS: {}}, ReadMinRows(5))
    assert stream.latestOffset(start, ReadMinRows(5)) == start
    numbers.next[A0], numbers.topic_id = 2, UUID(int=2)
    end = stream.latestOffset(start, ReadMinRows(5))
    assert end == {"a": {"0": 2}, AGAIN: {}}
    assert ranges(stream, start, end) == [(0, 0, 2)]


def test_a_trigger_needs_one_request_for_metadata() -> None:
    numbers = Numbers({A0: 10, A1: 10})
    stream = reader(numbers)
    start = {"a": {"0": 0, "1": 0}, IDS: {}}
    stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    assert numbers.queries == 1


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
    planned = BatchReader(parsed, ALL, lookup=numbers).partitions()
    return [(piece.value.topic_partition.partition, piece.value.start, piece.value.end) for piece in planned]


def test_a_batch_leaves_earliest_and_latest_to_its_tasks() -> None:
    numbers = Numbers({A0: 9, A1: 4})
    numbers.first = {A0: 2, A1: 4}
    assert batch(numbers) == [(0, EARLIEST, LATEST), (1, EARLIEST, LATEST)]
    assert batch(numbers, minPartitions="2") == [(0, EARLIEST, LATEST), (1, EARLIEST, LATEST)]
    assert batch(numbers, minPartitions="3") == [(0, EARLIEST, 4), (0, 4, 6), (0, 6, LATEST)]
    assert batch(numbers, maxRecordsPerPartition="7") == [(0, EARLIEST, LATEST)]


def test_a_task_resolves_its_ends_when_it_starts() -> None:
    numbers = Numbers({A0: 9})
    numbers.first = {A0: 9}
    options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    batches = BatchReader(options, ALL, lookup=numbers)
    whole = OffsetRange(A0, EARLIEST, LATEST)
    assert list(batches.read(InputPartition(whole))) == []
    numbers.next[A0] = 12
    assert batches._resolved(whole) == OffsetRange(A0, 9, 12)
    assert batches._resolved(OffsetRange(A0, 3, LATEST)) == OffsetRange(A0, 3, 12)
    with pytest.raises(PlannedOffsetsError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        batches.read(InputPartition(OffsetRange(A0, 13, LATEST)))


def test_options_of_streams_are_logged_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    batch(Numbers({A0: 9}), maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2")
    assert [record.message.split()[0] for record in caplog.records] == ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"]


def test_a_batch_that_would_run_backwards() -> None:
    class Backwards(Numbers):
        def bounds(
            self, bound: Bound, partitions: Iterable[TopicPartition], *, latest_when_no_match: bool
        ) -> dict[TopicPartition, int]:
            return {A0: 5 if bound.option.startswith("starting") else 4}

    with pytest.raises(PlannedOffsetsError, match=r"\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] .* a-0"):
        batch(Backwards({A0: 9}))


def test_readers_travel_to_workers() -> None:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    for made in (StreamReader(parsed, ALL), BatchReader(parsed, ALL)):
        travelled = cloudpickle.loads(cloudpickle.dumps(made.read)).__self__
        assert travelled._options == parsed


class Commits(ProgressCommits):
    """Keeps what is to be committed."""

    def __init__(self) -> None:
        super().__init__(ClientSettings.of("h:1"), group="g")
        self.offsets: list[Mapping[TopicPartition, int]] = []

    def finished(self, offsets: Mapping[TopicPartition, int], **known: Any) -> None:
        self.offsets.append(offsets)


def test_each_finished_micro_batch_is_committed_and_so_is_the_last() -> None:
    numbers, commits = Numbers({A0: 9}), Commits()
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", "maxOffsetsPerTrigger": "5"})
    stream = StreamReader(parsed, ALL, lookup=numbers, progress=commits)
    stream.prepareForTriggerAvailableNow()
    end, before = {"a": {"0": 0}}, None
    while end != before:
        before, end = end, stream.latestOffset(end, ReadMaxRows(5))
    assert commits.offsets == [{A0: 0}, {A0: 5}, {A0: 9}]


def test_progress_is_committed_only_if_a_group_is_given() -> None:
    assert reader(Numbers({A0: 1}))._progress is None
    assert reader(Numbers({A0: 1}), progressGroup="g")._progress is not None
    with pytest.raises(ConfigError, match="QueryListener"):
        reader(Numbers({A0: 1}), progressGroup="true")
