"""Measures what the clients of one log directory notice while the disk of another directory does not answer.

Run it with `.venv/bin/python broker/tests/bench/stalled_directory.py DIRECTORY`. The broker runs in this process and
has two log directories in a new folder below DIRECTORY. Producers of another process write to the partitions of the
second one, each the next record when the last one is acknowledged (acks=1). Records for the first directory arrive all
the time, too. The broker is measured while both disks answer, and again while the first one does not: its syncs wait
from the start (`stalling_broker`), and its writes some seconds later, as when the page cache is full.

Prints the rate and the latencies of the producers of the second directory, and the warnings of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import cycle
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import click
import numpy as np
from comparison.batches import batch, filler
from comparison.clients.closed_loop import Milliseconds
from comparison.wire import Address, Connection, produce_frame
from required_flushes import TOPIC, VALUE_BYTES, create_topic, produce

from odradek import ClientSettings
from odradek.base.types import TopicPartition
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.torture.stalling_broker import resume, stall, stalling_calls

PAUSE_SECONDS: Final = 0.01
"""Time between two records for the directory that stalls."""

ANSWER_SECONDS: Final = 3600.0
"""Longest time for an answer about the directory that stalls."""


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--producers", default=20, show_default=True, help="Number of producers of the second directory.")
@click.option("--seconds", default=60.0, show_default=True, help="Duration of each of the two measurements.")
@click.option("--writes-after", default=2.0, show_default=True, help="Seconds after which writes wait, too.")
@click.option("--flush-messages", type=int, help="flush.messages of the topic; default: no required flushes.")
def main(*, directory: Path, producers: int, seconds: float, writes_after: float, flush_messages: int | None) -> None:
    """Measure producers while the disk of another directory answers, and while it does not."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    with ExitStack() as closing:
        root = Path(closing.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        first, second = root / "disk-0", root / "disk-1"
        closing.enter_context(stalling_calls())
        broker = InProcessBroker(root, {"log.dirs": f"{first},{second}"})
        broker.start()
        closing.callback(broker.close)
        closing.callback(resume, first)
        asyncio.run(create_topic(ClientSettings.of(broker.bootstrap), 8, flush_messages))
        address = Address.parse(broker.bootstrap)
        lost, kept = (
            [partition for partition in range(8) if (folder / f"{TOPIC}-{partition}").exists()]
            for folder in (first, second)
        )
        context = multiprocessing.get_context("spawn")
        ends = context.Event()
        other = context.Process(target=send_until, args=(ends, address, lost), daemon=True)
        other.start()
        closing.callback(ends.set)
        places = [kept[number % len(kept)] for number in range(producers)]
        show("both answer", produce(address, places, 1, seconds), seconds)
        stall(first)
        late = threading.Timer(writes_after, stall, (first,), {"writes": True})
        late.start()
        closing.callback(late.cancel)
        show("one stalls", produce(address, places, 1, seconds), seconds)


def show(when: str, latencies: Milliseconds, seconds: float) -> None:
    """Print the rate and the latencies."""
    median, late = np.percentile(latencies, (50, 99))
    click.echo(
        f"{when}: {len(latencies) / seconds:.0f} records/s, latency {median:.2f} ms, p99 {late:.2f} ms, "
        f"maximum {latencies.max():.1f} ms"
    )


def send_until(ends: Event, address: Address, partitions: list[int]) -> None:
    """Send a record to each partition in turn, without a look at the answers, until the event is set."""
    records = batch(filler(VALUE_BYTES), 1, timestamp_ms=int(time.time() * 1000))
    frames = [produce_frame(TopicPartition(TOPIC, partition), records) for partition in partitions]
    with Connection(address, timeout_seconds=ANSWER_SECONDS) as connection:
        threading.Thread(target=read_answers, args=(connection,), daemon=True).start()
        for frame in cycle(frames):
            if ends.wait(PAUSE_SECONDS):
                return
            connection.send(frame)


def read_answers(connection: Connection) -> None:
    """Read the answers, which may take as long as the stall."""
    while True:
        connection.receive()


if __name__ == "__main__":
    main()
