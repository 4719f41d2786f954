"""The contract of the ZooKeeper port, tested with the real client on a real server and with the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionEvent,
    SessionState,
    SetData,
    TooLarge,
    ZkClient,
    ZkError,
    ZkSettings,
    ZnodeStat,
)
from odradek_testkit.net import SimulatedNetwork
from odradek_testkit.zookeeper import SimulatedEnsemble, SimulatedZk

Connect = Callable[[], Awaitable[ZkClient]]
SignalOf = Callable[[ZkClient], Any]


@pytest.fixture(params=[pytest.param("kazoo", marks=pytest.mark.java), "memory", "simulated"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Opens another session on the tree of this test."""
    if request.param == "memory":
        tree = MemoryTree()

        async def open_memory() -> ZkClient:
            return MemoryZk(tree)

        return open_memory

    if request.param == "simulated":
        ensembles: list[SimulatedEnsemble] = []

        async def open_simulated() -> ZkClient:
            if not ensembles:
                ensembles.append(SimulatedEnsemble(SimulatedNetwork(asyncio.get_running_loop(), seed=0)))
            client = SimulatedZk(ensembles[0], ZkSettings(connect="simulated"))
            await client.start()
            return client

        return open_simulated

    settings = ZkSettings(connect=request.getfixturevalue("connect_string"), session_timeout_ms=6_000)

    async def open_kazoo() -> ZkClient:
        client = KazooZkClient(settings)
        await client.start()
        return client

    return open_kazoo


@pytest.fixture
async def client(connect: Connect) -> AsyncIterator[ZkClient]:
    client = await connect()
    yield client
    await client.close()


@pytest.fixture
async def other(connect: Connect) -> AsyncIterator[ZkClient]:
    client = await connect()
    yield client
    await client.close()


async def stat_of(client: ZkClient, path: str) -> ZnodeStat:
    stat = await client.exists(path)
    assert stat is not None
    return stat


