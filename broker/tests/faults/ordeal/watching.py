"""Requests the topic's metadata from every broker many times a second, on an event loop in another thread.

Takes addresses, and adds responses to `Sightings`. If a broker does not respond, the request is sent again, if
necessary on a new connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from odradek.base.errors import NetworkError, ProtocolError
from odradek.base.tasks import TaskOwner
from odradek.client.blocking.loop_thread import LoopThread, current
from odradek.client.metadata import view_of
from odradek.network.channel import Channel, ChannelTimeouts
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from ordeal.sightings import Answer, Sightings

T = TypeVar("T")

INTERVAL_SECONDS: Final = 0.04
_PREFERRED: Final = 0
_TIMEOUTS: Final = ChannelTimeouts(connect_ms=1_000, request_ms=1_000)


class Watch:
    """Sends a request to each broker every few milliseconds while it is open."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topic: str, partitions: int) -> None:
        """`addresses` has the address of each broker by id."""
        self._addresses: Final = tuple(addresses)
        self._message: Final = {
            "topics": [{"name": topic, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        self._topic: Final = topic
        self._sightings: Final = Sightings(len(addresses), partitions)
        self._loop: Final[LoopThread] = current()
        self._tasks: Final = TaskOwner(self._broke)
        self._failure: BaseException | None = None

    def _broke(self, _task: str, error: BaseException) -> None:
        self._failure = error

    def __enter__(self) -> Self:
        """Start to send requests."""
        for broker in range(len(self._addresses)):
            self._loop.call(lambda broker=broker: self._tasks.spawn(self._follow(broker), name=f"watch {broker}"))  # type: ignore[misc]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending requests."""
        self._loop.run(self._tasks.close())

    def ask(self, question: Callable[[Sightings], T]) -> T:
        """Query the sightings in the thread that adds to them. Raises the error that ended the watch, which is a
        bug."""
        if self._failure is not None:
            raise RuntimeError("the watch has ended") from self._failure
        return self._loop.call(lambda: question(self._sightings))

    def elect_preferred(self) -> str:
        """Elect the preferred leaders where possible. Return the responses of the brokers."""
        return self._loop.run(self._elect())

    async def _elect(self) -> str:
        partitions = list(range(self._sightings.partitions))
        message = {
            "election_type": _PREFERRED,
            "topic_partitions": [{"topic": self._topic, "partitions": partitions}],
            "timeout_ms": _TIMEOUTS.request_ms,
        }
        failures = []
        for broker in range(len(self._addresses)):
            try:
                code = await self._ask_once(broker, ApiKey.ELECT_LEADERS, message)
            except ProtocolError as error:
                failures.append(f"broker {broker}: {error}")
                continue
            if not code:
                return f"broker {broker} accepted the election"
            failures.append(f"broker {broker} responded with error {code}")
        return ", ".join(failures)

    async def _ask_once(self, broker: int, api_key: ApiKey, message: Message) -> int:
        host, port = self._addresses[broker]
        channel = await Channel.open(host, port, client_id="watch", timeouts=_TIMEOUTS)
        try:
            await channel.negotiate()
            return int((await channel.ask(api_key, channel.pick(api_key), message)).error_code)
        finally:
            await channel.close()

    async def _follow(self, broker: int) -> None:
        while True:
            try:
                await self._converse(broker)
            except ProtocolError:
                await asyncio.sleep(INTERVAL_SECONDS)  # The broker is down or paused, as intended.

    async def _converse(self, broker: int) -> None:
        host, port = self._addresses[broker]
        channel = await Channel.open(host, port, client_id="watch", timeouts=_TIMEOUTS)
        try:
            await channel.negotiate()
            version = channel.pick(ApiKey.METADATA)
            while True:
                asked = time.monotonic()
                view = view_of(await channel.ask(ApiKey.METADATA, version, self._message))
                topic = view.topics.get(self._topic)
                if topic is None:
                    raise NetworkError(f"the response of broker {broker} does not contain the topic")
                answer = Answer(requested=asked, answered=time.monotonic(), partitions=topic.partitions)
                self._sightings.see(broker, answer)
                await asyncio.sleep(INTERVAL_SECONDS)
        finally:
            await channel.close()
