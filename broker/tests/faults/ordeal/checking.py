"""Whether everything is there, once, in order: what was read against what was sent and acknowledged. Pure.

A reader hands over each record's place and number; sentences about what is wrong leave, a bounded number of them.
Records of a partition are numbered from 0 by its only writer, and nothing but its records is in it: so offsets have
no hole, and numbers follow one another.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ordeal.records import UNKNOWN_OFFSET, Acks, ForeignRecordError, read_value

MOST_SENTENCES: Final = 20
"""More are only counted."""
NEVER: Final = -2
"""Offset of a record that was not acknowledged, or not found."""


class Order:
    """One partition as it is read, from its beginning on."""

    def __init__(self, partition: int) -> None:
        """Nothing was read yet."""
        self._partition: Final = partition
        self.next_offset = 0
        self.next_number = 0

    def see(self, offset: int, value: bytes | None) -> tuple[int, str | None]:
        """The number of a record, and what is wrong with its place. Raises `ForeignRecordError`."""
        partition, number = read_value(value)
        if partition != self._partition:
            raise ForeignRecordError(f"a record of partition {partition} is in partition {self._partition}")
        wrong = None
        if offset != self.next_offset:
            wrong = f"partition {partition}: offset {offset} came where {self.next_offset} was expected"
        elif number < self.next_number:
            wrong = f"partition {partition}: record {number} came again at offset {offset}, doubled or out of order"
        elif number > self.next_number:
            wrong = (
                f"partition {partition}: record {number} came at offset {offset} where {self.next_number} was "
                "expected, which is lost or out of order"
            )
        self.next_offset, self.next_number = offset + 1, max(self.next_number, number + 1)
        return number, wrong


class Complaints:
    """Sentences; of many only the first are kept."""

    def __init__(self) -> None:
        """None yet."""
        self.sentences: list[str] = []
        self.count = 0

    def add(self, sentence: str | None) -> None:
        """One more, unless there is none."""
        if sentence is not None:
            self.count += 1
            if self.count <= MOST_SENTENCES:
                self.sentences.append(sentence)

    def told(self) -> list[str]:
        """What is shown."""
        more = self.count - len(self.sentences)
        return self.sentences + ([f"and {more} more"] if more else [])


class Reading:
    """All partitions, read from their beginnings to their ends."""

    def __init__(self, partitions: int) -> None:
        """Nothing was read yet."""
        self._orders: Final = [Order(partition) for partition in range(partitions)]
        self._found: Final = [array("q") for _ in range(partitions)]
        """Offset by number; an array, since there may be millions."""
        self.complaints: Final = Complaints()
        self.records = 0

    def see(self, partition: int, offset: int, value: bytes | None) -> None:
        """A record that was read."""
        self.records += 1
        try:
            number, wrong = self._orders[partition].see(offset, value)
        except ForeignRecordError as error:
            self.complaints.add(f"partition {partition}, offset {offset}: {error}")
            return
        self.complaints.add(wrong)
        places = self._found[partition]
        if number >= len(places):
            places.extend([NEVER] * (number + 1 - len(places)))
        if places[number] == NEVER:
            places[number] = offset

    def compare(self, acks: Acks) -> list[str]:
        """After the last record: every sentence there is to say, with those about acknowledged records."""
        for partition, places in enumerate(self._found):
            own = acks[acks["partition"] == partition]
            self._compare(partition, np.array(places, np.int64), own)
        return self.complaints.told()

    def _compare(self, partition: int, places: NDArray[np.int64], acks: Acks) -> None:
        numbers = acks["number"].astype(np.int64)
        found = np.full(len(numbers), NEVER, np.int64)
        known = numbers < len(places)
        found[known] = places[numbers[known]]
        for number in numbers[found == NEVER]:
            self.complaints.add(f"partition {partition}: record {number} was acknowledged and is lost")
        moved = (found != NEVER) & (acks["offset"] != UNKNOWN_OFFSET) & (acks["offset"] != found)
        for number, told, place in zip(numbers[moved], acks["offset"][moved], found[moved], strict=True):
            self.complaints.add(
                f"partition {partition}: record {number} was acknowledged at offset {told} and is at {place}"
            )
        unique, counts = np.unique(numbers, return_counts=True)
        for number in unique[counts > 1]:
            self.complaints.add(f"partition {partition}: record {number} was acknowledged twice")
