"""The probe of `/readyz` sends one request and reads the status line of the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from odradek.testing.free_ports import free_ports
from odradek_operator.embedded.probe import is_ready


class Server:
    """A server that records the last request. It answers all requests with the same bytes; None: with nothing."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.request = b""
        self.port = 0
        self.connections: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections.append(asyncio.current_task())
        self.request = await reader.readuntil(b"\r\n\r\n")
        if self.answer is None:
            await reader.read()  # Wait until the client disconnects.
        else:
            writer.write(self.answer)
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    listening = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = listening.sockets[0].getsockname()[1]
    yield one
    listening.close()
    await asyncio.gather(*(task for task in one.connections if task is not None), return_exceptions=True)


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"nonsense\r\n", False),
        (b"HTTP/1.1 200", False),
        (b"", False),
    ],
)
async def test_only_200_is_ready(server: Server, answer: bytes, ready: bool) -> None:
    server.answer = answer
    assert await is_ready("127.0.0.1", server.port) is ready
    assert server.request.startswith(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n")


async def test_a_broker_that_does_not_answer_in_time_is_not_ready(server: Server) -> None:
    server.answer = None
    assert not await is_ready("127.0.0.1", server.port, timeout_seconds=0.05)


async def test_nobody_there_is_not_ready() -> None:
    assert not await is_ready("127.0.0.1", free_ports(1)[0])
