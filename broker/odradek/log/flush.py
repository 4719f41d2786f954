"""Flushes of one log: decided on the loop, run on any thread.

`Durability.begin` returns a `FlushTicket`, `FlushTicket.run` does the blocking work, and `Durability.end` records the
result; each `PartitionLog` has one `Durability`. Invariants: `run` uses only what the ticket captured, so the log may
be appended to, truncated or deleted meanwhile; it changes no name of a file after the event loop has voided the flush,
because on a slow disk other files may have these names by then (`file_names`); every batch below the recovery point is
durable, and so are the indexes of sealed segments there; every transaction that began below `decided_below` has ended
with a durable marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import dirname
from typing import Final

from odradek.base.ports import File, Files
from odradek.log import checkpoints
from odradek.log.epoch_cache import EpochCache
from odradek.log.file_names import FlushNames
from odradek.log.segments.segment import TEMPORARY_SUFFIX, Segment
from odradek.log.segments.segment_list import SegmentList

NO_LIMIT: Final = (1 << 63) - 1
"""Durable limit of a log while no records wait for a required flush; above every offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTicket:
    """One flush of one log, up to `offset`."""

    offset: int
    decided_below: int
    """First offset of the earliest transaction that was open when the flush began, or `offset`."""
    generation: int
    """The log's number of truncations: a flush that began before a truncation must not advance the recovery point."""
    data: tuple[File, ...]
    sealed: tuple[Segment, ...]
    """Segments whose index files are written."""
    epochs: tuple[str, bytes] | None
    """Path and content of the epoch checkpoint if it has changed."""
    epoch_version: int
    """Version of the epochs."""
    directories: tuple[str, ...]
    """Directories to sync, because files were created in them."""
    changes: int
    """Number of changes of names that the sync of the directories makes durable."""
    names: FlushNames

    def run(self, files: Files) -> None:
        """Make the captured state durable. Blocks. Raises `StorageError`, `OutdatedFlushError`."""
        for file in self.data:
            file.sync()
        for segment in self.sealed:
            segment.write_indexes(self.names)
        if self.epochs is not None:
            path, content = self.epochs
            self.names.replace(path, path + TEMPORARY_SUFFIX, content)
            files.sync_directory(dirname(path))
        for directory in self.directories:
            files.sync_directory(directory)


class Durability:
    """How far one log is durable, and what remains to be flushed."""

    __slots__ = (
        "_changes",
        "_durable_changes",
        "_named_at",
        "checkpointed",
        "decided_below",
        "generation",
        "is_checkpoint_stale",
        "is_flush_requested",
        "last_flush_ms",
        "recovery_point",
        "required_end",
        "unflushed_records",
    )

    def __init__(self, recovery_point: int, *, decided_below: int, checkpointed: int, now_ms: float) -> None:
        """`checkpointed`: lower bound of the recovery point in the checkpoint on disk. `now_ms`: monotonic time."""
        self.recovery_point = recovery_point
        """Every batch below this offset is durable."""
        self.decided_below = decided_below
        """No transaction that began below this offset can be open again after a crash: its marker is durable."""
        self.checkpointed = checkpointed
        self.is_checkpoint_stale = False
        """Whether the checkpoint on disk may be above the recovery point, after a truncation."""
        self.generation = 0
        """Number of truncations."""
        self._changes = 1
        """Number of times that files were created, renamed or removed."""
        self._named_at = 1
        """The value of `_changes` when the log's own directory got its present name."""
        self._durable_changes = 0
        """The value of `_changes` at the begin of the last flush that synced the directory. If it is not below
        `_named_at`, the entry of the parent directory is durable."""
        self.last_flush_ms = now_ms
        self.unflushed_records = 0
        """Number of records appended since the last flush began."""
        self.required_end = 0
        """The latest required flush is complete when the recovery point is at or above this offset."""
        self.is_flush_requested = False
        """Whether a required flush was requested from the host and has not begun."""

    @property
    def has_new_names(self) -> bool:
        """Whether files were created or renamed since the last successful sync of the directory began."""
        return self._changes > self._durable_changes

    def note_names(self) -> None:
        """Record that files of the log were created, renamed or removed."""
        self._changes += 1

    def note_rename(self) -> None:
        """Record that the directory of the log got a new name, perhaps in another directory."""
        self._changes += 1
        self._named_at = self._changes

    def restart_from(self, end_offset: int, first_open_offset: int | None) -> None:
        """Record a truncation to `end_offset`; `first_open_offset` is where the earliest open transaction begins."""
        self.is_checkpoint_stale = self.is_checkpoint_stale or end_offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, end_offset)
        self.required_end = min(self.required_end, end_offset)
        self.checkpointed = min(self.checkpointed, end_offset)
        self.decided_below = min(self.decided_below, decided_below(end_offset, first_open_offset))
        self.generation += 1
        self.note_names()

    def note_checkpoint(self, recovery_point: int) -> None:
        """Record that the checkpoint on disk now has this recovery point."""
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
        names: FlushNames,
    ) -> FlushTicket | None:
        """Return what has to be flushed; None if everything is durable. Raises `StorageError`."""
        self.is_flush_requested = False
        undurable = segments.all[segments.holding(self.recovery_point) :]
        unwritten = tuple(segment for segment in segments.all[:-1] if not segment.indexes_written)
        # Sealing may have truncated a file whose batches were durable: sync the length before index files mark it valid
        touched = (*(segment for segment in unwritten if segment not in undurable), *undurable)
        if self.recovery_point == end_offset and not (unwritten or self.has_new_names or epochs.changed):
            return None
        checkpoint = None
        if epochs.changed:
            path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
            checkpoint = (path, checkpoints.encode_epochs(epochs.entries()))
        directories: tuple[str, ...] = ()
        if self.has_new_names:
            is_named = self._named_at <= self._durable_changes
            directories = (directory,) if is_named else (directory, dirname(directory))
        self.unflushed_records = 0
        self.last_flush_ms = now_ms
        return FlushTicket(
            offset=end_offset,
            decided_below=decided_below(end_offset, first_open_offset),
            generation=self.generation,
            data=tuple(segment.file for segment in touched),
            sealed=unwritten,
            epochs=checkpoint,
            epoch_version=epochs.version,
            directories=directories,
            changes=self._changes,
            names=names,
        )

    def limit(self, current: int) -> int:
        """Return the durable limit that follows `current` after a flush or a truncation."""
        if self.recovery_point >= self.required_end or current >= self.required_end:
            return NO_LIMIT
        return max(current, self.recovery_point)

    def end(self, ticket: FlushTicket, segments: SegmentList, epochs: EpochCache, end_offset: int) -> None:
        """Record that a flush is complete: only now, because a flush that failed or never ran has to be repeated."""
        self._durable_changes = max(self._durable_changes, ticket.changes)
        epochs.written = max(epochs.written, ticket.epoch_version)
        if ticket.generation != self.generation:
            return  # the log was truncated since the flush began
        for segment in ticket.sealed:
            segment.indexes_written = True
            segments.cool(segment)
        self.recovery_point = max(self.recovery_point, min(ticket.offset, end_offset))
        self.decided_below = max(self.decided_below, ticket.decided_below)


def decided_below(end_offset: int, first_open_offset: int | None) -> int:
    """Return the offset below which all transactions are decided, given the log end and the earliest open one."""
    return end_offset if first_open_offset is None else first_open_offset
