"""One accepted connection: it passes requests to its handler and sends responses in the order of the requests.

The event loop and the owner of a request call it. A `Listener` owns it. Its handler is an attribute: a connection that
must authenticate has that of its login until it has an identity, so requests do not check that later.

Invariants:
- The length of a frame is checked before memory is allocated. The buffer grows with the data received, never with the
  announced length. A frame above the limit, or without a length, closes the connection unread.
- Responses are sent in the order of their requests: old clients have no other way to match them.
- A request of an API that is not pipelined runs alone, as in Kafka: it is passed on when all earlier requests are
  answered, and later ones wait for its answer. Pipelined requests run concurrently up to a count and a size.
- While requests wait, or the peer does not read its responses, reading is paused, so that TCP flow control slows the
  peer down. It is also paused while a large frame waits for memory (`request_memory`).
- Responses given while requests are passed on are sent together at the end, or once they exceed a size: a system call
  for each would cost more than most requests.
- While a part of a response is sent from a file (`outflow`), later responses wait and no request is accepted, so that
  memory use stays low.
- The memory of a frame is borrowed: it is valid until the handler returns, and `Request.frame` is empty afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from odradek.base.errors import MalformedFrameError, StorageError, UnsupportedVersionError
from odradek.base.ports import Buffer, Clock, FileRegion, Part, Timer
from odradek.metrics.request_stats import RequestSample
from odradek.network.buffer import FrameBuffer
from odradek.network.connection_options import TOGETHER_BYTES, ConnectionOptions, NetworkCounters
from odradek.network.muting import Muting
from odradek.network.outflow import Outflow, OutflowEvents, loaded, write_together
from odradek.network.read_ahead import ReadAhead
from odradek.network.response_times import ResponseTimes
from odradek.network.small_requests import SmallRequests
from odradek.network.tls_outflow import outflow_to
from odradek.network.wake_threshold import WakeThreshold, threshold_of
from odradek.protocol.apis import API_TABLE
from odradek.protocol.codec import RequestHeader, decode_header_fields
from odradek.security.addresses import host_and_port_of
from odradek.security.principals import ANONYMOUS, Identity

logger = logging.getLogger(__name__)

_PIPELINED: Final = frozenset(key for key, row in API_TABLE.items() if row.pipelined)
_NO_FRAME: Final = memoryview(b"")
_GIVEN: Final[Sequence[Part]] = ()
"""Placeholder for a response that is being sent or was dropped."""


class Request:
    """One request. Exactly one of `respond`, `respond_nothing` and `fail` must be called, at any later time.

    `frame` is valid until the handler returns. The body starts at `position`.
    """

    __slots__ = (
        "answer",
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "position",
        "received_ms",
        "sample",
        "size_bytes",
    )

    def __init__(self, connection: Connection, frame: memoryview, received_ms: float) -> None:
        """Created by the connection only. Raises as `codec.decode_header`."""
        self.api_key, self.api_version, self.correlation_id, self.client_id, self.position = decode_header_fields(frame)
        """The header (see `RequestHeader`). The broker supports the version, except for ApiVersions."""
        self.connection: Final = connection
        self.frame = frame
        self.received_ms: Final = received_ms
        self.size_bytes: Final = len(frame)
        """Size of the frame without its length prefix. Valid even after the frame is gone."""
        self.answer: Sequence[Part] | None = None
        """What `respond` was called with. The connection replaces it when it has sent it or dropped it."""
        self.sample: RequestSample | None = None
        """Its timestamps, if its handler has enabled them."""

    @property
    def header(self) -> RequestHeader:
        """The header, for `codec.decode_request`."""
        return RequestHeader(self.api_key, self.api_version, self.correlation_id, self.client_id)

    @property
    def peer_host(self) -> str:
        """Address of the client."""
        return self.connection.peer_host

    @property
    def listener(self) -> str:
        """Name of the listener that accepted the connection."""
        return self.connection.listener

    @property
    def identity(self) -> Identity:
        """Who the client is. A request of a client that has not authenticated reaches its login only."""
        identity = self.connection.identity
        if identity is None:
            raise RuntimeError(f"{self} has no identity yet")
        return identity

    @property
    def is_answered(self) -> bool:
        """Whether the request was answered."""
        return self.answer is not None

    def respond(self, parts: Sequence[Part]) -> None:
        """Send a complete response frame once all earlier requests are answered. Its parts must not change
        afterwards."""
        if self.answer is not None:
            raise RuntimeError(f"{self} was answered before")
        self.answer = parts
        self.connection.on_answer(self)

    def respond_nothing(self) -> None:
        """Complete the request without a response (Produce with acks=0)."""
        self.respond(())

    def fail(self, reason: str) -> None:
        """Close the connection, because a frame that cannot be decoded cannot be answered."""
        self.connection.abort(reason)

    def __str__(self) -> str:
        """Connection, API, version and correlation id, for logs."""
        return f"{self.connection} {API_TABLE[self.api_key].name} v{self.api_version} #{self.correlation_id}"


Handler = Callable[[Request], None]


def accept_anonymous(connection: Connection) -> None:
    """Begin a connection without authentication."""
    connection.identity = Identity(ANONYMOUS, connection.peer_host, connection.listener, "PLAINTEXT")


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        *,
        listener: str = "PLAINTEXT",
        options: ConnectionOptions | None = None,
        counters: NetworkCounters | None = None,
        on_open: Callable[[Connection], bool] = lambda _connection: True,
        on_lost: Callable[[Connection], None] = lambda _connection: None,
        begin: Callable[[Connection], None] = accept_anonymous,
    ) -> None:
        """`on_open` may refuse the connection by returning False. `begin` and `on_lost` are called only if it did not.

        `begin` sets `identity`, or sets `handler` to that of a login, or aborts the connection.
        """
        self.handler = handler
        """Gets each request. A login replaces it until the client has authenticated."""
        self.identity: Identity | None = None
        """Who the client is; None until it has authenticated."""
        self.memo: object = None
        """Belongs to the handlers of requests, which keep there what they know about the client."""
        self.knows_private_apis = False  # Until ApiVersions has named software of this project.
        self.login: Handler | None = None
        """Gets the requests of SASL also after the first login; None without SASL."""
        self.raw: Callable[[bytes], None] | None = None
        """Gets each frame instead of `handler`: frames of a login without request headers (SaslHandshake 0)."""
        self.timer: Timer | None = None
        """A timer of the login, which ends with the connection."""
        self._clock: Final = clock
        self.listener: Final = listener
        self._options: Final = options or ConnectionOptions()
        self._small: Final = SmallRequests.of(self._options.small)
        self._usual: Final = handler
        self.counters: Final = counters or NetworkCounters()
        self._on_open: Final = on_open
        self._on_lost: Final = on_lost
        self._begin: Final = begin
        self.peer_host = ""
        self.peer_port = 0
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        memory = self._options.memory
        self._buffer: Final = FrameBuffer(
            self._options.max_frame_bytes, self._options.shared, is_minimal=memory is not None
        )
        self._reservation: Final = None if memory is None else memory.reservation(self._have_memory)
        self._pending: Final[deque[Request]] = deque()
        self._pending_bytes = 0
        self._outgoing: list[Part] = []
        self._outgoing_bytes = 0
        self._has_regions = False
        self._outflow: Outflow | None = None
        self._ahead: ReadAhead | None = None
        self.threshold: WakeThreshold | None = None
        """How many bytes must arrive to be read; None: any, because there is no TLS."""
        self._times: Final = ResponseTimes()
        self._together_bytes: Final = min(TOGETHER_BYTES, self._options.write_high_water_bytes)
        self.muting: Final = Muting(clock, self._schedule)
        self._exclusive = self._handing_over = self._write_paused = self._read_paused = False
        self._wake_up: asyncio.Handle | None = None
        self._closing = self._accepted = False
        self.was_open = False
        """Whether the connection was opened and not refused. `on_lost` follows once."""
        self.created_ms: Final = clock.monotonic_ms()
        """When the socket was accepted, before a TLS handshake."""
        self._active_ms = self.created_ms

    def __str__(self) -> str:
        """Listener and peer, for logs."""
        return f"{self.listener} {self.peer_host}:{self.peer_port}"

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is accepted."""
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self.peer_host, self.peer_port = host_and_port_of(transport.get_extra_info("peername"))
        if not self._on_open(self):
            self._closing = True
            self._transport.abort()
            return
        self._accepted = self.was_open = True
        self._transport.set_write_buffer_limits(high=self._options.write_high_water_bytes)
        self.threshold = threshold_of(transport)
        self._begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are written."""
        return self._buffer.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        self.counters.bytes_in += nbytes
        self._active_ms = self._clock.monotonic_ms()
        self._buffer.received(nbytes)
        self._hand_over()

    def eof_received(self) -> bool:
        """The peer has closed its side: pending answers cannot be delivered, so the transport closes.

        The transport does not know about an outflow. It closes when that is complete.
        """
        if self._outflow is None or not self._outflow.outlives_eof:
            return False
        self._closing = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: drop all pending responses."""
        self._closing = True
        self._transport = None
        self._times.clear()
        self.muting.cancel()
        if self.timer is not None:
            self.timer.cancel()
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        for request in self._pending:
            if request.is_answered:
                request.answer = _GIVEN
        self._pending.clear()
        self._drop_outgoing()
        self._buffer.release()
        if self._reservation is not None:
            self._reservation.release()
        if self._accepted:
            self._accepted = False
            self._on_lost(self)

    def pause_writing(self) -> None:
        """The peer does not read fast enough: accept no more requests."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """The peer has read enough."""
        self._write_paused = False
        if self._outflow is not None:
            self._outflow.start()
        self._note_sent()
        self._schedule()

    # Requests

    def _is_full(self) -> bool:
        """Whether no request of any kind may be passed on now."""
        options = self._options
        return (
            self._exclusive
            or self.muting.is_on
            or self._write_paused
            or self._outflow is not None
            or len(self._pending) >= options.max_in_flight
            or self._pending_bytes >= options.max_in_flight_bytes
        )

    def _hand_over(self) -> None:
        """Pass on the frames that have arrived and may run, then pause or resume reading."""
        self._handing_over = True
        try:
            while not self._closing and not self._is_full():
                if self._small is not None and self._answer_small(self._small):
                    continue
                frame = self._buffer.next_frame()
                if frame is None or not self._hand_over_one(frame):
                    break
        except (MalformedFrameError, UnsupportedVersionError) as error:
            self._refuse(str(error))
        finally:
            self._handing_over = False
            self._buffer.tidy()
            self._send()
        if not self._closing:
            self._balance_reading()

    def _answer_small(self, small: SmallRequests) -> bool:
        """Let small requests be answered together. Returns False if the first request has to be handled alone."""
        if self._pending or self.handler is not self._usual:  # A login in progress gets all requests.
            return False
        try:
            count, answers = small.answer(self, self._buffer)
        except Exception:
            logger.exception("%s: the handler failed, closing the connection", self)
            self.abort("the handler failed")
            return True
        self.counters.requests += count
        if answers:
            self._outgoing.append(answers)
            self._outgoing_bytes += len(answers)
        return count > 0

    def _refuse(self, reason: str) -> None:
        """Close the connection of a peer whose frame cannot be decoded. No other connection is affected."""
        self.counters.requests_refused += 1
        logger.warning("%s: closing the connection: %s", self, reason)
        self.abort(reason)

    def _hand_over_one(self, frame: memoryview) -> bool:
        """Pass on a frame. Returns False if it must wait until earlier requests are answered."""
        if self.raw is not None:
            return self._hand_over_raw(self.raw, frame)
        request = Request(self, frame, self._active_ms)
        is_alone = request.api_key not in _PIPELINED
        if is_alone and self._pending:
            return False
        self._buffer.consume()
        self.counters.requests += 1
        self._exclusive = is_alone
        self._pending.append(request)
        self._pending_bytes += len(frame)
        try:
            self.handler(request)
        except (MalformedFrameError, UnsupportedVersionError) as error:
            self._refuse(f"{request}: {error}")
        except Exception:
            # A bug in the handling of one request must end only its own connection.
            logger.exception("%s: the handler failed, closing the connection", request)
            self.abort("the handler failed")
        request.frame = _NO_FRAME
        if request.sample is not None and request.answer is None:
            request.sample.parked_ms = self._clock.monotonic_ms()
        return True

    def _hand_over_raw(self, take: Callable[[bytes], None], frame: memoryview) -> bool:
        if self._pending:
            return False
        self._buffer.consume()
        try:
            take(bytes(frame))
        except Exception:  # A bug in a login must end only its own connection.
            logger.exception("%s: the login failed, closing the connection", self)
            self.abort("the login failed")
        return True

    def _balance_reading(self) -> None:
        """Read unless requests wait. An idle connection stays readable, so that its end is noticed."""
        transport = self._transport
        if transport is None:
            return
        if self.threshold is not None:
            self.threshold.want(self._buffer.missing_bytes())
        must_pause = self._buffer.unread_bytes > 0 and (self._is_full() or self._buffer.has_frame())
        if self._reservation is not None and not must_pause:
            must_pause = not self._reservation.covers(self._buffer.large_frame_bytes())
        if must_pause and not self._read_paused:
            self._read_paused = True
            transport.pause_reading()
        elif self._read_paused and not must_pause:
            self._read_paused = False
            transport.resume_reading()

    def _have_memory(self) -> None:
        """The reservation has waited and got its memory: read the frame."""
        if not self._closing:
            self._balance_reading()
        elif self._reservation is not None:
            self._reservation.release()

    def _schedule(self) -> None:
        """Process waiting frames in the next iteration of the loop: the caller may be in the middle of an operation."""
        if self._closing or self._handing_over or self._wake_up is not None or self._loop is None:
            return
        if self._buffer.unread_bytes or self._read_paused:
            self._wake_up = self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._wake_up = None
        if not self._closing:
            self._hand_over()

    # Responses

    def on_answer(self, request: Request) -> None:
        """A request was answered: send all responses whose turn has come. Called by `Request` only."""
        if request.sample is not None:
            request.sample.answered_ms = self._clock.monotonic_ms()
        pending = self._pending
        if not pending or self._transport is None:
            request.answer = _GIVEN
            return
        if request is not pending[0]:
            return
        while pending and (parts := pending[0].answer) is not None:
            answered = pending.popleft()
            # The holder of a request may keep it for a long time, and with it megabytes of records.
            answered.answer = _GIVEN
            self._pending_bytes -= answered.size_bytes
            if answered.sample is not None:
                self._times.add(answered.sample, sends=bool(parts))
            if len(parts) == 1:
                self._outgoing.append(parts[0])
                self._outgoing_bytes += len(parts[0])
            elif parts:
                self._outgoing += parts
                self._outgoing_bytes += sum(map(len, parts))
            # A region is never a complete response: the frame's length precedes it.
            self._has_regions = self._has_regions or (len(parts) > 1 and FileRegion in map(type, parts))
        self._exclusive = False
        if not self._handing_over or self._outgoing_bytes >= self._together_bytes:
            self._send()
        self._go_on()

    def _go_on(self) -> None:
        """After a response: close if it was the last one, or process the next request."""
        if self._closing and not self._pending:
            self._end()
        elif not self._handing_over:
            self._schedule()

    def _send(self) -> None:
        """Pass collected responses to the transport, which sends at once if possible, or to an outflow."""
        parts, size, transport = self._outgoing, self._outgoing_bytes, self._transport
        if not parts or transport is None:
            return
        self._outgoing, self._outgoing_bytes = [], 0
        if self._times.is_in_use and self._loop is not None:
            self._times.begin(self._clock.monotonic_ms())
            # The event loop may write at the end of its iteration, so continue in the next one.
            self._loop.call_soon(self._note_sent)
        if self._outflow is not None:
            self._outflow.put(parts)
        elif self._has_regions:
            self._send_with_regions(transport, parts)
        else:
            self._transmit(transport, cast(list[Buffer], parts), size)

    def _transmit(self, transport: asyncio.Transport, buffers: list[Buffer], size: int) -> None:
        self._have_sent(size)
        write_together(transport, buffers, size)

    def _send_with_regions(self, transport: asyncio.Transport, parts: list[Part]) -> None:
        """Start an outflow. If there is no socket for it, read the file regions now."""
        self._has_regions = False
        try:
            files = self._options.files
            if self._ahead is None and files.read_ahead_bytes:
                self._ahead = ReadAhead(files)
            events = OutflowEvents(on_sent=self._have_sent, on_finished=self._have_flowed_out, on_failed=self.abort)
            self._outflow = outflow_to(transport, lambda: self._write_paused, events, files, self._ahead)
            if self._outflow is None:
                buffers = [loaded(part) if isinstance(part, FileRegion) else part for part in parts]
                self._transmit(transport, buffers, sum(map(len, buffers)))
                return
        except (StorageError, OSError) as error:
            self.abort(str(error))
            return
        self._outflow.put(parts)
        if self._outflow.needs_empty_transport and transport.get_write_buffer_size():
            # `resume_writing` then reports that everything is sent.
            transport.set_write_buffer_limits(high=0)
        else:
            self._outflow.start()

    def _have_sent(self, size: int) -> None:
        self.counters.bytes_out += size
        self._active_ms = self._clock.monotonic_ms()

    def _have_flowed_out(self, rest: list[Buffer]) -> None:
        """All file regions are sent: the transport sends what follows."""
        self._outflow = None
        transport = self._transport
        if transport is None:
            return
        transport.set_write_buffer_limits(high=self._options.write_high_water_bytes)
        if rest:
            self._transmit(transport, rest, sum(map(len, rest)))
        self._note_sent()
        self._go_on()

    def _note_sent(self) -> None:
        """Note the time in the samples of sent responses, unless the peer or a file must be waited for."""
        if self._times.is_in_use and not self._write_paused and self._outflow is None:
            self._times.end(self._clock.monotonic_ms())

    def _drop_outgoing(self) -> None:
        """Drop all unsent responses."""
        self._outgoing, self._outgoing_bytes, self._has_regions = [], 0, False
        if self._outflow is not None:
            self._outflow.release()
            self._outflow = None

    def _end(self) -> None:
        """Close once everything is sent."""
        self._send()
        if self._transport is not None and self._outflow is None:
            self._transport.close()

    # Called by the owner

    @property
    def in_flight(self) -> int:
        """Number of requests passed on and not answered."""
        return len(self._pending)

    def limit_frames(self, max_bytes: int) -> None:
        """Accept frames up to this size, and not above `max_frame_bytes` of the options."""
        self._buffer.limit(min(max_bytes, self._options.max_frame_bytes))

    def peer_certificate(self) -> bytes | None:
        """Return the certificate of the client in DER; None if it has none, or without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else cast(bytes | None, tls.getpeercert(binary_form=True))

    def send(self, data: bytes) -> None:
        """Send bytes that answer a raw frame."""
        if self._transport is not None:
            self._outgoing.append(data)
            self._outgoing_bytes += len(data)
            if not self._handing_over:
                self._send()

    def idle_ms(self, now_ms: float) -> float:
        """Milliseconds since bytes were last received or sent; 0 while a request is in progress or waits for memory."""
        if self._pending or (self._reservation is not None and self._reservation.wanted_bytes):
            return 0.0
        return now_ms - self._active_ms

    def slow_ms(self, now_ms: float) -> float:
        """Milliseconds for which a frame has had memory and waits for the peer: to send the rest, or to read responses.

        0 without such a frame.
        """
        reservation = self._reservation
        if reservation is None or not reservation.held_bytes:
            return 0.0
        is_peer_slow = not self._buffer.has_frame() or self._write_paused or self._outflow is not None
        return now_ms - reservation.since_ms if is_peer_slow else 0.0

    def shrink(self) -> None:
        """Free memory that the last frames did not need. Called periodically."""
        self._buffer.shrink()

    def close(self) -> None:
        """Accept no more requests, answer pending ones, then close. Idempotent."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()
        if not self._pending:
            self._end()

    def abort(self, reason: str) -> None:
        """Close immediately. Unsent responses are lost. Idempotent."""
        self._closing = True
        self._send()
        self._drop_outgoing()
        if self._transport is not None:
            logger.info("%s: connection ended: %s", self, reason)
            self._transport.abort()
