"""Sends requests from the controller to brokers, in order. Repeats each until the broker answers or disappears.

Each live broker has a queue and a task with one connection. A request belongs to one broker epoch: when the broker
registers again, its queue is dropped. Queues are bounded: requests to a broker that does not answer are coalesced.
`on_response` is called with each response and its request. The controller also connects to the listener of its own
broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from odradek.base.errors import NetworkError, OdradekError, ProtocolError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.types import Endpoint
from odradek.controller.broker_requests.coalescing import coalesce
from odradek.controller.broker_requests.old_versions import is_grouped, messages_for
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.context import LiveBroker
from odradek.controller.events import Response
from odradek.network.broker_channel import BrokerChannel, Connect
from odradek.protocol.codec import decode_response
from odradek.protocol.release_versions import highest_version

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""Milliseconds between a failed attempt and the next one, as in Kafka."""

NEWEST_PROTOCOL: Final = "3.9"

WAITING_LIMIT: Final = 32
"""Number of requests, in addition to those of one event, that may wait for one broker before they are coalesced."""


OnResponse = Callable[[BrokerRequest, Response], None]


class RequestSender:
    """The request queues of all live brokers."""

    def __init__(self, connect: Connect, clock: Clock, *, listener: str, protocol: str = NEWEST_PROTOCOL) -> None:
        """`listener`: the name of the listener on which brokers are reached.

        `protocol`: the `inter.broker.protocol.version`, which limits the versions of the requests.
        """
        self._connect = connect
        self._clock = clock
        self._listener = listener
        self._protocol = protocol
        self._queues: dict[int, _BrokerQueue] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._on_response: OnResponse = lambda request, response: None

    def on_response(self, callback: OnResponse) -> None:
        """Set the callback for responses. It replaces the previous one."""
        self._on_response = callback

    def put_broker(self, broker: LiveBroker) -> None:
        """Add a broker, or change its address. A new broker epoch starts with an empty queue."""
        broker_id = broker.registration.broker_id
        endpoint = next((end for end in broker.registration.endpoints if end.listener == self._listener), None)
        old = self._queues.get(broker_id)
        if old is not None and (old.epoch, old.endpoint) == (broker.epoch, endpoint):
            return
        pending = old.pending if old is not None and old.epoch == broker.epoch else ()
        self.remove_broker(broker_id)
        if endpoint is None:
            log.error("cannot send requests to broker %d: it has no listener %s", broker_id, self._listener)
            return
        queue = _BrokerQueue(self, broker_id, broker.epoch, endpoint)
        self._queues[broker_id] = queue
        queue.put(pending)

    def remove_broker(self, broker_id: int) -> None:
        """Remove a broker and drop the requests that it has not answered."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            self._retire(queue.stop())

    def send(self, requests: Iterable[BrokerRequest]) -> None:
        """Queue each request for its broker. Drops requests for an earlier broker epoch."""
        lots: defaultdict[int, list[BrokerRequest]] = defaultdict(list)
        for request in requests:
            queue = self._queues.get(request.broker)
            if queue is not None and queue.epoch == request.broker_epoch:
                lots[request.broker].append(request)
        for broker_id, lot in lots.items():
            self._queues[broker_id].put(lot)

    async def close(self) -> None:
        """Drop all requests and close the connections. Idempotent."""
        for broker_id in list(self._queues):
            self.remove_broker(broker_id)
        if self._retired:
            await asyncio.wait(set(self._retired))

    def _retire(self, task: asyncio.Task[None]) -> None:
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)


class _BrokerQueue:
    """The requests for one broker epoch, and the task that sends them."""

    def __init__(self, dispatcher: RequestSender, broker_id: int, epoch: int, endpoint: Endpoint) -> None:
        self.epoch: Final = epoch
        self.endpoint: Final = endpoint
        self.pending: deque[BrokerRequest] = deque()
        self._dispatcher = dispatcher
        self._broker_id = broker_id
        self._wanted = asyncio.Event()
        self._channel: BrokerChannel | None = None
        self._failing = False
        self._largest = 1
        """Largest number of requests of one event. Thousands of partitions need many requests even if no broker is
        slow."""
        self._task = asyncio.create_task(self._run(), name=f"controller-to-broker-{broker_id}")

    def put(self, requests: Collection[BrokerRequest]) -> None:
        """Queue the requests of one event."""
        self.pending.extend(requests)
        self._largest = max(self._largest, len(requests))
        if len(self.pending) > WAITING_LIMIT + self._largest:
            self._coalesce_waiting()
        if self.pending:
            self._wanted.set()

    def _coalesce_waiting(self) -> None:
        """Coalesce the waiting requests, except the first one, which may be in flight."""
        first = self.pending.popleft()
        waiting = coalesce(self.pending)
        log.info("broker %d is slow: coalesced %d requests into %d", self._broker_id, len(self.pending), len(waiting))
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
            await self._disconnect()

    async def _deliver(self, request: BrokerRequest) -> None:
        """Return when the broker has answered, or if it supports no version of the request."""
        while True:
            try:
                channel = await self._connected()
            except (OdradekError, OSError) as error:
                # Try again after any error, because the broker must get its roles when it can be reached.
                await self._pause_after(request, error)
                continue
            try:
                response = await self._attempt(channel, request)
            except (NetworkError, RequestTimedOutError, OSError) as error:
                await self._pause_after(request, error)
                continue
            except ProtocolError as error:
                log.error("cannot send %s to broker %d: %s", request.api_key.name, self._broker_id, error)
                await self._disconnect()
                return
            except Exception:
                # It is a bug that the request cannot be encoded. The requests after it must still reach the broker.
                log.exception("the request %s to broker %d was dropped", request.api_key.name, self._broker_id)
                return
            self._failing = False
            self._dispatcher._on_response(request, response)
            return

    async def _connected(self) -> BrokerChannel:
        if self._channel is None:
            self._channel = await self._dispatcher._connect(self.endpoint)
        return self._channel

    async def _pause_after(self, request: BrokerRequest, error: Exception) -> None:
        # Warn only once for each outage.
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing = True
        log.log(
            level,
            "broker %d has not received %s, which is sent again: %s",
            self._broker_id,
            request.api_key.name,
            error,
        )
        await self._disconnect()
        await self._dispatcher._clock.sleep_ms(RETRY_MS)

    async def _attempt(self, channel: BrokerChannel, request: BrokerRequest) -> Response:
        api_key, shared = request.api_key, request.shared
        version = min(channel.pick(api_key), highest_version(api_key, self._dispatcher._protocol))
        if shared is None or not is_grouped(api_key, version):
            answers: list[Response] = [
                await channel.ask(api_key, version, message)
                for message in messages_for(api_key, version, request.message)
            ]
            return answers[-1]
        frame = await channel.call(
            lambda correlation_id: shared.frame(version, correlation_id, channel.client_id, request.broker_epoch)
        )
        answer: Response = decode_response(api_key, version, frame)
        return answer

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OdradekError):
                await channel.close()
