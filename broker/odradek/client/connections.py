"""The connections of a client: one for each node and purpose, opened when first needed.

Used by `cluster_client`. Invariants: callers of the same connection share one attempt, which continues if one of them
is cancelled; after a failure, the next attempt waits for `reconnect_backoff_ms`, doubled up to its maximum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from odradek.base.errors import NetworkError, OdradekError
from odradek.base.ports import Buffer, Clock
from odradek.base.tasks import TaskOwner
from odradek.client.metadata import Backoff, Node
from odradek.client.settings import ClientSettings
from odradek.network.channel import NO_FEATURES, Channel, ChannelTimeouts, ClusterFeatures
from odradek.network.channel_security import ChannelSecurity
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, Response

Key = tuple[int, str]


class Link(Protocol):
    """The part of `Channel` that clients use."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        ...

    @property
    def features(self) -> ClusterFeatures:
        """The finalized features of the cluster when the connection was opened (KIP-584)."""
        ...

    def pick(self, api_key: ApiKey) -> int:
        """Return the highest version of an API that client and broker support."""
        ...

    async def ask(
        self, expected: type[Response], version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Response:
        """Send a request and return its response, an object of the class `expected`."""
        ...

    async def call(
        self,
        encode: Callable[[int], Sequence[Buffer]],
        *,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> memoryview:
        """Send a frame and return the frame of the response."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


Connect = Callable[[Node], Awaitable[Link]]
"""Opens a connection to a node and negotiates versions."""


def connector(settings: ClientSettings, clock: Clock) -> Connect:
    """Return a function that opens real connections. Reads the keystores. Raises `ConfigError`."""
    security = settings.security(clock)
    channel_security = None
    if security.tls is not None or security.new_exchange is not None:
        channel_security = ChannelSecurity(security, clock=clock, run_blocking=asyncio.to_thread)
    timeouts = ChannelTimeouts(
        connect_ms=settings.socket_connection_setup_timeout_ms, request_ms=settings.request_timeout_ms
    )

    async def connect(node: Node) -> Link:
        channel = await Channel.open(
            node.host, node.port, client_id=settings.client_id, timeouts=timeouts, security=channel_security
        )
        try:
            await channel.negotiate()
        except BaseException:
            await channel.close()
            raise
        return channel

    return connect


class Connections:
    """The connections of one client."""

    def __init__(self, settings: ClientSettings, clock: Clock, connect: Connect) -> None:
        """Create the object without connections."""
        self._connect: Final = connect
        self._clock: Final = clock
        self._backoff: Final = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._channels: dict[Key, tuple[Node, Link]] = {}
        self._opening: dict[Key, asyncio.Task[Link | OdradekError]] = {}
        self._failures: dict[int, int] = {}
        self._not_before_ms: dict[int, float] = {}
        self._tasks = TaskOwner()
        self._closed = False
        self.features = NO_FEATURES
        """The finalized features of the cluster, as the connections know them: those of the latest epoch."""

    def is_open(self, node_id: int) -> bool:
        """Whether the node's general connection is open."""
        known = self._channels.get((node_id, ""))
        return known is not None and known[1].is_open

    @property
    def open_count(self) -> int:
        """Number of open connections."""
        return sum(channel.is_open for _, channel in list(self._channels.values()))

    async def get(self, node: Node, purpose: str) -> Link:
        """Return the connection to a node. Raises `NetworkError` if it cannot be opened, or while a backoff runs."""
        key = (node.node_id, purpose)
        known = self._channels.get(key)
        if known is not None:
            if known[1].is_open and known[0] == node:
                return known[1]
            # The connection is closed, or the broker with this id has another address.
            del self._channels[key]
            self._tasks.spawn(known[1].close(), name=f"close {node.host}")
        task = self._opening.get(key)
        if task is None:
            self._check_may_open(node)
            task = self._opening[key] = self._tasks.spawn(self._open(node, key), name=f"connect {node.host}")
        outcome = await asyncio.shield(task)
        if isinstance(outcome, OdradekError):
            raise outcome
        return outcome

    def _check_may_open(self, node: Node) -> None:
        if self._closed:
            raise NetworkError("the client is closed")
        if self._clock.monotonic_ms() < self._not_before_ms.get(node.node_id, 0.0):
            raise NetworkError(
                f"{node.host}:{node.port} could not be reached: the next attempt follows after reconnect.backoff.ms"
            )

    async def _open(self, node: Node, key: Key) -> Link | OdradekError:
        """Open a connection. Return an error instead of raising it, because several callers or none may wait for it."""
        try:
            channel = await self._connect(node)
        except OdradekError as error:
            failures = self._failures[node.node_id] = self._failures.get(node.node_id, 0) + 1
            pause_ms = self._backoff.delay_ms(failures, self._clock.random())
            self._not_before_ms[node.node_id] = self._clock.monotonic_ms() + pause_ms
            return error
        finally:
            del self._opening[key]
        self._failures.pop(node.node_id, None)
        if channel.features.epoch >= self.features.epoch:
            self.features = channel.features
        self._channels[key] = (node, channel)
        return channel

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        self._closed = True
        try:
            await self._tasks.close()
        finally:
            channels = [channel for _, channel in self._channels.values()]
            self._channels.clear()
            await asyncio.gather(*(channel.close() for channel in channels))
