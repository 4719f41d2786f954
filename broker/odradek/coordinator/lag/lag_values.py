"""The values of the lag monitor: what it observes and provides, and which timestamps it has to find. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.types import NO_TIMESTAMP, TopicPartition

MAX_AGE_MS: Final = 600_000.0
"""A timestamp is read again after this time, because retention may have deleted its record."""


class LagSettings(NamedTuple):
    """The settings `group.lag.*`."""

    is_enabled: bool
    interval_ms: int
    max_partitions: int

    @classmethod
    def of(cls, config: BrokerConfig) -> LagSettings:
        """Return the settings of a broker."""
        return cls(
            config.group_lag_metrics_enable,
            config.group_lag_refresh_interval_ms,
            config.group_lag_metrics_max_partitions,
        )


class ObservedGroup(Protocol):
    """A group that this broker coordinates."""

    @property
    def group_id(self) -> str:
        """The id."""
        ...

    @property
    def member_count(self) -> int:
        """Number of members now."""
        ...

    @property
    def is_coordinated(self) -> bool:
        """Whether the group still exists here: it may have been deleted, or moved to another broker."""
        ...

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offsets, without those of open transactions."""
        ...


class PartitionLag(NamedTuple):
    """The lag of a group in one partition."""

    labels: Mapping[str, str]
    committed: int
    records: int | None
    """None if the end of the partition is unknown."""
    seconds: float | None
    """The age of the first record that the group has not read; 0 if there is none, None if it is unknown."""


class MeasuredGroup(NamedTuple):
    """A group with its lag, and the lines of its metrics by series."""

    group: ObservedGroup
    partitions: tuple[PartitionLag, ...]
    lines: Mapping[str, bytes]


class Place(NamedTuple):
    """An offset of a log. Another topic of the same name, or a log after a change of its leader, is another one."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    topic_id: UUID


class _KnownTime(NamedTuple):
    timestamp: int | None
    found_ms: float


class RecordTimes:
    """The timestamps of the first records at places, which are read once and kept while they are needed."""

    def __init__(self) -> None:
        """Create an object that knows no timestamps."""
        self._known: dict[Place, _KnownTime] = {}
        self._turn: Place | None = None

    def __len__(self) -> int:
        """Return the number of places with a known timestamp."""
        return len(self._known)

    def due(self, places: Iterable[Place], now_ms: float, limit: int) -> list[Place]:
        """Forget all other places, and return up to `limit` places whose timestamp has to be read now.

        If there are more, the next call begins with the remaining ones.
        """
        self._known = {
            place: self._known[place]
            for place in places
            if place in self._known and now_ms - self._known[place].found_ms < MAX_AGE_MS
        }
        missing = sorted(set(places) - self._known.keys())
        if len(missing) > limit:
            start = 0 if self._turn is None else bisect_right(missing, self._turn)
            missing = (missing[start:] + missing[:start])[:limit]
            self._turn = missing[-1]
        return missing

    def put(self, place: Place, timestamp: int | None, now_ms: float) -> None:
        """Add a timestamp; None if only transaction markers follow."""
        if timestamp != NO_TIMESTAMP:
            self._known[place] = _KnownTime(timestamp, now_ms)

    def age_seconds(self, place: Place, wall_ms: int) -> float | None:
        """Return the age of the first record at a place; 0 if there is none, None if the age is unknown."""
        known = self._known.get(place)
        if known is None:
            return None
        return 0.0 if known.timestamp is None else max(0, wall_ms - known.timestamp) / 1000


def portions(items: Sequence[TopicPartition], size: int) -> list[Sequence[TopicPartition]]:
    """Return the items in pieces of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
