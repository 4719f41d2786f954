"""The broker's listeners: opened together, closed together, and what their addresses are to others.

The broker's settings and the function that answers requests enter; connections come to it, and the endpoints that
`/brokers/ids` and Metadata tell leave. Limits on connections follow the settings while the broker runs.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock, RunBlocking
from odradek.base.types import Endpoint
from odradek.network.connection import ConnectionOptions, Handler
from odradek.network.listener import Listener, ListenerOptions
from odradek.network.pages import FileAccess


class Listeners:
    """Every listener of a broker, in the order of `listeners`."""

    def __init__(
        self,
        config: BrokerConfig,
        handler: Handler,
        clock: Clock,
        *,
        bind: Callable[[str, int], Awaitable[socket.socket]],
        run_blocking: RunBlocking,
    ) -> None:
        """Nothing is bound yet. `run_blocking` waits for disks in the event loop's stead."""
        options = ListenerOptions(
            backlog=config.socket_listen_backlog_size,
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            connection=ConnectionOptions(
                max_frame_bytes=config.socket_request_max_bytes,
                max_in_flight=config.max_in_flight_requests_per_connection,
                files=FileAccess(run_blocking=run_blocking, read_ahead_bytes=config.log_read_ahead_bytes),
            ),
        )
        self._config = config
        self.all = tuple(
            Listener(name, (host, port), handler, clock, options=options, bind=bind)
            for name, host, port, _ in config.listener_endpoints()
        )

    async def start(self) -> None:
        """Bind and accept on each. `ConfigError` when an address cannot be had; `close` is then still owed."""
        for listener in self.all:
            await listener.start()

    async def close(self) -> None:
        """Accept no more and let answers under way leave; idempotent."""
        for listener in reversed(self.all):
            await listener.close()

    def limit(self, config: BrokerConfig) -> None:
        """Put other limits in force for connections to come."""
        for listener in self.all:
            listener.limit(max_connections=config.max_connections, max_connections_per_ip=config.max_connections_per_ip)

    def advertised(self) -> tuple[Endpoint, ...]:
        """What others are told; where nothing is configured the listeners, with the ports that they really have."""
        if self._config.advertised_listeners:
            return self._config.advertised_endpoints()
        ports = {listener.name: listener.port for listener in self.all}
        return tuple(
            end._replace(host=end.host or "localhost", port=ports.get(end.listener, end.port))
            for end in self._config.listener_endpoints()
        )
