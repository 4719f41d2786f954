"""`Producer` for threads. In, out and invariants are those of `producer`; made by `BlockingClient.producer`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from typing import Final, Self, TypeVar

from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.models import Headers, KeyValueTime, RecordMetadata, SendResult
from odradek.client.producer.producer import Producer

T = TypeVar("T")


class BlockingProducer:
    """Sends records from any thread. Each call crosses to the loop, so many records are best sent by `send_many`."""

    def __init__(self, loop: LoopThread, producer: Producer) -> None:
        """`producer` is started."""
        self._loop: Final = loop
        self._producer: Final = producer

    def __enter__(self) -> Self:
        """The producer itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Send what is left and close."""
        self.close()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> concurrent.futures.Future[RecordMetadata]:
        """As `Producer.send`; the future may be waited for in any thread."""

        async def work() -> concurrent.futures.Future[RecordMetadata]:
            return _for_threads(
                await self._producer.send(
                    topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                )
            )

        return self._loop.run(work())

    def send_many(
        self, topic: str, records: Sequence[KeyValueTime], *, partition: int | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """As `Producer.send_many`; the future may be waited for in any thread."""

        async def work() -> concurrent.futures.Future[SendResult]:
            return _for_threads(await self._producer.send_many(topic, records, partition=partition))

        return self._loop.run(work())

    def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        return self._loop.run(self._producer.partitions_for(topic))

    def flush(self) -> None:
        """As `Producer.flush`."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """As `Producer.close`."""
        self._loop.run(self._producer.close())


def _for_threads(source: asyncio.Future[T]) -> concurrent.futures.Future[T]:
    """A future that follows `source`; must be called on the loop."""
    target: concurrent.futures.Future[T] = concurrent.futures.Future()

    def copy(done: asyncio.Future[T]) -> None:
        if not target.set_running_or_notify_cancel():
            return
        if done.cancelled():
            target.set_exception(concurrent.futures.CancelledError())
        elif (error := done.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(done.result())

    source.add_done_callback(copy)
    return target
