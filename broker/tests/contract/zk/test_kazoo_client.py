"""Features of the real client only: connections, session expiry, a chroot, and limits of requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from odradek.base.errors import ConfigError
from odradek.zk.kazoo_client import (
    ConnectionLost,
    Create,
    InvalidPath,
    KazooZkClient,
    SessionEvent,
    SessionState,
    ZkClient,
    ZkSettings,
)

pytestmark = pytest.mark.java

SignalOf = Callable[[ZkClient], Any]


@pytest.fixture
async def client(connect_string: str) -> AsyncIterator[KazooZkClient]:
    client = KazooZkClient(ZkSettings(connect=connect_string, session_timeout_ms=6_000))
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def other(connect_string: str) -> AsyncIterator[KazooZkClient]:
    client = KazooZkClient(ZkSettings(connect=connect_string, session_timeout_ms=6_000))
    await client.start()
    yield client
    await client.close()


async def expire_session(client: KazooZkClient, connect_string: str) -> None:
    """End the client's session with another connection that has its id and password."""
    second_client = KazooClient(hosts=connect_string.partition("/")[0], client_id=client.credentials)

    def steal() -> None:
        second_client.start()
        second_client.stop()
        second_client.close()

    await asyncio.to_thread(steal)


class Events:
    """Collects session events; a test can wait for one."""

    def __init__(self, client: KazooZkClient) -> None:
        self.seen: list[SessionEvent] = []
        self._arrived = asyncio.Event()
        client.on_session(self._add)

    def _add(self, event: SessionEvent) -> None:
        self.seen.append(event)
        self._arrived.set()

    async def until(self, event: SessionEvent) -> None:
        while event not in self.seen:
            self._arrived.clear()
            await self._arrived.wait()


async def test_paths_are_those_below_the_chroot(client: KazooZkClient, connect_string: str) -> None:
    created = await client.create("/a", b"x")
    chroot = "/" + connect_string.partition("/")[2]
    outside = KazooZkClient(ZkSettings(connect=connect_string.partition("/")[0], session_timeout_ms=6_000))
    await outside.start()
    try:
        assert created.path == "/a"
        assert await outside.get(f"{chroot}/a") == (b"x", created.stat)
    finally:
        await outside.close()


@pytest.mark.parametrize("path", ["a", "", "./a", "/a/../b", "/.", "/.."])
async def test_a_path_that_could_leave_the_chroot_is_refused_and_nothing_else_fails(
    client: KazooZkClient, path: str
) -> None:
    refusals: list[Callable[[], Awaitable[object]]] = [
        lambda: client.get(path),
        lambda: client.create(path, make_parents=True),
        lambda: client.create(path, sequential=True),
        lambda: client.ensure_path(path),
        lambda: client.get_many(["/a", path]),
    ]
    if not path.startswith("/"):
        refusals.append(lambda: client.multi([Create("/b"), Create(path)]))
    for refusal in refusals:
        with pytest.raises(InvalidPath) as caught:
            await refusal()
        assert caught.value.path == path
    with pytest.raises(InvalidPath):
        client.watch_data(path, lambda: None)
    assert await client.get_or_none("/b") is None


async def test_a_limit_of_requests_in_flight_changes_no_answer(connect_string: str) -> None:
    client = KazooZkClient(ZkSettings(connect=connect_string, max_in_flight=3))
    await client.start()
    try:
        for number in range(10):
            await client.create(f"/k{number}", b"%d" % number)
        found = await client.get_many([f"/k{number}" for number in range(12)])
    finally:
        await client.close()
    values = [None if value is None else value[0] for value in found.values()]
    assert values == [*(b"%d" % number for number in range(10)), None, None]


async def test_empty_znodes_have_no_data_as_kafka_expects_of_them(client: KazooZkClient, connect_string: str) -> None:
    await client.ensure_path("/empty")
    await client.create("/zero", b"")
    raw = KazooClient(hosts=connect_string)
    await asyncio.to_thread(raw.start)
    try:
        assert (await asyncio.to_thread(raw.get, "/empty"))[0] is None
        assert (await asyncio.to_thread(raw.get, "/zero"))[0] == b""
    finally:
        await asyncio.to_thread(raw.stop)
        await asyncio.to_thread(raw.close)
    assert (await client.get("/empty"))[0] == b""


async def test_an_expired_session_is_reported_and_replaced(
    client: KazooZkClient, connect_string: str, signal_of: SignalOf
) -> None:
    events = Events(client)
    signal = signal_of(client)
    client.watch_data("/e", signal)
    await client.create("/e", b"", ephemeral=True)
    await signal.reaches(1)
    old = client.session_id
    await expire_session(client, connect_string)
    await events.until(SessionEvent.ESTABLISHED)
    assert events.seen == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.ESTABLISHED]
    assert client.session_id != old
    assert await client.exists("/e") is None
    await signal.reaches(2)
    await client.create("/e", b"", ephemeral=True)
    await signal.reaches(3)


async def test_a_dropped_connection_resumes_the_session_and_its_watches(
    client: KazooZkClient, other: KazooZkClient, signal_of: SignalOf
) -> None:
    events = Events(client)
    signal = signal_of(client)
    client.watch_data("/d", signal)
    await client.create("/d", b"", ephemeral=True)
    await signal.reaches(1)
    kazoo = client._kazoo
    assert kazoo is not None
    kazoo._connection._socket.shutdown(2)
    await events.until(SessionEvent.SUSPENDED)
    await other.set("/d", b"while away")
    await events.until(SessionEvent.RESUMED)
    await signal.reaches(2)
    assert (await client.get("/d"))[0] == b"while away"
    assert SessionEvent.EXPIRED not in events.seen


@pytest.mark.parametrize("connect", ["", "/kafka", "host:port", "a:1,,b:2"])
async def test_a_connect_string_without_servers_is_refused(connect: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect="):
        KazooZkClient(ZkSettings(connect=connect))


async def test_an_unreachable_ensemble_is_reported_within_the_connection_timeout(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    port = unused_tcp_port_factory()
    client = KazooZkClient(ZkSettings(connect=f"127.0.0.1:{port}", connection_timeout_ms=200))
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
        await client.start()
    assert client.state is SessionState.CLOSED