class TestZnodes:
    async def test_a_znode_lives_through_create_get_set_delete(self, client: ZkClient) -> None:
        created = await client.create("/a", b"one")
        assert created.path == "/a"
        assert await client.get("/a") == (b"one", created.stat)
        changed = await client.set("/a", b"two", created.stat.version)
        assert await client.get_or_none("/a") == (b"two", changed)
        assert await client.exists("/a") == changed
        with pytest.raises(BadVersion):
            await client.set("/a", b"three", created.stat.version)
        with pytest.raises(BadVersion):
            await client.delete("/a", created.stat.version)
        await client.delete("/a", changed.version)
        assert await client.exists("/a") is None
        assert await client.get_or_none("/a") is None

    async def test_any_version_is_accepted_without_a_condition(self, client: ZkClient) -> None:
        await client.create("/a", b"0")
        await client.set("/a", b"1")
        assert (await client.set("/a", b"2", ANY_VERSION)).version == 2
        await client.delete("/a")
        assert (await client.create("/a", b"again")).stat.version == 0

    async def test_a_stat_has_versions_times_and_owner(self, client: ZkClient) -> None:
        created = (await client.create("/a", b"one")).stat
        assert created.czxid == created.mzxid == created.pzxid
        assert created.ctime_ms == created.mtime_ms
        assert created[4:10] == (0, 0, 0, 0, 3, 0)
        changed = await client.set("/a", b"longer")
        assert (changed.czxid, changed.pzxid, changed.ctime_ms) == (created.czxid, created.pzxid, created.ctime_ms)
        assert changed.mzxid > created.mzxid and changed.mtime_ms >= created.mtime_ms
        assert changed[4:10] == (1, 0, 0, 0, 6, 0)
        child = (await client.create("/a/b")).stat
        parent = await stat_of(client, "/a")
        assert (parent.mzxid, parent.pzxid) == (changed.mzxid, child.czxid)
        assert parent[4:10] == (1, 1, 0, 0, 6, 1)
        await client.set("/a/b", b"x")
        assert await stat_of(client, "/a") == parent
        await client.delete("/a/b")
        after = await stat_of(client, "/a")
        assert after.pzxid > parent.pzxid
        assert after[4:10] == (1, 2, 0, 0, 6, 0)

    async def test_no_data_reads_as_empty(self, client: ZkClient) -> None:
        await client.create("/none")
        assert (await client.get("/none"))[0] == b""
        assert (await stat_of(client, "/none")).data_length == 0

    async def test_parents_are_created_only_on_request(self, client: ZkClient) -> None:
        with pytest.raises(NoNode):
            await client.create("/p/q/r", b"x")
        assert (await client.create("/p/q/r", b"x", make_parents=True)).path == "/p/q/r"
        await client.create("/p/q/t", b"x", make_parents=True)
        await client.ensure_path("/p/q/s")
        await client.ensure_path("/p/q/s")
        assert await client.children("/p/q") == ["r", "s", "t"]
        assert await client.children("/p") == ["q"]
        assert await client.children("/p/q/r") == []
        assert (await client.get("/p"))[0] == b""

    async def test_the_root_is_there(self, client: ZkClient) -> None:
        await client.ensure_path("/")
        assert await client.children("/") == []
        await client.create("/b")
        await client.create("/a")
        assert await client.children("/") == ["a", "b"]
        assert (await client.get("/"))[0] == b""
        assert (await stat_of(client, "/")).num_children == 2
        with pytest.raises(NodeExists):
            await client.create("/")

    async def test_names_with_a_common_beginning_are_no_children_of_each_other(self, client: ZkClient) -> None:
        for path in ("/a", "/ab", "/a/b", "/a/b/c"):
            await client.create(path)
        assert await client.children("/a") == ["b"]
        await client.delete("/ab")
        assert await client.children("/") == ["a"]

    async def test_many_reads_tell_what_is_missing(self, client: ZkClient) -> None:
        for name in "abc":
            await client.create(f"/{name}", name.encode())
        await client.create("/a/child")
        found = await client.get_many(["/c", "/missing", "/a", "/c"])
        assert list(found) == ["/c", "/missing", "/a"]
        assert found == {path: await client.get_or_none(path) for path in ("/a", "/c", "/missing")}
        assert await client.children_many(["/a", "/b", "/z"]) == {"/a": ["child"], "/b": [], "/z": None}
        assert await client.children_or_none("/a") == ["child"]
        assert await client.children_or_none("/z") is None
        assert await client.get_many([]) == {}
        assert await client.children_many([]) == {}

    async def test_acls_are_reset_without_another_change(self, client: ZkClient) -> None:
        await client.create("/a", b"data")
        _, before = await client.get("/a")
        await client.reset_acls(["/a", "/missing"])
        await client.reset_acls([])
        assert await client.get("/a") == (b"data", before._replace(aversion=before.aversion + 1))

    async def test_single_operations_forgive_empty_parts_of_a_path_but_no_relative_ones(self, client: ZkClient) -> None:
        await client.create("/a//b/", b"x", make_parents=True)
        assert (await client.get("/a/b/"))[0] == b"x"
        assert await client.children("/a/") == ["b"]
        assert (await client.set("//a/b", b"y")).version == 1
        await client.delete("/a/b/")
        assert await client.children_or_none("/a") == []
        for path in ("/a/../a", "/./a"):
            with pytest.raises(ValueError, match=r"relative|absolute"):
                await client.get(path)


