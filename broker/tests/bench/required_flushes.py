"""Measures `flush.messages=1` on this machine's disk: producers that each send one record at a time.

Run it with `.venv/bin/python broker/tests/bench/required_flushes.py DIRECTORY`. A broker in the process keeps its logs
in a new folder below DIRECTORY; choose one on a disk, because syncs cost nothing in a memory file system. Prints the
acknowledged records per second and the latency of an acknowledgement in milliseconds.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import click

from odradek import Admin, ClientSettings, NewTopic, Producer
from odradek.testing.in_process import InProcessBroker

TOPIC = "synced"
VALUE = b"v" * 200


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--producers", default=50, show_default=True, help="Number of producers, each with its connection.")
@click.option("--seconds", default=10.0, show_default=True, help="Duration of the measurement.")
@click.option("--partitions", default=1, show_default=True, help="Number of partitions of the topic.")
def main(*, directory: Path, producers: int, seconds: float, partitions: int) -> None:
    """Measure acknowledged records per second with one sync for each record or group of records."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        broker = InProcessBroker(Path(folder))
        broker.start()
        try:
            waits_ms = asyncio.run(_measure(ClientSettings.of(broker.bootstrap), producers, seconds, partitions))
        finally:
            broker.close()
    shares = statistics.quantiles(waits_ms, n=100)
    click.echo(
        f"{producers} producers, {partitions} partitions: {len(waits_ms) / seconds:.0f} records/s, "
        f"latency {shares[49]:.1f} ms, p99 {shares[98]:.1f} ms"
    )


async def _measure(settings: ClientSettings, producers: int, seconds: float, partitions: int) -> list[float]:
    async with Admin(settings) as admin:
        topic = NewTopic(name=TOPIC, partitions=partitions, replication_factor=1, configs=(("flush.messages", "1"),))
        await admin.create_topics([topic])
    waits_ms: list[float] = []
    async with asyncio.TaskGroup() as group:
        for number in range(producers):
            group.create_task(_produce(settings, number % partitions, seconds, waits_ms))
    return waits_ms


async def _produce(settings: ClientSettings, partition: int, seconds: float, waits_ms: list[float]) -> None:
    async with Producer(settings.replace(acks="1", enable_idempotence=False, linger_ms=0)) as producer:
        await producer.send_and_wait(TOPIC, VALUE, partition=partition)
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            await producer.send_and_wait(TOPIC, VALUE, partition=partition)
            waits_ms.append(1000 * (time.monotonic() - began))


if __name__ == "__main__":
    main()
