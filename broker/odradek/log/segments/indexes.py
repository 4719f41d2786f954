"""The two indexes of a segment: offset to position, and timestamp to offset.

`log/segments/segment` is the only user. The file formats are Kafka's: sorted big-endian entries of 8 bytes (relative
offset int32, position int32) and of 12 bytes (timestamp int64, relative offset int32). The indexes of an active segment
exist in memory only and are written when the segment is sealed; after a crash they are rebuilt from the log anyway.
Invariants: both columns of both indexes strictly increase, except that offsets in the time index may repeat. A lookup
on another thread may read an index while the event loop appends to it or truncates it: a truncation replaces the
columns, and each method that reads uses one state of them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import numpy as np

from odradek.base.types import NO_TIMESTAMP

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_LOW_HALF: Final = 0xFFFFFFFF
_LITTLE: Final = sys.byteorder == "little"
_BIG_ENDIAN: Final = np.dtype(">u4")
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">u4")])


class TimeEntry(NamedTuple):
    """The largest timestamp up to and including the batch that ends at `offset`."""

    timestamp: int
    offset: int


def _big_endian(column: array[int]) -> bytes:
    if not _LITTLE:
        return column.tobytes()
    copy = column[:]
    copy.byteswap()
    return copy.tobytes()


def _offset_entries(content: bytes) -> array[int] | None:
    """Return the entries of an offset index; None unless both columns strictly increase."""
    if len(content) > OFFSET_ENTRY_BYTES:
        # The columns alternate, so each number is compared with the number two places before it.
        numbers = np.frombuffer(content, _BIG_ENDIAN).astype(np.uint32)
        if not (numbers[2:] > numbers[:-2]).all():
            return None
    entries = array("Q", content)
    if _LITTLE:
        entries.byteswap()
    return entries


def _time_columns(content: bytes) -> tuple[array[int], array[int]] | None:
    """Return the timestamps and offsets of a time index; None unless the timestamps strictly increase."""
    table = np.frombuffer(content, _TIME_ENTRY)
    timestamps = table["timestamp"].astype(np.int64)
    if not (timestamps[1:] > timestamps[:-1]).all():
        return None
    return array("q", timestamps.tobytes()), array("I", table["offset"].astype(np.uint32).tobytes())


def _position(entry: int) -> int:
    return entry & _LOW_HALF


class OffsetIndex:
    """Sparse map of relative offsets to file positions; each entry is one 64-bit number, so that bisect runs in C."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Create an empty index."""
        self._entries: array[int] = array("Q")

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries."""
        return OFFSET_ENTRY_BYTES * len(self._entries)

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry at the end; `relative_offset` must be above all others."""
        self._entries.append(relative_offset << 32 | position)

    def floor_position(self, relative_offset: int) -> int:
        """Return the position of the last entry at or below `relative_offset`; 0 if there is none."""
        entries = self._entries
        slot = bisect_right(entries, relative_offset << 32 | _LOW_HALF) - 1
        return entries[slot] & _LOW_HALF if slot >= 0 else 0

    def offset_at(self, position: int) -> int | None:
        """Return the relative offset of the first entry at or above `position`; None if there is none."""
        slot = bisect_left(self._entries, position, key=_position)
        return self._entries[slot] >> 32 if slot < len(self._entries) else None

    def last(self) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry; (0, 0) if empty."""
        if not self._entries:
            return 0, 0
        return self._entries[-1] >> 32, self._entries[-1] & _LOW_HALF

    def truncate(self, relative_offset: int) -> None:
        """Remove the entries at and above `relative_offset`."""
        if relative_offset <= 0:
            self._entries = array("Q")
        else:
            self._entries = self._entries[: bisect_right(self._entries, (relative_offset - 1) << 32 | _LOW_HALF)]

    def encode(self) -> bytes:
        """Return the content of the `.index` file."""
        return _big_endian(self._entries)

    @classmethod
    def decode(cls, content: bytes) -> OffsetIndex | None:
        """Return the index in a file; None if its size or order shows that it is corrupt."""
        if len(content) % OFFSET_ENTRY_BYTES:
            return None
        entries = _offset_entries(content)
        if entries is None:
            return None
        index = cls()
        index._entries = entries
        return index


class TimeIndex:
    """Sparse map of timestamps to relative offsets."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        """Create an empty index."""
        self._timestamps: array[int] = array("q")
        self._offsets: array[int] = array("I")

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._timestamps)

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries."""
        return TIME_ENTRY_BYTES * len(self._timestamps)

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is above all others; never adds one for a missing timestamp (-1)."""
        if timestamp <= (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            return
        # In this order, `floor` on another thread finds an offset for each timestamp.
        self._offsets.append(relative_offset)
        self._timestamps.append(timestamp)

    def floor(self, timestamp: int) -> TimeEntry | None:
        """Return the last entry at or below `timestamp`; None if there is none."""
        # A truncation on another thread removes timestamps first.
        offsets, timestamps = self._offsets, self._timestamps
        slot = bisect_right(timestamps, timestamp) - 1
        return TimeEntry(timestamps[slot], offsets[slot]) if slot >= 0 else None

    def last(self) -> TimeEntry | None:
        """Return the entry with the largest timestamp; None if empty."""
        return TimeEntry(self._timestamps[-1], self._offsets[-1]) if self._timestamps else None

    def truncate(self, relative_offset: int) -> None:
        """Remove the entries at and above `relative_offset`."""
        kept = bisect_left(self._offsets, max(relative_offset, 0))
        self._timestamps = self._timestamps[:kept]
        self._offsets = self._offsets[:kept]

    def encode(self) -> bytes:
        """Return the content of the `.timeindex` file. Interleaves columns of bytes: twelve copies in C, no loop."""
        woven = bytearray(TIME_ENTRY_BYTES * len(self._timestamps))
        timestamps, offsets = _big_endian(self._timestamps), _big_endian(self._offsets)
        for column in range(8):
            woven[column::TIME_ENTRY_BYTES] = timestamps[column::8]
        for column in range(4):
            woven[8 + column :: TIME_ENTRY_BYTES] = offsets[column::4]
        return bytes(woven)

    @classmethod
    def decode(cls, content: bytes) -> TimeIndex | None:
        """Return the index in a file; None if its size or order shows that it is corrupt."""
        if len(content) % TIME_ENTRY_BYTES:
            return None
        columns = _time_columns(content)
        if columns is None:
            return None
        index = cls()
        index._timestamps, index._offsets = columns
        return index
