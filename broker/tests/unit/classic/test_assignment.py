"""The assignments that the documents and Kafka 0.8.2 describe, by example."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.classic.assignment import (
    ConsumerThread,
    assign_range,
    assign_round_robin,
    assigned_to,
    java_hash,
    threads_of,
)


def names(owners: dict[TopicPartition, ConsumerThread], topic: str = "t") -> list[str]:
    return [thread.name for (of, _), thread in sorted(owners.items()) if of == topic]


def test_partitions_are_divided_into_runs() -> None:
    owners = assign_range({"t": [3, 2, 1, 0]}, {"t": [*threads_of("b", 1), *threads_of("a", 1)]})
    assert names(owners) == ["a-0", "a-0", "b-0", "b-0"]


def test_the_first_threads_get_the_remainder() -> None:
    owners = assign_range({"t": range(5)}, {"t": [ConsumerThread("c", 0), *threads_of("a", 2)]})
    assert names(owners) == ["a-0", "a-0", "a-1", "a-1", "c-0"]


def test_threads_beyond_the_partitions_get_none() -> None:
    owners = assign_range({"t": [0]}, {"t": threads_of("a", 3)})
    assert names(owners) == ["a-0"]


def test_names_of_threads_are_compared_as_text() -> None:
    owners = assign_range({"t": range(11)}, {"t": threads_of("a", 11)})
    assert names(owners)[:4] == ["a-0", "a-1", "a-10", "a-2"]


def test_each_topic_is_divided_on_its_own() -> None:
    owners = assign_range({"t": [0, 1], "u": [0]}, {"t": threads_of("a", 1), "u": threads_of("b", 1), "v": []})
    assert names(owners) == ["a-0", "a-0"]
    assert names(owners, "u") == ["b-0"]
    assert assigned_to("b", owners) == {TopicPartition("u", 0): ConsumerThread("b", 0)}


def test_a_topic_without_partitions_or_threads_has_no_owners() -> None:
    assert assign_range({"t": [0]}, {"t": [], "u": threads_of("a", 1)}) == {}
    assert assign_round_robin({"t": [0]}, {}) == {}
    assert assign_round_robin({"t": [0]}, {"t": []}) == {}


def test_round_robin_deals_the_partitions_of_all_topics_in_turn() -> None:
    threads = [*threads_of("a", 1), *threads_of("b", 1)]
    owners = assign_round_robin({"t": range(3), "u": range(3)}, {"t": threads, "u": threads})
    assert sorted(thread.name for thread in owners.values()) == ["a-0"] * 3 + ["b-0"] * 3


def test_round_robin_needs_equal_consumers() -> None:
    with pytest.raises(ConfigError, match=r"roundrobin.*topics t and u"):
        assign_round_robin({"t": [0], "u": [0]}, {"t": threads_of("a", 1), "u": threads_of("a", 2)})


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("[topic,0]", 2_068_025_637), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1_772_899)],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value
