"""Responses from files over real sockets: order, slow readers, cold pages, changed files, and closed connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import StorageError
from odradek.base.ports import Buffer, File, FileRegion, Part
from odradek.base.system_ports import RemoteFile, SystemFiles
from odradek.network.connection import Request
from odradek.network.connection_options import ConnectionOptions
from odradek.network.listener import Listener, ListenerOptions
from odradek.network.outflow import TURN_BYTES, OutflowEvents, OutflowState, SocketOutflow
from odradek.network.pages import FileAccess
from odradek.network.read_ahead import ReadAhead

CONTENT = bytes(range(251)) * 20_000
"""Some 5 MB; no two neighbouring pieces of a power of two are alike."""


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = SystemFiles().open(f"{tmp_path}/00.log", create=True)
    made.pwritev((CONTENT,), 0)
    return made


def content(parts: Sequence[Part]) -> bytes:
    return b"".join(
        CONTENT[part.position : part.position + len(part)] if isinstance(part, FileRegion) else part for part in parts
    )


class Threads:
    """Runs blocking calls on request of the test; pages are resident only after they were read."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.resident_until = 0
        self.asked: list[tuple[int, int]] = []

    def read(self, _path: str, job: Callable[[], Any]) -> Awaitable[Any]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((job, future))
        return future

    def is_resident(self, _descriptor: int, position: int, length: int) -> bool:
        self.asked.append((position, length))
        return position + length <= self.resident_until

    def run(self) -> None:
        job, future = self.waiting.pop(0)
        if future.cancelled():
            job()
            return
        try:
            future.set_result(job())
        except StorageError as error:
            future.set_exception(error)

    @property
    def access(self) -> FileAccess:
        return FileAccess(read=self.read, is_resident=self.is_resident)


