"""Leader epochs and their start offsets, with which a follower finds where its log diverges (KIP-101, KIP-279).

Entries come from leader elections and from batches that a follower appends. Each `PartitionLog` has one cache.
Invariant: epochs and start offsets both strictly increase from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from odradek.base.types import NO_EPOCH, NO_OFFSET


class EpochEndOffset(NamedTuple):
    """The largest known epoch at or below the requested one, and its end offset; (-1, -1) if unknown."""

    leader_epoch: int
    end_offset: int


UNDEFINED = EpochEndOffset(NO_EPOCH, NO_OFFSET)


class EpochCache:
    """Sorted (epoch, start offset) entries of one log."""

    __slots__ = ("_epochs", "_starts", "version", "written")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Load the entries of a checkpoint; an entry that contradicts an earlier one replaces it."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.version = 0
        """Number of changes."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.written = self.version
        """The version in the checkpoint; set by the code that writes it."""

    @property
    def changed(self) -> bool:
        """Whether the entries may differ from the checkpoint."""
        return self.version != self.written

    @property
    def latest_epoch(self) -> int:
        """The highest epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs in order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`. Returns whether anything changed.

        Later assignments win: entries that would break the order are removed, as after an unclean election. A repeat
        of the latest epoch changes nothing unless it starts earlier.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} and start offset {start_offset} must not be negative")
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.version += 1
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return where `epoch` ends in this log.

        The latest epoch ends at the log end. For an epoch between two entries the lower entry is returned. For an epoch
        below all entries the result is that epoch and the first start offset. An epoch above all, or -1, is unknown.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._epochs, epoch)
        floor_epoch = self._epochs[higher - 1] if higher else epoch
        return EpochEndOffset(floor_epoch, self._starts[higher])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which `offset` was written; -1 if it is below the first entry."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or above the new log end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.version += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below the new log start; the epoch that spans it now begins there."""
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return
        del self._starts[: gone - 1], self._epochs[: gone - 1]
        self._starts[0] = start_offset
        self.version += 1

    def clear(self) -> None:
        """Remove all entries."""
        self.version += bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
