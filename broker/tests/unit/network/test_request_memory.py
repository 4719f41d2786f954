"""The memory for requests over all connections: its queue, and real sockets that share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from odradek.network.buffer import INITIAL_BYTES
from odradek.network.connection import Request
from odradek.network.connection_options import ConnectionOptions
from odradek.network.listener import Listener, ListenerOptions
from odradek.network.request_memory import RequestMemory, Reservation

MEBIBYTE: Final = 1 << 20
SLOW_MS: Final = 7_000


def waiting_for(memory: RequestMemory, sizes: list[int]) -> tuple[list[Reservation], list[int]]:
    """Reserve in this order. Returns the reservations, and the indexes of those granted later, in order."""
    granted: list[int] = []
    reservations = []
    for number, size in enumerate(sizes):
        reservations.append(memory.reservation(lambda number=number: granted.append(number)))
        reservations[-1].covers(size)
    return reservations, granted


def test_the_first_that_waits_is_the_first_to_get_memory(kit: Any) -> None:
    memory = RequestMemory(100, kit.ManualClock())
    (one, two, *_), granted = waiting_for(memory, [60, 40, 80, 10, 10])
    assert (memory.used_bytes, memory.available_bytes, memory.waiting) == (100, 0, 3)

    two.release()
    assert granted == [2]
    assert (memory.used_bytes, memory.available_bytes, memory.waiting) == (140, -40, 2)
    one.release()
    assert granted == [2, 3, 4]
    assert (memory.used_bytes, memory.waiting) == (100, 0)


def test_a_frame_that_fits_does_not_overtake_those_that_wait(kit: Any) -> None:
    memory = RequestMemory(100, kit.ManualClock())
    late: list[bool] = []
    first = memory.reservation(lambda: None)
    assert first.covers(100)
    later = memory.reservation(lambda: None)
    # While its memory is granted, another one asks: there is space for it, but the third asked before.
    second = memory.reservation(lambda: late.append(later.covers(10)))
    third = memory.reservation(lambda: late.append(True))
    assert not second.covers(10)
    assert not third.covers(10)
    first.release()
    assert late == [False, True]
    assert later.held_bytes == 10


def test_the_limit_is_exceeded_by_less_than_one_frame(kit: Any) -> None:
    memory = RequestMemory(100, kit.ManualClock())
    (*_, last), _ = waiting_for(memory, [99, 100, 1])
    assert (memory.used_bytes, memory.waiting) == (199, 1)
    assert (last.held_bytes, last.wanted_bytes) == (0, 1)


def test_one_that_waits_can_give_up(kit: Any) -> None:
    memory = RequestMemory(100, kit.ManualClock())
    (first, second, third), granted = waiting_for(memory, [100, 50, 20])
    second.release()
    second.release()
    assert memory.waiting == 1
    first.release()
    assert granted == [2]
    assert (second.held_bytes, third.held_bytes, memory.used_bytes) == (0, 20, 20)


def test_asking_again_while_waiting_keeps_the_place(kit: Any) -> None:
    memory = RequestMemory(100, kit.ManualClock())
    (first, second, _), granted = waiting_for(memory, [100, 50, 20])
    assert not second.covers(50)
    first.release()
    assert granted == [1, 2]
    assert second.covers(50)
    assert second.covers(0)
    assert memory.used_bytes == 20


def test_the_time_counts_while_anything_waits(kit: Any) -> None:
    clock = kit.ManualClock()
    memory = RequestMemory(100, clock)
    (first, second, third), _ = waiting_for(memory, [100, 100, 100])
    clock.now_ms += 5
    first.release()
    clock.now_ms += 7
    assert memory.depleted_ms == 12
    third.release()
    clock.now_ms += 100
    assert memory.depleted_ms == 12
    assert second.held_bytes == 100
    assert not third.covers(30)
    clock.now_ms += 3
    assert memory.depleted_ms == 15
    second.release()
    clock.now_ms += 100
    assert memory.depleted_ms == 15


@pytest.mark.parametrize("limit_bytes", [0, -1])
def test_a_limit_must_be_above_zero(kit: Any, limit_bytes: int) -> None:
    with pytest.raises(ValueError, match="above 0"):
        RequestMemory(limit_bytes, kit.ManualClock())


async def test_a_small_frame_needs_no_memory(kit: Any) -> None:
    memory = RequestMemory(1, kit.ManualClock())
    assert memory.reservation(lambda: None).covers(100)
    peer = kit.Peer(memory=memory)
    overhead = len(kit.produce(1))
    frame = kit.produce(1, INITIAL_BYTES - overhead)
    peer.send(frame[:-1])
    assert (peer.transport.reading, memory.used_bytes) == (True, 100)
    peer.send(frame[-1:])
    peer.send(kit.produce(2, INITIAL_BYTES - overhead + 1)[:-1])

    assert (peer.ids, peer.transport.reading, memory.waiting) == ([1], False, 1)


async def test_memory_is_held_from_the_length_of_the_frame_until_its_handler_returns(kit: Any) -> None:
    memory = RequestMemory(MEBIBYTE, kit.ManualClock())
    held: list[int] = []
    peer = kit.Peer(lambda _request: held.append(memory.used_bytes), memory=memory)
    frame = kit.produce(1, 100_000)
    peer.send(frame[:3])
    assert memory.used_bytes == 0
    peer.send(frame[3:4])
    assert memory.used_bytes == len(frame)
    assert peer.connection._buffer.capacity == INITIAL_BYTES
    peer.send(frame[4:])

    assert held == [len(frame)]
    assert (memory.used_bytes, peer.connection.in_flight) == (0, 1)
    assert peer.connection._buffer.capacity == 0


async def test_a_connection_that_is_lost_or_closes_gets_nothing_and_returns_what_it_has(kit: Any) -> None:
    memory = RequestMemory(MEBIBYTE, kit.ManualClock())
    frame = kit.produce(1, MEBIBYTE)
    first, lost, closing, last = (kit.Peer(memory=memory) for _ in range(4))
    for peer in (first, lost, closing, last):
        peer.send(frame[:100])
    closing.connection.close()
    lost.connection.connection_lost(None)
    assert (memory.used_bytes, memory.waiting) == (len(frame), 2)

    first.connection.connection_lost(None)
    assert (memory.used_bytes, memory.waiting) == (len(frame), 0)
    assert (closing.transport.reading, last.transport.reading) == (False, True)
    last.send(frame[100:])
    assert (last.ids, memory.used_bytes) == ([1], 0)


async def test_a_connection_that_waits_for_memory_is_not_idle(kit: Any) -> None:
    memory = RequestMemory(1, kit.ManualClock())
    first, second = kit.Peer(memory=memory), kit.Peer(memory=memory)
    first.send(kit.produce(1, 10_000)[:100])
    second.send(kit.produce(1, 10_000)[:100])

    assert second.connection.idle_ms(second.clock.now_ms + 100) == 0
    first.send(kit.produce(1, 10_000)[100:])
    assert second.connection.idle_ms(second.clock.now_ms + 100) == 100


async def test_the_time_of_a_frame_counts_while_the_peer_is_slow(kit: Any) -> None:
    clock = kit.ManualClock()
    memory = RequestMemory(MEBIBYTE, clock)
    peer = kit.Peer(memory=memory)
    now_ms = clock.now_ms + 40
    assert peer.connection.slow_ms(now_ms) == 0
    peer.send(kit.heartbeat(1))
    frame = kit.produce(2, 100_000)
    peer.requests[0].respond([b"1"])
    peer.send(frame[:5_000])
    assert peer.connection.slow_ms(now_ms) == 40

    peer.connection.pause_writing()
    peer.send(frame[5_000:])
    assert peer.ids == [1]
    assert peer.connection.slow_ms(now_ms) == 40
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert peer.ids == [1, 2]
    assert peer.connection.slow_ms(now_ms) == 0


async def test_a_frame_that_waits_for_earlier_answers_is_not_slow(kit: Any) -> None:
    memory = RequestMemory(MEBIBYTE, kit.ManualClock())
    peer = kit.Peer(memory=memory)
    peer.send(kit.produce(1))
    large = kit.large_heartbeat(2)
    peer.send(large)

    assert (peer.ids, memory.used_bytes) == ([1], len(large))
    assert peer.connection.slow_ms(peer.clock.now_ms + 50) == 0
    peer.requests[0].respond([b"1"])
    await asyncio.sleep(0)
    assert (peer.ids, memory.used_bytes) == ([1, 2], 0)


class Sockets:
    """A listener whose connections share a memory of 2 MiB; its clients."""

    def __init__(self, kit: Any, stack: AsyncExitStack) -> None:
        self.kit = kit
        self.stack = stack
        self.clock = kit.ManualClock()
        self.memory = RequestMemory(2 * MEBIBYTE, self.clock, slow_ms=SLOW_MS)
        self.most_bytes = 0
        options = ConnectionOptions(max_frame_bytes=2 * MEBIBYTE, memory=self.memory)
        self.listener = Listener(
            "PLAINTEXT", ("127.0.0.1", 0), self._handle, self.clock, options=ListenerOptions(connection=options)
        )

    def _handle(self, request: Request) -> None:
        self.most_bytes = max(self.most_bytes, self.memory.used_bytes)
        request.respond([b"\x00\x00\x00\x04", request.correlation_id.to_bytes(4, "big")])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.stack.callback(writer.close)
        return reader, writer

    async def produce(self, count: int) -> list[int]:
        """Send large requests on a new connection. Returns the correlation ids of the responses."""
        reader, writer = await self.connect()
        for number in range(count):
            writer.write(self.kit.produce(number, MEBIBYTE))
        return [int.from_bytes((await reader.readexactly(8))[4:], "big") for _ in range(count)]

    async def begin(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send half of a request of almost 2 MiB."""
        reader, writer = await self.connect()
        writer.write(self.kit.produce(7, 2 * MEBIBYTE - 100)[:MEBIBYTE])
        return reader, writer


