"""A listening address: accepts connections, enforces their limits, and closes them in order.

The `Connection`s of a listener call the request handler. `app` creates the listeners. Without TLS and a creation rate,
the event loop accepts the sockets, otherwise an `Acceptor`.
Invariants: at most `max_connections` and `max_connections_per_ip` are open or in a TLS handshake; a connection without
traffic for `idle_ms` is closed, and so is one that is slow while others wait for the memory that it has; after `close`
no connection is open and no address is bound.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner
from odradek.network.acceptor import Acceptor, AcceptorPort, ContextSource
from odradek.network.connection import Connection, Handler, Request, accept_anonymous
from odradek.network.connection_options import ConnectionOptions, NetworkCounters
from odradek.security.tls.contexts import UsedCertificates

logger = logging.getLogger(__name__)

_SWEEP_MS: Final = 5_000.0
_UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """Kafka's settings of a listener: `socket.listen.backlog.size`, `max.connections`, `max.connections.per.ip`,
    `max.connection.creation.rate` (per second), `connections.max.idle.ms`, and the socket buffer sizes in bytes (-1:
    the default of the system)."""

    backlog: int = 50
    max_connections: int = _UNLIMITED
    max_connections_per_ip: int = _UNLIMITED
    max_creation_rate: int = _UNLIMITED
    idle_ms: float = 600_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How the connections of a listener begin."""

    protocol: str = "PLAINTEXT"
    """The security protocol of the listener."""
    contexts: ContextSource | None = None
    """The TLS context of each new connection; None without TLS."""
    begin: Callable[[Connection], None] = accept_anonymous
    """Called with each new connection, after its TLS handshake. See `Connection`."""
    background: Callable[[], Awaitable[None]] | None = None
    """Work that goes on from the start of the listener until it is closed."""
    handshake_timeout_ms: float = 10_000
    """`connection.handshake.timeout.ms`: after this time, the TLS handshake and the login must be complete."""


async def bind_socket(host: str, port: int) -> socket.socket:
    """Bind one socket. If a name has several addresses, the first IPv4 address is used, as in the JVM. Raises
    `OSError`."""
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return socket.create_server((str(address[0]), port), family=family)


def _leave_unanswered(request: Request) -> None:
    """Handle a request of a connection that is only held: it pauses reading until the connection is closed."""


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


