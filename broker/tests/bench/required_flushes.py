"""Measures `flush.messages=1` on this machine's disk: producers that each send one record at a time.

Run it with `.venv/bin/python broker/tests/bench/required_flushes.py DIRECTORY`, and with `PYTHONPATH=.compiled` for the
compiled core. The broker runs in this process, with
its logs in a new folder below DIRECTORY; choose one on a disk, because syncs cost nothing in a memory file system. The
producers are connections of other processes, spread over the partitions; each sends the next record when the last one
is acknowledged (acks=1). The ways to sync take turns, each with a new broker:

- `each`: a sync inside each append, on the event loop;
- `in-turn`: one flush of the log directory at a time, which covers all records that wait for its log;
- `together`: several flushes at a time, as brokers do.

How much the last two gain depends on the time of a sync. With `--sync-ms`, each sync takes at least that long, as on a
slower disk that serves the syncs of several threads at the same time.

Prints, for each run and as medians, the acknowledged records per second, the latency of an acknowledgement in
milliseconds, and the CPU of the broker for each record.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

import click
import numpy as np
from comparison.batches import batch, filler
from comparison.clients.closed_loop import ClosedLoop, Cycle, LoadConnection, Milliseconds, ResponseLayout
from comparison.wire import Address, Connection

from odradek import Admin, ClientSettings, NewTopic
from odradek.base.types import TopicPartition
from odradek.log.directories import directory_worker, flush_queue
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.testing.in_process import InProcessBroker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

TOPIC: Final = "synced"
VALUE_BYTES: Final = 200
WAYS: Final = ("each", "in-turn", "together")
ENDLESS: Final = 1 << 40
"""Number of requests that no connection reaches."""
TURN_SECONDS: Final = 30.0
"""The load fails if no record is acknowledged for this time."""


class Load(NamedTuple):
    """What the producers do."""

    producers: int
    partitions: int
    processes: int
    seconds: float


class Result(NamedTuple):
    """Records per second, latencies in milliseconds, and microseconds of CPU for each record."""

    rate: float
    median: float
    late: float
    cpu: float

    def __str__(self) -> str:
        """Return the line that is printed."""
        return (
            f"{self.rate:6.0f} records/s, latency {self.median:.1f} ms, p99 {self.late:.1f} ms, "
            f"{self.cpu:.0f} us of CPU per record"
        )


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--producers", default=200, show_default=True, help="Number of producers, each with its connection.")
@click.option("--partitions", default=200, show_default=True, help="Number of partitions of the topic.")
@click.option("--seconds", default=10.0, show_default=True, help="Duration of each run.")
@click.option("--runs", default=3, show_default=True, help="Number of runs of each way.")
@click.option("--way", "ways", multiple=True, default=WAYS, type=click.Choice(WAYS), help="Ways to sync; default: all.")
@click.option("--threads", type=int, help="Number of flushes at a time for `together`; default: that of brokers.")
@click.option("--sync-ms", default=0.0, show_default=True, help="Shortest time of a sync in milliseconds.")
@click.option("--processes", default=2, show_default=True, help="Number of processes of the producers.")
def main(
    *,
    directory: Path,
    producers: int,
    partitions: int,
    seconds: float,
    runs: int,
    ways: tuple[str, ...],
    threads: int | None,
    sync_ms: float,
    processes: int,
) -> None:
    """Measure the acknowledged records per second of the ways to sync."""
    load = Load(producers, partitions, min(processes, producers), seconds)
    click.echo(f"{producers} producers, {partitions} partitions, {seconds:g} s")
    results: dict[str, list[Result]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, of_way in results.items():
            with longer_syncs(sync_ms):
                of_way.append(run(directory, load, way, threads))
            click.echo(f"{way:>9}: {of_way[-1]}")
    for way, of_way in results.items():
        click.echo(f"{way:>9}: {Result(*np.median(np.array(of_way), axis=0))} (medians)")


def run(directory: Path, load: Load, way: str, threads: int | None) -> Result:
    """Measure a new broker."""
    with ExitStack() as closing:
        if way == "each":
            closing.enter_context(patch.object(LogManager, "sync_soon", _flush_at_once))
        elif way == "in-turn" or threads is not None:
            for module in (directory_worker, flush_queue):
                closing.enter_context(patch.object(module, "SYNC_THREADS", 1 if way == "in-turn" else threads))
        broker = InProcessBroker(Path(closing.enter_context(tempfile.TemporaryDirectory(dir=directory))))
        broker.start()
        closing.callback(broker.close)
        asyncio.run(create_topic(ClientSettings.of(broker.bootstrap), load.partitions, 1))
        cpu = time.process_time()
        places = [number % load.partitions for number in range(load.producers)]
        found = produce(Address.parse(broker.bootstrap), places, load.processes, load.seconds)
        cpu = time.process_time() - cpu
    median, late = np.percentile(found, (50, 99))
    return Result(len(found) / load.seconds, median, late, cpu / len(found) * 1e6)


@contextmanager
def longer_syncs(least_ms: float) -> Iterator[None]:
    """Let each sync of this process take a minimum time while the block runs."""
    with ExitStack() as patches:
        for function in ("fsync", "fdatasync") if least_ms else ():
            patches.enter_context(patch.object(os, function, _longer(getattr(os, function), least_ms / 1000)))
        yield


def _longer(sync: Callable[[int], None], least_seconds: float) -> Callable[[int], None]:
    def call(descriptor: int) -> None:
        begin = time.monotonic()
        sync(descriptor)
        threading.Event().wait(max(0.0, least_seconds - (time.monotonic() - begin)))

    return call


def _flush_at_once(_: LogManager, log: PartitionLog) -> None:
    log.flush()


async def create_topic(settings: ClientSettings, partitions: int, flush_messages: int | None) -> None:
    """Create the topic that producers write to. `flush_messages`: see `flush.messages`; None for the default."""
    configs = () if flush_messages is None else (("flush.messages", str(flush_messages)),)
    async with Admin(settings) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=partitions, replication_factor=1, configs=configs)])


def produce(address: Address, places: list[int], processes: int, seconds: float) -> Milliseconds:
    """Let processes produce at the same time. Return the latencies of all records.

    `places`: the partition of each producer.
    """
    context = multiprocessing.get_context("spawn")
    pipes = []
    for number in range(processes):
        ours, theirs = context.Pipe()
        own = places[number::processes]
        context.Process(target=produce_to, args=(theirs, address, own, seconds), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send(None)
    return np.concatenate([pipe.recv() for pipe in pipes])


def produce_to(pipe: Pipe, address: Address, partitions: list[int], seconds: float) -> None:
    """Connect a producer for each of these partitions, report it, wait for the start, and send the latencies."""
    records = batch(filler(VALUE_BYTES), 1, timestamp_ms=int(time.time() * 1000))
    with ExitStack() as closing:
        connections = []
        for number, partition in enumerate(partitions):
            connection = closing.enter_context(Connection(address))
            cycle = Cycle([TopicPartition(TOPIC, partition)], records, window=1)
            layout = ResponseLayout.learn(connection, cycle)
            connections.append(LoadConnection(f"producer {number}", connection.detach(), cycle, layout, ENDLESS))
        loop = ClosedLoop(connections)
        pipe.send(None)
        pipe.recv()
        gc.disable()
        for each in connections:
            each.begin()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            loop.turn(TURN_SECONDS)
        pipe.send(loop.milliseconds())


if __name__ == "__main__":
    main()
