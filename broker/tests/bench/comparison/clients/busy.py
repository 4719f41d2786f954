"""Many connections that produce small batches at the same time, each with a few requests in flight.

Options: address, topic, partitions, connections, total number of requests, window, record size. Figures: requests per
second and the latency of single requests. One uvloop sends and receives, so its cost is the same for both systems.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, cast

import uvloop

from comparison.batches import batch, filler
from comparison.clients.calling import answer, options
from comparison.figures import latency_figures
from comparison.wire import produce_frame, produce_result
from odradek.base.types import TopicPartition

_PREFIX_BYTES: Final = 4


class BusyConnection(asyncio.Protocol):
    """Sends the same frame `budget` times, with at most `window` requests in flight."""

    def __init__(self, frame: bytes, topic: str, budget: int, window: int) -> None:
        self._frame = frame
        self._topic = topic
        self._to_send = budget
        self._to_hear = budget
        self._window = window
        self._sent: deque[float] = deque()
        self._pending = bytearray()
        self.milliseconds: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are not subclasses of those of asyncio.
        self._transport = cast(asyncio.WriteTransport, transport)

    def begin(self) -> None:
        """Send the first `window` requests."""
        for _ in range(min(self._window, self._to_send)):
            self._send()

    def _send(self) -> None:
        self._to_send -= 1
        self._sent.append(time.perf_counter())
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= _PREFIX_BYTES:
            end = _PREFIX_BYTES + int.from_bytes(self._pending[:_PREFIX_BYTES])
            if len(self._pending) < end:
                return
            code, _ = produce_result(self._pending, self._topic, from_position=_PREFIX_BYTES + 4)
            del self._pending[:end]
            self._heard(code)

    def _heard(self, code: int) -> None:
        self.milliseconds.append((time.perf_counter() - self._sent.popleft()) * 1000)
        self._to_hear -= 1
        if code:
            self._finish(RuntimeError(f"a produce request failed with error {code}"))
        elif self._to_send:
            self._send()
        elif not self._to_hear:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionError("the broker closed a connection"))

    def _finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


async def main() -> None:
    """Open all connections, start them together, and return the figures."""
    wanted = options()
    loop = asyncio.get_running_loop()
    records = batch(filler(wanted["record_bytes"]), 1, timestamp_ms=int(time.time() * 1000))
    budget = wanted["requests"] // wanted["connections"]
    connections: list[BusyConnection] = []
    for number in range(wanted["connections"]):
        frame = produce_frame(TopicPartition(wanted["topic"], number % wanted["partitions"]), records)
        _, connection = await loop.create_connection(
            lambda frame=frame: BusyConnection(frame, wanted["topic"], budget, wanted["window"]),  # type: ignore[misc]
            wanted["host"],
            wanted["port"],
        )
        connections.append(connection)
    began = time.perf_counter()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*(connection.done for connection in connections))
    seconds = time.perf_counter() - began
    times = [one for connection in connections for one in connection.milliseconds]
    answer({"requests_per_s": len(times) / seconds, **latency_figures(times)})


if __name__ == "__main__":
    uvloop.run(main())
