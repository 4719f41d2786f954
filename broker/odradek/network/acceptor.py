"""Accepts the sockets of a listener itself, where `loop.create_server` does not suffice: with TLS, and with a limit of
new connections per second (`max.connection.creation.rate`, KIP-612).

A `Listener` creates it with a bound socket. Limits of connections apply before the TLS handshake, which takes a
thousand times more CPU time than accepting. Each handshake is a task of its own, so a slow or broken client delays no
other one. Invariants:

- A connection that is not open `timeout_ms` after its socket was accepted is closed.
- A handshake that fails is counted, logged at a limited rate and releases its place.
- A connection above the rate of its host is held for a time, and then closed without a handshake.
- After `close` there is no handshake, and the listening socket is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from odradek.base.ports import Clock, Timer
from odradek.network.connection import Connection
from odradek.network.limited_log import LimitedLog
from odradek.security.addresses import host_of
from odradek.security.tls.contexts import UsedCertificates

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS: Final = 5.0
"""Maximum wait for the client's part of the end of TLS, and for it to read what is still to be sent."""

RETRY_MS: Final = 1_000.0
"""Wait before accepting again if the process has no descriptor or memory for a socket, as in asyncio."""

_TOGETHER: Final = 16
"""Maximum number of sockets accepted before other tasks get their turn of the event loop."""


class ContextSource(Protocol):
    """Gives the TLS context for the next connection: `security/tls/contexts`."""

    async def current(self) -> ssl.SSLContext:
        """Return the context."""
        ...

    async def used(self) -> UsedCertificates:
        """Return the certificates of the context."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptorPort:
    """What an acceptor needs of its listener."""

    admit: Callable[[str], bool]
    """Takes a place for a connection of this host; False if a limit is reached."""
    hold_ms: Callable[[str], float]
    """Time after which the connection of this host is closed, because it has opened too many; 0 if it may be opened."""
    release: Callable[[str], None]
    """Gives the place of a connection back that was not opened."""
    make: Callable[[], Connection]
    """Creates the connection of a socket."""
    failed: Callable[[], None]
    """Counts a handshake that failed."""
    rate: Callable[[], float]
    """Maximum number of new connections per second."""


@dataclass(slots=True)
class _Opening:
    """A socket whose connection is not open yet."""

    accepted: socket.socket
    host: str
    hold_ms: float
    connection: Connection | None = None


class Acceptor:
    """Accepts the sockets of one listener."""

    def __init__(
        self,
        name: str,
        bound: socket.socket,
        port: AcceptorPort,
        clock: Clock,
        *,
        contexts: ContextSource | None,
        timeout_ms: float,
        backlog: int,
    ) -> None:
        """`name` is that of the listener, for logs. Without `contexts` there is no TLS."""
        self._name: Final = name
        self._socket: Final = bound
        self._port: Final = port
        self._clock: Final = clock
        self._contexts: Final = contexts
        self._timeout_ms: Final = timeout_ms
        self._backlog: Final = backlog
        self._allowance = CreationRate(clock)
        self._log: Final = LimitedLog(logger, clock)
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._pause: Timer | None = None
        self._is_closed = False

    @property
    def handshakes(self) -> int:
        """Number of sockets whose connection is not open yet."""
        return len(self._tasks)

    def start(self) -> None:
        """Listen and accept. Raises `OSError`."""
        self._socket.setblocking(False)
        self._socket.listen(self._backlog)
        self._resume()

    async def close(self) -> None:
        """Close the listening socket and the sockets in a handshake. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is None:
            asyncio.get_running_loop().remove_reader(self._socket)
        else:
            self._pause.cancel()
        self._socket.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resume(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _wait(self, delay_ms: float) -> None:
        """Accept nothing for a time. New connections wait in the backlog of the socket."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._pause = self._clock.call_later(delay_ms, self._resume)

    def _accept(self) -> None:
        for _ in range(_TOGETHER):
            delay_ms = self._allowance.delay_ms(self._port.rate())
            if delay_ms > 0:
                self._wait(delay_ms)
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.warn("listener %s cannot accept a connection now: %s", self._name, error)
                self._wait(RETRY_MS)
                return
            self._allowance.take()
            self._begin(accepted, host_of(address))

    def _begin(self, accepted: socket.socket, host: str) -> None:
        if not self._port.admit(host):
            accepted.close()
            return
        accepted.setblocking(False)
        opening = _Opening(accepted, host, self._port.hold_ms(host))
        task = asyncio.get_running_loop().create_task(self._open(opening), name=f"open-{self._name}")
        self._tasks.add(task)
        # Not in the task: one that is cancelled before its first step runs nothing.
        task.add_done_callback(partial(self._ended, opening))

    def _ended(self, opening: _Opening, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if opening.connection is None:
            opening.accepted.close()
        if opening.connection is None or not opening.connection.was_open:
            self._port.release(opening.host)

    async def _open(self, opening: _Opening) -> None:
        if opening.hold_ms:
            await self._clock.sleep_ms(opening.hold_ms)
            return
        begun_ms = self._clock.monotonic_ms()
        try:
            context = None if self._contexts is None else await self._context(self._contexts)
            opening.connection = connection = self._port.make()
            left_ms = begun_ms + self._timeout_ms - self._clock.monotonic_ms()
            await self._shake_hands(connection, opening.accepted, context, max(1.0, left_ms))
        except OSError as error:
            if opening.connection is None or not opening.connection.was_open:
                self._port.failed()
                self._log.warn("listener %s: the TLS handshake with %s failed: %s", self._name, opening.host, error)

    async def _context(self, contexts: ContextSource) -> ssl.SSLContext:
        """Return the context, which may wait for a disk. Raises `TimeoutError`, an `OSError`."""
        async with asyncio.timeout(self._timeout_ms / 1000):
            return await contexts.current()

    async def _shake_hands(
        self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext | None, timeout_ms: float
    ) -> None:
        loop = asyncio.get_running_loop()
        if context is None:
            await loop.connect_accepted_socket(lambda: connection, accepted)
            return
        await loop.connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=context,
            ssl_handshake_timeout=timeout_ms / 1000,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        if not connection.was_open:
            raise ConnectionResetError("the client closed the connection")


class CreationRate:
    """A token bucket that holds the connections of one second, at least one."""

    def __init__(self, clock: Clock) -> None:
        """It starts full."""
        self._clock: Final = clock
        self._debt = 0.0
        """Connections in excess of the rate."""
        self._at_ms = clock.monotonic_ms()

    def delay_ms(self, rate: float) -> float:
        """Return for how long no connection may be accepted, 0 if one may. `rate`: connections per second."""
        now_ms = self._clock.monotonic_ms()
        self._debt = max(0.0, self._debt - (now_ms - self._at_ms) * rate / 1000)
        self._at_ms = now_ms
        excess = self._debt + 1 - max(1.0, rate)
        return excess * 1000 / rate if excess > 0 else 0.0

    def take(self) -> None:
        """Count a connection."""
        self._debt += 1