class Listener:
    """One bound address and its connections. `counters` has its running totals."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        handler: Handler,
        clock: Clock,
        *,
        options: ListenerOptions | None = None,
        security: ListenerSecurity | None = None,
        hold_ms: Callable[[str], float] = lambda _host: 0.0,
        bind: Callable[[str, int], Awaitable[socket.socket]] = bind_socket,
    ) -> None:
        """`address`: host and port. An empty host means every interface, port 0 any free port. Binds nothing yet.

        `hold_ms`: for how long a new connection of a host is held before it is closed; 0 if it may be opened.
        `bind` creates the socket; a simulated network has its own function.
        """
        self.name: Final = name
        self.host: Final = address[0]
        self.port = address[1]
        self.counters: Final = NetworkCounters()
        self._handler: Final = handler
        self._clock: Final = clock
        self._options = options or ListenerOptions()
        self._hold_ms: Final = hold_ms
        self._security: Final = security or ListenerSecurity()
        # Ordered by age, and closed in this order; the order of a set would depend on memory addresses.
        self._connections: Final[dict[Connection, None]] = {}
        self._places = 0
        """Connections that are open or in a TLS handshake."""
        self._per_host: Final[Counter[str]] = Counter()
        """The same by host."""
        self._make_socket: Final = bind
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._background: Final = TaskOwner()
        self._sweep_timer: Timer | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._refused_seen = self._held_seen = 0
        self._closed = False

    @property
    def protocol(self) -> str:
        """The security protocol."""
        return self._security.protocol

    async def certificates(self) -> UsedCertificates | None:
        """Return the certificates of the next connection; None without TLS."""
        contexts = self._security.contexts
        return None if contexts is None else await contexts.used()

    def limit(self, *, max_connections: int, max_connections_per_ip: int, max_creation_rate: int) -> None:
        """Set the limits for new connections. Open connections stay. A listener without TLS and without a creation rate
        at its start has none later."""
        self._options = replace(
            self._options,
            max_connections=max_connections,
            max_connections_per_ip=max_connections_per_ip,
            max_creation_rate=max_creation_rate,
        )

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections, oldest first."""
        return tuple(self._connections)

    async def probe(self) -> None:
        """Bind and release the address. Raises `ConfigError` if it is not available now."""
        (await self._bind()).close()

    async def start(self) -> None:
        """Bind and accept connections; sets `port` to the actual port. Raises `ConfigError` if the address is not
        available."""
        bound = await self._bind()
        if self._security.background is not None:
            self._background.spawn(_run(self._security.background), name=f"keys-of-{self.name}")
        try:
            await self._listen(bound)
        except BaseException:
            bound.close()
            raise
        self.port = bound.getsockname()[1]
        self._sweep_timer = self._clock.call_later(_SWEEP_MS, self._sweep)

    async def _listen(self, bound: socket.socket) -> None:
        options, security = self._options, self._security
        if security.contexts is None and options.max_creation_rate >= _UNLIMITED:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._make_connection(self._opened, self._begin), sock=bound, backlog=options.backlog
            )
            return
        port = AcceptorPort(
            admit=self._admit,
            hold_ms=self._count_held,
            release=self._release,
            make=lambda: self._make_connection(self._register, self._security.begin),
            failed=self._count_failed_handshake,
            rate=lambda: self._options.max_creation_rate,
        )
        self._acceptor = Acceptor(
            self.name,
            bound,
            port,
            self._clock,
            contexts=security.contexts,
            timeout_ms=security.handshake_timeout_ms,
            backlog=options.backlog,
        )
        self._acceptor.start()

    async def close(self, grace_ms: float = 5_000) -> None:
        """Accept no more connections, wait up to `grace_ms` for pending responses, then close the rest. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            await self._acceptor.close()
        for connection in self.connections:
            connection.close()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._empty.wait()
        except TimeoutError:
            logger.warning("listener %s: %d connections did not end in time", self.name, len(self._connections))
        finally:
            for connection in self.connections:
                connection.abort("the listener is closing")
        await self._empty.wait()
        await self._background.close()

    async def _bind(self) -> socket.socket:
        try:
            bound = await self._make_socket(self.host, self.port)
        except OSError as error:
            raise ConfigError(self._sentence(error)) from error
        for option, size in (
            (socket.SO_SNDBUF, self._options.send_buffer_bytes),
            (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
        ):
            if size > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)
        return bound

    def _sentence(self, error: OSError) -> str:
        where = f"{self.host or '0.0.0.0'}:{self.port}"
        if error.errno == errno.EADDRINUSE:
            return f"Listener {self.name} cannot use {where}: another process listens there."
        return f"Listener {self.name} cannot use {where}: {error.strerror or error}."

    def _make_connection(
        self, on_open: Callable[[Connection], bool], begin: Callable[[Connection], None]
    ) -> Connection:
        return Connection(
            self._handler,
            self._clock,
            listener=self.name,
            options=self._options.connection,
            counters=self.counters,
            on_open=on_open,
            on_lost=self._lost,
            begin=begin,
        )

    def _admit(self, host: str) -> bool:
        """Take a place for a connection; False if a limit is reached."""
        options = self._options
        if (
            self._closed
            or self._places >= options.max_connections
            or self._per_host[host] >= options.max_connections_per_ip
        ):
            self.counters.connections_refused += 1
            return False
        self._places += 1
        self._per_host[host] += 1
        return True

    def _release(self, host: str) -> None:
        self._places -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _opened(self, connection: Connection) -> bool:
        return self._admit(connection.peer_host) and self._register(connection)

    def _begin(self, connection: Connection) -> None:
        """Begin a connection that the event loop has accepted, or hold it."""
        held_ms = self._count_held(connection.peer_host)
        if held_ms:
            connection.handler = _leave_unanswered
            connection.timer = self._clock.call_later(
                held_ms, partial(connection.abort, "its address has opened too many")
            )
        else:
            self._security.begin(connection)

    def _count_held(self, host: str) -> float:
        held_ms = self._hold_ms(host)
        if held_ms:
            self.counters.connections_held += 1
        return held_ms

    def _register(self, connection: Connection) -> bool:
        """Add a connection that has a place, unless the listener was closed meanwhile."""
        if self._closed:
            return False
        self._connections[connection] = None
        self.counters.connections_accepted += 1
        self.counters.connections = len(self._connections)
        self._empty.clear()
        return True

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._release(connection.peer_host)
        self.counters.connections = len(self._connections)
        if not self._connections:
            self._empty.set()

    def _count_failed_handshake(self) -> None:
        self.counters.failed_authentications += 1

    def _is_idle(self, connection: Connection, now_ms: float) -> bool:
        if connection.idle_ms(now_ms) < self._options.idle_ms:
            return False
        # Bytes of a slow client may wait in the socket: they are read at once now, and count before the next sweep.
        return connection.threshold is None or not connection.threshold.lift()

    def _sweep(self) -> None:
        """Close idle and slow connections, free unused memory and log refusals; one timer serves all connections."""
        now_ms = self._clock.monotonic_ms()
        memory = self._options.connection.memory
        for connection in self.connections:
            if self._is_idle(connection, now_ms):
                self.counters.connections_expired += 1
                connection.abort("idle")
            elif memory is not None and memory.waiting and connection.slow_ms(now_ms) >= memory.slow_ms:
                self.counters.connections_expired += 1
                connection.abort(
                    f"its request has used memory for {memory.slow_ms:.0f} ms (queued.max.request.slow.ms), for which "
                    "others wait"
                )
            else:
                connection.shrink()
        refused = self.counters.connections_refused - self._refused_seen
        if refused:
            logger.warning("listener %s: %d connections refused, a connection limit is reached", self.name, refused)
            self._refused_seen += refused
        held = self.counters.connections_held - self._held_seen
        if held:
            logger.warning(
                "listener %s: %d connections exceed the quota connection_creation_rate of their address",
                self.name,
                held,
            )
            self._held_seen += held
        if not self._closed:
            self._sweep_timer = self._clock.call_later(_SWEEP_MS, self._sweep)
