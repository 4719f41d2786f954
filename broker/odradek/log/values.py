"""What goes in and out of a `PartitionLog`: results of appends and reads, and what a log needs of its surroundings.

Plain values and one protocol; `log.partition_log` makes them, replication and the server read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.base.errors import StorageError
from odradek.base.ports import Clock, File, Files
from odradek.metrics.quantiles import Quantiles

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
    converted: int = 0
    """Records that were written anew for another format or codec."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One sealed segment as the cleaner sees it: files that do not change until a swap replaces them."""

    base_offset: int
    next_offset: int
    """Base offset of the segment after it."""
    size: int
    """Bytes of the `.log` file."""
    newest_ms: int
    """Largest timestamp of its records; `changed_ms` where they have none."""
    path: str
    """Path of the `.log` file; index files stand beside it."""
    changed_ms: int
    """Wall time at which the segment got its last batch, kept by a swap: what delete horizons of old formats and
    records without timestamps go by."""
    has_aborted: bool = False
    """Whether a `.txnindex` file stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSwap:
    """Segments that were rewritten: `cleaned` are to stand in the place of `replaced`.

    Both are base offsets in rising order. `replaced` is an unbroken run of the segments that `cleanable` told, and
    `cleaned` begins with the same offset, so that the log keeps its begin. Of each cleaned segment these files are
    there, complete and synced, in the log's directory: `.log.cleaned`, `.index.cleaned`, `.timeindex.cleaned`, and
    `.txnindex.cleaned` if it has an entry.
    """

    generation: int
    """`PartitionLog.generation` when `cleanable` was asked."""
    replaced: tuple[int, ...]
    cleaned: tuple[int, ...]


class LogHost(Protocol):
    """What a log asks of the one who keeps it.

    After every write of the recovery point checkpoint that succeeded, for each log in it, the host calls
    `log.checkpointed(recovery_point)` on the loop with the value that was written: the cleaner may only touch what
    lies below.
    """

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush off the loop, soon."""
        ...

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """The recovery point or log start may differ from the checkpointed one for the worse: write them again."""
        ...

    def checkpoint_now(self, log: PartitionLog) -> None:
        """Write the recovery points of the log's directory before returning, and tell `log.checkpointed`.

        Asked for when a log that was truncated below its checkpointed recovery point begins a segment before
        `checkpoint_soon` was heard: a crash must not find a recovery point above batches that are not durable.
        Blocks the loop for one small synced write; rare. A failure takes the directory offline.
        """
        ...

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay, off the loop."""
        ...

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """The log's directory can not be trusted any more."""
        ...

    def check_room(self, log: PartitionLog) -> None:
        """Raise `KafkaStorageError` while the log's directory keeps its last free bytes (`log.space`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """What all logs of a broker share."""

    files: Files
    clock: Clock
    host: LogHost
    validate_records: bool = True
    """`log.record.validation` is `full`: look at each record of what clients produce."""
    flush_ms: Quantiles = field(default_factory=Quantiles)
    """How long flushes take, waiting for a thread included."""
