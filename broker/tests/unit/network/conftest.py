"""A transport and a clock in memory for the network's unit tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import uvloop

from odradek.base.ports import Buffer, Timer
from odradek.network.connection import Connection, Request
from odradek.network.connection_options import ConnectionOptions
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request


class MemoryTransport:
    """A transport that records writes and calls; the peer reads only on request."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.calls: list[int] = []
        """Bytes of each call."""
        self.reading = True
        self.closed = False
        self.aborted = False
        self.high_water = 0

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high_water = high

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        before = len(self.written)
        for data in buffers:
            self.written += data
        self.calls.append(len(self.written) - before)

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.timers: list[Callable[[], None]] = []

    def monotonic_ms(self) -> float:
        return self.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(callback)
        return self

    async def sleep_ms(self, delay_ms: float) -> None:
        slept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.timers.append(lambda: slept.done() or slept.set_result(None))
        await slept

    def cancel(self) -> None:
        """The test runs timers, so there is nothing to cancel."""


class Peer:
    """A connection that receives bytes from the test, and its requests."""

    def __init__(self, handler: Callable[[Request], None] | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.transport = MemoryTransport()
        self.requests: list[Request] = []
        self.frames: list[bytes] = []
        self.lost: list[Connection] = []
        self._handler = handler
        self._options = ConnectionOptions(**options)
        self.connection = Connection(
            self._handle,
            self.clock,
            options=self._options,
            on_lost=self.lost.append,
        )
        self.connection.connection_made(self.transport)

    def _handle(self, request: Request) -> None:
        self.requests.append(request)
        self.frames.append(bytes(request.frame))
        if self._handler is not None:
            self._handler(request)

    def send(self, data: bytes, pieces: int = 1) -> None:
        """Receive bytes in equal pieces."""
        size = max(1, len(data) // pieces)
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            while piece:
                space = self.connection.get_buffer(-1)
                count = min(len(space), len(piece))
                space[:count] = piece[:count]
                piece = piece[count:]
                self.connection.buffer_updated(count)
                # Another connection receives into the shared space.
                shared = self._options.shared.view
                shared[:] = b"\xff" * len(shared)

    @property
    def ids(self) -> list[int]:
        """Correlation ids of the requests that the handler received."""
        return [request.correlation_id for request in self.requests]


def produce(correlation_id: int, size: int = 0) -> bytes:
    """Return a frame of a pipelined API."""
    records = {"name": "t", "partition_data": [{"index": 0, "records": b"r" * size}]}
    message = {"transactional_id": None, "acks": 1, "timeout_ms": 1, "topic_data": [records]}
    return encode_request(ApiKey.PRODUCE, 3, correlation_id, "me", message)


def heartbeat(correlation_id: int) -> bytes:
    """Return a frame of an API that is not pipelined."""
    message = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    return encode_request(ApiKey.HEARTBEAT, 0, correlation_id, "me", message)


def large_heartbeat(correlation_id: int) -> bytes:
    """Return a frame of 20 KiB of an API that is not pipelined."""
    message = {"group_id": "g" * (20 << 10), "generation_id": 1, "member_id": "m"}
    return encode_request(ApiKey.HEARTBEAT, 0, correlation_id, "me", message)


class Kit:
    """The helpers of this module, as a fixture."""

    Peer = Peer
    ManualClock = ManualClock
    produce = staticmethod(produce)
    heartbeat = staticmethod(heartbeat)
    large_heartbeat = staticmethod(large_heartbeat)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Brokers run on uvloop, other programs mostly on asyncio's event loop."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
