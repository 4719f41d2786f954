"""Where a consumer group of the source continues in the target. Pure; used by `offset_syncs` and `group_follower`.

The copier reports pairs: all records before the source offset are before the target offset, and all others are not. Two
successive pairs bound a run. Inside a run, the target can lack records that compaction or an aborted transaction has
removed. Between runs, both sides can have transaction markers, which take an offset each.

Invariants:

1. A translated offset is never after the target offset of the first record that the group has not processed. So the
   group loses no record.
2. It is before that offset by at most the `slack` of the run.
3. Each partition keeps at most `MAX_RUNS` runs. To stay below, neighbours are joined where this adds the least slack in
   proportion to their distance from the end. So translations near the end are exact, and runs without gaps stay exact
   at any distance. The class OffsetSyncStore of Kafka 3.9 joins by distance alone.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition

MAX_RUNS: Final = 128
_JOINED_RUNS: Final = 96
"""Number of runs that are left after neighbours were joined."""
RUN_OFFSETS: Final = 100
"""A run with this number of source offsets does not grow if that would make it inexact; MirrorMaker 2 writes a sync for
this number, too (`offset.lag.max`)."""
MAX_SLACK: Final = 10
"""Highest `slack` of a run that grows beyond `RUN_OFFSETS`."""
_RUN: Final = struct.Struct(">qqq")


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """A range of source offsets and where its records are in the target."""

    source: int
    """The first source offset."""
    target: int
    """The target offset that belongs to it."""
    length: int = 0
    """Number of source offsets."""
    lost: int = 0
    """At most so many of these offsets have no record in the target."""
    end_target: int = -1
    """The target offset that belongs to the end of the range; by default, `target`."""

    def __post_init__(self) -> None:
        """Set the default of `end_target`."""
        if self.end_target < self.target:
            object.__setattr__(self, "end_target", self.target)

    @property
    def end_source(self) -> int:
        """The first source offset after the range."""
        return self.source + self.length

    @property
    def slack(self) -> int:
        """The offsets that the target lacks and has in addition: a translation is too low by at most this number."""
        return max(0, 2 * self.lost + (self.end_target - self.target) - self.length)

    def extended(self, source: int, target: int) -> OffsetRun:
        """Return the run with the range up to the next pair. The pair must not be before the end of the run.

        Offsets that only the target has are not counted: they are between the range before and the new one, so ignoring
        them makes a translation less exact, but never too high. Before the first record of the run, they are exact.
        """
        if source == self.source:
            return OffsetRun(source, target)
        lost = max(0, (source - self.end_source) - (target - self.end_target))
        return replace(self, length=source - self.source, lost=self.lost + lost, end_target=target)

    def joined(self, following: OffsetRun) -> OffsetRun:
        """Return one run for this one and the one that begins where it ends."""
        return replace(
            self,
            length=following.end_source - self.source,
            lost=self.lost + following.lost,
            end_target=following.end_target,
        )

    def translate(self, offset: int) -> int:
        """Return the target offset for a source offset that is not before the range."""
        if offset >= self.end_source:
            return self.end_target
        return self.target + max(0, offset - self.source - self.lost)

    def to_header(self) -> bytes:
        """Return what the record of an offset sync does not have: length, lost and end_target."""
        return _RUN.pack(self.length, self.lost, self.end_target)

    @classmethod
    def from_record(cls, source: int, target: int, header: bytes | None) -> OffsetRun:
        """Return the run of an offset sync. Without a header, MirrorMaker 2 wrote it for one record.

        Raises `ConfigError` if the header is not valid.
        """
        if header is None:
            return cls(source, target, 1, 0, target + 1)
        if len(header) != _RUN.size:
            raise ConfigError(f"the header of an offset sync has {len(header)} bytes: it must have {_RUN.size}")
        return cls._checked((source, target, *_RUN.unpack(header)))

    def to_list(self) -> list[int]:
        """Return all fields in order, for the metadata of a position."""
        return [self.source, self.target, self.length, self.lost, self.end_target]

    @classmethod
    def from_list(cls, fields: Sequence[int]) -> OffsetRun:
        """Return the run with the fields of `to_list`. Raises `ConfigError` if they are not valid."""
        return cls._checked(fields)

    @classmethod
    def _checked(cls, fields: Sequence[int]) -> OffsetRun:
        source, target, length, lost, end_target = fields
        if length < 0 or not 0 <= lost <= length or end_target < target:
            raise ConfigError(f"an offset run has the fields {length}, {lost}, {end_target}, which is not possible")
        return cls(source, target, length, lost, end_target)


def runs_with(run: OffsetRun | None, source: int, target: int) -> tuple[OffsetRun, ...]:
    """Return the run with the range up to the next pair. If that would be inexact, return the run and a second one for
    the new range. If the pair does not continue the run, return a new run.
    """
    if run is None or source < run.end_source or target < run.end_target:
        return (OffsetRun(source, target),)
    if (source, target) == (run.end_source, run.end_target):
        return (run,)
    grown = run.extended(source, target)
    if run.length < RUN_OFFSETS or grown.slack <= MAX_SLACK:
        return (grown,)
    return run, OffsetRun(run.end_source, run.end_target).extended(source, target)


def joined_runs(runs: Sequence[OffsetRun], most: int) -> list[OffsetRun]:
    """Join neighbours until there are at most `most` runs. The runs are in order, and `most` is at least 2."""
    kept = list(runs)
    while (surplus := len(kept) - most) > 0:
        end = kept[-1].end_source
        costs = [
            _cost_of_joining(first, second, end - first.source, is_last=index == len(kept) - 2)
            for index, (first, second) in enumerate(pairwise(kept))
        ]
        chosen: set[int] = set()
        for index in sorted(range(len(costs)), key=costs.__getitem__):
            if chosen and costs[index] == inf:
                break
            if index - 1 not in chosen and index + 1 not in chosen:
                chosen.add(index)
                if len(chosen) == surplus:
                    break
        kept = [
            _one_run(run, kept[index + 1]) if index in chosen else run
            for index, run in enumerate(kept)
            if index - 1 not in chosen
        ]
    return kept


def _touch(first: OffsetRun, second: OffsetRun) -> bool:
    return first.end_source == second.source and first.end_target <= second.target


def _cost_of_joining(first: OffsetRun, second: OffsetRun, distance: int, *, is_last: bool) -> float:
    """Return the slack of one run for both in proportion to its distance from the end."""
    if _touch(first, second):
        return first.joined(second).slack / max(1, distance)
    return inf if is_last else (second.end_source - first.end_source) / max(1, distance)


def _one_run(first: OffsetRun, second: OffsetRun) -> OffsetRun:
    """Return one run for two neighbours. If nobody knows what is between them, offsets in the second one and before it
    are translated to the end of the first one."""
    return first.joined(second) if _touch(first, second) else first


class OffsetRuns:
    """The runs of one partition, in the order of their offsets."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        """There are no runs at first."""
        self._runs: list[OffsetRun] = []

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def add(self, run: OffsetRun) -> None:
        """Add a run.

        Lower source offsets with higher target offsets mean that the partition was copied again from an earlier offset:
        older runs are forgotten then, as MirrorMaker 2 does. A run that is older on both sides arrived late, from the
        process that copied the partition before, or a second time, and is ignored.
        """
        runs = self._runs
        if runs and run.source < runs[-1].end_source and not self._make_room(run):
            return
        if runs and run.target < runs[-1].end_target:
            runs.clear()
        runs.append(run)
        if len(runs) > MAX_RUNS:
            self._runs = joined_runs(runs, _JOINED_RUNS)

    def _make_room(self, run: OffsetRun) -> bool:
        """Remove what a run replaces that begins before the end of the last one. Returns whether it is to be added."""
        runs = self._runs
        last = runs[-1]
        if run.source < last.source:
            if run.end_source <= last.end_source and run.end_target <= last.end_target:
                return False
            runs.clear()
        elif run.end_source <= last.end_source:
            return False
        elif run.source == last.source:
            runs.pop()
        elif run.target >= last.target:
            length = run.source - last.source
            runs[-1] = OffsetRun(last.source, last.target, length, min(last.lost, length), run.target)
        return True

    def translate(self, offset: int) -> int | None:
        """Return where to continue in the target. None if the offset is before all runs that are known."""
        index = bisect_right(self._runs, offset, key=_source) - 1
        return None if index < 0 else self._runs[index].translate(offset)


def _source(run: OffsetRun) -> int:
    return run.source


class OffsetTranslation:
    """The runs of all partitions of a source."""

    def __init__(self) -> None:
        """Nothing can be translated at first."""
        self._partitions: dict[TopicPartition, OffsetRuns] = {}

    def add(self, partition: TopicPartition, run: OffsetRun) -> None:
        """Add a run of a source partition."""
        self._partitions.setdefault(partition, OffsetRuns()).add(run)

    def forget(self, partition: TopicPartition) -> None:
        """Forget the runs of a source partition."""
        self._partitions.pop(partition, None)

    def translate(self, partition: TopicPartition, offset: int) -> int | None:
        """Return where a group with this offset of a source partition continues in the target. None if unknown."""
        runs = self._partitions.get(partition)
        return None if runs is None else runs.translate(offset)
