"""The memory in which a connection's frames arrive.

Enters: counts of bytes that the event loop wrote into `free_space`. Leaves: frames as slices of that memory, without
their length prefix. Called by `connection` and `channel`.
Invariants: a thousand idle connections are cheap (a few KiB each); memory grows with what has arrived, at most fourfold
at a time, never with what a length prefix claims; a length below 1 or above the limit is refused before any of its
frame is kept. A frame is valid until the next call that writes or tidies.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from odradek.base.errors import MalformedFrameError

_LENGTH: Final = Struct(">i")
_PREFIX_BYTES: Final = 4

INITIAL_BYTES: Final = 8 << 10
"""Enough for nearly every request but Produce."""

BUSY_BYTES: Final = 256 << 10
"""A connection that keeps filling its memory gets up to this for reading several frames by one call."""

KEPT_BYTES: Final = 1 << 20
"""What a connection may keep between frames; more is given back as soon as its frame is done with."""


class FrameBuffer:
    """A growing, shrinking buffer with one partial frame at its end."""

    __slots__ = ("_data", "_filled", "_frame_end", "_limit", "_peak", "_start", "_view")

    def __init__(self, max_frame_bytes: int) -> None:
        """Refuse frames above `max_frame_bytes`, length prefix not counted."""
        self._limit: Final = max_frame_bytes
        self._data = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._data)
        self._start = 0
        self._filled = 0
        self._frame_end = 0
        self._peak = 0

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._data)

    @property
    def unread_bytes(self) -> int:
        """Bytes that arrived and are not consumed."""
        return self._filled - self._start

    def free_space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._filled == len(self._data):
            self._make_room()
        return self._view[self._filled :]

    def received(self, count: int) -> None:
        """`count` bytes were written into the free space."""
        self._filled += count
        if self._filled > self._peak:
            self._peak = self._filled

    def has_frame(self) -> bool:
        """Whether a whole frame waits; a bad length counts, so that it is looked at."""
        unread = self._filled - self._start
        if unread < _PREFIX_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(self._data, self._start)
        return bool(unread >= _PREFIX_BYTES + length or length > self._limit)

    def next_frame(self) -> memoryview | None:
        """The first frame without its prefix, or None when it is not whole; `consume` passes over it.

        `MalformedFrameError` when the length is below 1 or above the limit.
        """
        start = self._start
        if self._filled - start < _PREFIX_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._data, start)
        if not 0 < length <= self._limit:
            raise MalformedFrameError(f"frame of {length} bytes, 1 to {self._limit} are allowed")
        end = start + _PREFIX_BYTES + length
        if end > self._filled:
            return None
        self._frame_end = end
        return self._view[start + _PREFIX_BYTES : end]

    def consume(self) -> None:
        """Pass over the frame that `next_frame` gave last."""
        self._start = self._frame_end

    def tidy(self) -> None:
        """After consuming: start over in an empty buffer and give back memory above `KEPT_BYTES`."""
        if self._start == self._filled:
            self._start = self._filled = 0
            if len(self._data) > KEPT_BYTES:
                self._replace(BUSY_BYTES)

    def shrink(self) -> None:
        """Give back what was not needed since the last call; nothing while bytes wait."""
        if self._start == self._filled and self._peak <= INITIAL_BYTES < len(self._data):
            self._start = self._filled = 0
            self._replace(INITIAL_BYTES)
        self._peak = self._filled - self._start

    def release(self) -> None:
        """Give all memory back; the buffer is not used after."""
        self._start = self._filled = self._frame_end = 0
        self._replace(0)

    def _make_room(self) -> None:
        """Move the partial frame to the front, and grow when its frame or the pace of arrival asks for it."""
        unread = self._filled - self._start
        wanted = self._wanted_bytes(unread)
        if wanted > len(self._data):
            self._replace(wanted)
        elif self._start:
            self._view[:unread] = self._view[self._start : self._filled]
            self._start, self._filled = 0, unread
        else:
            self._replace(len(self._data) * 2)

    def _wanted_bytes(self, unread: int) -> int:
        """What the frame at hand needs, or twice the memory while that is below `BUSY_BYTES`."""
        capacity = len(self._data)
        needed = 0
        if unread >= _PREFIX_BYTES:
            (length,) = _LENGTH.unpack_from(self._data, self._start)
            needed = min(_PREFIX_BYTES + max(length, 0), _PREFIX_BYTES + self._limit)
        # A frame may claim any length; memory follows what has arrived.
        return max(min(needed, 4 * capacity), min(2 * capacity, BUSY_BYTES))

    def _replace(self, capacity: int) -> None:
        unread = self._filled - self._start
        data = bytearray(max(capacity, unread))
        view = memoryview(data)
        view[:unread] = self._view[self._start : self._filled]
        self._data, self._view = data, view
        self._start, self._filled = 0, unread
