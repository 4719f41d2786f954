"""The ZooKeeper port against a real server: what every form of it must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.zk.client import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    KazooZkClient,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    SessionState,
    SetData,
    ZkError,
    ZkSettings,
)

pytestmark = pytest.mark.java

Connect = Callable[[], "asyncio.Future[KazooZkClient]"]


@pytest.fixture
def connect_string(zookeeper: str) -> str:
    return f"{zookeeper}/{uuid4().hex}/deep"


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
    """End the client's session behind its back: whoever knows id and password may close it."""
    thief = KazooClient(hosts=connect_string.partition("/")[0], client_id=client.credentials)

    def steal() -> None:
        thief.start()
        thief.stop()
        thief.close()

    await asyncio.to_thread(steal)


class Events:
    """Collects session events and lets a test wait for one."""

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


class Signal:
    """A callback that counts and can be awaited, until the watch that called it is armed again."""

    def __init__(self, client: KazooZkClient) -> None:
        self.count = 0
        self._client = client
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def reaches(self, count: int) -> None:
        while self.count < count:
            self._event.clear()
            await self._event.wait()
        await self._client.sync()


async def test_a_znode_lives_through_create_get_set_delete(client: KazooZkClient) -> None:
    created = await client.create("/a", b"one")
    assert created.path == "/a"
    assert await client.get("/a") == (b"one", created.stat)
    changed = await client.set("/a", b"two", created.stat.version)
    assert changed.version == created.stat.version + 1
    assert changed.czxid == created.stat.czxid
    with pytest.raises(BadVersion, match=r"^/a"):
        await client.set("/a", b"three", created.stat.version)
    with pytest.raises(BadVersion):
        await client.delete("/a", created.stat.version)
    await client.delete("/a", changed.version)
    assert await client.exists("/a") is None
    assert await client.get_or_none("/a") is None
    with pytest.raises(NoNode, match=r"^/a"):
        await client.get("/a")


async def test_create_refuses_what_exists_and_makes_parents_only_when_told(client: KazooZkClient) -> None:
    with pytest.raises(NoNode):
        await client.create("/p/q/r", b"x")
    await client.create("/p/q/r", b"x", make_parents=True)
    with pytest.raises(NodeExists):
        await client.create("/p/q/r", b"y")
    with pytest.raises(NotEmpty):
        await client.delete("/p/q")
    await client.ensure_path("/p/q/s")
    await client.ensure_path("/p/q/s")
    assert await client.children("/p/q") == ["r", "s"]
    assert await client.get_or_none("/p") is not None
    assert await client.children_or_none("/nothing") is None


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


async def test_sequential_and_ephemeral_znodes(client: KazooZkClient, other: KazooZkClient) -> None:
    first = await other.create("/n_", b"", sequential=True)
    second = await other.create("/n_", b"", sequential=True)
    assert first.path == "/n_0000000000"
    assert second.path == "/n_0000000001"
    created = await other.create("/mine", b"", ephemeral=True)
    assert created.stat.ephemeral_owner == other.session_id != 0
    gone = Signal(client)
    client.watch_data("/mine", gone)
    await client.sync()
    await other.close()
    await gone.reaches(1)
    assert await client.exists("/mine") is None
    assert await client.exists(first.path) is not None


async def test_a_transaction_is_whole_or_nothing(client: KazooZkClient) -> None:
    epoch = (await client.create("/epoch", b"1")).stat
    results = await client.multi(
        [
            Check("/epoch", epoch.version),
            Create("/t", None),
            Create("/t/x", b"1"),
            SetData("/epoch", b"2", epoch.version),
            Delete("/t/x"),
        ]
    )
    assert results[0] is None
    assert results[1] == "/t"
    assert results[3] is not None and not isinstance(results[3], str) and results[3].version == epoch.version + 1
    with pytest.raises(BadVersion, match=r"^/epoch"):
        await client.multi([Create("/u", b""), Check("/epoch", epoch.version), Create("/v", b"")])
    assert await client.exists("/u") is None


