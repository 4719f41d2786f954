"""The receive buffer of a connection.

The event loop writes into `free_space`; `next_frame` returns frames as slices of the buffer, without their length
prefix. `connection` uses it.
Invariants:
- A connection that has no unread bytes needs no memory for them: it receives into a space that all connections share.
  `tidy` moves what is left unread to memory of the connection, before the event loop reads from another one.
- The buffer grows with the data received, at most fourfold at a time, never with the length that a prefix claims.
- A length below 1 or above the limit is rejected before any of its frame is buffered.
- A frame is valid until the next call that writes or tidies.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from odradek.base.errors import MalformedFrameError

_LENGTH: Final = Struct(">i")
_PREFIX_BYTES: Final = 4
_REQUEST_START: Final = Struct(">ih")
_REQUEST_START_BYTES: Final = _REQUEST_START.size
"""The length prefix and the API key."""

INITIAL_BYTES: Final = 8 << 10
"""Minimum size of a buffer with unread bytes. Enough for almost every request except Produce."""

BUSY_BYTES: Final = 256 << 10
"""Size of the shared space, and maximum size of a buffer that grows only because it is filled repeatedly: to read
several frames in one call."""

KEPT_BYTES: Final = (1 << 20) + (64 << 10)
"""Maximum size that a connection keeps between frames. A larger buffer is freed once its frame is processed.

