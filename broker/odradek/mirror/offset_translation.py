"""Where a consumer group of the source continues in the target. Pure; used by `offset_syncs` and `group_follower`.

The copier reports pairs: all records before the source offset are before the target offset, and all others are not. Two
successive pairs bound a run. Inside a run, the target can lack records that compaction or an aborted transaction has
removed. Between runs, both sides can have transaction markers, which take an offset each.

Invariants:

1. A translated offset is never after the target offset of the first record that the group has not processed. So the
   group loses no record.
2. It is before that offset by at most the offsets that the run of the group's offset lacks or has in addition.
3. Each partition keeps at most `MAX_RUNS` runs. They are dense at the end and get sparse towards the beginning, as in
   the class OffsetSyncStore of Kafka 3.9: at a distance of d offsets from the end, runs are at most d offsets long.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition

MAX_RUNS: Final = 128
"""Two for each power of two that a distance between offsets can have."""
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

    def followed_by(self, later: OffsetRun) -> OffsetRun:
        """Return one run for this one and a later one of the same copy; only the later one if it is not later."""
        if later.source < self.end_source or later.target < self.end_target:
            return later
        return self.extended(later.source, later.target).joined(later) if self.length else later

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


def run_with(run: OffsetRun | None, source: int, target: int) -> OffsetRun:
    """Return a run with the range up to the next pair, or a new run if the pair does not continue the run."""
    if run is None or source < run.end_source or target < run.end_target:
        return OffsetRun(source, target)
    return run if (source, target) == (run.end_source, run.end_target) else run.extended(source, target)


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
            self._thin_out()

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

    def _thin_out(self) -> None:
        """Keep at most two runs for each power of two of the distance from the end."""
        end = self._runs[-1].end_source
        kept: list[OffsetRun] = []
        levels: list[int] = []
        for run in self._runs:
            level = (end - run.source).bit_length()
            if levels[-2:] == [level, level]:
                # The third run at this level: the second one gives way, and the first one takes over its range.
                levels.pop()
                second = kept.pop()
                first = kept[-1]
                if first.end_source == second.source and first.end_target <= second.target:
                    kept[-1] = first.joined(second)
            kept.append(run)
            levels.append(level)
        self._runs = kept


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
