"""What has to reach the disk, decided on the loop and done on any thread.

`Durability.begin` makes a `FlushTicket`, `run` does the blocking work, `Durability.end` takes note; `PartitionLog` has
one. Invariants: `run` touches only what was captured; a log that is appended to, truncated or deleted meanwhile stays
whole; every batch below the recovery point is durable, and its segment's indexes are if it is sealed; every
transaction that began below `decided_below` was ended by a marker that is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import dirname

from odradek.base.ports import File, Files
from odradek.log import checkpoints
from odradek.log.epoch_cache import EpochCache
from odradek.log.segment import Segment
from odradek.log.segment_list import SegmentList


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTicket:
    """One flush of one log, up to `offset`."""

    offset: int
    decided_below: int
    """Begin of the earliest transaction that was open when the flush began, or `offset`."""
    generation: int
    """The log's count of truncations: a flush that began before one must not advance the recovery point."""
    data: tuple[File, ...]
    sealed: tuple[Segment, ...]
    """Segments whose indexes go to their files."""
    epochs: tuple[str, bytes] | None
    """Path and content of the epoch checkpoint, when it changed."""
    directories: tuple[str, ...]
    """Directories in which files were made."""

    def run(self, files: Files) -> None:
        """Make it durable. Blocks; raises `StorageError`."""
        for file in self.data:
            file.sync()
        for segment in self.sealed:
            segment.write_indexes()
        if self.epochs is not None:
            path, content = self.epochs
            files.write_atomically(path, content)
        for directory in self.directories:
            files.sync_directory(directory)


class Durability:
    """How far one log is durable, and what is still to be done for the rest."""

    __slots__ = (
        "checkpointed",
        "decided_below",
        "generation",
        "has_new_names",
        "is_checkpoint_stale",
        "is_named",
        "last_flush_ms",
        "recovery_point",
        "unflushed_records",
    )

    def __init__(self, recovery_point: int, *, decided_below: int, checkpointed: int, now_ms: float) -> None:
        """`checkpointed`: recovery point that the checkpoint on the disk has at least. `now_ms`: monotonic."""
        self.recovery_point = recovery_point
        """Every batch below is durable."""
        self.decided_below = decided_below
        """No transaction that began below can be open again after a crash: its marker is durable."""
        self.checkpointed = checkpointed
        self.is_checkpoint_stale = False
        """Whether the checkpoint on the disk may lie above the recovery point, after a truncation."""
        self.generation = 0
        """Counts truncations."""
        self.has_new_names = True
        """Whether files were made or renamed since the directory was synced."""
        self.is_named = False
        """Whether the log's own directory is known to be durable, by a sync of the one that it lies in."""
        self.last_flush_ms = now_ms
        self.unflushed_records = 0

    def restart_from(self, end_offset: int, first_open_offset: int | None) -> None:
        """The log was truncated to `end_offset`, and the earliest transaction open now begins at the other."""
        self.is_checkpoint_stale = self.is_checkpoint_stale or end_offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, end_offset)
        self.checkpointed = min(self.checkpointed, end_offset)
        self.decided_below = min(self.decided_below, decided_below(end_offset, first_open_offset))
        self.generation += 1
        self.has_new_names = True

    def note_checkpoint(self, recovery_point: int) -> None:
        """The checkpoint on the disk now has this recovery point."""
        self.checkpointed = min(recovery_point, self.recovery_point)
        self.is_checkpoint_stale = recovery_point > self.recovery_point

    def begin(
        self,
        directory: str,
        segments: SegmentList,
        epochs: EpochCache,
        *,
        end_offset: int,
        first_open_offset: int | None,
        now_ms: float,
    ) -> FlushTicket | None:
        """What a flush has to do now; None when everything is durable. Raises `StorageError`."""
        undurable = segments.all[segments.holding(self.recovery_point) :]
        unwritten = tuple(segment for segment in segments.all[:-1] if not segment.indexes_written)
        # Sealing may have cut a file whose batches were durable before: its length must be so before it is vouched for.
        touched = (*(segment for segment in unwritten if segment not in undurable), *undurable)
        if self.recovery_point == end_offset and not (unwritten or self.has_new_names or epochs.changed):
            return None
        checkpoint = None
        if epochs.changed:
            path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
            checkpoint = (path, checkpoints.encode_epochs(epochs.entries()))
            epochs.changed = False
        directories: tuple[str, ...] = ()
        if self.has_new_names:
            directories = (directory,) if self.is_named else (directory, dirname(directory))
            self.has_new_names, self.is_named = False, True
        self.unflushed_records = 0
        self.last_flush_ms = now_ms
        return FlushTicket(
            offset=end_offset,
            decided_below=decided_below(end_offset, first_open_offset),
            generation=self.generation,
            data=tuple(segment.file for segment in touched),
            sealed=unwritten,
            epochs=checkpoint,
            directories=directories,
        )

    def is_current(self, ticket: FlushTicket) -> bool:
        """Whether the log was not truncated since the flush began."""
        return ticket.generation == self.generation

    def end(self, ticket: FlushTicket, segments: SegmentList, end_offset: int) -> None:
        """Take note of a flush that is done."""
        if not self.is_current(ticket):
            return
        for segment in ticket.sealed:
            segment.indexes_written = True
            segments.cool(segment)
        self.recovery_point = max(self.recovery_point, min(ticket.offset, end_offset))
        self.decided_below = max(self.decided_below, ticket.decided_below)


def decided_below(end_offset: int, first_open_offset: int | None) -> int:
    """Up to where transactions are decided in a log with this end, of which the earliest open one begins there."""
    return end_offset if first_open_offset is None else first_open_offset
