"""Listeners with TLS over real sockets: requests, responses from files, limits, and handshakes that fail or hang."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import StorageError
from odradek.base.ports import Buffer, File, FileRegion, Part
from odradek.base.system_ports import RemoteFile, SystemFile, SystemFiles
from odradek.network.connection import Connection, Handler, Request, accept_anonymous
from odradek.network.connection_options import ConnectionOptions
from odradek.network.listener import Listener, ListenerOptions, ListenerSecurity
from odradek.network.outflow import OutflowEvents
from odradek.network.pages import FileAccess
from odradek.network.tls_outflow import SLICE_BYTES, TlsOutflow
from odradek.network.wake_threshold import MOST_BYTES
from odradek.security.tls.contexts import UsedCertificates, client_context, server_context
from odradek.security.tls.stores import PemKeyText, PemTrustText
from odradek.security.tls.tls_settings import ClientAuth, TlsSettings
from odradek_testkit.security.certificates import Authority, Issued, key_pem, pem

ROOT = Authority.root("root")
BROKER, ALICE = ROOT.issue("broker"), ROOT.issue("alice", hosts=())
TRUST = PemTrustText(setting="ssl.truststore", certificates=pem(ROOT.certificate))
CONTENT = bytes(range(251)) * 40_000
"""Some 10 MB."""


def key_of(issued: Issued) -> PemKeyText:
    return PemKeyText(setting="ssl.keystore", key=key_pem(issued.key), chain=issued.chain_pem)


def client_tls(issued: Issued | None = None) -> ssl.SSLContext:
    return client_context(TlsSettings(keystore=None if issued is None else key_of(issued), truststore=TRUST))


class Contexts:
    """The same context for every connection, once the test allows it."""

    def __init__(self, client_auth: ClientAuth = ClientAuth.NONE) -> None:
        self.is_ready = asyncio.Event()
        self.is_ready.set()
        self._context = server_context(TlsSettings(keystore=key_of(BROKER), truststore=TRUST, client_auth=client_auth))

    async def current(self) -> ssl.SSLContext:
        await self.is_ready.wait()
        return self._context

    async def used(self) -> UsedCertificates:
        return self._context.certificates


def echo(request: Request) -> None:
    """Answer with the correlation id only."""
    request.respond([b"\x00\x00\x00\x04", request.correlation_id.to_bytes(4, "big")])


@asynccontextmanager
async def listening(
    kit: Any,
    handler: Handler = echo,
    *,
    contexts: Contexts | None = None,
    timeout_ms: float = 60_000,
    begin: Callable[[Connection], None] = accept_anonymous,
    **options: Any,
) -> AsyncIterator[Listener]:
    security = ListenerSecurity(
        protocol="SSL", contexts=contexts or Contexts(), begin=begin, handshake_timeout_ms=timeout_ms
    )
    listener = Listener(
        "SSL",
        ("127.0.0.1", 0),
        handler,
        kit.ManualClock(),
        options=ListenerOptions(**options),
        security=security,
    )
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close(grace_ms=0)


class Client:
    """A connection with TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def response(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))