class Pair:
    """An outflow and the other end of its socket."""

    def __init__(self, access: FileAccess | None = None, ahead: ReadAhead | None = None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.sent = 0
        self.finished: list[list[Buffer]] = []
        self.failed: list[str] = []
        self.received = bytearray()
        events = OutflowEvents(on_sent=self._on_sent, on_finished=self.finished.append, on_failed=self.failed.append)
        loop = asyncio.get_running_loop()
        self.outflow = SocketOutflow(self.ours.fileno(), events, access or FileAccess(), loop, ahead)

    def _on_sent(self, size: int) -> None:
        self.sent += size

    def read(self, size: int = 1 << 16) -> None:
        """Read the available bytes, at most `size`."""
        try:
            self.received += self.theirs.recv(size)
        except BlockingIOError:
            return

    def state(self) -> OutflowState:
        """Of the outflow."""
        return self.outflow.state

    async def until(self, condition: Callable[[], bool], *, size: int = 1 << 16) -> None:
        """Read until a condition holds."""
        async with asyncio.timeout(60):
            while not condition():
                self.read(size)
                await asyncio.sleep(0)

    def is_released(self) -> bool:
        """Whether all duplicates of the socket are closed."""
        self.ours.close()
        while True:
            try:
                data = self.theirs.recv(1 << 20)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            if not data:
                return True
            self.received += data


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.outflow.release()
    made.ours.close()
    made.theirs.close()


async def test_parts_leave_in_order_through_a_small_socket(pair: Pair, file: File) -> None:
    parts: list[Part] = [
        b"head",
        FileRegion(file, 7, 300_000),
        b"a",
        bytearray(b""),
        b"b" * 100_000,
        FileRegion(file, 0, 1),
    ]
    rest: list[Buffer] = [b"tail", memoryview(b"end")]
    pair.outflow.put([*parts, *rest])
    assert pair.state() is OutflowState.DRAINING
    pair.outflow.start()
    assert pair.state() is OutflowState.BLOCKED
    await pair.until(lambda: bool(pair.finished), size=5_000)

    assert pair.finished == [rest]
    await pair.until(lambda: len(pair.received) == len(content(parts)))
    assert pair.received == content(parts)
    assert pair.sent == len(pair.received)
    assert pair.is_released()


async def test_many_regions_and_parts_that_come_later(pair: Pair, file: File) -> None:
    parts: list[Part] = [FileRegion(file, at * 1_000, 1_000) for at in range(700)]
    pair.outflow.put(parts)
    pair.outflow.start()
    more: list[Part] = [*(bytes([at % 7]) for at in range(1_500)), FileRegion(file, 5, 6)]
    pair.outflow.put(more)
    await pair.until(lambda: bool(pair.finished))

    assert pair.finished == [[]]
    await pair.until(lambda: len(pair.received) >= pair.sent)
    assert pair.received == content(parts + more)


async def test_others_get_their_turn_of_the_loop(file: File) -> None:
    pair = Pair()
    big = FileRegion(file, 0, len(CONTENT))
    count = TURN_BYTES // len(CONTENT) + 2
    taken: list[int] = []
    parts: list[Part] = [big] * count
    pair.outflow.put(parts)

    # A peer that reads faster than the outflow sends: the socket is never full.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, pair.outflow._descriptor)
    os.close(null)
    asyncio.get_running_loop().call_soon(lambda: taken.append(pair.sent))
    pair.outflow.start()
    await pair.until(lambda: bool(pair.finished))

    assert TURN_BYTES <= taken[0] < count * len(CONTENT) == pair.sent
    pair.ours.close()
    pair.theirs.close()


async def test_cold_pages_are_read_in_a_thread_and_nothing_overtakes_them(file: File) -> None:
    threads = Threads()
    pair = Pair(threads.access)
    parts: list[Part] = [b"head", FileRegion(file, 10, 1_500_000), b"between", FileRegion(file, 0, 9)]
    pair.outflow.put(parts)
    pair.outflow.start()
    assert pair.state() is OutflowState.READING
    assert (len(threads.waiting), pair.sent) == (1, 4)
    runs = 0
    while not pair.finished:
        if threads.waiting:
            assert pair.state() is OutflowState.READING
            threads.run()
            runs += 1
        pair.read()
        await asyncio.sleep(0)

    assert runs == 3, "two windows and the second region"
    await pair.until(lambda: len(pair.received) >= pair.sent)
    assert pair.received == content(parts)
    assert pair.is_released()
    pair.theirs.close()


@pytest.mark.parametrize("size", [0, 1_100_000, 2_400_000, len(CONTENT)])
async def test_a_thread_reads_all_of_a_remote_file(file: File, size: int) -> None:
    threads = Threads()
    pair = Pair(threads.access)
    remote = RemoteFile(file.path, os.open(file.path, os.O_RDONLY))
    parts: list[Part] = [b"head", FileRegion(remote, 10, 2_500_000), b"between", FileRegion(remote, 0, 9), b"tail"]
    pair.outflow.put(parts)
    pair.outflow.start()
    file.truncate(size)
    while not (pair.finished or pair.failed):
        if threads.waiting:
            threads.run()
        pair.read()
        await asyncio.sleep(0)
    await pair.until(lambda: len(pair.received) >= pair.sent)

    assert threads.asked == [], "the event loop asks nothing about the file"
    assert bool(pair.finished) is (size == len(CONTENT))
    assert not pair.finished or pair.received + b"".join(pair.finished[0]) == content(parts)
    assert pair.finished or "was truncated" in pair.failed[0]
    pair.ours.close()
    pair.theirs.close()


async def test_what_is_resident_needs_no_thread(file: File) -> None:
    threads = Threads()
    threads.resident_until = len(CONTENT)
    pair = Pair(threads.access)
    pair.outflow.put([FileRegion(file, 3, 2_000_000)])
    pair.outflow.start()
    await pair.until(lambda: bool(pair.finished))

    assert threads.waiting == []
    assert threads.asked[0] == (3, 1 << 20)
    pair.ours.close()
    pair.theirs.close()


async def test_each_window_is_reported_to_read_ahead(file: File) -> None:
    sizes: list[tuple[int, int]] = []

    class Ahead(ReadAhead):
        def reads(self, file: File, descriptor: int, position: int, length: int) -> None:
            sizes.append((position, length))

    pair = Pair(ahead=Ahead(FileAccess()))
    pair.outflow.put([FileRegion(file, 3, 1_500_000), b"between", FileRegion(file, 9, 100)])
    pair.outflow.start()
    await pair.until(lambda: bool(pair.finished))

    assert sizes == [(3, 1 << 20), (3 + (1 << 20), 1_500_000 - (1 << 20)), (9, 100)]
    pair.ours.close()
    pair.theirs.close()


@pytest.mark.parametrize("stage", ["new", "draining", "blocked", "reading", "read"])
async def test_release_at_every_stage_leaves_nothing(file: File, stage: str) -> None:
    threads = Threads()
    threads.resident_until = 0 if stage in ("reading", "read") else len(CONTENT)
    pair = Pair(threads.access)
    if stage != "new":
        pair.outflow.put([b"head", FileRegion(file, 0, 2_000_000)])
    if stage not in ("new", "draining"):
        pair.outflow.start()
    expected = {"blocked": OutflowState.BLOCKED, "reading": OutflowState.READING, "read": OutflowState.READING}
    assert pair.state() is expected.get(stage, OutflowState.DRAINING)
    if stage == "read":
        threads.run()
    pair.outflow.release()
    pair.outflow.release()
    if stage == "reading":
        threads.run()
    sent = pair.sent
    for _ in range(5):
        await asyncio.sleep(0)
    pair.outflow.start()

    assert pair.state() is OutflowState.RELEASED
    assert (pair.sent, pair.finished, pair.failed) == (sent, [], [])
    assert pair.is_released()
    pair.theirs.close()


async def test_a_lost_peer_ends_the_outflow_once(pair: Pair, file: File) -> None:
    pair.outflow.put([FileRegion(file, 0, 2_000_000)])
    pair.outflow.start()
    pair.theirs.close()
    await turns(lambda: bool(pair.failed))

    assert (len(pair.failed), pair.finished) == (1, [])
    assert pair.state() is OutflowState.RELEASED


@pytest.mark.parametrize("left", [0, 10, 1_000_000])
async def test_a_truncated_file_ends_the_outflow(pair: Pair, file: File, left: int) -> None:
    failures: list[StorageError] = []
    pair.outflow.put([b"head", FileRegion(file, 5, 2_000_000, failures.append), b"tail"])
    pair.outflow.start()
    file.truncate(left)
    await pair.until(lambda: bool(pair.failed))

    assert "was truncated" in pair.failed[0]
    assert failures == [], "the disk works"
    assert pair.is_released()
    assert len(pair.received) < 2_000_004


async def test_a_closed_file_ends_the_outflow(pair: Pair, file: File) -> None:
    pair.outflow.put([FileRegion(file, 5, 2_000_000)])
    pair.outflow.start()
    file.close()
    await pair.until(lambda: bool(pair.failed))

    assert "was closed" in pair.failed[0]


async def test_a_file_that_is_closed_during_a_read_is_not_a_disk_failure(file: File) -> None:
    threads = Threads()
    failures: list[StorageError] = []
    pair = Pair(threads.access)
    pair.outflow.put([FileRegion(file, 0, 100, failures.append)])
    pair.outflow.start()
    file.close()
    threads.run()
    await pair.until(lambda: bool(pair.failed))

    assert failures == []
    pair.ours.close()
    pair.theirs.close()


async def test_a_file_that_was_removed_is_sent(pair: Pair, file: File, tmp_path: Path) -> None:
    pair.outflow.put([FileRegion(file, 5, 2_000_000)])
    pair.outflow.start()
    SystemFiles().remove(file.path)
    del file
    await pair.until(lambda: bool(pair.finished))
    await pair.until(lambda: len(pair.received) >= 2_000_000)

    assert pair.received == CONTENT[5:2_000_005]


class Unsendable:
    """A file whose descriptor sendfile rejects: that of a directory."""

    path = "/somewhere"

    def __init__(self, folder: Path, give: Callable[[int, int], bytes]) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY)
        self.pread = give

    is_remote = False

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


