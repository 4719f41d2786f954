"""What has to reach the disk, decided on the loop and done on any thread.

`PartitionLog.begin_flush` makes a `FlushTicket`, `run` does the blocking work, `PartitionLog.end_flush` takes note.
Invariant: `run` touches only what was captured; a log that is appended to, truncated or deleted meanwhile stays whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.ports import File, Files
from odradek.log.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTicket:
    """One flush of one log, up to `offset`."""

    offset: int
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
