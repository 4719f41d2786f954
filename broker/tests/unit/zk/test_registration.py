from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.base.types import Endpoint
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration
from odradek.zk.port import ConnectionLost, SessionExpired
from odradek.zk.registration import BrokerIdInUse, BrokerRegistrar, announce_directory_failure, machines, prepare
from odradek_testkit.loop import VirtualClock, run_virtual


def test_a_failed_directory_is_announced_after_a_zookeeper_outage() -> None:
    async def main() -> None:
        zk, clock = MemoryZk(), VirtualClock()
        await zk.ensure_path(layout.LOG_DIR_EVENTS)
        zk.failures = [ConnectionLost("away", "/"), SessionExpired("away", "/"), ConnectionLost("away", "/")]
        await announce_directory_failure(zk, clock, 7)
        await announce_directory_failure(zk, clock, 7)
        names = await zk.children(layout.LOG_DIR_EVENTS)
        assert sorted(names) == ["log_dir_event_0000000000", "log_dir_event_0000000001"]
        data, _ = await zk.get(f"{layout.LOG_DIR_EVENTS}/{names[0]}")
        assert data == b'{"version":1,"broker":7,"event":1}'

    run_virtual(main())


def registration(port: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id=1, endpoints=(Endpoint("PLAINTEXT", "localhost", port),))


def play(scenario: Callable[[MemoryTree, VirtualClock], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        tree, clock = MemoryTree(), VirtualClock()
        await prepare(MemoryZk(tree))
        await scenario(tree, clock)

    run_virtual(main())


@pytest.mark.parametrize("port", [9092, 9093], ids=["same address", "another address"])
def test_a_broker_that_starts_waits_for_the_session_of_its_previous_run(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(tree: MemoryTree, clock: VirtualClock) -> None:
        dead, alive = MemoryZk(tree), MemoryZk(tree)
        old = await BrokerRegistrar(dead, clock, wait_ms=0).register(registration(9092))
        registrar = BrokerRegistrar(alive, clock, wait_ms=60_000)
        waiting = asyncio.ensure_future(registrar.register(registration(port)))
        await clock.sleep_ms(18_000)
        assert not waiting.done()
        await dead.close()
        before_ms = clock.monotonic_ms()
        assert await waiting > old
        assert clock.monotonic_ms() - before_ms < 100

    play(scenario)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "broker.id 1 is in use" in warning and "at most 60000 ms" in warning


def test_a_broker_whose_id_stays_in_use_is_refused_after_the_timeout() -> None:
    async def scenario(tree: MemoryTree, clock: VirtualClock) -> None:
        await BrokerRegistrar(MemoryZk(tree), clock, wait_ms=0).register(registration(9092))
        before_ms = clock.monotonic_ms()
        with pytest.raises(BrokerIdInUse, match=r"broker\.id 1 .*9092"):
            await BrokerRegistrar(MemoryZk(tree), clock, wait_ms=60_000).register(registration(9093))
        assert 60_000 <= clock.monotonic_ms() - before_ms < 60_100

    play(scenario)


def test_a_running_broker_that_was_replaced_is_refused_at_once() -> None:
    async def scenario(tree: MemoryTree, clock: VirtualClock) -> None:
        first = MemoryZk(tree)
        registrar = BrokerRegistrar(first, clock, wait_ms=60_000)
        await registrar.register(registration(9092))
        tree.end_session(first.session_id)
        await BrokerRegistrar(MemoryZk(tree), clock, wait_ms=0).register(registration(9093))
        before_ms = clock.monotonic_ms()
        with pytest.raises(BrokerIdInUse):
            await registrar.register(registration(9092))
        assert clock.monotonic_ms() == before_ms

    play(scenario)


def test_machines_of_brokers_are_read_and_brokers_without_one_are_omitted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tree: MemoryTree, clock: VirtualClock) -> None:
        zk = MemoryZk(tree)
        assert await machines(zk) == {}
        for broker, machine in ((1, "a"), (2, None), (3, "a")):
            found = BrokerRegistration(
                broker_id=broker, endpoints=(Endpoint("PLAINTEXT", "h", broker),), machine=machine
            )
            await zk.create(found.path, found.encode(), ephemeral=True)
        await zk.create(layout.broker_path(4), b"{}", ephemeral=True)
        assert await machines(zk) == {1: "a", 3: "a"}

    play(scenario)
    assert [record.levelname for record in caplog.records if layout.broker_path(4) in record.getMessage()] == [
        "WARNING"
    ]