@asynccontextmanager
async def connected(listener: Listener, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", listener.port, ssl=tls or client_tls(), server_hostname="localhost"
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def raw_client(listener: Listener) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", listener.port))
    client.setblocking(False)
    return client


async def is_ended(client: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionResetError:
        return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- the condition depends on the kernel, which reports no event
            await asyncio.sleep(0)


async def test_requests_are_answered_and_connections_counted(kit: Any) -> None:
    async with listening(kit) as listener, connected(listener) as client:
        client.writer.write(kit.produce(1, 5 << 20) + kit.heartbeat(2))

        assert [await client.response(), await client.response()] == [b"\0\0\0\x01", b"\0\0\0\x02"]
        counters = listener.counters
        assert (counters.requests, counters.connections, counters.connections_accepted) == (2, 1, 1)
        assert (counters.bytes_in, counters.bytes_out) == (len(kit.produce(1, 5 << 20) + kit.heartbeat(2)), 16)
    assert listener.counters.connections == 0


@pytest.mark.parametrize("issued", [None, ALICE])
async def test_a_connection_begins_after_the_handshake_with_its_certificate(kit: Any, issued: Issued | None) -> None:
    found: list[bytes | None] = []

    def begin(connection: Connection) -> None:
        found.append(connection.peer_certificate())
        accept_anonymous(connection)

    contexts = Contexts(ClientAuth.REQUESTED)
    async with (
        listening(kit, contexts=contexts, begin=begin) as listener,
        connected(listener, client_tls(issued)) as client,
    ):
        client.writer.write(kit.heartbeat(1))
        await client.response()
        sent = None if issued is None else ssl.PEM_cert_to_DER_cert(pem(issued.certificate))
        assert found == [sent]


async def test_a_connection_that_is_refused_at_its_begin_gives_its_place_back(kit: Any) -> None:
    refusing = True

    def begin(connection: Connection) -> None:
        if refusing:
            connection.abort("no")
        else:
            accept_anonymous(connection)

    async with listening(kit, begin=begin, max_connections=1) as listener:
        async with connected(listener) as client:
            client.writer.write(kit.heartbeat(1))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await client.response()
        await until(lambda: listener.counters.connections == 0)
        assert listener.counters.requests == 0
        refusing = False
        async with connected(listener) as client:
            client.writer.write(kit.heartbeat(2))
            assert await client.response() == b"\0\0\0\x02"


# Large requests, whose reading waits for a number of bytes


def threshold_of_only(listener: Listener) -> int:
    (connection,) = listener.connections
    transport: Any = connection._transport
    return int(transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))


async def encrypted(raw: socket.socket, data: bytes) -> bytes:
    """Begin a handshake as the client. Return its end and the data, encrypted."""
    incoming, outgoing, loop = ssl.MemoryBIO(), ssl.MemoryBIO(), asyncio.get_running_loop()
    tls = client_tls().wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            tls.write(data)
            return outgoing.read()
        await loop.sock_sendall(raw, outgoing.read())
        incoming.write(await loop.sock_recv(raw, 1 << 16))


@pytest.mark.parametrize("piece", [1_000, 15_000, 16_406, 40_000, 100_000])
async def test_large_requests_in_pieces_arrive_whole(kit: Any, piece: int) -> None:
    sizes = (0, 33 << 10, 34 << 10, 65 << 10, 66 << 10, 1 << 20)
    sent = b"".join(kit.produce(number, size) for number, size in enumerate(sizes)) + kit.heartbeat(len(sizes))
    async with listening(kit) as listener:
        raw = raw_client(listener)
        data = await encrypted(raw, sent)
        for start in range(0, len(data), piece):
            await asyncio.get_running_loop().sock_sendall(raw, data[start : start + piece])
            await asyncio.sleep(0)
        await until(lambda: listener.counters.requests == len(sizes) + 1)
        assert listener.counters.bytes_in == len(sent)
        assert threshold_of_only(listener) == 1
        raw.close()


@pytest.mark.parametrize("rest", [33 << 10, 40 << 10, 80 << 10])
async def test_an_incomplete_record_in_openssl_counts_as_read(kit: Any, rest: int) -> None:
    record = 16 << 10
    async with listening(kit) as listener:
        raw, loop = raw_client(listener), asyncio.get_running_loop()
        data = await encrypted(raw, kit.produce(1, record + rest))
        # Records are larger than their data, so the second one is incomplete.
        await loop.sock_sendall(raw, data[: 2 * record])
        await until(lambda: listener.counters.bytes_in == record)
        assert threshold_of_only(listener) > 1
        await loop.sock_sendall(raw, data[2 * record :])
        await until(lambda: listener.counters.requests == 1)
        raw.close()


async def test_a_slow_client_is_not_idle_while_its_bytes_wait_for_the_threshold(kit: Any) -> None:
    frame, piece = kit.produce(1, 1 << 20), 10_000
    async with listening(kit, idle_ms=1_000) as listener, connected(listener) as client:
        clock: Any = listener._clock
        client.writer.write(frame[:piece])
        await until(lambda: listener.counters.bytes_in == piece)
        for start in range(piece, 6 * piece, piece):
            client.writer.write(frame[start : start + piece])
            clock.now_ms += 1_000
            clock.timers.pop()()
            assert listener.counters.connections_expired == 0
            await until(lambda start=start: listener.counters.bytes_in == start + piece)
            assert threshold_of_only(listener) == MOST_BYTES
        clock.now_ms += 1_000
        clock.timers.pop()()
        assert threshold_of_only(listener) == 1
        clock.timers.pop()()
        assert listener.counters.connections_expired == 1, "nothing has arrived since the sweep before"


# Handshakes


async def test_a_client_that_sends_nothing_is_cut_and_delays_nobody(kit: Any) -> None:
    async with listening(kit, timeout_ms=300) as listener:
        silent = raw_client(listener)
        async with connected(listener) as client:
            client.writer.write(kit.heartbeat(1))
            assert await client.response() == b"\0\0\0\x01"
        assert await is_ended(silent)
        await until(lambda: listener.counters.failed_authentications == 1)
        silent.close()


async def test_waiting_for_the_context_counts_as_part_of_the_handshake(kit: Any) -> None:
    contexts = Contexts()
    contexts.is_ready.clear()
    async with listening(kit, timeout_ms=50, contexts=contexts) as listener:
        client = raw_client(listener)
        assert await is_ended(client)
        await until(lambda: listener.counters.failed_authentications == 1)
        client.close()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 100])
