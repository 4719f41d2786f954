"""Where the last records of partitions begin."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.cli.records.last_records import RecordPlace, starts_in_all, starts_of_each

A, B, EMPTY = (TopicPartition("t", number) for number in range(3))
PLACES = {A: [RecordPlace(10, 4), RecordPlace(40, 6)], B: [RecordPlace(20, 0), RecordPlace(30, 1)], EMPTY: []}
ENDS = {A: 9, B: 2, EMPTY: 7}


def test_of_each_partition() -> None:
    assert starts_of_each(PLACES, ENDS) == {A: 4, B: 0, EMPTY: 7}


def test_of_all_partitions_by_timestamp() -> None:
    assert starts_in_all(PLACES, ENDS, 1) == {A: 6, B: 2, EMPTY: 7}
    assert starts_in_all(PLACES, ENDS, 2) == {A: 6, B: 1, EMPTY: 7}
    assert starts_in_all(PLACES, ENDS, 3) == {A: 6, B: 0, EMPTY: 7}
    assert starts_in_all(PLACES, ENDS, 9) == {A: 4, B: 0, EMPTY: 7}


def test_timestamps_in_another_order_do_not_skip_records_of_a_partition() -> None:
    places = {A: [RecordPlace(50, 1), RecordPlace(10, 2)], B: [RecordPlace(30, 0), RecordPlace(20, 1)]}
    assert starts_in_all(places, {A: 3, B: 2}, 3) == {A: 2, B: 0}