Enough for the largest request of a producer with the default `max.request.size` of 1 MiB and the fields before its
records. To allocate such a buffer again costs more CPU time than everything else that the broker does for the request.
"""


class SharedSpace:
    """Where connections without unread bytes receive. The connections of one event loop can share one."""

    __slots__ = ("data", "minimal_view", "view")

    def __init__(self) -> None:
        """Allocate `BUSY_BYTES`."""
        self.data: Final = bytearray(BUSY_BYTES)
        self.view: Final = memoryview(self.data)
        self.minimal_view: Final = self.view[:INITIAL_BYTES]
        """What a minimal buffer uses."""


class FrameBuffer:
    """A buffer that grows and shrinks and has at most one partial frame, at its end."""

    __slots__ = (
        "_busy_bytes",
        "_data",
        "_filled",
        "_frame_end",
        "_kept_bytes",
        "_limit",
        "_peak",
        "_shared",
        "_shared_view",
        "_start",
        "_view",
    )

    def __init__(self, max_frame_bytes: int, shared: SharedSpace, *, is_minimal: bool = False) -> None:
        """Reject frames above `max_frame_bytes`, not counting the length prefix.

        A minimal buffer grows only for a frame above `INITIAL_BYTES`, exactly to its size, and is freed with the frame.
        """
        self._limit = max_frame_bytes
        self._busy_bytes: Final = INITIAL_BYTES if is_minimal else BUSY_BYTES
        self._kept_bytes: Final = INITIAL_BYTES if is_minimal else KEPT_BYTES
        self._shared: Final = shared.data
        self._shared_view: Final = shared.minimal_view if is_minimal else shared.view
        self._data = self._shared
        self._view = self._shared_view
        self._start = 0
        self._filled = 0
        self._frame_end = 0
        self._peak = 0

    @property
    def capacity(self) -> int:
        """Bytes allocated for this connection."""
        return 0 if self._data is self._shared else len(self._data)

    @property
    def unread_bytes(self) -> int:
        """Bytes received and not consumed."""
        return self._filled - self._start

    def limit(self, max_frame_bytes: int) -> None:
        """Reject frames above `max_frame_bytes` from the next one on."""
        self._limit = max_frame_bytes

    def free_space(self) -> memoryview:
        """Return where the next bytes are written; never empty.

        They must be written, and handled up to `tidy`, before another connection receives.
        """
        if self._filled == len(self._view):
            self._make_room()
        return self._view[self._filled :]

    def received(self, count: int) -> None:
        """Count `count` bytes that were written into the free space."""
        self._filled += count
        if self._filled > self._peak:
            self._peak = self._filled

    def has_frame(self) -> bool:
        """Whether a complete frame is buffered. An invalid length counts, so that `next_frame` reports it."""
        unread = self._filled - self._start
        if unread < _PREFIX_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(self._data, self._start)
        return bool(unread >= _PREFIX_BYTES + length or length > self._limit)

    def large_frame_bytes(self) -> int:
        """Return the size of the incomplete frame with its prefix if it is above `INITIAL_BYTES`, otherwise 0.

        Its length must be valid: `next_frame` has returned None. 0 while the length is incomplete.
        """
        size = self._frame_bytes()
        return size if size > INITIAL_BYTES else 0

    def missing_bytes(self) -> int:
        """Return what the incomplete frame lacks; 0 without one, or while its length is incomplete or negative."""
        return max(0, self._frame_bytes() - (self._filled - self._start))

    def next_frame(self) -> memoryview | None:
        """Return the first frame without its prefix, or None while it is incomplete. `consume` removes it.

        Raises `MalformedFrameError` if the length is below 1 or above the limit.
        """
        start = self._start
        if self._filled - start < _PREFIX_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._data, start)
        if not 0 < length <= self._limit:
            raise MalformedFrameError(f"frame of {length} bytes: 1 to {self._limit} are allowed")
        end = start + _PREFIX_BYTES + length
        if end > self._filled:
            return None
        self._frame_end = end
        return self._view[start + _PREFIX_BYTES : end]

    def small_frames(self, api_key: int, limit: int) -> bytes:
        """Return a copy of the unread bytes, at most `limit`. Empty unless they begin with a request of an API."""
        start, end = self._start, self._filled
        if end - start < _REQUEST_START_BYTES:
            return b""
        length, key = _REQUEST_START.unpack_from(self._data, start)
        end = min(end, start + limit)
        if key != api_key or not 0 < length <= min(self._limit, end - start - _PREFIX_BYTES):
            return b""
        return bytes(self._view[start:end])

    def skip(self, count: int) -> None:
        """Remove the first `count` unread bytes, which must be whole frames."""
        self._start += count

    def consume(self) -> None:
        """Remove the frame that `next_frame` returned last."""
        self._start = self._frame_end

    def tidy(self) -> None:
        """After consuming: leave the shared space to others. An empty buffer is freed, unless its size is to be kept:
        the next frames probably need it as well."""
        if self._start != self._filled:
            if self._data is self._shared:
                self._replace(INITIAL_BYTES)
            return
        self._start = self._filled = 0
        if self._data is not self._shared and not INITIAL_BYTES < len(self._data) <= self._kept_bytes:
            self._share()

    def shrink(self) -> None:
        """Free memory that was not needed since the last call. Does nothing while bytes are buffered."""
        if self._start == self._filled and self._peak <= INITIAL_BYTES:
            self.release()
        self._peak = self._filled - self._start

    def release(self) -> None:
        """Free the buffer and drop unread bytes."""
        self._start = self._filled = self._frame_end = 0
        self._share()

    def _share(self) -> None:
        """Receive into the shared space. There must be no unread bytes."""
        self._data, self._view = self._shared, self._shared_view

    def _frame_bytes(self) -> int:
        """Return the size of the first frame with its prefix, as the prefix claims; 0 while that is incomplete."""
        if self._filled - self._start < _PREFIX_BYTES:
            return 0
        (length,) = _LENGTH.unpack_from(self._data, self._start)
        return _PREFIX_BYTES + int(length)

    def _make_room(self) -> None:
        """Move the partial frame to the front, and grow if the frame or the rate of arrival requires it."""
        unread = self._filled - self._start
        wanted = self._wanted_bytes()
        if wanted > len(self._view):
            self._replace(wanted)
        elif self._start:
            self._view[:unread] = self._view[self._start : self._filled]
            self._start, self._filled = 0, unread
        else:
            self._replace(len(self._view) * 2)

    def _wanted_bytes(self) -> int:
        """Return the size the current frame needs, or twice the current size while that is below the busy size."""
        capacity = len(self._view)
        needed = min(self._frame_bytes(), _PREFIX_BYTES + self._limit)
        # A length prefix may claim any length, so the buffer grows with the data received.
        return max(min(needed, 4 * capacity), min(2 * capacity, self._busy_bytes))

    def _replace(self, capacity: int) -> None:
        unread = self._filled - self._start
        data = bytearray(max(capacity, unread))
        view = memoryview(data)
        view[:unread] = self._view[self._start : self._filled]
        self._data, self._view = data, view
        self._start, self._filled = 0, unread
