"""Creates the golden segment of `__transaction_state`: Apache Kafka 3.9.1 writes it, librdkafka is the client.

    .venv/bin/python broker/tests/golden/coordinator/make_transaction_state.py

Needs Java 17 and Maven; takes a minute. The transactional ids, their states and their partitions are the same each
time; producer ids and timestamps are not.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_testkit.interop.apache import QUICK_START, ApacheBroker, jars
from odradek_testkit.interop.transactional import SECONDS, transactional

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[3]
VERSION: Final = "3.9.1"
TARGET: Final = HERE / f"transaction_state_kafka_{VERSION}.log"
BROKER: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
}


def begin(producer: Producer, *places: tuple[str, int]) -> None:
    """Begin a transaction with a record in each partition."""
    producer.begin_transaction()
    for topic, partition in places:
        producer.produce(topic, b"record", partition=partition)
    producer.flush(SECONDS)


def write(bootstrap: str) -> None:
    """Let the coordinator write all its states."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A broker listens shortly before it is elected, and librdkafka requests the controller only once.
    wait_until(lambda: admin.list_topics(timeout=10).controller_id >= 0, what="a controller")
    for future in admin.create_topics([NewTopic("events", 2, 1), NewTopic("others", 1, 1)]).values():
        future.result(SECONDS)
    transactional(bootstrap, "empty-ünï", **{"transaction.timeout.ms": 12_345})
    committed = transactional(bootstrap, "committed")
    begin(committed, ("events", 0))
    committed.commit_transaction(SECONDS)
    aborted = transactional(bootstrap, "aborted")
    begin(aborted, ("events", 1))
    aborted.abort_transaction(SECONDS)
    begin(transactional(bootstrap, "fenced"), ("others", 0))
    transactional(bootstrap, "fenced")
    several = transactional(bootstrap, "several")
    begin(several, ("events", 0), ("events", 1), ("others", 0))
    several.commit_transaction(SECONDS)
    offsets = transactional(bootstrap, "offsets")
    offsets.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "group"})
    offsets.send_offsets_to_transaction([TopicPartition("events", 0, 3)], consumer.consumer_group_metadata(), SECONDS)
    offsets.commit_transaction(SECONDS)
    consumer.close()
    begin(transactional(bootstrap, "open"), ("events", 0))


@click.command(help=__doc__)
def main() -> None:
    """Start ZooKeeper and the broker, write, stop them and keep the segment."""
    folder = jars(VERSION, ROOT / ".interop")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        directory = Path(name)
        zookeeper = ZooKeeperServer(directory / "zookeeper", free_ports(1)[0], synchronous=False)
        running.callback(zookeeper.stop)
        zookeeper.start()
        zookeeper.wait_until_ready()
        broker = ApacheBroker(
            folder,
            directory / "broker",
            broker_id=1,
            zookeeper=f"{zookeeper.connect}/kafka",
            properties=BROKER,
            heap="256m",
            options=QUICK_START,
        )
        broker.start()
        try:
            write(f"127.0.0.1:{broker.port}")
        finally:
            broker.stop()
        shutil.copyfile(directory / "broker/data/__transaction_state-0/00000000000000000000.log", TARGET)


if __name__ == "__main__":
    main()
