"""Requests from the controller to brokers: in order for each broker, repeated until answered or until the broker goes.

The runtime hands over the requests of each event; each live broker has a queue and a task with one connection. A
request is bound to one life of a broker: when its registration changes, the queue and what is in it are dropped. A
queue is bounded: what waits for a broker that hangs is coalesced.
Answers go to `on_response`, with the request they belong to. Every broker is reached by its listener, this one too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

from odradek.base.errors import NetworkError, OdradekError, ProtocolError, RequestTimedOutError
from odradek.base.ports import Buffer, Clock
from odradek.base.types import Endpoint
from odradek.controller.broker_requests.coalescing import coalesce
from odradek.controller.broker_requests.old_versions import forms, is_grouped
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.context import LiveBroker
from odradek.controller.events import Response
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, decode_response
from odradek.protocol.release_versions import highest_version

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""Rest after a failed attempt, as in Kafka."""

NEWEST_PROTOCOL: Final = "3.9"

WAITING_LIMIT: Final = 32
"""Requests that wait for one broker, besides those of one event, before they are coalesced."""


class BrokerChannel(Protocol):
    """An open connection whose versions are negotiated (`network.channel.Channel` is one)."""

    def pick(self, api_key: ApiKey) -> int:
        """The highest version that both sides speak."""
        ...

    @property
    def client_id(self) -> str | None:
        """The name that requests carry."""
        ...

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Send one request and return the response."""
        ...

    async def call(self, encode: Callable[[int], Sequence[Buffer]]) -> memoryview:
        """Send the frame that `encode` gives for a correlation id and return the response's frame."""
        ...

    async def close(self) -> None:
        """End the connection; idempotent."""
        ...


Connect = Callable[[Endpoint], Awaitable[BrokerChannel]]
"""Opens a connection and negotiates its versions; raises `NetworkError` and its like."""

OnResponse = Callable[[BrokerRequest, Response], None]