async def test_a_failed_handshake_harms_nobody(kit: Any, sent: bytes) -> None:
    async with listening(kit, max_connections=2) as listener, connected(listener) as client:
        for number in range(5):
            broken = raw_client(listener)
            await asyncio.get_running_loop().sock_sendall(broken, sent)
            await until(lambda number=number: listener.counters.failed_authentications == number + 1)
            broken.close()
        client.writer.write(kit.heartbeat(1))
        assert await client.response() == b"\0\0\0\x01"
        assert (listener.counters.connections_refused, listener.counters.connections) == (0, 1)


async def test_a_client_that_leaves_in_the_handshake_gives_its_place_back(kit: Any) -> None:
    async with listening(kit, max_connections=1) as listener:
        for number in range(3):
            raw_client(listener).close()
            await until(lambda number=number: listener.counters.failed_authentications == number + 1)
        assert listener.counters.connections_refused == 0


async def test_a_client_without_the_required_certificate_is_refused(kit: Any) -> None:
    async with listening(kit, contexts=Contexts(ClientAuth.REQUIRED)) as listener:
        with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
            async with connected(listener) as client:
                client.writer.write(kit.heartbeat(1))
                await client.response()
        await until(lambda: listener.counters.failed_authentications == 1)
        assert listener.counters.requests == 0


async def test_warnings_of_failed_handshakes_are_limited(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(kit) as listener:
        with caplog.at_level(logging.WARNING, "odradek.network.acceptor"):
            for number in range(30):
                raw_client(listener).close()
                await until(lambda number=number: listener.counters.failed_authentications == number + 1)
        assert len(caplog.records) == 10


# Limits


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
async def test_limits_apply_before_the_handshake(kit: Any, limit: str) -> None:
    async with listening(kit, **{limit: 1}) as listener:
        first, second = raw_client(listener), raw_client(listener)
        assert await is_ended(second), "the first is still in its handshake"
        assert (listener.counters.connections_refused, listener.counters.failed_authentications) == (1, 0)
        first.close()
        await until(lambda: listener.counters.failed_authentications == 1)
        async with connected(listener) as client:
            client.writer.write(kit.heartbeat(1))
            assert await client.response() == b"\0\0\0\x01"
        second.close()


@pytest.mark.parametrize("has_tls", [True, False])
async def test_new_connections_above_the_rate_wait(kit: Any, has_tls: bool) -> None:
    clock = kit.ManualClock()
    security = ListenerSecurity(contexts=Contexts()) if has_tls else ListenerSecurity()
    options = ListenerOptions(max_creation_rate=2)
    listener = Listener("L", ("127.0.0.1", 0), echo, clock, options=options, security=security)
    await listener.start()
    sweep = clock.timers.pop()
    tls, name = (client_tls(), "localhost") if has_tls else (None, None)
    opening = [
        asyncio.ensure_future(asyncio.open_connection("127.0.0.1", listener.port, ssl=tls, server_hostname=name))
        for _ in range(3)
    ]
    await until(lambda: listener.counters.connections == 2 and bool(clock.timers))
    clock.now_ms += 500
    clock.timers.pop()()
    await until(lambda: listener.counters.connections == 3)
    for _, writer in await asyncio.gather(*opening):
        writer.transport.abort()
    await listener.close(grace_ms=0)
    assert callable(sweep)


@pytest.mark.parametrize("has_tls", [True, False])
@pytest.mark.parametrize("has_rate", [True, False])
async def test_connections_of_an_address_above_its_rate_are_held_and_closed(
    kit: Any, caplog: pytest.LogCaptureFixture, has_tls: bool, has_rate: bool
) -> None:
    clock, holds, begun = kit.ManualClock(), [0.0, 700.0], list[Connection]()

    def begin(connection: Connection) -> None:
        begun.append(connection)
        accept_anonymous(connection)

    security = ListenerSecurity(contexts=Contexts() if has_tls else None, begin=begin)
    options = ListenerOptions(max_creation_rate=1000 if has_rate else 2**31 - 1, max_connections_per_ip=2)
    asked: list[str] = []

    def hold_ms(host: str) -> float:
        asked.append(host)
        return holds[len(asked) - 1]

    listener = Listener("L", ("127.0.0.1", 0), echo, clock, options=options, security=security, hold_ms=hold_ms)
    await listener.start()
    (sweep,) = clock.timers
    tls, name = (client_tls(), "localhost") if has_tls else (None, None)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=tls, server_hostname=name)
    await until(lambda: len(begun) == 1)
    clock.timers.clear()
    held = raw_client(listener)
    await until(lambda: listener.counters.connections_held == 1 and bool(clock.timers))
    await asyncio.get_running_loop().sock_sendall(held, kit.heartbeat(1))
    refused = raw_client(listener)
    await until(lambda: listener.counters.connections_refused == 1)
    assert await is_ended(refused), "a held connection counts for the limits"
    assert asked == ["127.0.0.1", "127.0.0.1"]
    clock.timers[0]()
    assert await is_ended(held)
    assert len(begun) == 1
    with caplog.at_level(logging.WARNING):
        sweep()
    assert "1 connections exceed the quota connection_creation_rate of their address" in caplog.text
    writer.transport.abort()
    held.close()
    refused.close()
    await listener.close(grace_ms=0)


