"""Java producers in a cluster that has finalized transaction version 2 (KIP-890), while brokers are killed.

A producer of 4.1 uses version 2: its epoch rises with every transaction, and it adds no partitions itself. One of 3.9
does not know the feature and keeps its epoch.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek import BlockingClient
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import QUICK_START, Tools, client_jars, compile_java, jars, java_command
from odradek_testkit.interop.transactional import read

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(480)]

FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
SOURCE: Final = Path(__file__).parents[1] / "java" / "Transact.java"
PARTITIONS: Final = 3
TRANSACTIONS: Final = 60
KILLED_AFTER: Final = (5, 25)
"""Numbers of committed transactions after which a broker is killed."""


@pytest.mark.parametrize(("version", "raises_epochs"), [("4.1.0", True), ("3.9.1", False)])
def test_java_producers_while_brokers_are_killed(
    odradek_cluster_factory: ClusterFactory,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    version: str,
    raises_epochs: bool,
) -> None:
    cache = Path(request.config.rootpath) / ".interop"
    cluster = odradek_cluster_factory(brokers=3)
    tools = Tools("3.9.1", jars("3.9.1", cache), cluster.bootstrap)
    assert "transaction.version" in tools.run(FEATURES, "describe")
    tools.run(FEATURES, "upgrade", "--feature", "transaction.version=2")
    wait_until(lambda: "FinalizedVersionLevel: 2" in tools.run(FEATURES, "describe"), what="the level", seconds=60)
    create(cluster.bootstrap, "numbers")
    folder = client_jars(version, cache)
    compile_java(folder, [SOURCE], tmp_path)
    output = tmp_path / "output"
    command = java_command(folder, "Transact", heap="160m", options=QUICK_START, classes=tmp_path)
    with output.open("wb") as stream:
        process = subprocess.Popen([*command, cluster.bootstrap, "numbers", "tx", str(TRANSACTIONS)], stdout=stream)
    try:
        kill_some(cluster, process, output)
        assert process.wait(240) == 0
    finally:
        process.kill()
        process.wait()
    copies = Counter(read(cluster.bootstrap, "numbers", PARTITIONS))
    assert copies == {
        (partition, f"tx-{number}"): 1 for partition in range(PARTITIONS) for number in range(TRANSACTIONS)
    }
    assert committed_offset(cluster.bootstrap, "tx") == TRANSACTIONS
    with BlockingClient(cluster.bootstrap) as client:
        found = client.admin.describe_transactions(["tx"])["tx"]
    # Aborts raise the epoch as well. Without version 2, only errors do.
    assert (found.producer_epoch >= TRANSACTIONS) == raises_epochs, found


def kill_some(cluster: RunningCluster, process: subprocess.Popen[bytes], output: Path) -> None:
    """Kill a broker, and start it again, each time that the producer has committed enough transactions."""
    chance = random.Random(7)

    def committed() -> int:
        return output.read_text().count("committed ")

    for wanted in KILLED_AFTER:
        wait_until(
            lambda wanted=wanted: process.poll() is not None or committed() >= wanted,  # type: ignore[misc]
            what="more transactions",
            seconds=180,
        )
        victim = chance.choice(cluster.broker_ids)
        cluster.kill(victim)
        cluster.start_broker(victim)


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(60)


def committed_offset(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        return int(consumer.committed([TopicPartition("numbers", 0)], timeout=60)[0].offset)
    finally:
        consumer.close()
