"""The listener and the channel of the product with the simulated network: order, delay, partitions, dead hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.base.errors import NetworkError, RequestTimedOutError
from odradek.network.channel import Channel, ChannelTimeouts
from odradek.network.connection import Request
from odradek.network.listener import Listener
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock
from odradek_testkit.net import Host, SimulatedLoop, SimulatedNetwork, as_host

PORT = 9092
PAYLOAD = bytes(range(256)) * 300


def run(main: Callable[[SimulatedNetwork], Coroutine[Any, Any, None]], seed: int = 0) -> None:
    """Run in virtual time with a separate network. Tasks of dead hosts may remain."""
    loop = SimulatedLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop.network))


def frame(correlation_id: int, body: bytes = b"") -> list[bytes]:
    """A Metadata request whose client id is null. The body is not decoded."""
    head = ApiKey.METADATA.to_bytes(2, "big") + b"\x00\x00" + correlation_id.to_bytes(4, "big") + b"\xff\xff"
    return [(len(head) + len(body)).to_bytes(4, "big"), head, body]


async def serve(network: SimulatedNetwork, host: Host, handler: Callable[[Request], None]) -> Listener:
    with as_host(host):

        async def bind(name: str, port: int) -> Any:
            return network.bind(name, port)

        listener = Listener("PLAINTEXT", (host.name, PORT), handler, VirtualClock(), bind=bind)
        await listener.start()
    return listener


def echo(request: Request) -> None:
    body = bytes(request.frame[request.position :])
    request.respond([(4 + len(body)).to_bytes(4, "big"), request.correlation_id.to_bytes(4, "big"), body])


async def connect(host: Host, target: str, request_ms: float = 5_000) -> Channel:
    with as_host(host):
        timeouts = ChannelTimeouts(connect_ms=2_000, request_ms=request_ms)
        return await asyncio.create_task(Channel.open(target, PORT, timeouts=timeouts))


async def ask(channel: Channel, body: bytes = b"", **options: Any) -> bytes:
    answer = await channel.call(lambda correlation_id: frame(correlation_id, body), **options)
    return bytes(answer[4:])


def test_requests_and_answers_arrive_whole_and_in_order() -> None:
    async def main(network: SimulatedNetwork) -> None:
        listener = await serve(network, Host("server"), echo)
        channel = await connect(Host("client"), "server")
        bodies = [number.to_bytes(2, "big") + PAYLOAD for number in range(20)]
        assert await asyncio.gather(*(ask(channel, body) for body in bodies)) == bodies
        await channel.close()
        await listener.close()

    run(main)


def test_equal_seeds_take_equal_time() -> None:
    def duration(seed: int) -> float:
        taken: list[float] = []

        async def main(network: SimulatedNetwork) -> None:
            listener = await serve(network, Host("server"), echo)
            channel = await connect(Host("client"), "server")
            for _ in range(5):
                await ask(channel, PAYLOAD)
            taken.append(network.loop.time())
            await channel.close()
            await listener.close()

        run(main, seed)
        return taken[0]

    assert duration(1) == duration(1) != duration(2)


def test_no_process_listens() -> None:
    async def main(network: SimulatedNetwork) -> None:
        with pytest.raises(NetworkError, match="refused"):
            await connect(Host("client"), "nowhere")

    run(main)


@pytest.mark.parametrize("way", [("client", "server"), ("server", "client")])
def test_delayed_packets_arrive_when_the_partition_ends(way: tuple[str, str]) -> None:
    async def main(network: SimulatedNetwork) -> None:
        listener = await serve(network, Host("server"), echo)
        channel = await connect(Host("client"), "server", request_ms=60_000)
        network.block(*way)
        asked = asyncio.create_task(ask(channel, b"late"))
        await asyncio.sleep(10)
        assert not asked.done()
        network.heal()
        assert await asked == b"late"
        await channel.close()
        await listener.close()

    run(main)


def test_only_a_deadline_detects_a_network_partition() -> None:
    async def main(network: SimulatedNetwork) -> None:
        listener = await serve(network, Host("server"), echo)
        channel = await connect(Host("client"), "server")
        network.partition("client", "server")
        with pytest.raises(RequestTimedOutError):
            await ask(channel)
        with pytest.raises(NetworkError, match="did not accept"):
            await connect(Host("client"), "server")
        await listener.close(grace_ms=100)

    run(main)


def test_a_dead_host_resets_its_connections() -> None:
    async def main(network: SimulatedNetwork) -> None:
        server = Host("server")
        await serve(network, server, lambda request: None)
        channel = await connect(Host("client"), "server", request_ms=60_000)
        asked = asyncio.create_task(ask(channel))
        await asyncio.sleep(1)
        network.kill(server)
        with pytest.raises(NetworkError, match="reset"):
            await asked
        with pytest.raises(NetworkError, match="refused"):
            await connect(Host("client"), "server")

    run(main)


def test_a_connection_that_is_reset_before_it_is_established_is_refused() -> None:
    """The packet that accepts the connection is delayed and arrives after a reset."""

    async def main(network: SimulatedNetwork) -> None:
        server, client = Host("server"), Host("client")
        listener = await serve(network, server, echo)
        network.slow("server", "client", 200.0)
        opening = asyncio.create_task(connect(client, "server"))
        await asyncio.sleep(0.05)
        network.reset("client", "server")
        with pytest.raises(NetworkError, match="cannot connect to server:9092: Connection reset by peer"):
            await opening
        await listener.close()

    run(main)


def test_peers_do_not_notice_that_a_host_disappears() -> None:
    async def main(network: SimulatedNetwork) -> None:
        server = Host("server")
        await serve(network, server, echo)
        channel = await connect(Host("client"), "server")
        network.kill(server, silently=True)
        with pytest.raises(RequestTimedOutError):
            await ask(channel)

    run(main)


def test_no_task_of_a_dead_host_runs() -> None:
    async def main(network: SimulatedNetwork) -> None:
        host, ticks = Host("broker"), []

        async def tick() -> None:
            while True:
                ticks.append(network.loop.time())
                await asyncio.sleep(1)

        with as_host(host):
            task = asyncio.create_task(tick())
        await asyncio.sleep(3.5)
        assert len(ticks) == 4
        network.kill(host)
        await asyncio.sleep(10)
        assert len(ticks) == 4
        host.alive = True  # so that the runner can end the task
        task.cancel()

    run(main)


def test_a_paused_reader_blocks_its_writer() -> None:
    async def main(network: SimulatedNetwork) -> None:
        waiting: list[Request] = []
        listener = await serve(network, Host("server"), waiting.append)
        channel = await connect(Host("client"), "server", request_ms=60_000)
        asked = [asyncio.create_task(ask(channel, PAYLOAD * 10)) for _ in range(5)]
        await asyncio.sleep(5)
        assert len(waiting) == 1, "without pipelining, there is only one request"
        while not all(task.done() for task in asked):
            while waiting:
                request = waiting.pop()
                request.respond([b"\x00\x00\x00\x04", request.correlation_id.to_bytes(4, "big")])
            await asyncio.sleep(0.1)
        assert [await task for task in asked] == [b""] * 5
        await channel.close()
        await listener.close()

    run(main)
