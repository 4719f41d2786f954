"""The comparison of the records read with the acknowledged ones reports each kind of violation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordeal.checking import MOST_SENTENCES, Complaints, Order, Reading
from ordeal.records import ACK, Acks, ForeignRecordError, value_of


def acks(*entries: tuple[int, int, int]) -> Acks:
    """Return acknowledgements from tuples of partition, number and offset."""
    return np.array([(*entry, 0.0) for entry in entries], ACK)


def read(*numbers: int, partition: int = 0, start: int = 0) -> Reading:
    """Return the check after it has read these records of one partition at consecutive offsets."""
    reading = Reading(2)
    for place, number in enumerate(numbers):
        reading.see(partition, start + place, value_of(partition, number))
    return reading


@given(st.integers(0, 200), st.sets(st.integers(0, 199)))
def test_everything_once_and_in_order_is_right(count: int, acknowledged: set[int]) -> None:
    confirmed = acks(*((0, number, number) for number in acknowledged if number < count))
    reading = read(*range(count))
    assert reading.compare(confirmed) == []
    assert reading.records == count


@pytest.mark.parametrize(
    ("numbers", "confirmed", "message"),
    [
        ((0, 1), ((0, 2, 2),), "record 2 was acknowledged and is lost"),
        ((0, 2), ((0, 1, 1),), "record 1 was acknowledged and is lost"),
        ((0, 2), (), "record 2 was read at offset 1, expected 1"),
        ((0, 1, 1), (), "record 1 was read again at offset 2"),
        ((0, 2, 1), (), "record 1 was read again at offset 2"),
        ((0, 1, 2), ((0, 1, 2),), "record 1 was acknowledged at offset 2 and is at 1"),
        ((0, 1), ((0, 1, 1), (0, 1, 1)), "record 1 was acknowledged twice"),
        ((), ((1, 0, 0),), "partition 1: record 0 was acknowledged and is lost"),
    ],
)
def test_what_is_wrong_is_told(
    numbers: tuple[int, ...], confirmed: tuple[tuple[int, int, int], ...], message: str
) -> None:
    assert any(message in each for each in read(*numbers).compare(acks(*confirmed)))


def test_an_unknown_offset_is_no_other_place() -> None:
    assert read(0, 1).compare(acks((0, 1, -1))) == []


def test_a_hole_in_the_offsets_is_told() -> None:
    assert "the next offset was 5, expected 0" in read(0, start=5).compare(acks())[0]


def test_a_record_of_another_partition_is_told() -> None:
    reading = Reading(2)
    reading.see(0, 0, value_of(1, 0))
    reading.see(1, 0, b"something else")
    assert ["a record of partition 1" in reading.compare(acks())[0], len(reading.compare(acks()))] == [True, 2]


def test_an_order_goes_on_after_a_complaint() -> None:
    order = Order(0)
    assert order.see(0, value_of(0, 0)) == (0, None)
    number, wrong = order.see(1, value_of(0, 3))
    assert (number, wrong is not None) == (3, True)
    assert order.see(2, value_of(0, 4)) == (4, None)
    with pytest.raises(ForeignRecordError):
        order.see(3, value_of(1, 5))


def test_sentences_are_bounded() -> None:
    complaints = Complaints()
    complaints.add(None)
    for number in range(MOST_SENTENCES + 3):
        complaints.add(str(number))
    assert complaints.shown() == [str(number) for number in range(MOST_SENTENCES)] + ["and 3 more"]
