"""The algorithms against the text of the documents: one owner for each partition, evenly divided, in any order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.classic.assignment import ConsumerThread, assign_range, assign_round_robin, threads_of

CONSUMERS = st.dictionaries(st.text("abcxyz-_.", min_size=1, max_size=6), st.integers(1, 4), min_size=1, max_size=6)
NUMBERS = st.sets(st.integers(0, 40), max_size=20)


def all_threads(consumers: dict[str, int]) -> list[ConsumerThread]:
    return [thread for consumer, streams in consumers.items() for thread in threads_of(consumer, streams)]


@given(consumers=CONSUMERS, numbers=NUMBERS, random=st.randoms())
def test_a_topic_is_divided_evenly_whatever_the_order(consumers: dict[str, int], numbers: set[int], random) -> None:  # type: ignore[no-untyped-def]
    threads = all_threads(consumers)
    owners = assign_range({"t": numbers}, {"t": threads})
    assert owners.keys() == {TopicPartition("t", number) for number in numbers}
    counts = Counter(dict.fromkeys(threads, 0))
    counts.update(owners.values())
    assert max(counts.values()) - min(counts.values()) <= 1
    random.shuffle(threads)
    shuffled = list(numbers)
    random.shuffle(shuffled)
    assert assign_range({"t": shuffled}, {"t": threads}) == owners


@given(consumers=CONSUMERS, numbers=NUMBERS)
def test_it_is_the_algorithm_of_the_text(consumers: dict[str, int], numbers: set[int]) -> None:
    """Steps 4 to 7, where size(PT) is a multiple of size(CG): Ci gets the partitions i*N to (i+1)*N - 1."""
    group = sorted(all_threads(consumers), key=lambda thread: thread.name)
    partitions = sorted(numbers)[: len(numbers) // len(group) * len(group)]
    each = len(partitions) // len(group)
    owners = assign_range({"t": partitions}, {"t": group})
    for i, thread in enumerate(group):
        for number in partitions[i * each : (i + 1) * each]:
            assert owners[TopicPartition("t", number)] == thread


@given(consumers=CONSUMERS, topics=st.dictionaries(st.sampled_from("tuv"), NUMBERS, min_size=1))
def test_round_robin_is_even_over_all_topics(consumers: dict[str, int], topics: dict[str, set[int]]) -> None:
    threads = all_threads(consumers)
    owners = assign_round_robin(topics, dict.fromkeys(topics, threads))
    assert owners.keys() == {TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers}
    counts = Counter(dict.fromkeys(threads, 0))
    counts.update(owners.values())
    assert max(counts.values()) - min(counts.values()) <= 1
