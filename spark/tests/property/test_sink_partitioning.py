"""Partitions chosen for many rows are those of the scalar functions, and runs of rows without key are bounded."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.producer.partitioning import murmur2, partition_of_key
from odradek.records.v2.encode_fields import ByteStrings
from pyspark_odradek.sink.partitioning import RoundRobinPartitions, StickyPartitions, murmur2_of, partitions_of_keys

KEYS = st.lists(st.binary(max_size=40), min_size=1, max_size=60)


def strings(values: list[bytes]) -> ByteStrings:
    lengths = np.array([len(value) for value in values], np.int64)
    return ByteStrings(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths)


@given(keys=KEYS, repeats=st.integers(1, 5), count=st.integers(1, 1000))
def test_hashes_are_those_of_the_scalar_function(keys: list[bytes], repeats: int, count: int) -> None:
    keys = keys * repeats
    assert murmur2_of(strings(keys)).tolist() == [murmur2(key) for key in keys]
    assert partitions_of_keys(strings(keys), count).tolist() == [partition_of_key(key, count) for key in keys]


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=200),
    cuts=st.integers(1, 50),
    partitions=st.integers(1, 4),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1),
)
def test_rows_without_key_fill_a_partition_before_the_next(
    sizes: list[int], cuts: int, partitions: int, draws: list[float]
) -> None:
    count = iter(range(1_000_000))
    sticky = StickyPartitions(lambda: draws[next(count) % len(draws)], 1_000)
    available = list(range(partitions))
    chosen = [
        int(number)
        for begin in range(0, len(sizes), cuts)
        for number in sticky.choose(np.array(sizes[begin : begin + cuts], np.int64), available)
    ]
    assert set(chosen) <= set(available)
    if partitions > 1:
        runs: list[list[int]] = []
        for row, number in enumerate(chosen):
            if row and chosen[row - 1] == number:
                runs[-1].append(row)
            else:
                runs.append([row])
        for run, following in itertools.pairwise(runs):
            total = sum(sizes[row] for row in run)
            # The partition changes exactly when the next row does not fit.
            assert total <= 1_000 < total + sizes[following[0]]


@given(counts=st.lists(st.integers(0, 10), max_size=10), partitions=st.integers(1, 4))
def test_round_robin_takes_turns(counts: list[int], partitions: int) -> None:
    turns = RoundRobinPartitions()
    available = [number * 2 for number in range(partitions)]
    chosen = [int(number) for count in counts for number in turns.choose(count, available)]
    assert chosen == [available[turn % partitions] for turn in range(sum(counts))]
