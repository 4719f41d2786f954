"""Offsets: their text, the limits of micro-batches, splitting into tasks, and the detection of data loss."""

from __future__ import annotations

import json

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import (
    LATEST,
    OffsetRange,
    PlannedOffsetsError,
    admit,
    check_not_backwards,
    check_same_partitions,
    data_losses,
    from_spark,
    ranges_between,
    split,
    to_json,
    to_spark,
)

A0, A1, A10, B0 = (TopicPartition(topic, number) for topic, number in (("a", 0), ("a", 1), ("a", 10), ("b", 0)))


def test_equal_offsets_are_equal_text_in_the_order_of_numbers() -> None:
    offsets = {B0: 4, A10: 3, A0: 1, A1: 2}
    assert json.dumps(to_spark(offsets)) == '{"a": {"0": 1, "1": 2, "10": 3}, "b": {"0": 4}}'
    assert json.dumps(to_spark(dict(sorted(offsets.items())))) == json.dumps(to_spark(offsets))
    assert to_json(offsets) == '{"a":{"0":1,"1":2,"10":3},"b":{"0":4}}'
    assert from_spark(to_spark(offsets)) == offsets


def test_ranges_leave_out_what_is_empty_or_backwards() -> None:
    assert ranges_between({A0: 1, A1: 5, B0: 9}, {B0: 3, A1: 5, A0: 4}) == [OffsetRange(A0, 1, 4)]


def test_a_batch_may_not_start_behind_its_end() -> None:
    check_not_backwards({A0: 3, A1: 3}, {A0: 3, A1: LATEST})
    with pytest.raises(PlannedOffsetsError, match="a-1"):
        check_not_backwards({A0: 3, A1: 4}, {A0: 3, A1: 3})


def test_an_option_must_name_the_partitions_that_are_read() -> None:
    check_same_partitions("startingOffsets", [A0, A1], [A1, A0])
    with pytest.raises(ConfigError, match=r"startingOffsets .*: a-1 missing, b-0 not among them"):
        check_same_partitions("startingOffsets", [A0, B0], [A0, A1])


@pytest.mark.parametrize(
    ("backlogs", "limit", "admitted"),
    [
        ((100, 100), 50, (25, 25)),
        ((300, 100), 40, (30, 10)),
        ((1000, 1), 10, (9, 1)),
        ((0, 100), 10, (0, 10)),
        ((5, 5), 10, (5, 5)),
        ((5, 5), 100, (5, 5)),
        ((3, 3), 1, (1, 1)),
    ],
)
def test_shares_of_a_micro_batch(backlogs: tuple[int, int], limit: int, admitted: tuple[int, int]) -> None:
    start = {A0: 70, A1: 0}
    latest = {A0: 70 + backlogs[0], A1: backlogs[1]}
    assert admit(start, latest, limit) == {A0: 70 + admitted[0], A1: admitted[1]}


def test_splits_cut_the_large_and_leave_the_small() -> None:
    ranges = [OffsetRange(A0, 0, 1000), OffsetRange(A1, 0, 10)]
    sizes = [(piece.topic_partition, piece.size) for piece in split(ranges, min_partitions=4)]
    assert sizes == [(A0, 333), (A0, 333), (A0, 334), (A1, 10)]


def test_a_maximum_comes_before_a_minimum() -> None:
    pieces = split([OffsetRange(A0, 5, 15)], max_records=4, min_partitions=2)
    assert [(piece.start, piece.end) for piece in pieces] == [(5, 8), (8, 11), (11, 15)]


def test_nothing_to_read_is_no_task() -> None:
    assert split([OffsetRange(A0, 5, 5)], min_partitions=8, max_records=1) == []


def test_more_tasks_than_offsets_are_not_made() -> None:
    assert split([OffsetRange(A0, 0, 2)], min_partitions=9) == [OffsetRange(A0, 0, 1), OffsetRange(A0, 1, 2)]


@pytest.mark.parametrize(
    ("start", "end", "earliest", "kinds"),
    [
        ({A0: 1}, {A0: 1}, {}, []),
        ({A0: 1}, {A0: 5, A1: 3}, {A1: 0}, []),
        ({A0: 1, A1: 1}, {A0: 5}, {}, ["PARTITIONS_DELETED"]),
        ({}, {A0: 5}, {A0: 2}, ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"]),
        ({}, {A0: 5}, {}, ["INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"]),
        ({A0: 6, A1: 1}, {A0: 5, A1: 2}, {}, ["PARTITION_OFFSET_CHANGED"]),
    ],
)
def test_data_losses(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    kinds: list[str],
) -> None:
    assert [loss.partition(":")[0] for loss in data_losses(start, end, earliest)] == kinds
