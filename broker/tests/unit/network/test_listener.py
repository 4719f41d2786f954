"""Real sockets on loopback: accepting, limits, closing, and unavailable addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.base.errors import ConfigError
from odradek.network.connection import Handler, Request
from odradek.network.connection_options import ConnectionOptions
from odradek.network.listener import Listener, ListenerOptions


def echo(request: Request) -> None:
    """Answer with the correlation id only."""
    request.respond([b"\x00\x00\x00\x04", request.correlation_id.to_bytes(4, "big")])


@asynccontextmanager
async def listening(kit: Any, handler: Handler = echo, **options: Any) -> AsyncIterator[Listener]:
    listener = Listener("PLAINTEXT", ("127.0.0.1", 0), handler, kit.ManualClock(), options=ListenerOptions(**options))
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close(grace_ms=0)


class Client:
    """Open a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def response(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def is_ended(self) -> bool:
        """Wait for the end of the connection, and ignore data before it."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def connected(listener: Listener) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    """Poll without waiting: every iteration of the loop checks the sockets."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- the condition depends on the kernel, which reports no event
            await asyncio.sleep(0)


async def test_requests_are_answered_over_a_socket(kit: Any) -> None:
    async with listening(kit) as listener, connected(listener) as client:
        client.writer.write(kit.produce(1, 5 << 20) + kit.heartbeat(2))

        assert [await client.response(), await client.response()] == [b"\0\0\0\x01", b"\0\0\0\x02"]
        counters = listener.counters
        assert (counters.requests, counters.connections, counters.connections_accepted) == (2, 1, 1)
        assert counters.bytes_in == len(kit.produce(1, 5 << 20) + kit.heartbeat(2))
        assert counters.bytes_out == 16
    assert listener.counters.connections == 0


async def test_a_large_response_reaches_a_slow_reader(kit: Any) -> None:
    body = bytes(range(256)) * (4 << 12)

    def answer(request: Request) -> None:
        request.respond([len(body).to_bytes(4, "big"), memoryview(body)])

    async with listening(kit, answer) as listener, connected(listener) as client:
        client.writer.write(b"".join(kit.produce(number) for number in range(5)))
        for _ in range(5):
            assert await client.response() == body


async def test_a_frame_above_the_limit_ends_the_connection(kit: Any) -> None:
    async with (
        listening(kit, connection=ConnectionOptions(max_frame_bytes=1_000)) as listener,
        connected(listener) as client,
        connected(listener) as other,
    ):
        client.writer.write((1_001).to_bytes(4, "big") + b"unread")
        assert await client.is_ended()
        assert listener.counters.requests == 0
        assert listener.counters.requests_refused == 1
        other.writer.write(kit.heartbeat(1))
        assert await other.response() == b"\0\0\0\x01"


async def test_connections_of_one_address_are_limited(kit: Any) -> None:
    async with (
        listening(kit, max_connections_per_ip=1) as listener,
        connected(listener) as first,
        connected(listener) as second,
    ):
        assert await second.is_ended()
        first.writer.write(kit.heartbeat(1))
        assert await first.response() == b"\0\0\0\x01"
        assert listener.counters.connections_refused == 1

        first.writer.close()
        await until(lambda: not listener.connections)
        async with connected(listener) as third:
            third.writer.write(kit.heartbeat(2))
            assert await third.response() == b"\0\0\0\x02"


async def test_all_connections_are_limited(kit: Any) -> None:
    async with (
        listening(kit, max_connections=1) as listener,
        connected(listener),
        connected(listener) as second,
    ):
        assert await second.is_ended()
        assert len(listener.connections) == 1


async def test_other_limits_hold_for_connections_to_come(kit: Any) -> None:
    async with listening(kit) as listener, connected(listener) as first, connected(listener) as second:
        await until(lambda: len(listener.connections) == 2)
        listener.limit(max_connections=1, max_connections_per_ip=10, max_creation_rate=2**31 - 1)
        async with connected(listener) as refused:
            assert await refused.is_ended()
        for number, client in enumerate((first, second)):
            client.writer.write(kit.heartbeat(number))
            assert await client.response() == number.to_bytes(4, "big")

        listener.limit(max_connections=10, max_connections_per_ip=3, max_creation_rate=2**31 - 1)
        async with connected(listener) as third, connected(listener) as refused:
            third.writer.write(kit.heartbeat(3))
            assert await third.response() == b"\0\0\0\x03"
            assert await refused.is_ended()


async def test_idle_connections_end_and_busy_ones_stay(kit: Any) -> None:
    waiting: list[Request] = []
    async with (
        listening(kit, waiting.append, idle_ms=1_000) as listener,
        connected(listener) as idle,
        connected(listener) as busy,
    ):
        busy.writer.write(kit.heartbeat(1))
        await until(lambda: len(waiting) == 1 and len(listener.connections) == 2)
        clock = listener._clock
        clock.now_ms += 1_000
        clock.timers.pop()()

        assert await idle.is_ended()
        echo(waiting[0])
        assert await busy.response() == b"\0\0\0\x01"
        assert listener.counters.connections_expired == 1
        assert len(clock.timers) == 1, "the next sweep is due"


async def test_close_lets_answers_leave(kit: Any) -> None:
    waiting: list[Request] = []
    async with listening(kit, waiting.append) as listener, connected(listener) as client:
        client.writer.write(kit.heartbeat(1))
        await until(lambda: bool(waiting))
        closing = asyncio.create_task(listener.close())
        await asyncio.sleep(0)
        echo(waiting[0])

        assert await client.response() == b"\0\0\0\x01"
        assert await client.is_ended()
        await closing
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", listener.port)


async def test_close_has_a_time_limit(kit: Any) -> None:
    waiting: list[Request] = []
    async with listening(kit, waiting.append) as listener, connected(listener) as client:
        client.writer.write(kit.heartbeat(1))
        await until(lambda: bool(waiting))
        await listener.close(grace_ms=0)

        assert await client.is_ended()
        assert not listener.connections
        await listener.close()


async def test_a_cancelled_close_still_ends_the_connections(kit: Any) -> None:
    waiting: list[Request] = []
    async with listening(kit, waiting.append) as listener, connected(listener) as client:
        client.writer.write(kit.heartbeat(1))
        await until(lambda: bool(waiting))
        closing = asyncio.create_task(listener.close(grace_ms=1e9))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

        assert await client.is_ended()


async def test_an_address_in_use_is_reported_in_one_sentence(kit: Any) -> None:
    async with listening(kit) as listener:
        second = Listener("INTERNAL", ("127.0.0.1", listener.port), echo, kit.ManualClock())
        with pytest.raises(ConfigError) as caught:
            await second.start()
        assert f"127.0.0.1:{listener.port}" in str(caught.value)
        assert "INTERNAL" in str(caught.value)
        await second.close()


async def test_an_address_of_another_machine_is_refused(kit: Any) -> None:
    listener = Listener("PLAINTEXT", ("192.0.2.1", 0), echo, kit.ManualClock())
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        await listener.start()


async def test_an_empty_host_is_every_interface(kit: Any) -> None:
    listener = Listener("PLAINTEXT", ("", 0), echo, kit.ManualClock())
    await listener.start()
    try:
        with socket.create_connection(("127.0.0.1", listener.port)):
            pass
    finally:
        await listener.close()
