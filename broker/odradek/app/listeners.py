"""The listeners of a broker and their advertised addresses.

Listeners, their addresses and connection limits follow the settings while the broker runs (KIP-226). Invariants: only
listeners that accept connections are advertised; if clients have other listeners, requests between brokers do not wait
for memory that the requests of clients use.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.base.types import Endpoint
from odradek.network.buffer import SharedSpace
from odradek.network.connection import Handler
from odradek.network.connection_options import ConnectionOptions
from odradek.network.listener import Listener, ListenerOptions, ListenerSecurity
from odradek.network.pages import FileAccess, ReadFile
from odradek.network.request_memory import RequestMemory
from odradek.network.small_requests import SmallAnswers
from odradek.protocol.feature_levels import registered_features
from odradek.server.security.listener_properties import ListenerProperties
from odradek.zk.layout import BrokerRegistration
from odradek.zk.port import ConnectionLost, NoNode, SessionExpired

RETRY_MS: Final = 1000
"""Milliseconds between two attempts to write the registration while ZooKeeper does not answer."""

logger = logging.getLogger(__name__)


class Listeners:
    """The listeners of a broker, in the order of `listeners`."""

    def __init__(
        self,
        config: BrokerConfig,
        handler: Handler,
        clock: Clock,
        *,
        bind: Callable[[str, int], Awaitable[socket.socket]],
        read: ReadFile,
        announce: Callable[[BrokerRegistration], Awaitable[None]],
        properties: Mapping[str, str] | None = None,
        secure: Callable[[Endpoint], ListenerSecurity] | None = None,
        hold_ms: Callable[[str], float] = lambda _host: 0.0,
        small: SmallAnswers | None = None,
    ) -> None:
        """Create the listeners without binding an address. `read` reads files for responses.

        `announce` writes the registration to ZooKeeper when the endpoints change. `properties` have the limits of
        single listeners. `secure` makes the security of a listener, by default none. `hold_ms` is that of `Listener`,
        for clients. `small` handles small requests several at a time. Raises `ConfigError`.
        """
        self._config = config
        self._properties: Final = properties or {}
        self._hold_ms: Final = hold_ms
        self._secure: Final = secure or (lambda _endpoint: ListenerSecurity())
        self._handler: Final = handler
        self._clock: Final = clock
        self._bind: Final = bind
        self._read: Final = read
        self._announce: Final = announce
        self._small: Final = small
        self._shared: Final = SharedSpace()
        limit_bytes = config.queued_max_request_bytes
        slow_ms = config.queued_max_request_slow_ms
        self.request_memory: Final = RequestMemory(limit_bytes, clock, slow_ms=slow_ms) if limit_bytes > 0 else None
        """Memory of the requests of all listeners except those for brokers only; None without a limit."""
        self._addresses: dict[str, tuple[str, int]] = {}
        """Configured host and port of each listener. With port 0, the actual port differs."""
        self._all = [self._create(endpoint) for endpoint in config.listener_endpoints()]
        self._change: asyncio.Task[None] | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[Listener]:
        """Iterate over the current listeners."""
        return iter(tuple(self._all))

    def _create(self, endpoint: Endpoint) -> Listener:
        config = self._config
        is_for_brokers = _is_for_brokers(config, endpoint.listener)
        options = ListenerOptions(
            backlog=config.socket_listen_backlog_size,
            **self._limits(config, endpoint.listener),
            idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            connection=ConnectionOptions(
                max_frame_bytes=config.socket_request_max_bytes,
                max_in_flight=config.max_in_flight_requests_per_connection,
                files=FileAccess(read=self._read, read_ahead_bytes=config.log_read_ahead_bytes),
                memory=None if is_for_brokers else self.request_memory,
                small=self._small,
                shared=self._shared,
            ),
        )
        security = self._secure(endpoint)
        self._addresses[endpoint.listener] = address = (endpoint.host, endpoint.port)
        return Listener(
            endpoint.listener,
            address,
            self._handler,
            self._clock,
            options=options,
            security=security,
            hold_ms=(lambda _host: 0.0) if is_for_brokers else self._hold_ms,
            bind=self._bind,
        )

    def _limits(self, config: BrokerConfig, listener: str) -> dict[str, int]:
        """Return the limits of a listener: its own ones, which do not change, or those of all listeners."""
        own = ListenerProperties(self._properties, listener)
        values = {
            "max_connections": (own.override("max.connections"), config.max_connections),
            "max_connections_per_ip": (None, config.max_connections_per_ip),
            "max_creation_rate": (own.override("max.connection.creation.rate"), config.max_connection_creation_rate),
        }
        return {name: common if of_listener is None else of_listener for name, (of_listener, common) in values.items()}

    async def start(self) -> None:
        """Bind all listeners and accept connections. Raises `ConfigError`; call `close` also in that case."""
        for listener in self:
            await listener.start()

    async def close(self) -> None:
        """Stop accepting, and send the pending answers. Idempotent."""
        self._is_closed = True
        if self._change is not None:
            self._change.cancel()
            await asyncio.gather(self._change, return_exceptions=True)
        for listener in reversed(self._all):
            await listener.close()

    # Advertised addresses

    def advertised(self) -> tuple[Endpoint, ...]:
        """Return the advertised endpoints; by default the listeners with their actual ports."""
        ports = {listener.name: listener.port for listener in self._all}
        if self._config.advertised_listeners:
            return tuple(end for end in self._config.advertised_endpoints() if end.listener in ports)
        return tuple(
            end._replace(host=end.host or "localhost", port=ports[end.listener])
            for end in self._config.listener_endpoints()
            if end.listener in ports
        )

    def registration(self) -> BrokerRegistration:
        """Return the content of `/brokers/ids/N` for this broker."""
        return BrokerRegistration(
            broker_id=self._config.broker_id,
            endpoints=self.advertised(),
            rack=self._config.broker_rack,
            machine=self._config.broker_machine,
            timestamp_ms=self._clock.wall_ms(),
            features=registered_features(),
        )

    # Changes

    async def dry_run(self, config: BrokerConfig) -> None:
        """Raise `ConfigError` if these listeners cannot be opened now. Changes nothing."""
        wanted = config.listener_endpoints()
        kept = {end.listener for end in wanted}
        freed = {listener.port for listener in self._all if listener.name not in kept}
        for end in wanted:
            address = self._addresses.get(end.listener)
            if address is None:
                self._secure(end)
                if end.port not in freed:
                    probe = Listener(end.listener, (end.host, end.port), self._handler, self._clock, bind=self._bind)
                    await probe.probe()
            elif address != (end.host, end.port):
                raise ConfigError(
                    f"the address of listener {end.listener} cannot be changed while the broker runs: "
                    "restart the broker, or add a listener with another name"
                )

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings: limits at once, listeners and addresses in a background task."""
        before, self._config = self._config, config
        for listener in self._all:
            listener.limit(**self._limits(config, listener.name))
        if _endpoints(before) == _endpoints(config) or self._is_closed or self._change is not None:
            return
        self._change = asyncio.get_running_loop().create_task(self._follow_settings(), name="change-listeners")
        self._change.add_done_callback(_log_failure)

    async def _follow_settings(self) -> None:
        try:
            done = None
            while done is not self._config:
                done = self._config
                await self._adjust(done)
                await self._register()
        finally:
            self._change = None

    async def _adjust(self, config: BrokerConfig) -> None:
        wanted = {end.listener: end for end in config.listener_endpoints()}
        for listener in self:
            if listener.name not in wanted:
                logger.info("listener %s was removed from the settings: its connections are closed", listener.name)
                self._all.remove(listener)
                del self._addresses[listener.name]
                await listener.close()
        for end in wanted.values():
            address = self._addresses.get(end.listener)
            if address is None:
                await self._open(end)
            elif address != (end.host, end.port):
                logger.error("listener %s keeps its address %s:%d until a restart", end.listener, *address)
        order = list(wanted)
        self._all.sort(key=lambda listener: order.index(listener.name))

    async def _open(self, endpoint: Endpoint) -> None:
        try:
            listener = self._create(endpoint)
            await listener.start()
        except ConfigError as error:
            logger.error("a listener cannot be opened: %s", error)
            self._addresses.pop(endpoint.listener, None)
        else:
            self._all.append(listener)
            logger.info("listener %s accepts connections on %s:%d", listener.name, listener.host, listener.port)

    async def _register(self) -> None:
        """Write the endpoints to the registration; retries while ZooKeeper does not answer."""
        while True:
            try:
                await self._announce(self.registration())
            except (ConnectionLost, SessionExpired) as error:
                logger.warning("ZooKeeper does not have the changed listeners yet; the broker tries again: %s", error)
                await self._clock.sleep_ms(RETRY_MS)
            except NoNode:
                return  # The session ended. The registration of the next session will have the new endpoints.
            else:
                return


def _endpoints(config: BrokerConfig) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    return config.listener_endpoints(), config.advertised_endpoints()


def _is_for_brokers(config: BrokerConfig, name: str) -> bool:
    """Whether a listener accepts requests between brokers, and clients have others."""
    between_brokers = {config.inter_broker_listener, *config.inter_broker_request_listeners}
    return name in between_brokers and any(
        endpoint.listener not in between_brokers for endpoint in config.listener_endpoints()
    )


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the listeners could not be changed", exc_info=task.exception())
