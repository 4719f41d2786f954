"""One outgoing connection: requests with correlation ids, and their responses or errors.

The controller, the followers and the client use it.

Invariants:
- Every call ends: with its response, with `RequestTimedOutError` at its deadline, or with `NetworkError` if the
  connection ends first. As in Kafka's clients, a missed deadline closes the connection: responses arrive in order, so
  a missing one blocks all that follow.
- The channel stays usable when a call is cancelled. The response is dropped when it arrives.
- Responses are matched by order and checked by correlation id. A mismatch closes the connection.
- The caller owns the memory of a response. Only the part of a large response that arrives with its first bytes is
  copied.
- With SASL, `open` returns after the login. No request is sent while the client authenticates again (KIP-368), which
  the first request after most of the session's lifetime begins.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast, overload

from odradek.base import VERSION
from odradek.base.errors import (
    AuthenticationError,
    MalformedFrameError,
    NetworkError,
    OdradekError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.ports import Buffer
from odradek.network.channel_security import ChannelSecurity, tls_failure
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, Response, decode_response, encode_request
from odradek.protocol.messages.cluster import ApiVersionsResponse

_LENGTH: Final = Struct(">i")
_CORRELATION_ID: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")
_PREFIX_BYTES: Final = 4
_SCRATCH_BYTES: Final = 64 << 10
_LAST_CORRELATION_ID: Final = 2**31 - 1
SOFTWARE: Final[Message] = {"client_software_name": "odradek", "client_software_version": VERSION}
"""The content of an ApiVersions request (KIP-511)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """At most `max_in_flight` unanswered requests; further calls wait. A response above `max_response_bytes` closes the
    connection."""

    max_in_flight: int = 100
    max_response_bytes: int = 256 << 20
    write_high_water_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTimeouts:
    """Timeouts for connecting, and for a response if the call has no timeout."""

    connect_ms: float = 10_000
    request_ms: float = 30_000


class ClusterFeatures(NamedTuple):
    """The finalized features of a cluster (KIP-584)."""

    epoch: int
    """Number that increases with each change; -1 if the cluster has no features."""
    levels: Mapping[str, int]
    """Level by feature."""


NO_FEATURES: Final = ClusterFeatures(-1, MappingProxyType({}))


class _Pending:
    """A request that was sent and is not answered yet."""

    __slots__ = ("correlation_id", "deadline", "has_slot", "outcome")

    def __init__(
        self, correlation_id: int, deadline: float, outcome: asyncio.Future[memoryview], *, has_slot: bool
    ) -> None:
        self.correlation_id: Final = correlation_id
        self.has_slot: Final = has_slot
        self.deadline: Final = deadline
        self.outcome: Final = outcome