async def test_what_sendfile_does_not_take_is_read_in_a_thread(tmp_path: Path) -> None:
    threads = Threads()
    threads.resident_until = 1 << 30
    pair = Pair(threads.access)
    odd: Any = Unsendable(tmp_path, lambda length, position: CONTENT[position : position + length])
    parts: list[Part] = [b"head", FileRegion(odd, 3, 200_000), b"tail"]
    pair.outflow.put(parts)
    pair.outflow.start()
    threads.run()
    await pair.until(lambda: bool(pair.finished))

    assert pair.received + b"".join(pair.finished[0]) == content(parts)
    odd.close()
    pair.ours.close()
    pair.theirs.close()


@pytest.mark.parametrize("resident", [True, False])
async def test_a_disk_failure_is_reported_once(tmp_path: Path, resident: bool) -> None:
    def give(_length: int, _position: int) -> bytes:
        raise StorageError("the disk is gone")

    threads = Threads()
    failures: list[StorageError] = []
    threads.resident_until = 1 << 30 if resident else 0
    pair = Pair(threads.access)
    odd: Any = Unsendable(tmp_path, give)
    pair.outflow.put([FileRegion(odd, 3, 100, failures.append)])
    pair.outflow.start()
    threads.run()
    await pair.until(lambda: bool(pair.failed))

    assert pair.failed == ["the disk is gone"]
    assert len(failures) == 1
    assert pair.is_released()
    odd.close()
    pair.theirs.close()