async def test_closing_ends_handshakes(kit: Any) -> None:
    contexts = Contexts()
    async with listening(kit, contexts=contexts) as listener:
        in_handshake = raw_client(listener)
        await asyncio.get_running_loop().sock_sendall(in_handshake, b"\x16\x03\x01\x02\x00")
        contexts.is_ready.clear()
        waits_for_context = raw_client(listener)
        await until(lambda: listener._acceptor is not None and listener._acceptor.handshakes == 2)
        await listener.close()
        assert await is_ended(in_handshake)
        assert await is_ended(waits_for_context)
        with pytest.raises(ConnectionRefusedError):
            raw_client(listener)
        in_handshake.close()
        waits_for_context.close()


# Responses from files


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = SystemFiles().open(f"{tmp_path}/00.log", create=True)
    made.pwritev((CONTENT,), 0)
    return made


def content(parts: Sequence[Part]) -> bytes:
    return b"".join(
        CONTENT[part.position : part.position + len(part)] if isinstance(part, FileRegion) else part for part in parts
    )


def opened(kind: type[SystemFile], path: str) -> SystemFile:
    return kind(path, os.open(path, os.O_RDONLY))


class CountedFile(SystemFile):
    """A file that counts what is read of it."""

    read_bytes = 0

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        was_read = super().pread_into(buffer, length, position)
        self.read_bytes += length if was_read else 0
        return was_read


def answering(answers: Sequence[Sequence[Part]]) -> Handler:
    left = list(answers)
    return lambda request: request.respond(left.pop(0))