class Channel(asyncio.BufferedProtocol):
    """An open connection to one broker. Create it with `open`."""

    def __init__(
        self,
        peer: str,
        client_id: str | None,
        limits: ChannelLimits,
        timeouts: ChannelTimeouts,
        security: ChannelSecurity | None = None,
    ) -> None:
        """Called by `open`."""
        self.peer: Final = peer
        self.client_id: Final = client_id
        self._limits: Final = limits
        self._timeouts: Final = timeouts
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: Final[deque[_Pending]] = deque()
        self._slots: Final = asyncio.Semaphore(limits.max_in_flight)
        self._writable: Final = asyncio.Event()
        self._writable.set()
        self._lost: Final[asyncio.Future[None]] = self._loop.create_future()
        self._failure: NetworkError | AuthenticationError | None = None
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._scratch: Final = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self.features = NO_FEATURES
        """The finalized features of the cluster at the time of `negotiate` (KIP-584)."""
        self._security: Final = security
        self._renew_at: float | None = None
        """When the client must authenticate again, on the clock of the loop; None for never."""
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        limits: ChannelLimits | None = None,
        timeouts: ChannelTimeouts | None = None,
        security: ChannelSecurity | None = None,
    ) -> Channel:
        """Connect, and with SASL negotiate versions and authenticate.

        Raises `NetworkError` if the address does not answer in time, and `AuthenticationError` if broker and client do
        not accept each other.
        """
        timeouts = timeouts or ChannelTimeouts()
        channel = cls(f"{host}:{port}", client_id, limits or ChannelLimits(), timeouts, security)
        context = None if security is None else await security.context()
        try:
            async with asyncio.timeout(timeouts.connect_ms / 1000):
                if context is None:
                    await channel._loop.create_connection(lambda: channel, host, port)
                else:
                    await channel._loop.create_connection(
                        lambda: channel, host, port, ssl=context, server_hostname=host
                    )
        except TimeoutError as error:
            raise NetworkError(f"{channel.peer} did not accept a connection in {timeouts.connect_ms:.0f} ms") from error
        except ssl.SSLError as error:
            raise tls_failure(channel.peer, error) from error
        except OSError as error:
            raise NetworkError(f"cannot connect to {channel.peer}: {error.strerror or error}") from error
        if security is not None and security.has_login:
            try:
                await channel.negotiate()
                await channel._log_in(security)
            except BaseException:
                await channel.close()
                raise
        return channel

    @property
    def is_open(self) -> bool:
        """Whether calls can still succeed."""
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Number of unanswered requests, including those of cancelled calls."""
        return len(self._pending)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """API versions of the peer: (lowest, highest) by API key. Raises `RuntimeError` before `negotiate`."""
        if self._versions is None:
            raise RuntimeError(f"the API versions of {self.peer} are not negotiated yet")
        return self._versions

    def pick(self, api_key: ApiKey) -> int:
        """Return the highest version of an API that both sides support. Raises `UnsupportedVersionError` if there is
        none."""
        row = API_TABLE[api_key]
        low, high = self.versions.get(api_key, (0, -1))
        version = min(high, row.max_version)
        if version < max(low, row.min_version):
            raise UnsupportedVersionError(f"{self.peer} and this side have no common version of {row.name}")
        return version

    async def negotiate(self) -> Mapping[int, tuple[int, int]]:
        """Request the API versions of the peer (KIP-35), unless they are known. A broker that does not support our
        version answers with version 0."""
        if self._versions is not None:
            return self._versions
        version = API_TABLE[ApiKey.API_VERSIONS].max_version
        frame = await self._call_message(ApiKey.API_VERSIONS, version, SOFTWARE)
        if _error_code(frame) == UnsupportedVersionError.code:
            version = 0
            frame = await self._call_message(ApiKey.API_VERSIONS, version, {})
        code = _error_code(frame)
        if code:
            raise error_for(code, f"{self.peer} refused the ApiVersions request")
        response = decode_response(ApiVersionsResponse, version, frame)
        levels = {item.name: item.max_version_level for item in response.finalized_features}
        self.features = ClusterFeatures(response.finalized_features_epoch, MappingProxyType(levels))
        self._versions = MappingProxyType(
            {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        )
        return self._versions

    @overload
    async def ask(
        self, expected: type[Response], version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Response: ...

    @overload
    async def ask(
        self, expected: ApiKey, version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Any: ...

    async def ask(
        self, expected: ApiKey | type[Any], version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Any:
        """Send one request and return its response, whose class or API is `expected`.

        Raises the errors of `call`, and `ValueError` for an invalid message.
        """
        api_key = expected if isinstance(expected, ApiKey) else expected.API_KEY
        return decode_response(expected, version, await self._call_message(api_key, version, message, timeout_ms))

    async def _call_message(
        self, api_key: ApiKey, version: int, message: Message, timeout_ms: float | None = None
    ) -> memoryview:
        def encode(correlation_id: int) -> Sequence[Buffer]:
            return (encode_request(api_key, version, correlation_id, self.client_id, message),)

        return await self.call(encode, timeout_ms=timeout_ms)

    async def call(
        self,
        encode: Callable[[int], Sequence[Buffer]],
        *,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> memoryview:
        """Send the frame that `encode(correlation_id)` returns, including its prefix, and return the response frame.

        The result starts at the response header, belongs to the caller, and is empty if no response is expected.
        `timeout_ms` includes the time until the request may be sent. Raises `RequestTimedOutError` or `NetworkError`.
        """
        limit_ms = self._timeouts.request_ms if timeout_ms is None else timeout_ms
        deadline = self._loop.time() + limit_ms / 1000
        await self._take_slot(deadline)
        try:
            await self._wait_until_ready(deadline)
            outcome = self._send(encode, deadline, expect_response=expect_response)
        except BaseException:
            self._slots.release()
            raise
        if outcome is None:
            self._slots.release()
            return memoryview(b"")
        # The slot is released when the response arrives, not when this caller stops waiting for it.
        return await outcome

    async def _take_slot(self, deadline: float) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError as error:
            raise RequestTimedOutError(f"{self.peer} did not answer earlier requests in time") from error

    async def _wait_until_ready(self, deadline: float) -> None:
        """Return when the request may be sent: the peer reads, and the client's session has not to be renewed."""
        while self._failure is None:
            renewal = self._due_renewal()
            if renewal is None and self._writable.is_set():
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await (self._writable.wait() if renewal is None else asyncio.shield(renewal))
            except TimeoutError as error:
                what = "read the request" if renewal is None else "complete the authentication"
                raise RequestTimedOutError(f"{self.peer} did not {what} in time") from error

    def _send(
        self,
        encode: Callable[[int], Sequence[Buffer]],
        deadline: float,
        *,
        expect_response: bool = True,
        has_slot: bool = True,
    ) -> asyncio.Future[memoryview] | None:
        if self._failure is not None:
            raise _copy(self._failure) from self._failure
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        buffers = encode(correlation_id)
        outcome = None
        if expect_response:
            outcome = self._loop.create_future()
            self._pending.append(_Pending(correlation_id, deadline, outcome, has_slot=has_slot))
            self._arm(deadline)
        cast(asyncio.Transport, self._transport).writelines(buffers)
        return outcome

    # Authentication

    async def ask_for_login(self, expected: type[Response], version: int, message: Message) -> Response:
        """Send a request of the login. It overtakes the requests that wait for a slot or for the login."""

        def encode(correlation_id: int) -> Sequence[Buffer]:
            return (encode_request(expected.API_KEY, version, correlation_id, self.client_id, message),)

        outcome = self._send(encode, self._loop.time() + self._timeouts.request_ms / 1000, has_slot=False)
        assert outcome is not None, "a response is expected"
        return decode_response(expected, version, await outcome)

    async def _log_in(self, security: ChannelSecurity) -> None:
        renew_ms = await security.log_in(self)
        self._renew_at = None if renew_ms is None else self._loop.time() + renew_ms / 1000

    def _due_renewal(self) -> asyncio.Task[None] | None:
        """Return the task that authenticates again, and start it if it is due; None if requests can be sent."""
        if self._renew_at is None or self._loop.time() < self._renew_at:
            return None
        if self._renewal is None or self._renewal.done():
            self._renewal = self._loop.create_task(self._renew(), name=f"authenticate to {self.peer}")
        return self._renewal

    async def _renew(self) -> None:
        """Authenticate again. Ends the connection on failure; the next one tells the reason again."""
        assert self._security is not None, "a session has an end"
        try:
            await self._log_in(self._security)
        except OdradekError as error:
            self._end(
                NetworkError(f"the connection to {self.peer} was closed: it could not authenticate again: {error}")
            )

    async def close(self) -> None:
        """Close the connection. Pending calls raise `NetworkError`. Idempotent."""
        self._end(NetworkError(f"the connection to {self.peer} was closed"))
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Return when the connection has ended, for any reason."""
        await asyncio.shield(self._lost)

    # Deadlines

    def _arm(self, deadline: float) -> None:
        """Start one timer for the earliest deadline. It is not moved when that request is answered; it checks again
        then."""
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for pending in self._pending:
            if pending.deadline <= now and not pending.outcome.done():
                pending.outcome.set_exception(RequestTimedOutError(f"{self.peer} did not answer in time"))
        if any(pending.deadline <= now for pending in self._pending):
            self._end(NetworkError(f"the connection to {self.peer} was closed because it did not answer in time"))
        elif self._pending:
            self._arm(min(pending.deadline for pending in self._pending))

    def _end(self, failure: NetworkError | AuthenticationError) -> None:
        """Fail all pending calls and close the connection. Only the first reason counts."""
        if self._failure is not None:
            return
        self._failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            pending = self._pending.popleft()
            if pending.has_slot:
                self._slots.release()
            if not pending.outcome.done():
                pending.outcome.set_exception(_copy(failure))
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are written: the scratch buffer, or the large response being received."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._scratch[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        try:
            if self._large is None:
                self._filled += nbytes
                self._take_frames()
            else:
                self._large_filled += nbytes
                if self._large_filled == len(self._large):
                    whole, self._large = self._large, None
                    self._deliver(whole)
        except MalformedFrameError as error:
            self._end(NetworkError(f"{self.peer} sent an invalid response: {error}"))

    def eof_received(self) -> bool:
        """The peer has closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if isinstance(exc, ssl.SSLError) and self._versions is None:
            # With TLS 1.3, a client learns only now that the broker has refused its certificate.
            self._end(tls_failure(self.peer, exc))
        reason = "was closed by the peer" if exc is None else f"broke: {exc}"
        if self._versions is None and self._security is not None:
            reason += (
                " before it was authenticated: check protocol and certificate of this client, and the broker's log"
            )
        self._end(NetworkError(f"the connection to {self.peer} {reason}"))
        self._transport = None
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writable.set()

    # Responses

    def _take_frames(self) -> None:
        """Deliver the complete frames in the scratch buffer; allocate a buffer for a frame that does not fit."""
        start = 0
        while self._filled - start >= _PREFIX_BYTES:
            (length,) = _LENGTH.unpack_from(self._scratch, start)
            if not _PREFIX_BYTES <= length <= self._limits.max_response_bytes:
                most = self._limits.max_response_bytes
                raise MalformedFrameError(f"a response of {length} bytes: {_PREFIX_BYTES} to {most} are allowed")
            body = start + _PREFIX_BYTES
            after = body + length
            if after > self._filled:
                if _PREFIX_BYTES + length > _SCRATCH_BYTES:
                    self._begin_large(length, body)
                    return
                break
            self._deliver(memoryview(bytes(self._scratch[body:after])))
            start = after
        unread = self._filled - start
        if start and unread:
            self._scratch[:unread] = self._scratch[start : self._filled]
        self._filled = unread

    def _begin_large(self, length: int, body: int) -> None:
        arrived = self._filled - body
        self._large = memoryview(bytearray(length))
        self._large[:arrived] = self._scratch[body : self._filled]
        self._large_filled = arrived
        self._filled = 0

    def _deliver(self, frame: memoryview) -> None:
        if not self._pending:
            if self._failure is not None:
                return
            raise MalformedFrameError("a response arrived without a request")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if correlation_id != self._pending[0].correlation_id:
            raise MalformedFrameError(f"correlation id {correlation_id}, expected {self._pending[0].correlation_id}")
        pending = self._pending.popleft()
        if pending.has_slot:
            self._slots.release()
        if not pending.outcome.done():
            pending.outcome.set_result(frame)


def _copy(failure: NetworkError | AuthenticationError) -> NetworkError | AuthenticationError:
    """Return an error for one caller. Each raised error gets a traceback of its own."""
    return type(failure)(str(failure))


def _error_code(frame: memoryview) -> int:
    """Return the error code of an ApiVersions response: in every version the first field after the correlation id."""
    if len(frame) < _PREFIX_BYTES + _ERROR_CODE.size:
        raise MalformedFrameError(f"an ApiVersions response of {len(frame)} bytes is too short")
    (code,) = _ERROR_CODE.unpack_from(frame, _PREFIX_BYTES)
    return int(code)
