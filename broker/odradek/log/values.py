"""Values that `PartitionLog` returns and accepts, and the protocol through which a log uses its host.

`log.partition_log` creates most of them; replication and the server read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.base.errors import StorageError
from odradek.base.ports import Clock, File, Files
from odradek.log.segments.segment_cache import SegmentCache
from odradek.metrics.quantiles import Quantiles

LogT = TypeVar("LogT")
HostedT = TypeVar("HostedT", contravariant=True)
"""Always `PartitionLog`. A type variable, because the module of `PartitionLog` imports this one."""


class AppendInfo(NamedTuple):
    """Result of an append. A tuple, because one is created for each append."""

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic uses log append time."""
    log_start_offset: int
    leader_epoch: int
    duplicate: bool = False
    """Nothing was written: the offsets are those of the original batch."""
    converted: int = 0
    """Number of records converted to another format or codec."""


class LogSlice(NamedTuple):
    """A range of a segment file that starts with a batch; the last batch may be incomplete.

    Valid for as long as it is held: the file of a removed segment stays open until then.
    """

    file: File
    position: int
    length: int
    first_batch_incomplete: bool = False
    """The first batch is larger than the requested size; `length` is then 0."""

    def load(self) -> bytes:
        """Read the bytes. Raises `StorageError`."""
        return self.file.pread(self.length, self.position) if self.length else b""


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One sealed segment as seen by the cleaner: its files do not change until a swap replaces them."""

    base_offset: int
    next_offset: int
    """Base offset of the segment after it."""
    size: int
    """Bytes of the `.log` file."""
    newest_ms: int
    """Largest timestamp of its records; `changed_ms` if they have none."""
    path: str
    """Path of the `.log` file; the index files are in the same directory."""
    changed_ms: int
    """Wall time at which the segment got its last batch, preserved by a swap. Used for the delete horizons of old
    formats and for records without timestamps."""
    has_aborted: bool = False
    """Whether the segment has a `.txnindex` file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSwap:
    """A swap of rewritten segments: `cleaned` replaces `replaced`.

    Both are base offsets in increasing order. `replaced` is a contiguous run of the segments that `cleanable` returned.
    `cleaned` starts with the same offset, so that the start of the log does not change. The files of each cleaned
    segment are complete and synced in the log's directory: `.log.cleaned`, `.index.cleaned`, `.timeindex.cleaned`, and
    `.txnindex.cleaned` if it has an entry.
    """

    generation: int
    """`PartitionLog.generation` when `cleanable` was called."""
    replaced: tuple[int, ...]
    cleaned: tuple[int, ...]


class FileRemover(Protocol):
    """Removes files that a log no longer uses."""

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay, off the loop."""
        ...


class LogHost(FileRemover, Protocol[HostedT]):
    """What a log needs from its owner.

    After each successful write of the recovery point checkpoint, the host calls `log.checkpointed(recovery_point)` on
    the loop for each log in it, with the value that was written: the cleaner may only rewrite segments below it.
    """

    def flush_soon(self, log: HostedT) -> None:
        """Flush the log off the loop, soon."""
        ...

    def sync_soon(self, log: HostedT) -> None:
        """Like `flush_soon`, for records that `flush.messages` withholds until they are durable.

        Called at most once for each flush. After the flush the host informs replication.
        """
        ...

    def checkpoint_soon(self, log: HostedT) -> None:
        """Write the checkpoints soon: a crash must not bring back an old recovery point or log start offset."""
        ...

    def checkpoint_now(self, log: HostedT) -> None:
        """Write the recovery points of the log's directory before returning, and call `log.checkpointed`.

        Needed if a log that was truncated below its checkpointed recovery point rolls before `checkpoint_soon` has
        taken effect: a crash must not find a recovery point above batches that are not durable. Blocks the loop for
        one small synced write, but rarely. A failure takes the directory offline.
        """
        ...

    def rename_expired_soon(self, log: HostedT) -> None:
        """Rename the files of the log's expired segments (`log.expired`) off the loop, and remove them later."""
        ...

    def directory_failed(self, log: HostedT, error: StorageError) -> None:
        """Take the log's directory offline."""
        ...

    def check_room(self, log: HostedT) -> None:
        """Raise `KafkaStorageError` while the log's directory has less free space than its reserve
        (`log/directories/space`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext(Generic[LogT]):
    """What all logs of a broker share."""

    files: Files
    clock: Clock
    host: LogHost[LogT]
    validate_records: bool = True
    """Whether `log.record.validation` is `full`: validate each record that clients produce."""
    flush_ms: Quantiles = field(default_factory=Quantiles)
    """Durations of flushes in milliseconds, including the wait for a thread."""
    segment_cache: SegmentCache = field(default_factory=SegmentCache)
    """The sealed segments of all logs that are loaded."""