class TestErrors:
    """Return class and requested path of each operation."""

    @pytest.fixture(autouse=True)
    async def tree(self, client: ZkClient) -> None:
        await client.create("/full")
        await client.create("/full/child", b"x")

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Create("/full"), NodeExists),
            (Create("/none/child"), NoNode),
            (Create("/none/child-", sequential=True), NoNode),
            (SetData("/none", b""), NoNode),
            (SetData("/none", b"", 3), NoNode),
            (SetData("/full/child", b"", 1), BadVersion),
            (Delete("/none"), NoNode),
            (Delete("/full"), NotEmpty),
            (Delete("/full", 1), BadVersion),
            (Check("/none", 0), NoNode),
            (Check("/none", ANY_VERSION), NoNode),
            (Check("/full", 1), BadVersion),
        ],
        ids=str,
    )
    async def test_of_a_write_alone_and_in_a_transaction(
        self, client: ZkClient, operation: Operation, error: type[ZkError]
    ) -> None:
        with pytest.raises(ZkError) as caught:
            await client.multi([Check("/full", 0), operation, Create("/full")])
        assert (type(caught.value), caught.value.path) == (error, operation.path)
        with pytest.raises(ZkError) as caught:
            match operation:
                case Create(path, data, ephemeral, sequential):
                    await client.create(path, data, ephemeral=ephemeral, sequential=sequential)
                case SetData(path, data, version):
                    await client.set(path, data, version)
                case Delete(path, version):
                    await client.delete(path, version)
                case Check():
                    await client.multi([operation])
        assert (type(caught.value), caught.value.path) == (error, operation.path)

    async def test_of_a_read(self, client: ZkClient) -> None:
        with pytest.raises(NoNode, match=r"^/none: ") as caught:
            await client.get("/none")
        assert caught.value.path == "/none"
        with pytest.raises(NoNode, match=r"^/none/deep: ") as caught:
            await client.children("/none/deep")
        assert caught.value.path == "/none/deep"

    async def test_an_ephemeral_znode_has_no_children(self, client: ZkClient) -> None:
        await client.create("/e", ephemeral=True)
        with pytest.raises(ZkError) as caught:
            await client.create("/e/child")
        assert (type(caught.value), caught.value.path) == (ZkError, "/e/child")

    @pytest.mark.parametrize(
        ("path", "error"), [("/full/", ZkError), ("/full/.", ZkError), ("/full/..", ZkError), ("/full//x", NoNode)]
    )
    async def test_transactions_create_no_odd_paths(self, client: ZkClient, path: str, error: type[ZkError]) -> None:
        with pytest.raises(ZkError) as caught:
            await client.multi([Create(path)])
        assert (type(caught.value), caught.value.path) == (error, path)


class TestSequentialAndEphemeral:
    async def test_the_number_counts_the_children_ever_made(self, client: ZkClient) -> None:
        assert (await client.create("/n_", b"", sequential=True)).path == "/n_0000000000"
        await client.create("/plain")
        await client.delete("/plain")
        with pytest.raises(NodeExists):
            await client.create("/n_0000000000")
        assert (await client.create("/m_", b"", sequential=True)).path == "/m_0000000002"
        await client.create("/deep")
        assert (await client.create("/deep/", b"x", sequential=True, make_parents=True)).path == "/deep/0000000000"
        assert (await client.create("/", sequential=True)).path == "/0000000004"

    async def test_an_existing_sequential_name_is_reported_with_the_requested_path(self, client: ZkClient) -> None:
        await client.create("/n_0000000001")
        with pytest.raises(NodeExists) as caught:
            await client.create("/n_", sequential=True)
        assert caught.value.path == "/n_"

    async def test_transactions_number_too_and_a_failed_one_uses_no_number(self, client: ZkClient) -> None:
        with pytest.raises(NoNode):
            await client.multi([Create("/n_", sequential=True), Check("/none", 0)])
        results = await client.multi([Create("/n_", sequential=True), Create("/n_", sequential=True)])
        assert results == ["/n_0000000000", "/n_0000000001"]

    async def test_ephemeral_znodes_go_with_their_session(
        self, client: ZkClient, other: ZkClient, signal_of: SignalOf
    ) -> None:
        assert client.session_id != other.session_id
        await client.create("/ids")
        await other.create("/ids/kept")
        created = await other.create("/ids/mine", b"", ephemeral=True)
        assert created.stat.ephemeral_owner == other.session_id != 0
        await other.multi([Create("/ids/too", b"", ephemeral=True)])
        own = await client.create("/own", ephemeral=True)
        gone, fewer = signal_of(client), signal_of(client)
        client.watch_data("/ids/mine", gone)
        client.watch_children("/ids", fewer)
        await gone.settle()
        await other.close()
        await gone.reaches(1)
        await fewer.reaches(1)
        assert await client.children("/ids") == ["kept"]
        assert await client.exists("/own") == own.stat


