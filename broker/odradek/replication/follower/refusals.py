"""Tracks partitions for which a leader returns errors to a fetch loop, and decides what to log.

After an election a leader may refuse thousands of partitions at once, each several times. `fetch_loop` reports every
answer. The result of `changes` depends on the number of refused partitions, not on time: one line when an error begins,
one whenever the number of partitions with it has doubled since the last line, and one when it is over.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from odradek.base.types import TopicPartition


class RefusalCount(NamedTuple):
    """Current number of partitions with an error; 0: the error is over."""

    error_code: int
    partitions: int


class Refusals:
    """The refused partitions of one leader."""

    __slots__ = ("_codes", "_counts", "_told")

    def __init__(self) -> None:
        """Start without refused partitions."""
        self._codes: dict[TopicPartition, int] = {}
        self._counts: Counter[int] = Counter()
        self._told: dict[int, int] = {}

    def refused(self, topic_partition: TopicPartition, error_code: int) -> None:
        """Record an error for the partition; it replaces an earlier one."""
        self.settled(topic_partition)
        self._codes[topic_partition] = error_code
        self._counts[error_code] += 1

    def settled(self, topic_partition: TopicPartition) -> None:
        """Clear the error: the partition is served, removed or followed again. Does nothing if it was not refused."""
        error_code = self._codes.pop(topic_partition, None)
        if error_code is not None:
            self._counts[error_code] -= 1

    def changes(self) -> list[RefusalCount]:
        """Return what to log since the last call, by error code."""
        changes: list[RefusalCount] = []
        for error_code, count in sorted(self._counts.items()):
            told = self._told.get(error_code, 0)
            if count >= max(1, 2 * told):
                self._told[error_code] = count
                changes.append(RefusalCount(error_code, count))
            elif not count:
                del self._counts[error_code]
                if self._told.pop(error_code, 0):
                    changes.append(RefusalCount(error_code, 0))
        return changes
