"""Connections that share the memory for requests, under random traffic, answers, slow readers and lost connections.

Whatever happens, the reserved bytes are those that the connections hold, the limit is exceeded by less than one frame,
buffers are not larger than what was reserved for them, and every connection that stays gets all its requests handled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.ports import Buffer
from odradek.network.buffer import INITIAL_BYTES
from odradek.network.connection import Connection, Request
from odradek.network.connection_options import ConnectionOptions
from odradek.network.request_memory import RequestMemory
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request
from odradek_testkit.loop import ManualClock

MAX_FRAME_BYTES: Final = 40_000
LIMIT_BYTES: Final = 60_000

Step = tuple[Any, ...]

CLIENTS = st.integers(0, 5)
SIZES = st.sampled_from([10, 3_000, 8_000, 9_000, 20_000, 32_000])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), CLIENTS, SIZES, st.booleans()),
        st.tuples(st.just("send"), CLIENTS, st.sampled_from([1, 5, 5_000, 100_000])),
        st.tuples(st.just("send"), CLIENTS, st.sampled_from([1, 5, 5_000, 100_000])),
        st.tuples(st.just("answer"), CLIENTS),
        st.tuples(st.just("stop_reading"), CLIENTS),
        st.tuples(st.just("read_again"), CLIENTS),
        st.tuples(st.just("close"), CLIENTS),
        st.tuples(st.just("lose"), CLIENTS),
    ),
    max_size=80,
)


class Transport:
    """The transport of a client that takes all bytes."""

    def __init__(self) -> None:
        self.is_reading = True
        self.is_ended = False

    def get_extra_info(self, name: str) -> Any:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def write(self, data: Buffer) -> None:
        assert len(data)

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        assert list(buffers)

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def close(self) -> None:
        self.is_ended = True

    abort = close


class Client:
    """A connection, and the bytes that its client has not sent yet."""

    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.unsent = bytearray()
        self.requested = 0
        self.handled: list[int] = []
        self.unanswered: list[Request] = []
        self.is_slow_reader = False
        self.transport = Transport()
        self.connection = Connection(
            self._handle,
            ManualClock(),
            options=ConnectionOptions(max_frame_bytes=MAX_FRAME_BYTES, max_in_flight=3, memory=memory),
        )
        self.connection.connection_made(self.transport)

    @property
    def held_bytes(self) -> int:
        reservation = self.connection._reservation
        assert reservation is not None
        return reservation.held_bytes

    def _handle(self, request: Request) -> None:
        self.handled.append(request.correlation_id)
        self.unanswered.append(request)
        size = len(request.frame) + 4
        assert self.held_bytes == (size if size > INITIAL_BYTES else 0)

    def request(self, size: int, is_pipelined: bool) -> None:
        self.requested += 1
        if is_pipelined:
            records = {"name": "t", "partition_data": [{"index": 0, "records": bytes(size)}]}
            produce = {"transactional_id": None, "acks": 1, "timeout_ms": 1, "topic_data": [records]}
            self.unsent += encode_request(ApiKey.PRODUCE, 3, self.requested, "me", produce)
        else:
            heartbeat = {"group_id": "g" * size, "generation_id": 1, "member_id": "m"}
            self.unsent += encode_request(ApiKey.HEARTBEAT, 0, self.requested, "me", heartbeat)

    def send(self, count: int) -> None:
        while self.unsent and count and self.transport.is_reading and not self.transport.is_ended:
            space = self.connection.get_buffer(-1)
            size = min(len(space), len(self.unsent), count)
            space[:size] = self.unsent[:size]
            del self.unsent[:size]
            count -= size
            self.connection.buffer_updated(size)

    def answer(self) -> None:
        if self.unanswered:
            self.unanswered.pop(0).respond([b"answer"])

    def stop_reading(self) -> None:
        if not self.is_slow_reader:
            self.is_slow_reader = True
            self.connection.pause_writing()

    def read_again(self) -> None:
        if self.is_slow_reader:
            self.is_slow_reader = False
            self.connection.resume_writing()

    def close(self) -> None:
        self.connection.close()

    def lose(self) -> None:
        self.transport.is_ended = True


class Run:
    """Clients that share one memory."""

    def __init__(self, count: int) -> None:
        self.memory = RequestMemory(LIMIT_BYTES, ManualClock())
        self.clients = [Client(self.memory) for _ in range(count)]
        self.lost: list[Client] = []

    async def step(self, step: Step) -> None:
        name, number, *arguments = step
        if self.clients:
            getattr(self.clients[number % len(self.clients)], name)(*arguments)
        self.check()
        await asyncio.sleep(0)
        for client in [client for client in self.clients if client.transport.is_ended]:
            client.connection.connection_lost(None)
            self.clients.remove(client)
            self.lost.append(client)
        self.check()

    def check(self) -> None:
        memory = self.memory
        assert memory.used_bytes == sum(client.held_bytes for client in self.clients)
        assert memory.used_bytes < LIMIT_BYTES + MAX_FRAME_BYTES
        assert not memory.waiting or memory.used_bytes >= LIMIT_BYTES
        assert not any(client.held_bytes for client in self.lost)
        for client in self.clients:
            assert client.connection._buffer.capacity <= max(INITIAL_BYTES, client.held_bytes)

    async def finish(self) -> None:
        """Every client sends the rest and reads its responses."""
        for _ in range(2 * sum(client.requested for client in self.clients) + 2):
            for number in range(len(self.clients)):
                for step in (("read_again", number), ("send", number, 100_000), ("answer", number)):
                    await self.step(step)


@settings(deadline=None)
@given(count=st.integers(1, 6), steps=STEPS)
def test_memory_is_bounded_returned_and_shared_by_all(count: int, steps: list[Step]) -> None:
    async def main() -> None:
        run = Run(count)
        for step in steps:
            await run.step(step)
        closing = [client for client in run.clients if client.connection._closing]
        await run.finish()
        for client in run.clients:
            if client not in closing:
                assert client.handled == list(range(1, client.requested + 1))
            await run.step(("lose", run.clients.index(client)))
        assert (run.memory.used_bytes, run.memory.waiting) == (0, 0)

    asyncio.run(main())