class Dispatcher:
    """Queues to all live brokers."""

    def __init__(self, connect: Connect, clock: Clock, *, listener: str, protocol: str = NEWEST_PROTOCOL) -> None:
        """`listener`: the name of the listener by which brokers are reached.

        `protocol`: the `inter.broker.protocol.version`, which bounds the versions of the requests.
        """
        self._connect = connect
        self._clock = clock
        self._listener = listener
        self._protocol = protocol
        self._queues: dict[int, _BrokerQueue] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._on_response: OnResponse = lambda request, response: None

    def on_response(self, callback: OnResponse) -> None:
        """Call back with each answer; only the last callback counts."""
        self._on_response = callback

    def put_broker(self, broker: LiveBroker) -> None:
        """A broker lives, or has another address; a new life starts with an empty queue."""
        broker_id = broker.registration.broker_id
        endpoint = next((end for end in broker.registration.endpoints if end.listener == self._listener), None)
        old = self._queues.get(broker_id)
        if old is not None and (old.epoch, old.endpoint) == (broker.epoch, endpoint):
            return
        pending = old.pending if old is not None and old.epoch == broker.epoch else ()
        self.remove_broker(broker_id)
        if endpoint is None:
            log.error("broker %d has no listener %s: it cannot be told anything", broker_id, self._listener)
            return
        queue = _BrokerQueue(self, broker_id, broker.epoch, endpoint)
        self._queues[broker_id] = queue
        queue.put(pending)

    def remove_broker(self, broker_id: int) -> None:
        """A broker is gone: what it has not answered is dropped."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            self._retire(queue.stop())

    def send(self, requests: Iterable[BrokerRequest]) -> None:
        """Queue each request for its broker; one to a life that is over is dropped."""
        lots: defaultdict[int, list[BrokerRequest]] = defaultdict(list)
        for request in requests:
            queue = self._queues.get(request.broker)
            if queue is not None and queue.epoch == request.broker_epoch:
                lots[request.broker].append(request)
        for broker_id, lot in lots.items():
            self._queues[broker_id].put(lot)

    async def close(self) -> None:
        """Drop everything; idempotent."""
        for broker_id in list(self._queues):
            self.remove_broker(broker_id)
        if self._retired:
            await asyncio.wait(set(self._retired))

    def _retire(self, task: asyncio.Task[None]) -> None:
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)


class _BrokerQueue:
    """The requests to one life of one broker, and the task that sends them."""

    def __init__(self, dispatcher: Dispatcher, broker_id: int, epoch: int, endpoint: Endpoint) -> None:
        self.epoch: Final = epoch
        self.endpoint: Final = endpoint
        self.pending: deque[BrokerRequest] = deque()
        self._dispatcher = dispatcher
        self._broker_id = broker_id
        self._wanted = asyncio.Event()
        self._channel: BrokerChannel | None = None
        self._failing = False
        self._largest = 1
        """Requests of one event: thousands of partitions take many, which is no sign of a slow broker."""
        self._task = asyncio.create_task(self._run(), name=f"controller-to-broker-{broker_id}")

    def put(self, requests: Collection[BrokerRequest]) -> None:
        """Queue what one event has to tell."""
        self.pending.extend(requests)
        self._largest = max(self._largest, len(requests))
        if len(self.pending) > WAITING_LIMIT + self._largest:
            self._shorten()
        if self.pending:
            self._wanted.set()

    def _shorten(self) -> None:
        """A broker that hangs must not make the queue grow. The first request may be under way: it is left alone."""
        first = self.pending.popleft()
        waiting = coalesce(self.pending)
        log.info("broker %d is slow: %d requests become %d", self._broker_id, len(self.pending), len(waiting))
        self.pending = deque([first, *waiting])

    def stop(self) -> asyncio.Task[None]:
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                while self.pending:
                    await self._deliver(self.pending[0])
                    self.pending.popleft()
        finally:
            await self._hang_up()

    async def _deliver(self, request: BrokerRequest) -> None:
        """Return when the broker answered, or cannot understand the request in any version."""
        while True:
            try:
                channel = await self._connected()
            except (OdradekError, OSError) as error:
                # Whatever keeps it away now, the broker must learn its roles once it is reached.
                await self._rest(request, error)
                continue
            try:
                response = await self._attempt(channel, request)
            except (NetworkError, RequestTimedOutError, OSError) as error:
                await self._rest(request, error)
                continue
            except ProtocolError as error:
                log.error("broker %d cannot be sent %s: %s", self._broker_id, request.api_key.name, error)
                await self._hang_up()
                return
            except Exception:
                # A request that cannot be encoded is a bug; the ones behind it must still reach the broker.
                log.exception("the request %s to broker %d is dropped", request.api_key.name, self._broker_id)
                return
            self._failing = False
            self._dispatcher._on_response(request, response)
            return

    async def _connected(self) -> BrokerChannel:
        if self._channel is None:
            self._channel = await self._dispatcher._connect(self.endpoint)
        return self._channel

    async def _rest(self, request: BrokerRequest, error: Exception) -> None:
        # Once for each outage: a broker registers a moment before it listens.
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing = True
        log.log(level, "broker %d does not take %s yet: %s", self._broker_id, request.api_key.name, error)
        await self._hang_up()
        await self._dispatcher._clock.sleep_ms(RETRY_MS)

    async def _attempt(self, channel: BrokerChannel, request: BrokerRequest) -> Response:
        api_key, shared = request.api_key, request.shared
        version = min(channel.pick(api_key), highest_version(api_key, self._dispatcher._protocol))
        if shared is None or not is_grouped(api_key, version):
            answers: list[Response] = [
                await channel.ask(api_key, version, message) for message in forms(api_key, version, request.message)
            ]
            return answers[-1]
        frame = await channel.call(
            lambda correlation_id: shared.frame(version, correlation_id, channel.client_id, request.broker_epoch)
        )
        answer: Response = decode_response(api_key, version, frame)
        return answer

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OdradekError):
                await channel.close()