async def test_many_transactions_stand_each_alone(client: KazooZkClient) -> None:
    outcomes = await client.multi_many([[Create(f"/m{n}", b"")] for n in (1, 2, 1, 3)])
    assert [type(outcome) for outcome in outcomes] == [list, list, NodeExists, list]
    assert await client.multi_many([]) == []


async def test_many_reads_tell_what_is_missing(connect_string: str) -> None:
    client = KazooZkClient(ZkSettings(connect=connect_string, max_in_flight=3))
    await client.start()
    for number in range(10):
        await client.create(f"/k{number}", b"%d" % number)
    found = await client.get_many([f"/k{number}" for number in range(12)])
    assert [None if value is None else value[0] for value in found.values()] == [
        *(b"%d" % number for number in range(10)),
        None,
        None,
    ]
    await client.create("/k1/child", b"")
    assert await client.children_many(["/k1", "/k2", "/k99"]) == {"/k1": ["child"], "/k2": [], "/k99": None}
    await client.close()


async def test_a_data_watch_sees_creation_changes_and_deletion(client: KazooZkClient, other: KazooZkClient) -> None:
    signal = Signal(client)
    watch = client.watch_data("/w", signal)
    await client.sync()
    await other.create("/w", b"0")
    await signal.reaches(1)
    await other.set("/w", b"1")
    await signal.reaches(2)
    await other.delete("/w")
    await signal.reaches(3)
    watch.cancel()
    await other.create("/w", b"2")
    await client.sync()
    await client.get("/w")
    assert signal.count == 3


async def test_reading_on_a_watch_never_misses_the_last_change(client: KazooZkClient, other: KazooZkClient) -> None:
    await other.create("/counter", b"0")
    seen: list[bytes] = []
    reads: list[asyncio.Task[None]] = []
    final = asyncio.Event()

    async def read() -> None:
        seen.append((await client.get("/counter"))[0])
        if seen[-1] == b"200":
            final.set()

    client.watch_data("/counter", lambda: reads.append(asyncio.ensure_future(read())))
    for number in range(1, 201):
        await other.set("/counter", b"%d" % number)
    await final.wait()
    assert [int(value) for value in seen] == sorted(int(value) for value in seen)
    await asyncio.gather(*reads)


async def test_a_child_watch_starts_before_its_parent_exists(client: KazooZkClient, other: KazooZkClient) -> None:
    signal = Signal(client)
    client.watch_children("/parent", signal)
    await client.sync()
    await other.create("/parent", None)
    await signal.reaches(1)
    await other.create("/parent/a", b"")
    await signal.reaches(2)
    await other.create("/parent/b", b"")
    await signal.reaches(3)
    assert await client.children("/parent") == ["a", "b"]


async def test_an_expired_session_is_told_and_replaced(client: KazooZkClient, connect_string: str) -> None:
    events = Events(client)
    signal = Signal(client)
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
    client: KazooZkClient, other: KazooZkClient
) -> None:
    events = Events(client)
    signal = Signal(client)
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


async def test_no_server_is_told_within_the_connection_timeout(unused_tcp_port_factory: Callable[[], int]) -> None:
    port = unused_tcp_port_factory()
    client = KazooZkClient(ZkSettings(connect=f"127.0.0.1:{port}", connection_timeout_ms=200))
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
        await client.start()
    assert client.state is SessionState.CLOSED


async def test_after_close_everything_fails_and_close_is_idempotent(client: KazooZkClient) -> None:
    await client.close()
    await client.close()
    with pytest.raises(ConnectionLost):
        await client.get("/a")
    with pytest.raises(ZkError):
        await client.multi([Create("/a", b"")])
    with pytest.raises(ConnectionLost):
        await client.multi_many([[Create("/a", b"")]])
