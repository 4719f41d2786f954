"""Appends of one log that a thread of its directory writes together, because the disk may be slow.

`PartitionLog` fills a group on the event loop: it validates the appends and assigns their offsets, after those of the
group. `run` writes the bytes on a thread. `PartitionLog.end_write` then makes the records part of the log, or discards
them. Until then nobody sees them: the log end, the high watermark, producers and epochs are those before the group.

Invariants: a log has at most one group between `begin_write` and `end_write`; `run` uses only what the group has
captured, except that it creates a segment; the appends of a group are in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.base.errors import CorruptMessageError, OdradekError, ProtocolError, StorageError
from odradek.base.ports import File
from odradek.log.producers.producer_state import Marker
from odradek.log.segments.segment import Segment
from odradek.log.storage import PendingRoll
from odradek.log.values import HostedT
from odradek.records.v2.batch import BatchHeader

GROUP_BYTES: Final = 1 << 20
"""Size above which no further append joins a group."""
GROUP_APPENDS: Final = 256


class GroupFullError(OdradekError):
    """The append does not fit in the group; it has to wait for the next one."""


class StagedAppend(NamedTuple):
    """One append: validated records with their final offsets."""

    records: memoryview
    headers: Sequence[BatchHeader]
    first_offset: int
    end_offset: int
    leader_epoch: int
    markers: Mapping[int, Marker]


class WriteGroup:
    """The appends that one job writes."""

    __slots__ = (
        "_file",
        "_position",
        "_producers",
        "_segment",
        "appends",
        "cuts",
        "end_offset",
        "error",
        "is_cancelled",
        "is_copied",
        "removes_indexes",
        "roll",
        "size",
    )

    def __init__(self, end_offset: int) -> None:
        """Create an empty group for the records from the log end on."""
        self.appends: list[StagedAppend] = []
        self.end_offset = end_offset
        """Offset after the last record."""
        self.size = 0
        """Bytes of the records."""
        self.is_copied = False
        """Whether the records come from a leader and have their offsets."""
        self.roll: PendingRoll | None = None
        """The roll that comes before the records."""
        self.cuts = False
        """Whether the remains of an earlier write are truncated first."""
        self.removes_indexes = False
        """Whether the index files of the segment are removed first."""
        self.error: StorageError | CorruptMessageError | None = None
        """Why the write failed."""
        self._producers: set[int] = set()
        self.is_cancelled = False
        """Whether the log was deleted. A log of the same name may have files of the same names by now."""
        self._segment: Segment | None = None
        self._file: File | None = None
        self._position = 0

    def check(self, headers: Sequence[BatchHeader], size: int) -> None:
        """Raise `GroupFullError` if an append cannot join the others.

        A producer has one append in a group: its next one is checked against the state that this one leaves.
        """
        if (
            self.roll is not None
            or self.is_copied
            or self.size + size > GROUP_BYTES
            or len(self.appends) >= GROUP_APPENDS
            or any(header.producer_id in self._producers for header in headers)
        ):
            raise GroupFullError("the append has to wait for the next group")

    def add(self, append: StagedAppend) -> None:
        """Add an append at the end."""
        self.appends.append(append)
        self.end_offset = append.end_offset
        self.size += len(append.records)
        self._producers.update(header.producer_id for header in append.headers if header.producer_id >= 0)

    def begin(self, segment: Segment, *, cuts: bool) -> None:
        """Set the segment to write to: the active one, which nobody else writes to or truncates until the end."""
        self._segment = segment
        self._file = segment.file
        self._position = segment.size
        self.cuts = cuts
        self.removes_indexes = segment.indexes_valid

    def cancel(self) -> None:
        """Touch no path from now on, because the directory of the log is about to be renamed."""
        self.is_cancelled = True
        if self.roll is not None:
            self.roll.is_cancelled = True

    def run(self) -> None:
        """Write the records. Blocks. Sets `error` if that fails."""
        segment, file, position = self._segment, self._file, self._position
        assert segment is not None
        assert file is not None
        if self.is_cancelled:
            return
        try:
            if self.cuts:
                file.truncate(position)
                # Otherwise a power failure could bring the remains back behind a shorter write that replaces them.
                file.sync()
            if self.removes_indexes:
                segment.remove_indexes()
            if self.roll is not None:
                self.roll.run()
                if self.roll.segment is not None:
                    file, position = self.roll.segment.file, 0
            if self.appends:
                file.pwritev([append.records for append in self.appends], position)
        except (StorageError, CorruptMessageError) as error:
            self.error = error


class QueuedAppend(Protocol):
    """An append that waits until a thread of a slow directory writes it."""

    size_bytes: int

    def stage(self, group: WriteGroup) -> bool:
        """Add the records to the group. Returns False if there is nothing to write: it was answered in another way.

        Raises `GroupFullError`.
        """
        ...

    @property
    def is_current(self) -> bool:
        """Whether the staged records may still become part of the log: role and epoch have not changed."""
        ...

    def written(self) -> None:
        """Continue: the records are in the log."""
        ...

    def failed(self, error: ProtocolError) -> None:
        """Continue: the records are not in the log. Not called for appends that `stage` has answered."""
        ...


class WriteQueue(Protocol[HostedT]):
    """The appends of one slow log directory (`log/directories/write_queue`)."""

    def submit(self, log: HostedT, append: QueuedAppend) -> None:
        """Write an append after all earlier ones of the log. Raises `KafkaStorageError` if the queue is full."""
        ...
