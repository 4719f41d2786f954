"""Log messages about a leader's refusals: few lines for any number of partitions and answers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.replication.follower.refusals import RefusalCount, Refusals


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_repeated_refusals_of_thousands_are_logged_once() -> None:
    refusals = Refusals()
    warned = []
    for _ in range(3):
        for number in range(5000):
            refusals.refused(partition(number), 74)
        warned.append(refusals.changes())
    assert warned == [[RefusalCount(74, 5000)], [], []]


def test_a_refusal_is_logged_again_when_the_number_has_doubled_and_when_it_ends() -> None:
    refusals = Refusals()
    warned = []
    for number in range(5):
        refusals.refused(partition(number), 75)
        warned += refusals.changes()
    for number in range(5):
        refusals.settled(partition(number))
        warned += refusals.changes()
    assert warned == [RefusalCount(75, 1), RefusalCount(75, 2), RefusalCount(75, 4), RefusalCount(75, 0)]


def test_another_error_takes_the_place_of_the_first() -> None:
    refusals = Refusals()
    refusals.refused(partition(0), 75)
    assert refusals.changes() == [RefusalCount(75, 1)]
    refusals.refused(partition(0), 74)
    assert refusals.changes() == [RefusalCount(74, 1), RefusalCount(75, 0)]


def test_refusals_that_end_between_two_calls_are_not_logged() -> None:
    refusals = Refusals()
    refusals.refused(partition(0), 75)
    refusals.settled(partition(0))
    refusals.settled(partition(0))
    assert refusals.changes() == []
    refusals.refused(partition(0), 75)
    assert refusals.changes() == [RefusalCount(75, 1)]


answers = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 6, 74])))


@given(st.lists(answers, max_size=8))
def test_the_last_logged_number_is_within_a_factor_of_two(rounds: list[list[tuple[int, int]]]) -> None:
    refusals, refused = Refusals(), dict[int, int]()
    known: dict[int, int] = {}
    for answered in rounds:
        for number, code in answered:
            if code:
                refused[number] = code
                refusals.refused(partition(number), code)
            else:
                refused.pop(number, None)
                refusals.settled(partition(number))
        known |= dict(refusals.changes())
        counts = Counter(refused.values())
        for code in (6, 74):
            assert bool(known.get(code)) is bool(counts[code])
            assert counts[code] < 2 * known.get(code, 0) or not counts[code]