async def test_answers_from_files_arrive_in_order(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [
        [b"x" * 3_000_000],
        [b"1", FileRegion(file, 0, 3_000_000), b"2", FileRegion(file, 9, 100), b"3"],
        [b"4"],
        [b"5", FileRegion(file, 9, 1_000_000), b"6" * 2_000_000],
        [b"7", b"8"],
    ]
    async with listening(kit, answering(answers)) as listener, connected(listener) as client:
        client.writer.write(b"".join(map(kit.produce, range(5))))
        expected = b"".join(map(content, answers))
        assert await client.reader.readexactly(len(expected)) == expected
        await until(lambda: listener.counters.bytes_out == len(expected))


async def test_a_slow_reader_keeps_a_few_slices_in_memory(kit: Any, file: File) -> None:
    counted = opened(CountedFile, file.path)
    assert isinstance(counted, CountedFile)
    answers: list[list[Part]] = [[b"1", FileRegion(counted, 0, len(CONTENT))], [b"2"]]
    async with (
        listening(kit, answering(answers), send_buffer_bytes=16 << 10) as listener,
        connected(listener) as client,
    ):
        client.writer.transport.pause_reading()
        client.writer.write(kit.produce(1) + kit.produce(2))
        await until(lambda: bool(listener.connections))
        (connection,) = listener.connections
        await until(lambda: connection._write_paused)
        assert 0 < counted.read_bytes <= 8 * SLICE_BYTES
        for _ in range(100):
            await asyncio.sleep(0)
        assert counted.read_bytes <= 8 * SLICE_BYTES
        client.writer.transport.resume_reading()
        expected = b"1" + CONTENT + b"2"
        assert await client.reader.readexactly(len(expected)) == expected
        assert counted.read_bytes == len(CONTENT)


class ColdFile(SystemFile):
    """A file whose pages are never in the page cache."""

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        return False


@pytest.mark.parametrize("kind", [RemoteFile, ColdFile])
async def test_cold_slices_are_read_in_a_thread(kit: Any, file: File, kind: type[SystemFile]) -> None:
    jobs: list[str] = []

    def read(path: str, job: Callable[[], Any]) -> asyncio.Future[Any]:
        jobs.append(path)
        return asyncio.get_running_loop().run_in_executor(None, job)

    access = FileAccess(read=read, read_ahead_bytes=0)
    answers: list[list[Part]] = [[b"1", FileRegion(opened(kind, file.path), 3, 1_000_000)]]
    async with (
        listening(kit, answering(answers), connection=ConnectionOptions(files=access)) as listener,
        connected(listener) as client,
    ):
        client.writer.write(kit.produce(1))
        assert await client.reader.readexactly(1_000_001) == b"1" + CONTENT[3:1_000_003]
        assert len(jobs) == -(-1_000_000 // SLICE_BYTES)


class KeepingTransport(asyncio.Transport):
    """A transport that keeps what it gets and encrypts it later, as during a change of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Buffer] = []

    def write(self, data: Buffer) -> None:
        self.kept.append(data)

    def is_closing(self) -> bool:
        return False


async def test_a_transport_may_keep_a_slice(file: File) -> None:
    transport = KeepingTransport()
    ends: list[object] = []
    events = OutflowEvents(on_sent=lambda _: None, on_finished=ends.append, on_failed=ends.append)
    outflow = TlsOutflow(transport, lambda: False, events, FileAccess(read_ahead_bytes=0))
    outflow.put([FileRegion(file, 0, 3 * SLICE_BYTES)])
    outflow.start()
    assert ends == [[]]
    assert b"".join(transport.kept) == CONTENT[: 3 * SLICE_BYTES]


async def test_pages_of_a_remote_file_are_not_checked(kit: Any, file: File) -> None:
    def check(*_: object) -> bool:
        raise AssertionError("each call may wait for the server of the file")

    answers: list[list[Part]] = [[b"1", FileRegion(opened(RemoteFile, file.path), 0, 4 * SLICE_BYTES)]]
    access = FileAccess(is_resident=check, read_ahead_bytes=SLICE_BYTES)
    async with (
        listening(kit, answering(answers), connection=ConnectionOptions(files=access)) as listener,
        connected(listener) as client,
    ):
        client.writer.write(kit.produce(1))
        assert await client.reader.readexactly(1 + 4 * SLICE_BYTES) == b"1" + CONTENT[: 4 * SLICE_BYTES]


async def test_a_truncated_file_ends_the_connection(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [[b"1", FileRegion(file, len(CONTENT) - 10, 20)]]
    async with listening(kit, answering(answers)) as listener, connected(listener) as client:
        client.writer.write(kit.produce(1))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.reader.readexactly(21)


async def test_a_failing_disk_is_reported_and_ends_the_connection(kit: Any, file: File) -> None:
    class Broken(SystemFile):
        def pread(self, length: int, position: int) -> bytes:
            raise StorageError("the disk is gone")

        def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
            raise StorageError("the disk is gone")

    failures: list[StorageError] = []
    broken = opened(Broken, file.path)
    answers: list[list[Part]] = [[b"1", FileRegion(broken, 0, 20, failures.append)]]
    async with listening(kit, answering(answers)) as listener, connected(listener) as client:
        client.writer.write(kit.produce(1))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.reader.readexactly(21)
        assert [str(each) for each in failures] == ["the disk is gone"]


async def test_a_client_that_leaves_during_a_response_frees_it(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, len(CONTENT))]]
    async with listening(kit, answering(answers), send_buffer_bytes=16 << 10) as listener:
        async with connected(listener) as client:
            client.writer.transport.pause_reading()
            client.writer.write(kit.produce(1))
            await until(lambda: listener.counters.bytes_out > 1)
        await until(lambda: listener.counters.connections == 0)
