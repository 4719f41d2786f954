"""Registration of brokers in a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from odradek.base.system_ports import SystemClock
from odradek.base.types import Endpoint
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient, ZkSettings
from odradek.zk.layout import BrokerRegistration, LayoutError, ProducerIdBlock
from odradek.zk.port import SetData
from odradek.zk.registration import (
    CHANGE_RETENTION_MS,
    BrokerIdInUse,
    BrokerRegistrar,
    ConfigChangeListener,
    announce_config_change,
    cluster_id,
    next_producer_ids,
    prepare,
)

pytestmark = pytest.mark.java

Connect = Callable[[], Awaitable[KazooZkClient]]


class LateClock(SystemClock):
    """The system's clock with an offset of the wall time."""

    late_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.late_ms


@pytest.fixture
async def clock() -> LateClock:
    return LateClock(asyncio.get_running_loop())


@pytest.fixture
async def connect(odradek_zookeeper: str) -> AsyncIterator[Connect]:
    root, clients = f"{odradek_zookeeper}/{uuid4().hex}", []

    async def open_client() -> KazooZkClient:
        client = KazooZkClient(ZkSettings(connect=root, session_timeout_ms=6_000))
        clients.append(client)
        await client.start()
        return client

    yield open_client
    for client in clients:
        await client.close()


def registration(broker_id: int = 1, port: int = 9092) -> BrokerRegistration:
    return BrokerRegistration(broker_id=broker_id, endpoints=(Endpoint("PLAINTEXT", "localhost", port),))


async def test_the_paths_of_kafka_are_there_and_empty(connect: Connect) -> None:
    zk = await connect()
    await prepare(zk)
    await prepare(zk)
    assert await zk.children("/config") == ["brokers", "changes", "clients", "ips", "topics", "users"]
    assert await zk.children("/brokers") == ["ids", "seqid", "topics"]


async def test_all_brokers_agree_on_the_cluster_id(connect: Connect, clock: LateClock) -> None:
    first, second = await connect(), await connect()
    ids = await asyncio.gather(*(cluster_id(zk, clock) for zk in (first, second, first)))
    assert len(set(ids)) == 1
    assert layout.decode_uuid(ids[0]).version == 4
    assert await cluster_id(second, clock) == ids[0]


async def test_a_broker_registers_with_its_epoch_and_updates_without_a_new_one(
    connect: Connect, clock: LateClock
) -> None:
    zk = await connect()
    await prepare(zk)
    registrar = BrokerRegistrar(zk, clock, wait_ms=0)
    epoch = await registrar.register(registration())
    assert await registrar.register(registration()) == epoch
    await registrar.update(registration(port=9999))
    data, stat = await zk.get(layout.broker_path(1))
    assert BrokerRegistration.decode(1, data) == registration(port=9999)
    assert (stat.czxid, stat.ephemeral_owner) == (epoch, zk.session_id)


async def test_a_second_broker_with_the_same_id_is_refused(connect: Connect, clock: LateClock) -> None:
    first, second = await connect(), await connect()
    await prepare(first)
    await BrokerRegistrar(first, clock, wait_ms=0).register(registration())
    for port in (9092, 9093):
        with pytest.raises(BrokerIdInUse, match=r"broker\.id 1 .*9092"):
            await BrokerRegistrar(second, clock, wait_ms=10).register(registration(port=port))


async def test_the_registration_of_a_former_process_is_waited_for(connect: Connect, clock: LateClock) -> None:
    dead, alive = await connect(), await connect()
    await prepare(dead)
    old = await BrokerRegistrar(dead, clock, wait_ms=0).register(registration())
    waiting = asyncio.ensure_future(BrokerRegistrar(alive, clock, wait_ms=60_000).register(registration()))
    await alive.sync()
    await dead.close()
    assert await waiting > old


async def test_a_znode_of_an_own_former_session_is_replaced(connect: Connect, clock: LateClock) -> None:
    former, now = await connect(), await connect()
    await prepare(former)

    class Both:
        """A client whose session was replaced while ZooKeeper kept the old znode (ZOOKEEPER-2985)."""

        zk: Any = former

        def __getattr__(self, name: str) -> Any:
            return getattr(self.zk, name)

    both: Any = Both()
    registrar = BrokerRegistrar(both, clock, wait_ms=60_000)
    old = await registrar.register(registration())
    both.zk = now
    assert await registrar.register(registration(port=9093)) > old


async def test_config_changes_are_notified_once_in_order_and_only_new_ones(connect: Connect, clock: LateClock) -> None:
    zk, writer = await connect(), await connect()
    await prepare(zk)
    await announce_config_change(writer, "topics/before")
    changes: list[str] = []
    arrived = asyncio.Event()

    def on_change(path: str) -> None:
        changes.append(path)
        if path == "topics/last":
            arrived.set()

    listener = ConfigChangeListener(zk, clock, on_change)
    await listener.start()
    for number in range(20):
        await announce_config_change(writer, f"topics/{number}")
    await writer.create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", b"broken", sequential=True)
    await announce_config_change(writer, "brokers/<default>")
    await announce_config_change(writer, "topics/last")
    async with asyncio.timeout(20):
        await arrived.wait()
    assert changes == [*(f"topics/{number}" for number in range(20)), "brokers/<default>", "topics/last"]
    await listener.close()
    await listener.close()


async def test_old_notifications_are_removed(connect: Connect, clock: LateClock) -> None:
    zk = await connect()
    await prepare(zk)
    await announce_config_change(zk, "topics/old")
    clock.late_ms = CHANGE_RETENTION_MS + 60_000
    changes: list[str] = []
    gone = asyncio.Event()
    listener = ConfigChangeListener(zk, clock, changes.append)
    await listener.start()
    zk.watch_data(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}0000000000", gone.set)
    await zk.sync()
    await announce_config_change(zk, "topics/new")
    async with asyncio.timeout(20):
        await gone.wait()
    assert changes == ["topics/new"]
    await listener.close()


async def test_blocks_of_producer_ids_never_overlap(connect: Connect) -> None:
    first, second = await connect(), await connect()
    await prepare(first)
    blocks = await asyncio.gather(
        *(next_producer_ids(zk, broker) for broker, zk in ((1, first), (2, second)) for _ in range(5))
    )
    ranges = sorted((block.first_id, block.last_id) for block in blocks)
    assert ranges == [(number * 1000, number * 1000 + 999) for number in range(10)]
    last = ProducerIdBlock(broker_id=1, first_id=2**63 - 1000, last_id=2**63 - 1)
    await first.multi([SetData(layout.PRODUCER_ID_BLOCK, last.encode())])
    with pytest.raises(LayoutError, match="all producer ids are allocated"):
        await next_producer_ids(first, 1)
