"""Violations that are detected when an event is recorded, and the commits that a fetch may return."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import Answer, GroupHistory, History, Reading

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_ids_of_a_producer_grow() -> None:
    producer = History().producer("p0", idempotent=True)
    ids = [producer.send("t", None).record_id for _ in range(12)]
    assert all(before < after for before, after in pairwise(ids))


def test_answers_are_counted() -> None:
    history = History()
    one, two = history.producer("a", idempotent=True), history.producer("b", idempotent=False)
    one.send("t", None).acknowledged(1, 7)
    one.send("t", 0).refused("NetworkError")
    two.send("t", 0)
    assert [history.count(answer) for answer in Answer] == [1, 1, 1]


@pytest.mark.parametrize(("offset", "invariant"), [(4, "seen-once"), (10, "seen-replicated"), (11, "seen-replicated")])
def test_a_reader_sees_replicated_records_once(offset: int, invariant: str) -> None:
    reading = Reading(high_watermark=10)
    reading.note_read("reader", T0, 4, b"x")
    reading.note_read("reader", T0, 9, b"y")
    with pytest.raises(Violation) as caught:
        reading.note_read("reader", T0, offset, b"z")
    assert caught.value.invariant == invariant


def test_a_partition_has_one_owner_in_a_generation() -> None:
    group = GroupHistory()
    group.assigned(1, "a", (T0, T1))
    group.assigned(2, "b", (T0,))
    group.assigned(2, "b", (T0,))
    with pytest.raises(Violation, match="one-owner") as caught:
        group.assigned(2, "a", (T1, T0))
    assert caught.value.invariant == "one-owner"


def test_a_member_gives_a_partition_up_before_another_one_gets_it() -> None:
    group = GroupHistory()
    group.assigned(3, "a", (T0, T1))
    group.assigned(4, "b", (T0,))
    group.assigned(3, "a", (T1, T0))
    with pytest.raises(Violation, match=r"a had .* when b got it in generation 4"):
        group.assigned(4, "a", (T1,))
    group.removed("a")
    group.assigned(5, "a", (T1,))


def test_a_generation_number_may_be_used_again_after_an_unclean_election() -> None:
    group = GroupHistory(clean=False)
    group.assigned(1, "a", (T0,))
    group.assigned(1, "b", (T0,))
    assert group.owners == {(1, T0): "b"}


def test_the_last_acknowledged_commit_stays() -> None:
    group = GroupHistory()
    assert group.may_be_committed(T0) == {None}
    first = group.commit({T0: 5, T1: 1}, 10.0)
    assert group.may_be_committed(T0) == {None, 5}
    group.settle(first, Answer.ACKNOWLEDGED, 20.0)
    assert group.may_be_committed(T0) == {5}
    second = group.commit({T0: 8}, 30.0)
    assert group.may_be_committed(T0) == {5, 8}
    group.settle(second, Answer.ACKNOWLEDGED, 40.0)
    assert (group.may_be_committed(T0), group.may_be_committed(T1)) == ({8}, {1})


def test_commits_at_the_same_time_may_win_in_any_order() -> None:
    group = GroupHistory()
    slow, quick = group.commit({T0: 3}, 10.0), group.commit({T0: 6}, 11.0)
    group.settle(quick, Answer.ACKNOWLEDGED, 12.0)
    group.settle(slow, Answer.ACKNOWLEDGED, 15.0)
    assert group.may_be_committed(T0) == {3, 6}


def test_a_commit_without_an_answer_may_come_late_and_a_refused_one_never() -> None:
    group = GroupHistory()
    group.commit({T0: 3}, 10.0)
    refused = group.commit({T0: 4}, 11.0)
    group.settle(refused, Answer.REFUSED, 12.0)
    done = group.commit({T0: 9}, 20.0)
    group.settle(done, Answer.ACKNOWLEDGED, 21.0)
    assert group.may_be_committed(T0) == {3, 9}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.booleans()), max_size=12))
def test_what_a_store_of_one_value_holds_is_always_allowed(commits: list[tuple[int, int, bool]]) -> None:
    """In this model, each commit is applied halfway between its begin and its end, and the last one remains."""
    group = GroupHistory()
    applied: list[tuple[float, int]] = []
    for offset, (began, lasts, is_told) in enumerate(commits):
        begun = group.commit({T0: offset}, float(began))
        if is_told:
            group.settle(begun, Answer.ACKNOWLEDGED, float(began + lasts))
        applied.append((began + lasts / 2, offset))
    held = max(applied)[1] if applied else None
    assert held in group.may_be_committed(T0)


def test_lines_tell_everything() -> None:
    def lines(offset: int) -> list[str]:
        history = History()
        history.producer("p", idempotent=True).send("t", 0).acknowledged(0, offset)
        history.reading("reader", T0).records[0] = b"x"
        history.group("g").assigned(1, "a", (T0,))
        history.group("g").commit({T0: 1}, 5.0)
        return history.lines()

    assert lines(1) == lines(1) != lines(2)
    assert len(lines(1)) == 4