# With a connection


@asynccontextmanager
async def answering(kit: Any, answers: Sequence[Sequence[Part]], **options: Any) -> AsyncIterator[Any]:
    """A listener that gives these answers in order, and a raw client."""
    left = list(answers)

    def handle(request: Request) -> None:
        request.respond(left.pop(0))

    limits = ListenerOptions(send_buffer_bytes=16 << 10, connection=ConnectionOptions(**options))
    listener = Listener("PLAINTEXT", ("127.0.0.1", 0), handle, kit.ManualClock(), options=limits)
    await listener.start()
    client = socket.create_connection(("127.0.0.1", listener.port))
    client.setblocking(False)
    try:
        yield listener, client
    finally:
        client.close()
        await listener.close(grace_ms=0)


async def read_exactly(client: socket.socket, size: int) -> bytes:
    received = bytearray()
    async with asyncio.timeout(60):
        while len(received) < size:
            piece = await asyncio.get_running_loop().sock_recv(client, min(size - len(received), 10_000))
            assert piece, f"ended after {len(received)} of {size} bytes"
            received += piece
    return bytes(received)


def open_sockets() -> int:
    """Return the number of socket descriptors of this process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


async def turns(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- the condition is the kernel's to bring about
            await asyncio.sleep(0)


async def test_answers_arrive_in_order_and_are_counted(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [
        [b"x" * 3_000_000],
        [b"1", FileRegion(file, 0, 3_000_000), b"2", FileRegion(file, 9, 100), b"3"],
        [b"4"],
        [b"5", FileRegion(file, 9, 1_000_000), b"6" * 2_000_000],
        [b"7", b"8"],
    ]
    async with answering(kit, answers) as (listener, client):
        await asyncio.get_running_loop().sock_sendall(client, b"".join(map(kit.produce, range(5))))
        expected = b"".join(map(content, answers))

        assert await read_exactly(client, len(expected)) == expected
        await turns(lambda: listener.counters.bytes_out == len(expected))


@pytest.mark.parametrize(("most", "asked"), [(1 << 20, [(2_000_000, 1 << 20)]), (0, [])])
async def test_a_connection_reads_ahead_over_its_answers(
    kit: Any, file: File, most: int, asked: list[tuple[int, int]]
) -> None:
    sizes: list[tuple[int, int]] = []

    def at_once(_path: str, job: Callable[[], Any]) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(job())
        return done

    access = FileAccess(
        read=at_once,
        read_ahead_bytes=most,
        is_resident=lambda _descriptor, position, _length: position < 2_000_000,
        will_need=lambda _descriptor, position, length: sizes.append((position, length)),
    )
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, 1_000_000)], [b"2", FileRegion(file, 1_000_000, 1_000_000)]]
    async with answering(kit, answers, files=access) as (_, client):
        for number, answer in enumerate(answers):
            await asyncio.get_running_loop().sock_sendall(client, kit.produce(number))
            assert await read_exactly(client, 1_000_001) == content(answer)
        assert sizes == asked, "before the last bytes left"


async def test_no_request_is_accepted_while_a_response_is_blocked(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, 5_000_000)], [b"2"]]
    async with answering(kit, answers, write_high_water_bytes=100_000_000) as (listener, client):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, kit.produce(1))
        await turns(lambda: listener.counters.bytes_out > 1)
        await loop.sock_sendall(client, kit.produce(2))
        await turns(lambda: listener.counters.bytes_in == 2 * len(kit.produce(1)))
        assert listener.counters.requests == 1

        assert await read_exactly(client, 5_000_002) == content(answers[0]) + b"2"


async def test_a_client_that_closed_its_side_still_gets_pending_responses(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, 5_000_000), b"2"]]
    async with answering(kit, answers) as (listener, client):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, kit.produce(1))
        await turns(lambda: listener.counters.bytes_out > 1)
        client.shutdown(socket.SHUT_WR)

        assert await read_exactly(client, 5_000_002) == content(answers[0])
        assert await loop.sock_recv(client, 1) == b""
        await turns(lambda: not listener.connections)


async def test_close_sends_pending_responses(kit: Any, file: File) -> None:
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, 5_000_000), b"2"]]
    async with answering(kit, answers) as (listener, client):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, kit.produce(1))
        await turns(lambda: listener.counters.bytes_out > 1)
        for connection in listener.connections:
            connection.close()

        assert await read_exactly(client, 5_000_002) == content(answers[0])
        assert await loop.sock_recv(client, 1) == b""


@pytest.mark.parametrize("how", ["abort", "client", "cut"])
async def test_an_end_in_the_middle_leaves_nothing(kit: Any, file: File, how: str) -> None:
    before = open_sockets()
    answers: list[list[Part]] = [[b"1", FileRegion(file, 0, 5_000_000), b"2"]]
    async with answering(kit, answers) as (listener, client):
        await asyncio.get_running_loop().sock_sendall(client, kit.produce(1))
        await turns(lambda: listener.counters.bytes_out > 1)
        if how == "abort":
            (connection,) = listener.connections
            connection.abort("enough")
        elif how == "client":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.close()
        else:
            file.truncate(100)
            received = 0
            try:
                while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                    received += len(piece)
            except ConnectionResetError:
                pass
            assert received < 5_000_002
        await turns(lambda: not listener.connections)
    assert open_sockets() == before


# Without a socket


async def test_without_a_socket_the_bytes_are_read(kit: Any, file: File) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1))
    answer: list[Part] = [b"head", FileRegion(file, 4, 2_000), b"tail"]
    peer.requests[0].respond(answer)
    assert peer.transport.written == content(answer)


async def test_without_a_socket_a_truncated_file_ends_the_connection(kit: Any, file: File) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1))
    file.truncate(1_000)
    peer.requests[0].respond([b"head", FileRegion(file, 4, 2_000), b"tail"])
    assert (bytes(peer.transport.written), peer.transport.aborted) == (b"", True)


async def test_without_a_socket_a_disk_failure_is_reported(kit: Any, file: File) -> None:
    failures: list[StorageError] = []
    peer = kit.Peer()
    peer.send(kit.produce(1))
    file.close()
    peer.requests[0].respond([b"head", FileRegion(file, 4, 2_000, failures.append), b"tail"])
    assert peer.transport.aborted
    assert len(failures) == 1
