"""Answers that are partly in files: on their way to one socket, in order.

Buffers and `FileRegion`s enter; their bytes leave through the socket, those of files by `sendfile`, without a copy in
this process. A `Connection` makes one when an answer holds a region, and goes on with its transport when that is out.

Invariants:
- Everything leaves in the order of `put`, after what the transport had before: nothing is sent until that is out.
- The event loop does not wait for a disk: pages that are not in memory are brought there in a thread first, and those
  behind them are asked for in advance (`read_ahead`).
- A file that was cut or closed meanwhile ends the connection: a frame whose length is announced is never cut short.
- Exactly one of `on_finished` and `on_failed` is called, unless `release` comes first; it leaves no descriptor, no
  event, and no task behind.

    state      waits for                 then
    DRAINING   the transport's buffer    SENDING
    SENDING    nothing, or its next turn BLOCKED, READING, or the end
    BLOCKED    room in the socket        SENDING
    READING    a thread that reads       SENDING
    RELEASED   nothing                   -
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
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.ports import Buffer, FileRegion, Part
from odradek.network.pages import FileAccess, bring_in
from odradek.network.read_ahead import ReadAhead

WINDOW_BYTES: Final = 1 << 20
"""So much of a region is looked for in memory, and sent, at once; more than most sockets take."""

FORGOTTEN_AFTER_S: Final = 1.0
"""What was in memory is looked for again when the socket has not taken it in so long."""

TURN_BYTES: Final = 4 << 20
"""After so many bytes others get their turn of the event loop."""

_MOST_BUFFERS: Final = 512
"""Buffers in one sendmsg call; Linux allows 1024 (IOV_MAX)."""


class State(Enum):
    """What an outflow waits for; see the table above."""

    DRAINING = auto()
    SENDING = auto()
    BLOCKED = auto()
    READING = auto()
    RELEASED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutflowEvents:
    """What the connection hears; all on the event loop, perhaps before the call that began it returns."""

    on_sent: Callable[[int], None]
    """So many bytes are in the socket."""
    on_finished: Callable[[list[Buffer]], None]
    """Every region is out, and the outflow is released; the buffers behind the last one are the caller's to send."""
    on_failed: Callable[[str], None]
    """The connection cannot go on, for this reason; the outflow is released."""


def sendable_descriptor(transport: asyncio.Transport) -> int | None:
    """The descriptor of the transport's socket; None when bytes must pass through the transport, or it is closing."""
    plain = transport.get_extra_info("socket")
    if plain is None or transport.get_extra_info("sslcontext") is not None or transport.is_closing():
        return None
    descriptor = plain.fileno()
    return descriptor if isinstance(descriptor, int) and descriptor >= 0 else None


def loaded(region: FileRegion) -> bytes:
    """A region's bytes, read here and now. Blocks. Raises `StorageError`, also when the file was cut."""
    try:
        data = region.load()
    except StorageError as error:
        region.on_failure(error)
        raise
    if len(data) != region.length:
        raise StorageError(f"{region.file.path} was cut before it was sent", path=region.file.path)
    return data


