"""Measures what a well-behaved client notices of a flood: connections that do nothing, and half-open TLS handshakes.

Run it with `.venv/bin/python broker/tests/bench/connection_flood.py`. A broker runs in a separate process, with one
listener for plaintext and one for TLS. A client sends a record every few milliseconds and waits for each answer, before
and during the flood. Another process opens connections on the first listener as fast as it can, and connections on the
second one that send a ClientHello and nothing more. All stay open until the end. The flood begins again as often as the
measurement lasts, so most answers are measured while connections arrive.

Prints the latencies, and the quotient of the two 99th percentiles.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import click
import numpy as np
from comparison.batches import batch, filler
from comparison.clients.closed_loop import Milliseconds
from comparison.waiting import pause
from comparison.wire import Address, Connection, produce_frame
from required_flushes import TOPIC, VALUE_BYTES, create_topic

from odradek import ClientSettings
from odradek.base.types import TopicPartition
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.fuzz_targets import client_hello
from odradek_testkit.security.certificates import Authority, key_pem

HOST: Final = "127.0.0.1"
PLACE: Final = TopicPartition(TOPIC, 0)


@click.command()
@click.option("--connections", default=5_000, show_default=True, help="Connections that do nothing.")
@click.option("--handshakes", default=500, show_default=True, help="TLS handshakes that do not go on.")
@click.option("--seconds", default=20.0, show_default=True, help="Duration of each measurement.")
@click.option("--interval", default=0.005, show_default=True, help="Seconds between two records of the client.")
@click.option("--rate", type=int, help="max.connection.creation.rate of the broker; default: no limit.")
def main(*, connections: int, handshakes: int, seconds: float, interval: float, rate: int | None) -> None:
    """Measure a client without and with a flood of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = ZooKeeperServer(folder / "zookeeper", free_ports(1)[0], synchronous=False)
        zookeeper.start()
        closing.callback(zookeeper.stop)
        zookeeper.wait_until_ready()
        plain, secure = free_ports(2)
        broker = OdradekBroker(
            folder / "broker",
            zookeeper=zookeeper.connect,
            port=plain,
            properties=properties(folder, plain, secure, rate),
        )
        broker.start()
        closing.callback(broker.stop, kill=True)
        bootstrap = f"{HOST}:{plain}"
        asyncio.run(create_topic(ClientSettings.of(bootstrap), 1, None))
        address = Address.parse(bootstrap)
        measure(address, seconds=2.0, interval=interval)
        calm = measure(address, seconds=seconds, interval=interval)
        show("calm", calm)
        context = multiprocessing.get_context("spawn")
        ends, has_begun = context.Event(), context.Event()
        arguments = (ends, has_begun, plain, secure, connections, handshakes)
        other = context.Process(target=flood, args=arguments, daemon=True)
        other.start()
        closing.callback(other.join)
        closing.callback(ends.set)
        wait_until(has_begun.is_set, what="the flood")
        flooded = measure(address, seconds=seconds, interval=interval)
        show("flood", flooded)
        click.echo(f"p99 of the flood / p99 without: {np.percentile(flooded, 99) / np.percentile(calm, 99):.2f}")


def properties(folder: Path, plain: int, secure: int, rate: int | None) -> dict[str, str]:
    """Return the properties of the broker, and write its certificate."""
    issued = Authority.root("root").issue("broker")
    (folder / "broker.pem").write_text(key_pem(issued.key) + issued.chain_pem)
    limit = {} if rate is None else {"max.connection.creation.rate": str(rate)}
    return {
        "listeners": f"PLAIN://{HOST}:{plain},SECURE://{HOST}:{secure}",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,SECURE:SSL",
        "inter.broker.listener.name": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        **limit,
    }


def measure(address: Address, *, seconds: float, interval: float) -> Milliseconds:
    """Send a record every `interval` seconds. Returns the milliseconds until each answer."""
    found = []
    frame = produce_frame(PLACE, batch(filler(VALUE_BYTES), 1, timestamp_ms=int(time.time() * 1000)))
    with Connection(address) as connection:
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            connection.call(frame)
            took = time.monotonic() - began
            found.append(1000 * took)
            pause(max(0.0, interval - took))
    return np.array(found)


def show(when: str, latencies: Milliseconds) -> None:
    """Print the latencies."""
    median, late = np.percentile(latencies, (50, 99))
    click.echo(
        f"{when}: {len(latencies)} records, latency {median:.2f} ms, p99 {late:.2f} ms, "
        f"maximum {latencies.max():.1f} ms"
    )


def flood(ends: Event, has_begun: Event, plain: int, secure: int, connections: int, handshakes: int) -> None:
    """Open connections again and again, and hold those of a round until the next one."""
    hello = client_hello()
    while not ends.is_set():
        held = []
        for number in range(connections):
            held.append(socket.create_connection((HOST, plain)))
            if number * handshakes // connections > (number - 1) * handshakes // connections:
                held.append(socket.create_connection((HOST, secure)))
                held[-1].sendall(hello)
            has_begun.set()
            if ends.is_set():
                break
        ends.wait(1.0)
        for each in held:
            with suppress(OSError):
                each.close()


if __name__ == "__main__":
    main()
