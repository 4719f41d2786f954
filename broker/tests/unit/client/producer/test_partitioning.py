"""Partitioning agrees with the Java client."""

from __future__ import annotations

import pytest

from odradek.client.producer.partitioning import (
    DefaultPartitioner,
    murmur2,
    partition_of_key,
    partitioner_function,
)


# The test vectors of the Java client, as signed numbers.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_a_key_always_has_the_same_partition() -> None:
    partitioner = DefaultPartitioner(lambda: 0.0, 100)
    for number in range(100):
        key = b"key-%d" % number
        assert partitioner.of_key(key, 7) == partitioner.of_key(key, 7) == partition_of_key(key, 7)


def test_records_without_key_keep_their_partition_until_a_batch_is_full() -> None:
    numbers = iter([0.0, 0.99, 0.0, 0.5])
    partitioner = DefaultPartitioner(lambda: next(numbers), 100)
    chosen = [partitioner.without_key("t", [0, 1, 2], 40) for _ in range(9)]
    assert chosen == [0, 0, 0, 2, 2, 2, 0, 0, 0]


def test_records_without_key_avoid_partitions_without_leader() -> None:
    partitioner = DefaultPartitioner(lambda: 0.0, 1_000)
    assert partitioner.without_key("t", [0, 1], 1) == 0
    assert partitioner.without_key("t", [1], 1) == 1
    assert partitioner.without_key("t", [1], 5_000) == 1
    assert partitioner.without_key("t", [1], 1) == 1
    assert partitioner.without_key("u", [4], 1) == 4


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        # 0xCBF43926 is the check value of CRC-32.
        ("consistent", b"", 0),
        ("consistent", b"123456789", 0xCBF43926 % 12),
        ("consistent", None, 0),
        ("consistent_random", b"123456789", 0xCBF43926 % 12),
        ("consistent_random", b"", 11),
        ("consistent_random", None, 11),
        ("murmur2", b"abc", partition_of_key(b"abc", 12)),
        ("murmur2", None, partition_of_key(b"", 12)),
        ("murmur2_random", b"", partition_of_key(b"", 12)),
        ("murmur2_random", None, 11),
        ("random", b"abc", 11),
        ("round_robin", b"abc", 2),
    ],
)
def test_named_partitioners(name: str, key: bytes | None, expected: int) -> None:
    choose = partitioner_function(name, lambda: 0.99)
    assert choose is not None
    assert choose("t", key, b"v", range(12), [2, 3, 11]) == expected
    assert 0 <= choose("t", key, b"v", range(12), []) < 12


def test_round_robin_counts_for_each_topic() -> None:
    choose = partitioner_function("round-robin", lambda: 0.0)
    assert choose is not None
    assert [choose(topic, None, None, range(3), [0, 2]) for topic in "aabaa"] == [0, 2, 0, 0, 2]
    assert partitioner_function("default", lambda: 0.0) is None