class Outflow:
    """One run of parts on its way out."""

    __slots__ = (
        "_access",
        "_ahead",
        "_at",
        "_descriptor",
        "_events",
        "_looked_at",
        "_loop",
        "_next_turn",
        "_parts",
        "_reading",
        "_ready_until",
        "_regions",
        "_socket",
        "_state",
        "_watches",
    )

    def __init__(
        self,
        descriptor: int,
        events: OutflowEvents,
        access: FileAccess,
        loop: asyncio.AbstractEventLoop,
        ahead: ReadAhead | None = None,
    ) -> None:
        """`descriptor`: of the connection's socket; a copy is made, for event loops keep others from a transport's.

        `ahead`: of the connection; it outlives its outflows.
        """
        copy = dup(descriptor)
        try:
            self._socket: Final = socket.socket(fileno=copy)
        except BaseException:
            socket.close(copy)
            raise
        self._descriptor: Final = copy
        self._events: Final = events
        self._access: Final = access
        self._ahead: Final = ahead
        self._loop: Final = loop
        self._state = State.DRAINING
        self._parts: Final[deque[Part]] = deque()
        self._regions = 0
        self._at = 0
        """Bytes of the first part that are out."""
        self._ready_until = 0
        """Up to where the first part, a region, was in memory at `_looked_at`."""
        self._looked_at = 0.0
        self._reading: asyncio.Future[bytes | None] | None = None
        self._next_turn: asyncio.Handle | None = None
        self._watches = False
        """Whether the event loop tells of room in the socket."""

    @property
    def state(self) -> State:
        """What it waits for."""
        return self._state

    def put(self, parts: Iterable[Part]) -> None:
        """Send these after all before; begins nothing."""
        for part in parts:
            if len(part):
                self._parts.append(part)
                self._regions += isinstance(part, FileRegion)

    def start(self) -> None:
        """The transport's buffer is empty: send."""
        if self._state is State.DRAINING:
            self._state = State.SENDING
            self._send()

    def release(self) -> None:
        """Give everything back; nothing is sent or called from now on. Idempotent.

        A thread that reads goes on to its end, holding the file and nothing of the connection.
        """
        self._state = State.RELEASED
        self._watch(False)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._parts.clear()
        self._socket.close()

    # Sending ------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send until something must be waited for, or all is out."""
        sent = 0
        try:
            while self._regions and self._state is State.SENDING:
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
            if self._state is State.SENDING:
                self._finish()

    def _send_buffers(self) -> int:
        """Send what lies before the next region; the kernel keeps a small rest back to send it with the region."""
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
        """Send some of the region; 0 when it has to be read first, or the connection is over."""
        descriptor = region.file.fileno()
        if descriptor is None:
            self._fail(f"{region.file.path} was closed before it was sent")
            return 0
        position = region.position + self._at
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
            # The file's disk, or a file system that knows no sendfile: a thread finds out.
            self._read(region, region.length - self._at, partial(region.load, self._at))
            return 0
        if not count:
            self._fail(f"{region.file.path} was cut before it was sent")
        elif count < wanted:
            # Nearly always the socket is full; of a file that was cut the next call gives nothing.
            self._block()
        return count

    def _consume(self, count: int) -> None:
        """So many bytes of the first parts are out."""
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

    # Waiting for the socket ---------------------------------------------------------------------------------------

    def _block(self) -> None:
        self._state = State.BLOCKED
        self._watch(True)

    def _unblock(self) -> None:
        self._state = State.SENDING
        if self._loop.time() - self._looked_at > FORGOTTEN_AFTER_S:
            self._ready_until = 0
        self._send()
        # Kept through blocks that follow each other: to begin it anew costs more than a call of sendfile.
        self._watch(self._state is State.BLOCKED)

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watches:
            self._loop.add_writer(self._descriptor, self._unblock)
        elif self._watches and not wanted:
            self._loop.remove_writer(self._descriptor)
        self._watches = wanted

    # Waiting for the disk -----------------------------------------------------------------------------------------

    def _read(self, region: FileRegion, length: int, job: Callable[[], bytes | None]) -> None:
        """Have a thread read; it gives the rest of the region as bytes, or None: `length` bytes are in memory."""
        self._state = State.READING
        self._reading = reading = asyncio.ensure_future(self._access.run_blocking(job))
        reading.add_done_callback(partial(self._have_read, region, length))

    def _have_read(self, region: FileRegion, length: int, reading: asyncio.Future[bytes | None]) -> None:
        if reading.cancelled() or self._state is not State.READING:
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
        if data is not None and not self._replace(region, data):
            return
        self._is_ready(length)
        self._state = State.SENDING
        self._send()

    def _is_ready(self, length: int) -> None:
        """So many bytes of the first part are in memory."""
        self._ready_until = self._at + length
        self._looked_at = self._loop.time()

    def _replace(self, region: FileRegion, data: bytes) -> bool:
        """Send bytes in the place of the rest of a region; False when there are too few."""
        if len(data) != region.length - self._at:
            self._fail(f"{region.file.path} was cut before it was sent")
            return False
        self._parts[0] = data
        self._regions -= 1
        self._at = 0
        return True
