"""Plain batches of one log that arrive together and are written with one system call.

`PartitionLog.open_plain` returns a group if the log is in its usual state. Batches are added to it, and `write_plain`
makes them part of the log. All of this happens within one call of the event loop, so nothing else changes the log
meanwhile. Invariant: until `write_plain`, the log end, the indexes and the file are those before the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be

from odradek.records.checks.plain_batch import PlainBatch

if TYPE_CHECKING:
    from mypy_extensions import i64

MOST_BYTES: Final = 64 << 10
"""Maximum size of a group. Its batches get at most `MOST_ENTRIES` index entries."""
MOST_ENTRIES: Final = 1 << 10

_LENGTH_AT: Final = 8
_AFTER_EPOCH: Final = 16
_LOW_32: Final = 0xFFFF_FFFF


class PlainGroup:
    """The batches, with their final offsets and the leader epoch."""

    __slots__ = (
        "_epoch",
        "_largest_timestamp",
        "_left_bytes",
        "_most_batch_bytes",
        "_writer",
        "batches",
        "end_offset",
    )

    def __init__(
        self, end_offset: i64, leader_epoch: i64, *, left_bytes: i64, most_batch_bytes: i64, largest_timestamp: i64
    ) -> None:
        """An empty group for the records from the log end on.

        `left_bytes`: maximum size of the group; `most_batch_bytes`: of a batch. A batch with a timestamp above the
        largest one needs a new segment.
        """
        self.end_offset: i64 = end_offset
        """Offset after the last record."""
        self.batches: Final[list[PlainBatch]] = []
        self._epoch: i64 = leader_epoch & _LOW_32
        self._left_bytes: i64 = left_bytes
        self._most_batch_bytes: i64 = most_batch_bytes
        self._largest_timestamp: i64 = largest_timestamp
        self._writer: Final = BytesWriter()

    def reserve(self, batch: PlainBatch) -> bool:
        """Take the space for a batch, which may be added afterwards. Returns False if it cannot be in the group."""
        size = batch.end - batch.start
        if size > self._left_bytes or size > self._most_batch_bytes or batch.timestamp > self._largest_timestamp:
            return False
        self._left_bytes -= size
        return True

    def add(self, data: bytes, batch: PlainBatch) -> None:
        """Assign the next offset to a batch, and copy its bytes. Its space was reserved."""
        writer, start = self._writer, batch.start
        batch.offset = self.end_offset
        self.end_offset += batch.count
        write_i64_be(writer, batch.offset)
        write_i64_be(writer, read_i64_be(data, start + _LENGTH_AT) & ~_LOW_32 | self._epoch)
        writer.write(data[start + _AFTER_EPOCH : batch.end])
        self.batches.append(batch)

    def content(self) -> bytes:
        """Return the bytes to write."""
        return self._writer.getvalue()
