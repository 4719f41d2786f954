"""Checks that every acknowledged record was read exactly once and in order. Pure.

A reader adds the position and the number of each record. The result is a list of violations with a limited length. Each
partition has one writer, which numbers its records from 0, and has no other records. So offsets have no gaps, and the
numbers are consecutive.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ordeal.records import UNKNOWN_OFFSET, Acks, ForeignRecordError, read_value

MOST_SENTENCES: Final = 20
"""Maximum number of violations that are stored. Further ones are only counted."""
NEVER: Final = -2
"""Offset of a record that was not acknowledged or not found."""


class Order:
    """The check of one partition, which is read from its beginning."""

    def __init__(self, partition: int) -> None:
        """Create a check that has read nothing."""
        self._partition: Final = partition
        self.next_offset = 0
        self.next_number = 0

    def see(self, offset: int, value: bytes | None) -> tuple[int, str | None]:
        """Return the number of a record and the violation, if there is one. Raises `ForeignRecordError`."""
        partition, number = read_value(value)
        if partition != self._partition:
            raise ForeignRecordError(f"a record of partition {partition} is in partition {self._partition}")
        wrong = None
        if offset != self.next_offset:
            wrong = f"partition {partition}: the next offset was {offset}, expected {self.next_offset}"
        elif number < self.next_number:
            wrong = (
                f"partition {partition}: record {number} was read again at offset {offset}, duplicated or out of order"
            )
        elif number > self.next_number:
            wrong = (
                f"partition {partition}: record {number} was read at offset {offset}, expected {self.next_number}, "
                "which is lost or out of order"
            )
        self.next_offset, self.next_number = offset + 1, max(self.next_number, number + 1)
        return number, wrong


class Complaints:
    """Descriptions of violations. Only the first ones are stored."""

    def __init__(self) -> None:
        """None yet."""
        self.messages: list[str] = []
        self.count = 0

    def add(self, message: str | None) -> None:
        """Add a violation; None is ignored."""
        if message is not None:
            self.count += 1
            if self.count <= MOST_SENTENCES:
                self.messages.append(message)

    def shown(self) -> list[str]:
        """Return the violations to show."""
        more = self.count - len(self.messages)
        return self.messages + ([f"and {more} more"] if more else [])


class Reading:
    """The check of all partitions."""

    def __init__(self, partitions: int) -> None:
        """Create a check that has read nothing."""
        self._orders: Final = [Order(partition) for partition in range(partitions)]
        self._found: Final = [array("q") for _ in range(partitions)]
        """Offset by number. It is an array, because there may be millions."""
        self.complaints: Final = Complaints()
        self.records = 0

    def see(self, partition: int, offset: int, value: bytes | None) -> None:
        """Add a record that was read."""
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
        """Return all violations after the last record, including those of acknowledged records."""
        for partition, places in enumerate(self._found):
            own = acks[acks["partition"] == partition]
            self._compare(partition, np.array(places, np.int64), own)
        return self.complaints.shown()

    def _compare(self, partition: int, places: NDArray[np.int64], acks: Acks) -> None:
        numbers = acks["number"].astype(np.int64)
        found = np.full(len(numbers), NEVER, np.int64)
        known = numbers < len(places)
        found[known] = places[numbers[known]]
        for number in numbers[found == NEVER]:
            self.complaints.add(f"partition {partition}: record {number} was acknowledged and is lost")
        moved = (found != NEVER) & (acks["offset"] != UNKNOWN_OFFSET) & (acks["offset"] != found)
        for number, acknowledged, place in zip(numbers[moved], acks["offset"][moved], found[moved], strict=True):
            self.complaints.add(
                f"partition {partition}: record {number} was acknowledged at offset {acknowledged} and is at {place}"
            )
        unique, counts = np.unique(numbers, return_counts=True)
        for number in unique[counts > 1]:
            self.complaints.add(f"partition {partition}: record {number} was acknowledged twice")
