"""Which partitions a leader refuses to a fetch loop, and what of that is worth a line in the log.

After an election a leader may refuse thousands at once, each of them a few times. `follower` tells every answer; what
leaves through `news` follows from how many are refused now, not from time: a line when an error begins, whenever the
number of partitions with it has doubled since the last line, and when it is over.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from odradek.base.types import TopicPartition


class Refusal(NamedTuple):
    """How many partitions have an error now; 0: it is over."""

    error_code: int
    partitions: int


class Refusals:
    """The refused partitions of one leader."""

    __slots__ = ("_codes", "_counts", "_told")

    def __init__(self) -> None:
        """Nothing is refused."""
        self._codes: dict[TopicPartition, int] = {}
        self._counts: Counter[int] = Counter()
        self._told: dict[int, int] = {}

    def refused(self, topic_partition: TopicPartition, error_code: int) -> None:
        """The leader answered with an error, which takes an earlier one's place."""
        self.settled(topic_partition)
        self._codes[topic_partition] = error_code
        self._counts[error_code] += 1

    def settled(self, topic_partition: TopicPartition) -> None:
        """It is served, not followed any more, or followed anew; nothing when it was not refused."""
        error_code = self._codes.pop(topic_partition, None)
        if error_code is not None:
            self._counts[error_code] -= 1

    def news(self) -> list[Refusal]:
        """What is to be told since the last call, by error code."""
        news: list[Refusal] = []
        for error_code, count in sorted(self._counts.items()):
            told = self._told.get(error_code, 0)
            if count >= max(1, 2 * told):
                self._told[error_code] = count
                news.append(Refusal(error_code, count))
            elif not count:
                del self._counts[error_code]
                if self._told.pop(error_code, 0):
                    news.append(Refusal(error_code, 0))
        return news
