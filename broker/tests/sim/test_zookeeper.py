"""Sessions of the simulated ensemble: suspension, resumption, expiration, dead hosts, and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.zk.port import ConnectionLost, SessionEvent, ZkSettings
from odradek_testkit.net import Host, SimulatedLoop, SimulatedNetwork, as_host
from odradek_testkit.zookeeper import ENSEMBLE, SimulatedEnsemble, SimulatedZk

SETTINGS = ZkSettings(connect="simulated", session_timeout_ms=6_000, connection_timeout_ms=3_000, suspended_wait_ms=500)


class Bench:
    """An ensemble, and clients on separate hosts."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.ensemble = SimulatedEnsemble(network)
        self.hosts: dict[str, Host] = {}
        self.events: dict[str, list[SessionEvent]] = {}

    async def client(self, name: str) -> SimulatedZk:
        host = self.hosts[name] = Host(name)
        with as_host(host):
            client = SimulatedZk(self.ensemble, SETTINGS)
            events = self.events[name] = []
            client.on_session(events.append)
            await asyncio.create_task(client.start())
        return client

    def cut(self, name: str) -> None:
        self.network.partition(name, ENSEMBLE)


def run(main: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(Bench(loop.network)))


def test_a_short_partition_suspends_and_resumes_the_session() -> None:
    async def main(bench: Bench) -> None:
        client = await bench.client("a")
        await client.create("/mine", ephemeral=True)
        session_id, calls = client.session_id, []
        client.watch_data("/mine", lambda: calls.append(1))
        bench.cut("a")
        await asyncio.sleep(4.5)
        assert bench.events["a"] == [SessionEvent.ESTABLISHED, SessionEvent.SUSPENDED]
        assert client.credentials is None
        bench.network.heal()
        await asyncio.sleep(2.5)
        assert bench.events["a"][2:] == [SessionEvent.RESUMED]
        assert client.session_id == session_id
        assert calls, "a watch is called after a reconnection"
        assert await client.exists("/mine") is not None
        await client.close()

    run(main)


def test_a_client_learns_of_its_expired_session_after_a_long_partition() -> None:
    async def main(bench: Bench) -> None:
        client, other = await bench.client("a"), await bench.client("b")
        await client.create("/mine", ephemeral=True)
        gone = asyncio.Event()
        other.watch_data("/mine", gone.set)
        bench.cut("a")
        await gone.wait()
        assert await other.exists("/mine") is None
        assert bench.network.loop.time() - 1_000 == pytest.approx(6, abs=3)
        assert SessionEvent.EXPIRED not in bench.events["a"], "it does not know yet"
        bench.network.heal()
        await asyncio.sleep(3)
        assert bench.events["a"][-2:] == [SessionEvent.EXPIRED, SessionEvent.ESTABLISHED]
        await client.create("/mine", ephemeral=True)
        await client.close()
        await other.close()

    run(main)


def test_requests_in_flight_fail_when_the_connection_is_lost() -> None:
    async def main(bench: Bench) -> None:
        client, other = await bench.client("a"), await bench.client("b")
        bench.network.block(ENSEMBLE, "a")
        with pytest.raises(ConnectionLost):
            await client.create("/made")
        assert await other.exists("/made") is not None
        with pytest.raises(ConnectionLost):
            await client.create("/later")
        bench.network.heal()
        await client.close()
        await other.close()

    run(main)


def test_the_session_of_a_dead_host_expires_or_is_ended_by_another_client() -> None:
    async def main(bench: Bench) -> None:
        quiet, spoken_for, other = await bench.client("a"), await bench.client("b"), await bench.client("c")
        await quiet.create("/a", ephemeral=True)
        await spoken_for.create("/b", ephemeral=True)
        bench.network.kill(bench.hosts["a"])
        bench.network.kill(bench.hosts["b"])
        assert spoken_for.credentials is not None
        bench.ensemble.end(spoken_for.credentials[0])
        assert await other.children("/") == ["a"]
        await asyncio.sleep(9)
        assert await other.children("/") == []
        assert bench.events["a"] == [SessionEvent.ESTABLISHED]
        await other.close()

    run(main)


def test_no_ensemble_to_be_reached() -> None:
    async def main(bench: Bench) -> None:
        bench.cut("a")
        with pytest.raises(ConnectionLost, match="no ZooKeeper"):
            await bench.client("a")

    run(main)


def test_answers_and_watches_keep_their_order() -> None:
    async def main(bench: Bench) -> None:
        client = await bench.client("a")
        await client.create("/node", b"0")
        seen: list[str] = []
        client.watch_data("/node", lambda: seen.append("watch"))
        await client.exists("/node")

        async def write(number: int) -> None:
            await client.set("/node", str(number).encode())
            seen.append(str(number))

        await asyncio.gather(*(write(number) for number in range(5)))
        assert seen == [word for number in range(5) for word in ("watch", str(number))]
        await client.close()

    run(main)
