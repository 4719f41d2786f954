"""Measures how exactly a quota of bytes holds, while another client without one runs free.

Run it with `.venv/bin/python broker/tests/bench/client_quotas.py`. A broker runs in this process. Two producers
(librdkafka, `acks=1`, records of 1000 bytes), then two consumers, run in processes of their own: "limited" has a quota,
"free" has none. What the first seconds allow, before the windows of the quota are full, is not measured.

Prints the bytes per second of both, and the quotient of the rate and the quota.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import click

from odradek import BlockingClient, NewTopic
from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind
from odradek.testing.in_process import InProcessBroker

RECORD_BYTES: Final = 1000
BATCH_BYTES: Final = 100_000
"""Size of requests. A client that sends a second's worth at once waits for whole windows."""
TOPICS: Final = {"limited": "of-limited", "free": "of-free"}


@click.command()
@click.option("--rate", default=1_000_000, show_default=True, help="Quota in bytes per second.")
@click.option("--seconds", default=20.0, show_default=True, help="Duration of each measurement.")
@click.option("--warm-up", default=15.0, show_default=True, help="Seconds before each measurement.")
def main(*, rate: int, seconds: float, warm_up: float) -> None:
    """Measure two producers and two consumers, one of each with a quota."""
    with tempfile.TemporaryDirectory() as directory:
        broker = InProcessBroker(Path(directory), {"log.segment.bytes": str(64 << 20)})
        broker.start()
        try:
            with BlockingClient(broker.bootstrap) as client:
                client.admin.create_topics([NewTopic(name=topic, partitions=1) for topic in TOPICS.values()])
                quotas = {QuotaKind.PRODUCER_BYTE_RATE: float(rate), QuotaKind.CONSUMER_BYTE_RATE: float(rate)}
                client.admin.alter_client_quotas({QuotaEntity(client_id="limited"): quotas})
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(2, mp_context=context) as processes:
                for what, work in (("producing", produce), ("consuming", consume)):
                    found = {name: processes.submit(work, broker.bootstrap, name, warm_up, seconds) for name in TOPICS}
                    limited, free = (found[name].result() for name in ("limited", "free"))
                    click.echo(
                        f"{what}: limited {limited:,.0f} B/s = {limited / rate:.3f} of the quota, free {free:,.0f} B/s"
                    )
        finally:
            broker.close()


def produce(bootstrap: str, name: str, warm_up: float, seconds: float) -> float:
    """Return the acknowledged bytes per second."""
    from confluent_kafka import Producer

    acknowledged = 0

    def count(error: object, message: object) -> None:
        nonlocal acknowledged
        assert error is None, error
        acknowledged += RECORD_BYTES

    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "acks": 1,
        "queue.buffering.max.kbytes": 4096,
        "batch.size": BATCH_BYTES,
    }
    producer = Producer(settings)
    value = bytes(RECORD_BYTES)

    def send_until(end: float) -> None:
        while time.monotonic() < end:
            try:
                producer.produce(TOPICS[name], value, on_delivery=count)
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)

    begin = time.monotonic()
    send_until(begin + warm_up)
    before, measured = acknowledged, time.monotonic()
    send_until(measured + seconds)
    rate = (acknowledged - before) / (time.monotonic() - measured)
    producer.purge()
    return rate


def consume(bootstrap: str, name: str, warm_up: float, seconds: float) -> float:
    """Return the consumed bytes per second. Begins again at the end of the topic."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "group.id": name,
        "enable.auto.commit": False,
        "fetch.message.max.bytes": BATCH_BYTES,
    }
    consumer = Consumer(settings)
    start = TopicPartition(TOPICS[name], 0, 0)
    consumer.assign([start])
    end = consumer.get_watermark_offsets(start)[1]
    consumed = 0

    def read_until(until: float) -> None:
        nonlocal consumed
        while time.monotonic() < until:
            for message in consumer.consume(500, timeout=0.1):
                consumed += len(message.value() or b"")
                if (message.offset() or 0) + 1 >= end:
                    consumer.seek(start)

    begin = time.monotonic()
    read_until(begin + warm_up)
    before, measured = consumed, time.monotonic()
    read_until(measured + seconds)
    rate = (consumed - before) / (time.monotonic() - measured)
    consumer.close()
    return rate


if __name__ == "__main__":
    main()