class TestTransactions:
    async def test_all_is_done_in_order_under_one_zxid(self, client: ZkClient) -> None:
        epoch = (await client.create("/epoch", b"1")).stat
        results = await client.multi(
            [
                Check("/epoch", epoch.version),
                Create("/t", None),
                Create("/t/x", b"1"),
                SetData("/epoch", b"2", epoch.version),
                Check("/epoch", epoch.version + 1),
                Delete("/t/x"),
            ]
        )
        changed = await stat_of(client, "/epoch")
        assert results == [None, "/t", "/t/x", changed, None, None]
        made = await stat_of(client, "/t")
        assert changed.mzxid == made.czxid == made.pzxid > epoch.mzxid
        assert (made.num_children, made.cversion) == (0, 2)

    async def test_nothing_is_done_when_one_fails(self, client: ZkClient) -> None:
        await client.create("/epoch", b"1")
        await client.create("/old", b"1")
        before = [await stat_of(client, path) for path in ("/", "/epoch", "/old")]
        with pytest.raises(BadVersion):
            await client.multi(
                [Create("/u"), SetData("/epoch", b"2"), Delete("/old"), Check("/epoch", 0), Create("/epoch")]
            )
        assert await client.exists("/u") is None
        assert await client.get_many(["/epoch", "/old"]) == {
            "/epoch": (b"1", before[1]),
            "/old": (b"1", before[2]),
        }
        assert await stat_of(client, "/") == before[0]

    async def test_an_empty_one_does_nothing(self, client: ZkClient) -> None:
        assert await client.multi([]) == []

    async def test_many_stand_each_alone(self, client: ZkClient) -> None:
        outcomes = await client.multi_many([[Create(f"/m{n}"), Create(f"/m{n}/x")] for n in (1, 2, 1, 3)])
        assert outcomes[:2] == [["/m1", "/m1/x"], ["/m2", "/m2/x"]]
        assert isinstance(outcomes[2], NodeExists) and outcomes[2].path == "/m1"
        assert outcomes[3] == ["/m3", "/m3/x"]
        assert await client.multi_many([]) == []

    async def test_a_write_that_is_too_large_is_refused_and_the_session_stays(self, client: ZkClient) -> None:
        fits, large = b"x" * (MAX_REQUEST_BYTES - 400), b"x" * MAX_REQUEST_BYTES
        session = client.session_id
        await client.create("/a", fits)
        await client.set("/a", fits)
        assert len(await client.multi([Create("/b", fits[:-200]), Check("/a", 1)])) == 2
        for attempt in (
            client.create("/c", large),
            client.set("/a", large),
            client.multi([Check("/a", 1), SetData("/a", large)]),
        ):
            with pytest.raises(TooLarge) as caught:
                await attempt
            assert caught.value.path in ("/a", "/c")
        outcomes = await client.multi_many([[SetData("/a", large)], [SetData("/a", b"")]])
        assert isinstance(outcomes[0], TooLarge) and not isinstance(outcomes[1], ZkError)
        assert (client.state, client.session_id) == (SessionState.CONNECTED, session)
        assert await client.exists("/c") is None


