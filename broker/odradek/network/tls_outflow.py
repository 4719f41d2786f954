"""Sends responses that are partly in files through a transport with TLS.

The transport encrypts what it gets at once and keeps what the peer does not read, so file regions are read and passed
on in slices: at most a few slices are in memory, however large the response is. A slice that is in the page cache is
read into a buffer that all connections share; others are read in a thread, as in `outflow`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from odradek.base.errors import StorageError
from odradek.base.ports import FileRegion
from odradek.network.outflow import Outflow, OutflowEvents, OutflowState, SocketOutflow, copied, sendable_descriptor
from odradek.network.pages import FileAccess
from odradek.network.read_ahead import ReadAhead

SLICE_BYTES: Final = 240 << 10
"""Bytes of a region that are read and passed to the transport at a time, and the size of its buffer above which it gets
no more. With the default `socket.send.buffer.bytes`, Linux accepts 256 KiB at once from an empty buffer on the loopback
interface; a slice with its TLS headers must fit, or a few bytes remain that cost another call. Larger slices save no
CPU time."""

_free_buffers: Final[list[bytearray]] = []
"""Buffers for slices. There are as many as threads have sent at the same time: one for each event loop."""


def _free_buffer() -> bytearray:
    try:
        return _free_buffers.pop()
    except IndexError:
        return bytearray(SLICE_BYTES)


class TlsOutflow(Outflow):
    """An outflow to a transport with TLS. `start` is also called when the transport has space again."""

    __slots__ = ("_is_paused", "_transport")

    outlives_eof: ClassVar[bool] = False
    needs_empty_transport: ClassVar[bool] = False

    def __init__(
        self,
        transport: asyncio.Transport,
        is_paused: Callable[[], bool],
        events: OutflowEvents,
        access: FileAccess,
        *,
        ahead: ReadAhead | None = None,
    ) -> None:
        """`is_paused`: whether the transport has no space. Its buffer must be limited to `SLICE_BYTES`."""
        super().__init__(events, access, asyncio.get_running_loop(), ahead)
        self._transport: Final = transport
        self._is_paused: Final = is_paused

    def start(self) -> None:
        """Start sending, or continue: the transport has space."""
        if self._state is OutflowState.BLOCKED:
            self._state = OutflowState.DRAINING
        super().start()

    def _send_buffers(self) -> int:
        if self._is_paused() or self._transport.is_closing():
            raise BlockingIOError
        first = self._parts[0]
        assert not isinstance(first, FileRegion), "regions have their own method"
        rest = memoryview(first)[self._at :]
        self._transport.write(rest)
        return len(rest)

    def _send_region(self, region: FileRegion) -> int:
        if self._is_paused() or self._transport.is_closing():
            raise BlockingIOError
        descriptor = region.file.fileno()
        if descriptor is None:
            self._fail(f"{region.file.path} was closed before it was sent")
            return 0
        window = min(region.length - self._at, SLICE_BYTES)
        position = region.position + self._at
        buffer = _free_buffer()
        if not self._read_now(region, descriptor, buffer, window, position):
            _free_buffers.append(buffer)
            # The thread also finds out whether the file was truncated, and whether its disk fails.
            self._read(region, window, partial(copied, region, self._at, window))
            return 0
        self._write(buffer, window)
        return window

    def _read_now(self, region: FileRegion, descriptor: int, buffer: bytearray, length: int, position: int) -> bool:
        """Read from the page cache. Returns whether all was there."""
        if region.file.is_remote:
            return False
        try:
            if self._ahead is not None:
                self._ahead.reads(region.file, descriptor, position, length)
            return region.file.pread_into(buffer, length, position)
        except (OSError, StorageError):
            return False

    def _write(self, buffer: bytearray, length: int) -> None:
        """Pass the start of a buffer to the transport, and keep the buffer for the next slice."""
        data = memoryview(buffer)[:length]
        self._transport.write(data)
        del data
        try:
            buffer.append(buffer.pop())
        except BufferError:
            # The transport has not encrypted everything and refers to the buffer, so its size cannot be changed.
            return
        _free_buffers.append(buffer)


def outflow_to(
    transport: asyncio.Transport,
    is_paused: Callable[[], bool],
    events: OutflowEvents,
    access: FileAccess,
    ahead: ReadAhead | None,
) -> Outflow | None:
    """Return an outflow for the regions of a response; None if there is neither TLS nor a socket for it. Raises
    `OSError`."""
    if transport.get_extra_info("sslcontext") is not None:
        transport.set_write_buffer_limits(high=SLICE_BYTES)
        return TlsOutflow(transport, is_paused, events, access, ahead=ahead)
    descriptor = sendable_descriptor(transport)
    if descriptor is None:
        return None
    return SocketOutflow(descriptor, events, access, asyncio.get_running_loop(), ahead)
