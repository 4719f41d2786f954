"""Leader epoch to start offset: what lets a follower find where its log parts from the leader's (KIP-101, KIP-279).

Assignments enter (from leader elections and from batches that a follower appends), end offsets leave; one cache
belongs to one `PartitionLog`. Invariant: epochs and start offsets both rise strictly from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from odradek.base.types import NO_EPOCH, NO_OFFSET


class EpochEndOffset(NamedTuple):
    """The largest known epoch at or below the one asked for, and the offset at which it ends; (-1, -1): unknown."""

    leader_epoch: int
    end_offset: int


UNDEFINED = EpochEndOffset(NO_EPOCH, NO_OFFSET)


class EpochCache:
    """Sorted (epoch, start offset) entries of one log."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Entries as a checkpoint has them; one that contradicts an earlier one replaces it."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.changed = False
        """Whether entries differ from the checkpoint; its writer sets it back."""

    @property
    def latest_epoch(self) -> int:
        """The highest epoch; -1 when there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs in order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; whether anything changed.

        Later assignments win: entries that would break the order go, as after an unclean election. A repeat of the
        latest epoch changes nothing unless it starts earlier.
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
        self.changed = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where `epoch` ends in this log.

        The latest epoch ends at the log end. One between two entries is answered with the lower entry. One below all
        entries is answered with itself and the first start offset. One above all, or -1, is unknown.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._epochs, epoch)
        floor_epoch = self._epochs[higher - 1] if higher else epoch
        return EpochEndOffset(floor_epoch, self._starts[higher])

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 when it lies below the first entry."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or above the new log end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end at or below the new log start; the one that spans it now begins there."""
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return
        del self._starts[: gone - 1], self._epochs[: gone - 1]
        self._starts[0] = start_offset
        self.changed = True

    def clear(self) -> None:
        """Drop everything."""
        self.changed = self.changed or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
