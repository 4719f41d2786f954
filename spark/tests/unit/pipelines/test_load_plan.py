"""Which offsets a run of `load` reads, for any history of runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import from_spark, to_spark
from pyspark_odradek.pipelines.load_plan import LoadPlan, check_selection, check_topic_ids, plan, plan_reload
from pyspark_odradek.pipelines.manifest import ArchiveError, Manifest

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
Offsets = dict[TopicPartition, int]


def manifest(number: int, made: LoadPlan) -> Manifest:
    return Manifest(
        run=number,
        start=to_spark(made.start),
        end=to_spark(made.known),
        rows=0,
        files=(),
        topic_ids={"a": "1"},
        replaces=tuple(run.run for run in made.replaced),
    )


def test_a_run_continues_and_takes_new_partitions() -> None:
    first = plan(None, {A0: 3}, {A0: 5})
    assert (first.start, first.end) == ({A0: 3}, {A0: 5})
    second = plan(manifest(1, first), {A0: 0, A1: 2}, {A0: 9, A1: 4})
    assert (second.start, second.end) == ({A0: 5, A1: 2}, {A0: 9, A1: 4})


def test_offsets_of_a_deleted_topic_are_kept() -> None:
    first = plan(None, {A0: 0, B0: 0}, {A0: 5, B0: 7})
    second = plan(manifest(1, first), {A0: 0}, {A0: 6})
    assert (second.start, second.end, second.known) == ({A0: 5}, {A0: 6}, {A0: 6, B0: 7})
    third = plan(manifest(2, second), {A0: 0, B0: 0}, {A0: 6, B0: 9})
    assert third.start == {A0: 6, B0: 7}


def test_a_reload_replaces_whole_runs() -> None:
    runs = [manifest(1, plan(None, {A0: 0}, {A0: 10}))]
    runs.append(manifest(2, plan(runs[-1], {A0: 0, A1: 0}, {A0: 20, A1: 5})))
    runs.append(manifest(3, plan(runs[-1], {A0: 0, A1: 0}, {A0: 30, A1: 9})))
    made = plan_reload(runs, {A0: 15, A1: 9}, {A0: 3, A1: 0}, {A0: 31, A1: 9})
    assert [run.run for run in made.replaced] == [2, 3]
    assert (made.start, made.end) == ({A0: 10, A1: 0}, {A0: 31, A1: 9})


def test_a_reload_from_the_end_replaces_nothing() -> None:
    runs = [manifest(1, plan(None, {A0: 0}, {A0: 10}))]
    made = plan_reload(runs, {A0: 10, A1: 4}, {A0: 0, A1: 0}, {A0: 12, A1: 6})
    assert (made.replaced, made.start) == ((), {A0: 10, A1: 4})
    assert plan_reload([], {A0: 10}, {A0: 0}, {A0: 12}).start == {A0: 10}


def test_a_reload_never_loses_what_the_topic_no_longer_has() -> None:
    runs = [manifest(1, plan(None, {A0: 0, B0: 0}, {A0: 10, B0: 1}))]
    with pytest.raises(ArchiveError, match="records of a-0 from offset 0 on are no longer in the topic"):
        plan_reload(runs, {A0: 5, B0: 0}, {A0: 1, B0: 0}, {A0: 12, B0: 1})
    with pytest.raises(ArchiveError, match="records of b-0 from offset 0 on"):
        plan_reload(runs, {A0: 5}, {A0: 0}, {A0: 12})


def test_a_topic_must_be_selected_as_before() -> None:
    last = manifest(1, plan(None, {A0: 0}, {A0: 10}))
    check_selection(last, lambda topic: topic == "a")
    check_selection(None, lambda topic: False)
    with pytest.raises(ArchiveError, match="has records of topic a, which this run does not read"):
        check_selection(last, lambda topic: topic == "b")


def test_a_topic_made_anew_is_noticed_by_its_id() -> None:
    last = manifest(1, plan(None, {A0: 0}, {A0: 10}))
    check_topic_ids(last, {"a": "1", "b": "2"})
    check_topic_ids(None, {"a": "2"})
    with pytest.raises(ArchiveError, match="topic a was deleted and created again"):
        check_topic_ids(last, {"a": "2"})


growth = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(0, 30)), max_size=8)


@given(growth)
def test_each_offset_is_in_exactly_one_run(steps: list[tuple[int, int, int | None]]) -> None:
    """The topic grows, and some runs load again from a random offset on."""
    earliest, latest = {A0: 0, A1: 0}, {A0: 0, A1: 0}
    history: list[Manifest] = []
    for number, (more, more_of_other, since) in enumerate(steps, 1):
        latest = {A0: latest[A0] + more, A1: latest[A1] + more_of_other}
        if since is None or not history:
            made = plan(history[-1] if history else None, earliest, latest)
        else:
            made = plan_reload(history, {part: min(since, end) for part, end in latest.items()}, earliest, latest)
        run = manifest(number, made)
        history = [each for each in history if each.run not in run.replaces] + [run]
        for partition, end in latest.items():
            offsets = [
                offset
                for each in history
                for offset in range(from_spark(each.start)[partition], from_spark(each.end)[partition])
            ]
            assert sorted(offsets) == list(range(end))