class TestWatches:
    async def test_a_data_watch_sees_creation_changes_and_deletion(
        self, client: ZkClient, other: ZkClient, signal_of: SignalOf
    ) -> None:
        signal = signal_of(client)
        watch = client.watch_data("/w", signal)
        await signal.settle()
        await other.create("/w", b"0")
        await signal.reaches(1)
        await other.set("/w", b"1")
        await signal.reaches(2)
        await other.create("/w/child")
        await other.delete("/w/child")
        await other.delete("/w")
        await signal.reaches(3)
        watch.cancel()
        watch.cancel()
        await other.create("/w", b"2")
        await signal.settle()
        assert signal.count == 3

    async def test_a_child_watch_sees_its_parent_and_the_set_come_and_go(
        self, client: ZkClient, other: ZkClient, signal_of: SignalOf
    ) -> None:
        signal = signal_of(client)
        watch = client.watch_children("/parent", signal)
        await signal.settle()
        await other.create("/parent", None)
        await signal.reaches(1)
        await other.create("/parent/a", b"")
        await signal.reaches(2)
        await other.set("/parent", b"no change of the set")
        await other.set("/parent/a", b"nor this")
        await other.create("/parent/a/deeper")
        await other.delete("/parent/a/deeper")
        await other.delete("/parent/a")
        await signal.reaches(3)
        await other.delete("/parent")
        await signal.reaches(4)
        await other.create("/parent")
        await signal.reaches(5)
        watch.cancel()
        await other.create("/parent/b")
        await signal.settle()
        assert signal.count == 5

    async def test_the_root_can_be_watched(self, client: ZkClient, other: ZkClient, signal_of: SignalOf) -> None:
        signal = signal_of(client)
        client.watch_children("/", signal)
        await signal.settle()
        await other.create("/a")
        await signal.reaches(1)
        assert signal.count == 1

    async def test_failed_operations_and_checks_notify_no_watch(
        self, client: ZkClient, other: ZkClient, signal_of: SignalOf
    ) -> None:
        await client.create("/w")
        data, children = signal_of(client), signal_of(client)
        client.watch_data("/w", data)
        client.watch_children("/w", children)
        await data.settle()
        with pytest.raises(NoNode):
            await other.multi([SetData("/w", b""), Create("/w/x"), Check("/none", 0)])
        await other.multi([Check("/w", 0)])
        with pytest.raises(BadVersion):
            await other.set("/w", b"", 9)
        await data.settle()
        assert (data.count, children.count) == (0, 0)

    async def test_a_transaction_notifies_each_watch_once_in_the_order_of_its_operations(
        self, client: ZkClient, other: ZkClient, signal_of: SignalOf
    ) -> None:
        await client.create("/b")
        fired: list[str] = []
        client.watch_data("/b", lambda: fired.append("b"))
        client.watch_children("/p", lambda: fired.append("p's children"))
        client.watch_data("/p/n_0000000000", lambda: fired.append("n"))
        await signal_of(client).settle()
        await other.multi(
            [Create("/p"), Create("/p/n_", sequential=True), SetData("/b", b"1"), SetData("/b", b"2"), Create("/p/m")]
        )
        await signal_of(client).settle()
        assert fired == ["p's children", "n", "b"]

    async def test_a_session_is_notified_of_its_own_write_before_the_answer(self, client: ZkClient) -> None:
        fired: list[str] = []
        client.watch_data("/w", lambda: fired.append("watch"))
        before = await client.create("/w")
        assert (before.path, fired) == ("/w", ["watch"])
        write = asyncio.ensure_future(client.set("/w", b"1"))
        write.add_done_callback(lambda _: fired.append("answer"))
        await write
        await client.exists("/w")
        assert fired == ["watch", "watch", "answer"]

    async def test_a_watch_cancelled_by_another_is_not_called(self, client: ZkClient, signal_of: SignalOf) -> None:
        signal = signal_of(client)
        await client.create("/w")
        later = client.watch_data("/second", signal)
        client.watch_data("/first", lambda: later.cancel())
        await client.multi([Create("/first"), Create("/second")])
        await signal.settle()
        assert signal.count == 0

    async def test_a_failing_callback_affects_neither_the_write_nor_other_callbacks(
        self, client: ZkClient, signal_of: SignalOf
    ) -> None:
        signal = signal_of(client)
        client.watch_data("/w", lambda: next(iter(())))
        client.watch_data("/w", signal)
        await client.create("/w")
        await signal.reaches(1)
        await client.set("/w", b"1")
        await signal.reaches(2)

    async def test_reading_on_a_watch_never_misses_the_last_change(self, client: ZkClient, other: ZkClient) -> None:
        await other.create("/counter", b"0")
        seen: list[int] = []
        reads: list[asyncio.Task[None]] = []
        final = asyncio.Event()

        async def read() -> None:
            seen.append(int((await client.get("/counter"))[0]))
            if seen[-1] == 200:
                final.set()

        client.watch_data("/counter", lambda: reads.append(asyncio.ensure_future(read())))
        for number in range(1, 201):
            await other.set("/counter", b"%d" % number)
        await final.wait()
        await asyncio.gather(*reads)
        assert seen == sorted(seen)


class TestSession:
    async def test_it_is_connected_until_it_is_closed(self, client: ZkClient, other: ZkClient) -> None:
        events: list[SessionEvent] = []
        fired: list[str] = []
        client.on_session(events.append)
        client.watch_data("/a", lambda: fired.append("/a"))
        session = client.session_id
        states = [client.state]
        await client.close()
        await client.close()
        await other.create("/a")
        assert [*states, client.state] == [SessionState.CONNECTED, SessionState.CLOSED]
        assert (client.session_id, events, fired) == (session, [SessionEvent.CLOSED], [])

    async def test_after_close_everything_fails(self, client: ZkClient) -> None:
        await client.close()
        for attempt in (
            client.get("/a"),
            client.get_or_none("/a"),
            client.get_many([]),
            client.children("/a"),
            client.children_or_none("/a"),
            client.children_many(["/a"]),
            client.exists("/a"),
            client.create("/a"),
            client.create("/a/b", make_parents=True),
            client.ensure_path("/a"),
            client.set("/a", b""),
            client.delete("/a"),
            client.multi([Create("/a")]),
            client.multi_many([[Create("/a")]]),
        ):
            with pytest.raises(ConnectionLost):
                await attempt
