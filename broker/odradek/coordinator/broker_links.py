"""Connections to brokers for requests of the coordinators: one channel to each broker.

`marker_sender`, `verification_sender` and `lag_monitor` each have their own `BrokerLinks`, because a broker answers the
requests of one connection in order: a verification must not wait until the markers before it are replicated. A channel
is opened when it is needed. It is closed when its broker disappears from the metadata or changes its address, so that a
request to a broker that has died does not wait for its deadline.

Invariants: every `ask` ends with a response or an error; after `close` no channel is open and no task runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.base.errors import (
    AuthenticationError,
    BrokerNotAvailableError,
    MalformedFrameError,
    NetworkError,
    OdradekError,
    RequestTimedOutError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.types import Endpoint
from odradek.cluster import MetadataCache
from odradek.network.broker_channel import BrokerChannel, Connect
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message

logger = logging.getLogger(__name__)

BACKOFF_MS: Final = 50.0
BACKOFF_MAX_MS: Final = 1_000.0
"""Time after a failure in which no connection is opened: it doubles with each failure in a row. Kafka's senders wait
for 50 ms each time."""

CHECK_MS: Final = 1_000.0
"""Time between two comparisons of the open channels with the metadata, while a request is in progress."""

HIGHEST_VERSION: Final = (1 << 15) - 1
"""Any version of an API is at most this."""

_BROKEN: Final = (NetworkError, RequestTimedOutError, AuthenticationError, MalformedFrameError, OSError)
"""Errors after which a channel cannot be used any more. `OSError` includes `TimeoutError`."""


class _Link:
    """The channel to one broker at one address, or the time of the next attempt to open it."""

    __slots__ = ("broker_id", "channel", "endpoint", "failures", "opening", "retry_at_ms")

    def __init__(self, broker_id: int, endpoint: Endpoint) -> None:
        self.broker_id: Final = broker_id
        self.endpoint: Final = endpoint
        self.channel: BrokerChannel | None = None
        self.opening: asyncio.Task[BrokerChannel] | None = None
        self.failures = 0
        """Number of failures since the last response."""
        self.retry_at_ms = 0.0


class BrokerLinks:
    """The channels of one sender."""

    def __init__(
        self, *, cluster: MetadataCache, listener: str, connect: Connect, clock: Clock, timeout_ms: float
    ) -> None:
        """`listener`: the name of the inter-broker listener. `timeout_ms`: the deadline of each request."""
        self._cluster: Final = cluster
        self._listener: Final = listener
        self._connect: Final = connect
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms
        self._links: Final[dict[int, _Link]] = {}
        self._checked = cluster.image
        """The image with which the links were last compared."""
        self._asking = 0
        self._timer: Timer | None = None
        self._ending: Final[set[asyncio.Task[Any]]] = set()
        self._is_closed = False

    def reaches(self, broker_id: int) -> bool:
        """Whether the metadata has an address of the broker."""
        return self._endpoint(broker_id) is not None

    async def ask(
        self,
        broker_id: int,
        api_key: ApiKey,
        message_for_version: Callable[[int], Message],
        *,
        at_most: int = HIGHEST_VERSION,
    ) -> Any:
        """Send a request in the highest version that both sides support, but not above `at_most`, and return its
        response.

        The deadline is `timeout_ms` after the call and includes the opening of a connection. Raises
        `BrokerNotAvailableError` if the metadata has no address of the broker, `RequestTimedOutError` at the deadline,
        `NetworkError` if the connection fails, and at once while no connection is opened after a failure,
        `AuthenticationError` and `MalformedFrameError`. `UnsupportedVersionError` if the broker does not support the
        API, or if `message_for_version` raises it.
        """
        self._asking += 1
        try:
            link = self._link(broker_id)
            self._watch()
            return await self._ask(link, api_key, message_for_version, at_most)
        finally:
            self._asking -= 1

    async def close(self) -> None:
        """Close all channels. Requests in progress raise `NetworkError`. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for broker_id in list(self._links):
            self._drop(broker_id)
        while self._ending:
            await asyncio.wait(set(self._ending))

    async def _ask(
        self, link: _Link, api_key: ApiKey, message_for_version: Callable[[int], Message], at_most: int
    ) -> Any:
        channel = None
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                channel = await self._channel(link)
                version = min(channel.pick(api_key), at_most)
                response = await channel.ask(api_key, version, message_for_version(version))
        except _BROKEN as error:
            if channel is not None:
                self._break(link, channel, error)
            if isinstance(error, TimeoutError):
                text = f"broker {link.broker_id} did not answer {api_key.name} in {self._timeout_ms:.0f} ms"
                raise RequestTimedOutError(text) from error
            if isinstance(error, OSError):
                raise NetworkError(f"the connection to broker {link.broker_id} failed: {error}") from error
            raise
        link.failures = 0
        return response

    # Links and the metadata

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        broker = self._cluster.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._listener)

    def _link(self, broker_id: int) -> _Link:
        if self._is_closed:
            raise NetworkError(f"the connection to broker {broker_id} was closed")
        self._check()
        link = self._links.get(broker_id)
        if link is None:
            endpoint = self._endpoint(broker_id)
            if endpoint is None:
                raise BrokerNotAvailableError(f"broker {broker_id} has no endpoint of listener {self._listener}")
            link = self._links[broker_id] = _Link(broker_id, endpoint)
        return link

    def _check(self) -> None:
        """Drop the links to brokers that have another address, or none, in the current metadata."""
        if self._checked is self._cluster.image:
            return
        self._checked = self._cluster.image
        for broker_id, link in list(self._links.items()):
            if self._endpoint(broker_id) != link.endpoint:
                self._drop(broker_id)

    def _watch(self) -> None:
        if self._timer is None and self._asking and not self._is_closed:
            self._timer = self._clock.call_later(CHECK_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._check()
        self._watch()

    def _drop(self, broker_id: int) -> None:
        link = self._links.pop(broker_id)
        if link.opening is not None:
            link.opening.cancel()
        if link.channel is not None:
            self._hang_up(link.channel)
            link.channel = None

    # Channels

    async def _channel(self, link: _Link) -> BrokerChannel:
        if link.channel is not None and not link.channel.is_open:
            # The broker closes connections that are idle for long. That is no failure, so another one is opened now.
            self._hang_up(link.channel)
            link.channel = None
        if link.channel is not None:
            return link.channel
        if link.opening is None:
            if self._clock.monotonic_ms() < link.retry_at_ms:
                raise NetworkError(f"broker {link.broker_id} at {link.endpoint} was not reachable a moment ago")
            link.opening = self._spawn(self._open(link), f"connect-to-broker-{link.broker_id}")
        opening = link.opening
        # Several calls may wait for the connection, so a call that is cancelled does not cancel the attempt.
        await asyncio.wait({opening})
        if opening.cancelled():
            raise NetworkError(f"the connection to broker {link.broker_id} was closed")
        return opening.result()

    async def _open(self, link: _Link) -> BrokerChannel:
        try:
            channel = await self._connect(link.endpoint)
        except (OdradekError, OSError) as error:
            self._failed(link, error)
            raise
        finally:
            link.opening = None
        link.channel = channel
        return channel

    def _break(self, link: _Link, channel: BrokerChannel, error: Exception) -> None:
        """Close a channel after an error. If several requests were in progress, only the first error counts."""
        if link.channel is channel:
            link.channel = None
            self._failed(link, error)
            self._hang_up(channel)

    def _failed(self, link: _Link, error: Exception) -> None:
        link.failures += 1
        backoff_ms = min(BACKOFF_MS * 2 ** min(link.failures - 1, 10), BACKOFF_MAX_MS)
        link.retry_at_ms = self._clock.monotonic_ms() + backoff_ms
        # Warn only once for each outage.
        level = logging.WARNING if link.failures == 1 else logging.DEBUG
        logger.log(level, "broker %d at %s does not answer: %s", link.broker_id, link.endpoint, error)

    def _hang_up(self, channel: BrokerChannel) -> None:
        self._spawn(channel.close(), "close-broker-channel")

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._ending.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        if (
            not task.cancelled()
            and (error := task.exception()) is not None
            and not isinstance(error, OdradekError | OSError)
        ):
            logger.error("the task %s failed", task.get_name(), exc_info=error)
