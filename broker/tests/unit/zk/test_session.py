"""The modified session of kazoo, with a small server of the protocol in old and new versions; waiting for sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from struct import pack, unpack, unpack_from

import pytest

from odradek.zk.kazoo_client import AuthenticationFailed, KazooZkClient, SessionEvent, ZkSettings
from odradek.zk.session import Handler

CREATE_SESSION, EXISTS, GET_DATA, MULTI_READ, PING, END_SESSION = 0, 3, 4, 22, 11, -11
NO_NODE, UNIMPLEMENTED, AUTHENTICATE = -101, -6, -124
STAT = pack(">qqqqiiiqiiq", *range(11))


class Server:
    """Implements the part of the protocol that the client needs. The data of a znode is its path. Those named
    `/gone...` do not exist."""

    def __init__(self, refusal: int | None = None, *, hangs_up: bool = False) -> None:
        """Responds to `MULTI_READ` with this error and closes the connection. With `hangs_up`, it only closes it."""
        self._refusal = refusal
        self._hangs_up = hangs_up
        self.kinds: list[int] = []
        self.sessions: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await self._frame(reader)
            self.sessions.append(unpack_from(">q", hello, 16)[0])
            self._send(writer, pack(">iiqi16s?", 0, 18_000, 77, 16, bytes(16), False))
            while await self._answer(writer, await self._frame(reader)):
                pass
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, request: bytes) -> bool:
        number, kind = unpack_from(">ii", request)
        if kind != PING:
            self.kinds.append(kind)
        if kind == MULTI_READ and (self._refusal is not None or self._hangs_up):
            if not self._hangs_up:
                self._send(writer, pack(">iqi", number, 0, self._refusal))
                await writer.drain()
            return False
        error, body = self._body(kind, request[8:])
        self._send(writer, pack(">iqi", number, 1, error) + body)
        return bool(kind != END_SESSION)

    @classmethod
    def _body(cls, kind: int, rest: bytes) -> tuple[int, bytes]:
        if kind == EXISTS:
            return 0, STAT
        if kind == GET_DATA:
            return cls._read(rest[4:-1])
        if kind == MULTI_READ:
            return 0, b"".join(map(cls._result, cls._paths(rest))) + pack(">i?i", -1, True, -1)
        return 0, b""

    @staticmethod
    def _read(path: bytes) -> tuple[int, bytes]:
        return (NO_NODE, b"") if path.startswith(b"/gone") else (0, pack(">i", len(path)) + path + STAT)

    @classmethod
    def _result(cls, path: bytes) -> bytes:
        error, body = cls._read(path)
        return pack(">i?ii", -1, False, error, error) if error else pack(">i?i", GET_DATA, False, 0) + body

    @staticmethod
    def _paths(rest: bytes) -> list[bytes]:
        paths, position = [], 0
        while not rest[position + 4]:
            (length,) = unpack_from(">i", rest, position + 9)
            paths.append(rest[position + 13 : position + 13 + length])
            position += 14 + length
        return paths

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        (length,) = unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)

    @staticmethod
    def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(pack(">i", len(frame)) + frame)


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[tuple[KazooZkClient, list[SessionEvent]]]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = KazooZkClient(ZkSettings(connect=f"127.0.0.1:{port}"))
    events: list[SessionEvent] = []
    client.on_session(events.append)
    try:
        await client.start()
        yield client, events
    finally:
        await client.close()
        listening.close()
        await listening.wait_closed()


PATHS = [f"/{'gone' if number % 7 == 3 else 'here'}{number}" for number in range(120)]


def data_of(found: Mapping[str, tuple[bytes, object] | None]) -> dict[str, bytes | None]:
    return {path: None if value is None else value[0] for path, value in found.items()}


EXPECTED = {path: None if path.startswith("/gone") else path.encode() for path in PATHS}


async def test_many_znodes_are_read_in_groups() -> None:
    server = Server()
    async with client_of(server) as (client, _):
        del server.kinds[:]
        assert data_of(await client.get_many([*PATHS, PATHS[0]])) == EXPECTED
        assert server.kinds == [MULTI_READ] * 3


async def test_one_znode_is_read_alone() -> None:
    server = Server()
    async with client_of(server) as (client, _):
        del server.kinds[:]
        assert data_of(await client.get_many(["/a", "/a"])) == {"/a": b"/a"}
        assert await client.get_many([]) == {}
        assert server.kinds == [GET_DATA]


@pytest.mark.parametrize("old", [lambda: Server(UNIMPLEMENTED), lambda: Server(hangs_up=True)], ids=["says", "hangs"])
async def test_an_old_server_is_asked_once_and_before_the_session_counts_as_connected(
    old: Callable[[], Server],
) -> None:
    server = old()
    async with client_of(server) as (client, events):
        assert server.sessions == [0, 77]
        assert data_of(await client.get_many(PATHS)) == EXPECTED
        assert server.kinds.count(MULTI_READ) == 1
        assert server.kinds.count(GET_DATA) == len(PATHS)
        assert events == [SessionEvent.ESTABLISHED]


async def test_a_server_that_requires_authentication_is_not_treated_as_an_old_one() -> None:
    server = Server(AUTHENTICATE)
    with pytest.raises(AuthenticationFailed, match="the ensemble requires authentication"):
        async with client_of(server):
            pass
    assert server.kinds == [MULTI_READ]


@pytest.fixture
def pair() -> list[socket.socket]:
    return list(socket.socketpair())


class TestSelect:
    """Waiting for sockets without TLS. `test_security_tls` has the tests with TLS."""

    @pytest.fixture
    def handler(self) -> Handler:
        return Handler(None, 1.0)

    def test_sockets_that_are_ready_are_returned(self, handler: Handler, pair: list[socket.socket]) -> None:
        one, other = pair
        with one, other:
            assert handler.select([one], [], [], 0) == ([], [], [])
            assert handler.select([], [one], [], None) == ([], [one], [])
            other.send(b"x")
            assert handler.select([other, one], [], [], None) == ([one], [], [])

    def test_a_connection_that_ended_can_be_read(self, handler: Handler, pair: list[socket.socket]) -> None:
        one, other = pair
        with one:
            other.close()
            assert handler.select([one], [], [], -1.0) == ([one], [], [])

    def test_a_closed_socket_is_an_error(self, handler: Handler, pair: list[socket.socket]) -> None:
        for each in pair:
            each.close()
        with pytest.raises(ValueError, match="negative"):
            handler.select([pair[0]], [], [], 0)
