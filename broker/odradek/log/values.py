"""What goes in and out of a `PartitionLog`: results of appends and reads, and what a log needs of its surroundings.

Plain values and one protocol; `log.partition_log` makes them, replication and the server read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.base.errors import StorageError
from odradek.base.ports import Clock, File, Files

if TYPE_CHECKING:
    from odradek.log.partition_log import PartitionLog


class AppendInfo(NamedTuple):
    """What an append did. A tuple, because one is made for each append."""

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic's timestamps are those of the append."""
    log_start_offset: int
    leader_epoch: int
    duplicate: bool = False
    """Nothing was written: the offsets are those of the batch when it came first."""


class LogSlice(NamedTuple):
    """A run of bytes in a segment's file, beginning with a batch and perhaps ending within one.

    Good for as long as its holder keeps it: a removed segment's file stays open until then.
    """

    file: File
    position: int
    length: int
    first_batch_incomplete: bool = False
    """The first batch is larger than was asked for; `length` is then 0."""

    def load(self) -> bytes:
        """The bytes. Raises `StorageError`."""
        return self.file.pread(self.length, self.position) if self.length else b""


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogHost(Protocol):
    """What a log asks of the one who keeps it."""

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush off the loop, soon."""
        ...

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """The recovery point or log start may differ from the checkpointed one for the worse: write them again."""
        ...

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay, off the loop."""
        ...

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """The log's directory can not be trusted any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """What all logs of a broker share."""

    files: Files
    clock: Clock
    host: LogHost
