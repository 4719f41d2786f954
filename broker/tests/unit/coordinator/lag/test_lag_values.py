"""Which timestamps have to be read."""

from __future__ import annotations

from uuid import UUID

from odradek.base.types import TopicPartition
from odradek.coordinator.lag.lag_values import MAX_AGE_MS, Place, RecordTimes


def place(offset: int, *, epoch: int = 0) -> Place:
    return Place(TopicPartition("t", 0), offset, epoch, UUID(int=1))


def test_a_timestamp_is_read_once_and_again_when_it_is_old() -> None:
    times = RecordTimes()
    assert times.due({place(5)}, 0.0, 10) == [place(5)]
    times.put(place(5), 1_000, 0.0)
    assert times.due({place(5)}, MAX_AGE_MS - 1, 10) == []
    assert times.age_seconds(place(5), 3_500) == 2.5
    assert times.age_seconds(place(5), 500) == 0
    # The log may have another record there after a change of its leader.
    assert times.due({place(5, epoch=1), place(5)}, 1.0, 10) == [place(5, epoch=1)]
    assert times.due({place(5)}, MAX_AGE_MS, 10) == [place(5)]


def test_places_that_are_not_needed_any_more_are_forgotten() -> None:
    times = RecordTimes()
    times.put(place(1), 1, 0.0)
    times.put(place(2), 2, 0.0)
    times.due({place(2)}, 1.0, 10)
    assert len(times) == 1
    assert times.age_seconds(place(1), 100) is None


def test_every_place_gets_its_turn() -> None:
    times, places = RecordTimes(), {place(offset) for offset in range(5)}
    turns = [[found.offset for found in times.due(places, 0.0, 2)] for _ in range(3)]
    assert turns == [[0, 1], [2, 3], [4, 0]]


def test_a_record_without_a_timestamp_has_no_age_and_a_missing_record_has_none() -> None:
    times = RecordTimes()
    times.put(place(1), -1, 0.0)
    times.put(place(2), None, 0.0)
    assert times.age_seconds(place(1), 100) is None
    assert times.age_seconds(place(2), 100) == 0
