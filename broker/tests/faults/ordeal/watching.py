"""Asks every broker for the topic's metadata, many times a second, on a loop and a thread of its own.

Addresses enter; `Sightings` fill. A broker that does not answer is asked again, on a new connection if need be.
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
    """A question to each broker every few milliseconds, while it is open."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topic: str, partitions: int) -> None:
        """`addresses` by broker id."""
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
        """Begin to ask."""
        for broker in range(len(self._addresses)):
            self._loop.call(lambda broker=broker: self._tasks.spawn(self._follow(broker), name=f"watch {broker}"))  # type: ignore[misc]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask no more."""
        self._loop.run(self._tasks.close())

    def ask(self, question: Callable[[Sightings], T]) -> T:
        """Ask the sightings, in the thread that fills them. Raises what ended the watch, which is a bug."""
        if self._failure is not None:
            raise RuntimeError("the watch has ended") from self._failure
        return self._loop.call(lambda: question(self._sightings))

    def elect_preferred(self) -> str:
        """Have every partition led by its first replica that can be; what the brokers said to it."""
        return self._loop.run(self._elect())

    async def _elect(self) -> str:
        partitions = list(range(self._sightings.partitions))
        message = {
            "election_type": _PREFERRED,
            "topic_partitions": [{"topic": self._topic, "partitions": partitions}],
            "timeout_ms": _TIMEOUTS.request_ms,
        }
        told = []
        for broker in range(len(self._addresses)):
            try:
                code = await self._ask_once(broker, ApiKey.ELECT_LEADERS, message)
            except ProtocolError as error:
                told.append(f"broker {broker}: {error}")
                continue
            if not code:
                return f"broker {broker} has taken it up"
            told.append(f"broker {broker} answered error {code}")
        return ", ".join(told)

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
                await asyncio.sleep(INTERVAL_SECONDS)  # It is down or paused, which is what this is here to see.

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
                    raise NetworkError(f"broker {broker} left the topic out of its answer")
                answer = Answer(asked=asked, told=time.monotonic(), partitions=topic.partitions)
                self._sightings.see(broker, answer)
                await asyncio.sleep(INTERVAL_SECONDS)
        finally:
            await channel.close()