@asynccontextmanager
async def sockets(kit: Any) -> AsyncIterator[Sockets]:
    async with AsyncExitStack() as stack:
        made = Sockets(kit, stack)
        await made.listener.start()
        stack.push_async_callback(made.listener.close, grace_ms=0)
        yield made


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def until(condition: Callable[[], bool]) -> None:
    """Poll without waiting: every iteration of the loop checks the sockets."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- the condition depends on the kernel, which reports no event
            await asyncio.sleep(0)


async def test_many_producers_share_the_memory_and_small_requests_do_not_wait(kit: Any) -> None:
    async with sockets(kit) as made, asyncio.TaskGroup() as tasks:
        _, first = await made.begin()
        _, second = await made.begin()
        await until(lambda: made.memory.used_bytes > 3 * MEBIBYTE)
        producers = [tasks.create_task(made.produce(3)) for _ in range(20)]
        await until(lambda: made.memory.waiting == 20)

        reader, writer = await made.connect()
        writer.write(kit.heartbeat(9))
        assert await reader.readexactly(8) == b"\x00\x00\x00\x04\x00\x00\x00\x09"
        assert (made.memory.waiting, made.listener.counters.requests) == (20, 1)

        for slow in (first, second):
            slow.write(kit.produce(7, 2 * MEBIBYTE - 100)[MEBIBYTE:])
        assert [await producer for producer in producers] == [list(range(3))] * 20
        assert (made.memory.used_bytes, made.memory.waiting) == (0, 0)
        assert 2 * MEBIBYTE < made.most_bytes < 4 * MEBIBYTE


async def test_a_slow_connection_is_closed_if_others_wait_for_its_memory(kit: Any) -> None:
    async with sockets(kit) as made, asyncio.TaskGroup() as tasks:
        (slow, _), (slower, _) = await made.begin(), await made.begin()
        await until(lambda: made.memory.used_bytes > 3 * MEBIBYTE)
        made.clock.now_ms += SLOW_MS
        made.clock.timers.pop()()
        await made.connect()
        await until(lambda: len(made.listener.connections) == 3)  # nobody waits, so nobody is closed

        producer = tasks.create_task(made.produce(2))
        await until(lambda: made.memory.waiting == 1)
        made.clock.now_ms -= 1
        made.clock.timers.pop()()
        assert made.listener.counters.connections_expired == 0, "the time is not over"
        made.clock.now_ms += 1
        made.clock.timers.pop()()
        assert [await is_ended(slow), await is_ended(slower)] == [True, True]
        assert await producer == [0, 1]
        assert made.memory.used_bytes == 0
        assert made.listener.counters.connections_expired == 2
