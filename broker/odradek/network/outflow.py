"""Sends responses that are partly in files, in order.

A `Connection` creates an outflow for a response with a region, and continues with its transport when everything is
sent. `SocketOutflow` passes buffers to the socket as they are, and `FileRegion`s with `sendfile`, without a copy in
this process. With TLS there is no such way (`tls_outflow`).

Invariants:
- Everything is sent in the order of `put`. `SocketOutflow` starts when the buffer of the transport is empty.
- The event loop does not wait for a disk: pages that are not in the page cache are read in a thread first, and the
  pages after them are requested in advance (`read_ahead`). Files on remote file systems are copied by a thread.
- A file that was truncated or closed meanwhile closes the connection: a frame is never shorter than announced.
- Exactly one of `on_finished` and `on_failed` is called, unless `release` comes first. `release` leaves no descriptor,
  event or task behind.

    state      waits for                        then
    DRAINING   the transport's buffer           SENDING
    SENDING    nothing, or the next iteration   BLOCKED, READING, or the end
    BLOCKED    space in the buffer              SENDING
    READING    a thread that reads              SENDING
    RELEASED   nothing                          -
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from os import dup, sendfile
from typing import ClassVar, Final

from odradek.base.errors import StorageError
from odradek.base.ports import Buffer, FileRegion, Part
from odradek.network.pages import FileAccess, bring_in
from odradek.network.read_ahead import ReadAhead

WINDOW_BYTES: Final = 1 << 20
"""Bytes of a region that are checked for residency and sent at a time; more than most sockets accept."""

FORGOTTEN_AFTER_S: Final = 1.0
"""Residency is checked again if the socket has not accepted the data within this time."""

TURN_BYTES: Final = 4 << 20
"""Bytes sent before other tasks get their turn of the event loop."""

JOINED_BYTES: Final = 4 << 10
"""Up to this size, copying several buffers into one is cheaper than sending them separately."""

_MOST_BUFFERS: Final = 512
"""Maximum number of buffers in a sendmsg call. Linux allows 1024 (IOV_MAX)."""


class OutflowState(Enum):
    """What an outflow waits for; see the table above."""

    DRAINING = auto()
    SENDING = auto()
    BLOCKED = auto()
    READING = auto()
    RELEASED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutflowEvents:
    """Callbacks to the connection, on the event loop; they may be called before the call that caused them returns."""

    on_sent: Callable[[int], None]
    """This many bytes were passed to the socket."""
    on_finished: Callable[[list[Buffer]], None]
    """All regions are sent and the outflow is released. The caller sends the buffers after the last region."""
    on_failed: Callable[[str], None]
    """Sending failed for this reason; the outflow is released."""


def sendable_descriptor(transport: asyncio.Transport) -> int | None:
    """Return the descriptor of the transport's socket, or None if data must pass through the transport or it is
    closing."""
    plain = transport.get_extra_info("socket")
    if plain is None or transport.get_extra_info("sslcontext") is not None or transport.is_closing():
        return None
    descriptor = plain.fileno()
    return descriptor if isinstance(descriptor, int) and descriptor >= 0 else None


def loaded(region: FileRegion) -> bytes:
    """Read the bytes of a region. Blocks. Raises `StorageError`, also if the file was truncated."""
    try:
        data = region.load()
    except StorageError as error:
        region.on_failure(error)
        raise
    if len(data) != region.length:
        raise StorageError(f"{region.file.path} was truncated before it was sent", path=region.file.path)
    return data


def write_together(transport: asyncio.Transport, buffers: list[Buffer], size: int) -> None:
    """Write buffers of this total size to the transport, with one system call if possible."""
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif size <= JOINED_BYTES:
        transport.write(b"".join(buffers))
    else:
        transport.writelines(buffers)


def copied(region: FileRegion, start: int, length: int) -> bytes:
    """Read `length` bytes from `start` of the region; fewer if the file was truncated. Blocks. Raises
    `StorageError`."""
    return region.file.pread(length, region.position + start)


class Outflow:
    """One sequence of parts that is being sent. Subclasses pass the bytes on."""

    __slots__ = (
        "_access",
        "_ahead",
        "_at",
        "_events",
        "_looked_at",
        "_loop",
        "_next_turn",
        "_parts",
        "_reading",
        "_ready_until",
        "_regions",
        "_state",
    )

    outlives_eof: ClassVar[bool] = True
    """Whether responses can be sent after the client has closed its side."""
    needs_empty_transport: ClassVar[bool] = True
    """Whether `start` must wait until the buffer of the transport is empty."""

    def __init__(
        self,
        events: OutflowEvents,
        access: FileAccess,
        loop: asyncio.AbstractEventLoop,
        ahead: ReadAhead | None = None,
    ) -> None:
        """`ahead` belongs to the connection and outlives its outflows."""
        self._events: Final = events
        self._access: Final = access
        self._ahead: Final = ahead
        self._loop: Final = loop
        self._state = OutflowState.DRAINING
        self._parts: Final[deque[Part]] = deque()
        self._regions = 0
        self._at = 0
        """Bytes of the first part that were sent."""
        self._ready_until = 0
        """End of the range of the first part, a region, that was resident at `_looked_at`."""
        self._looked_at = 0.0
        self._reading: asyncio.Future[bytes | None] | None = None
        self._next_turn: asyncio.Handle | None = None

    @property
    def state(self) -> OutflowState:
        """What the outflow waits for."""
        return self._state

    def put(self, parts: Iterable[Part]) -> None:
        """Append parts. Does not start sending."""
        for part in parts:
            if len(part):
                self._parts.append(part)
                self._regions += isinstance(part, FileRegion)

    def start(self) -> None:
        """Start sending: the transport's buffer is empty."""
        if self._state is OutflowState.DRAINING:
            self._state = OutflowState.SENDING
            self._send()

    def release(self) -> None:
        """Release all resources. Nothing is sent or called afterwards. Idempotent.

        A thread that is reading continues to its end and keeps only the file, nothing of the connection.
        """
        self._state = OutflowState.RELEASED
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._parts.clear()

    # Sending

    def _send(self) -> None:
        """Send until the outflow must wait, or everything is sent."""
        sent = 0
        try:
            while self._regions and self._state is OutflowState.SENDING:
                if sent >= TURN_BYTES:
                    self._next_turn = self._loop.call_soon(self._take_turn)
                    return
                first = self._parts[0]
                count = self._send_region(first) if isinstance(first, FileRegion) else self._send_buffers()
                if count:
                    sent += count
                    self._events.on_sent(count)
                    self._consume(count)
        except BlockingIOError:
            self._block()
        except OSError as error:
            self._fail(f"it cannot be written to: {error.strerror or error}")
        else:
            if self._state is OutflowState.SENDING:
                self._finish()

    def _send_buffers(self) -> int:
        """Send buffers before the next region. Raises `BlockingIOError` if there is no space, or `OSError`."""
        raise NotImplementedError

    def _send_region(self, region: FileRegion) -> int:
        """Send a part of the region. Returns 0 if it must be read first, or if it failed. Raises as
        `_send_buffers`."""
        raise NotImplementedError

    def _consume(self, count: int) -> None:
        """Remove this many bytes from the first parts."""
        at = self._at + count
        parts = self._parts
        while parts and at >= len(parts[0]):
            at -= len(parts[0])
            self._regions -= isinstance(parts.popleft(), FileRegion)
            self._ready_until = 0
        self._at = at

    def _take_turn(self) -> None:
        self._next_turn = None
        self._send()

    def _finish(self) -> None:
        rest = [part for part in self._parts if not isinstance(part, FileRegion)]
        if self._at:
            rest[0] = memoryview(rest[0])[self._at :]
        self.release()
        self._events.on_finished(rest)

    def _fail(self, reason: str) -> None:
        self.release()
        self._events.on_failed(reason)

    # Waiting for space

    def _block(self) -> None:
        self._state = OutflowState.BLOCKED

    # Waiting for the disk

    def _read(self, region: FileRegion, length: int, job: Callable[[], bytes | None]) -> None:
        """Read in a thread. It returns bytes from here on, at least `length`, or None once `length` are resident."""
        self._state = OutflowState.READING
        self._reading = reading = asyncio.ensure_future(self._access.read(region.file.path, job))
        reading.add_done_callback(partial(self._have_read, region, length))

    def _have_read(self, region: FileRegion, length: int, reading: asyncio.Future[bytes | None]) -> None:
        if reading.cancelled() or self._state is not OutflowState.READING:
            return
        self._reading = None
        try:
            data = reading.result()
        except StorageError as error:
            self.release()
            if region.file.fileno() is not None:
                region.on_failure(error)
            self._events.on_failed(str(error))
            return
        except RuntimeError as error:
            self._fail(f"it cannot be read in a thread: {error}")
            return
        if data is not None and not self._replace(region, data, length):
            return
        self._is_ready(length)
        self._state = OutflowState.SENDING
        self._send()

    def _is_ready(self, length: int) -> None:
        """This many bytes of the first part are resident."""
        self._ready_until = self._at + length
        self._looked_at = self._loop.time()

    def _replace(self, region: FileRegion, data: bytes, length: int) -> bool:
        """Replace a region by bytes, and by a region with what follows them. Returns False if there are too few."""
        rest = region.length - self._at - len(data)
        if len(data) < length or rest < 0:
            self._fail(f"{region.file.path} was truncated before it was sent")
            return False
        self._parts[0] = data
        if rest:
            position = region.position + region.length - rest
            self._parts.insert(1, FileRegion(region.file, position, rest, region.on_failure))
        else:
            self._regions -= 1
        self._at = 0
        return True


