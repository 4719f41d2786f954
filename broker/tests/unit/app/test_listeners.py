"""Listeners that are added and removed while the broker runs: sockets, connections and the registration."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.app.listeners import Listeners
from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.base.system_ports import SystemClock
from odradek.network.connection import Request
from odradek.network.listener import bind_socket
from odradek.network.pages import FileAccess
from odradek.testing.free_ports import free_ports
from odradek.zk.layout import BrokerRegistration
from odradek.zk.port import ConnectionLost, NoNode

INNER = "INNER://127.0.0.1:0"


def config_of(*listeners: str, **others: str) -> BrokerConfig:
    names = [each.partition(":")[0] for each in listeners]
    settings = {
        "broker.id": "1",
        "zookeeper.connect": "zk:2181",
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        **{name.replace("_", "."): value for name, value in others.items()},
    }
    return BrokerConfig.parse(settings)[0]


class Bench:
    """Open listeners and the registrations that were written."""

    def __init__(self, config: BrokerConfig) -> None:
        self.registered: asyncio.Queue[BrokerRegistration] = asyncio.Queue()
        self.failures: list[Exception] = []
        self.failed = asyncio.Event()
        self.listeners = Listeners(
            config,
            self._serve,
            SystemClock(asyncio.get_running_loop()),
            bind=bind_socket,
            read=FileAccess().read,
            announce=self._announce,
        )

    def _serve(self, request: Request) -> None:
        request.respond_nothing()

    async def _announce(self, registration: BrokerRegistration) -> None:
        if self.failures:
            error = self.failures.pop(0)
            if isinstance(error, NoNode):
                self.failed.set()
            raise error
        self.registered.put_nowait(registration)

    async def endpoints(self) -> dict[str, int]:
        """Return the name and the port of each endpoint in the next registration."""
        return {end.listener: end.port for end in (await self.registered.get()).endpoints}

    def ports(self) -> dict[str, int]:
        return {listener.name: listener.port for listener in self.listeners}


Play = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play() -> Play:
    def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench(config_of(INNER))
            await bench.listeners.start()
            try:
                await scenario(bench)
            finally:
                await bench.listeners.close()

        asyncio.run(main())

    return run


OUTER, THIRD = "OUTER://127.0.0.1:0", "THIRD://127.0.0.1:0"


@pytest.mark.parametrize(
    ("listeners", "others", "limited"),
    [
        ([INNER], {}, {"INNER"}),
        ([INNER, OUTER], {}, {"OUTER"}),
        ([INNER, OUTER], {"inter_broker_listener_name": "OUTER"}, {"INNER"}),
        ([INNER, OUTER, THIRD], {"inter_broker_request_listeners": "OUTER"}, {"THIRD"}),
        ([INNER, OUTER], {"inter_broker_request_listeners": "OUTER"}, {"INNER", "OUTER"}),
    ],
)
def test_listeners_for_brokers_only_have_no_limit_of_memory(
    listeners: list[str], others: dict[str, str], limited: set[str]
) -> None:
    async def main() -> None:
        limits = {"queued_max_request_bytes": "200000000", "queued_max_request_slow_ms": "7"}
        found = Bench(config_of(*listeners, **limits, **others)).listeners
        assert found.request_memory is not None
        assert (found.request_memory.limit_bytes, found.request_memory.slow_ms) == (200_000_000, 7)
        memories = {listener.name: listener._options.connection.memory for listener in found}
        assert {name for name, memory in memories.items() if memory is found.request_memory} == limited
        assert {name for name, memory in memories.items() if memory is None} == memories.keys() - limited

    asyncio.run(main())


def test_without_a_limit_there_is_no_memory_to_share() -> None:
    async def main() -> None:
        for limit in ("-1", "0"):
            assert Bench(config_of(INNER, queued_max_request_bytes=limit)).listeners.request_memory is None

    asyncio.run(main())


def test_a_listener_is_added_and_registered(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        inner = bench.ports()["INNER"]
        bench.listeners.reconfigure(config_of(INNER, "OUTER://127.0.0.1:0"))
        found = await bench.endpoints()
        assert found == bench.ports()
        assert found["INNER"] == inner
        _, writer = await asyncio.open_connection("127.0.0.1", found["OUTER"])
        writer.close()
        await writer.wait_closed()

    play(scenario)


def test_a_removed_listener_closes_its_connections_and_frees_its_port(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        port = free_ports(1)[0]
        bench.listeners.reconfigure(config_of(INNER, f"OUTER://127.0.0.1:{port}"))
        await bench.endpoints()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        kept, keeper = await asyncio.open_connection("127.0.0.1", bench.ports()["INNER"])
        bench.listeners.reconfigure(config_of(INNER))
        assert (await bench.endpoints()).keys() == {"INNER"}
        assert await reader.read() == b""
        assert not kept.at_eof(), "connections of other listeners are not closed"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        for each in (writer, keeper):
            each.close()
            await each.wait_closed()

    play(scenario)


def test_the_port_of_a_removed_listener_can_be_reused_immediately(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        port = free_ports(1)[0]
        bench.listeners.reconfigure(config_of(INNER, f"OUTER://127.0.0.1:{port}"))
        await bench.endpoints()
        renamed = config_of(INNER, f"OTHER://127.0.0.1:{port}")
        await bench.listeners.dry_run(renamed)
        bench.listeners.reconfigure(renamed)
        assert (await bench.endpoints())["OTHER"] == port

    play(scenario)


def test_other_advertised_addresses_are_registered(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.listeners.reconfigure(config_of(INNER, advertised_listeners="INNER://a.example:7"))
        (endpoint,) = (await bench.registered.get()).endpoints
        assert (endpoint.host, endpoint.port) == ("a.example", 7)

    play(scenario)


def test_the_last_of_several_changes_is_effective(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.listeners.reconfigure(config_of(INNER, "OUTER://127.0.0.1:0"))
        bench.listeners.reconfigure(config_of(INNER, "OTHER://127.0.0.1:0"))
        while (await bench.endpoints()).keys() != {"INNER", "OTHER"}:
            pass
        assert bench.ports().keys() == {"INNER", "OTHER"}

    play(scenario)


def test_addresses_that_cannot_be_bound_are_refused(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            conflict = config_of(INNER, f"OUTER://127.0.0.1:{taken.getsockname()[1]}")
            with pytest.raises(ConfigError, match=r"Listener OUTER cannot use .*: another process listens there"):
                await bench.listeners.dry_run(conflict)
            # Settings that another tool wrote to ZooKeeper cannot be refused. The other listeners do not change.
            bench.listeners.reconfigure(conflict)
            assert (await bench.endpoints()).keys() == {"INNER"}
        with pytest.raises(ConfigError, match="the address of listener INNER cannot be changed while the broker runs"):
            await bench.listeners.dry_run(config_of("INNER://127.0.0.1:1"))
        await bench.listeners.dry_run(config_of(INNER, "OUTER://127.0.0.1:0"))
        assert bench.ports().keys() == {"INNER"}

    play(scenario)


def test_a_listener_is_registered_when_zookeeper_is_back(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.failures = [ConnectionLost("gone")]
        bench.listeners.reconfigure(config_of(INNER, "OUTER://127.0.0.1:0"))
        assert (await bench.endpoints()).keys() == {"INNER", "OUTER"}
        bench.failures = [NoNode("/brokers/ids/1")]
        bench.listeners.reconfigure(config_of(INNER))
        await bench.failed.wait()
        assert {end.listener for end in bench.listeners.registration().endpoints} == {"INNER"}
        assert bench.registered.empty()

    play(scenario)