class SocketOutflow(Outflow):
    """An outflow to a socket without TLS."""

    __slots__ = ("_descriptor", "_socket", "_watches")

    def __init__(
        self,
        descriptor: int,
        events: OutflowEvents,
        access: FileAccess,
        loop: asyncio.AbstractEventLoop,
        ahead: ReadAhead | None = None,
    ) -> None:
        """`descriptor`: of the connection's socket. It is duplicated, because event loops reject that of a
        transport."""
        super().__init__(events, access, loop, ahead)
        copy = dup(descriptor)
        try:
            self._socket: Final = socket.socket(fileno=copy)
        except BaseException:
            socket.close(copy)
            raise
        self._descriptor: Final = copy
        self._watches = False
        """Whether the event loop reports space in the socket buffer."""

    def release(self) -> None:
        """As in `Outflow`."""
        super().release()
        self._watch(False)
        self._socket.close()

    def _send_buffers(self) -> int:
        """Send the buffers before the next region. The kernel holds a small rest back to send it with the region."""
        buffers: list[Buffer] = []
        for part in self._parts:
            if isinstance(part, FileRegion) or len(buffers) == _MOST_BUFFERS:
                break
            buffers.append(part)
        if self._at:
            buffers[0] = memoryview(buffers[0])[self._at :]
        if len(buffers) == 1:
            return self._socket.send(buffers[0], socket.MSG_MORE)
        return self._socket.sendmsg(buffers, (), socket.MSG_MORE)

    def _send_region(self, region: FileRegion) -> int:
        """Send a part of the region. Returns 0 if it must be read first, or if the connection failed."""
        descriptor = region.file.fileno()
        if descriptor is None:
            self._fail(f"{region.file.path} was closed before it was sent")
            return 0
        position = region.position + self._at
        if region.file.is_remote:
            window = min(region.length - self._at, WINDOW_BYTES)
            self._read(region, window, partial(copied, region, self._at, window))
            return 0
        try:
            if self._ready_until <= self._at:
                window = min(region.length - self._at, WINDOW_BYTES)
                if self._ahead is not None:
                    self._ahead.reads(region.file, descriptor, position, window)
                if not self._access.is_resident(descriptor, position, window):
                    self._read(region, window, partial(bring_in, region, self._at, window))
                    return 0
                self._is_ready(window)
            wanted = self._ready_until - self._at
            count = sendfile(self._descriptor, descriptor, position, wanted)
        except (BlockingIOError, ConnectionError, TimeoutError):
            raise
        except OSError:
            # A disk error, or a file system without sendfile: the thread finds out which.
            self._read(region, region.length - self._at, partial(region.load, self._at))
            return 0
        if not count:
            self._fail(f"{region.file.path} was truncated before it was sent")
        elif count < wanted:
            # Almost always the socket buffer is full; if the file was truncated, the next call sends nothing.
            self._block()
        return count

    def _block(self) -> None:
        self._state = OutflowState.BLOCKED
        self._watch(True)

    def _unblock(self) -> None:
        self._state = OutflowState.SENDING
        if self._loop.time() - self._looked_at > FORGOTTEN_AFTER_S:
            self._ready_until = 0
        self._send()
        # Kept while the outflow blocks repeatedly: registering it again costs more than a sendfile call.
        self._watch(self._state is OutflowState.BLOCKED)

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watches:
            self._loop.add_writer(self._descriptor, self._unblock)
        elif self._watches and not wanted:
            self._loop.remove_writer(self._descriptor)
        self._watches = wanted
