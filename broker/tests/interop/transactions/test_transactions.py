"""Transactional clients and tools of others work with this broker, also while brokers are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, Tools, jars, java_command, quick_start
from odradek_testkit.interop.transactional import read, stable_offsets, transactional

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
VERSION: Final = "3.9.1"
PARTITIONS: Final = 4
RECORDS: Final = int(os.environ.get("ODRADEK_COPIED_RECORDS", "3000"))
"""Records of each partition that the copiers copy. 240,000 take about twenty minutes with the kills."""
QUEUED: Final = 50_000
"""Records that wait in the producer. librdkafka refuses more than 100,000."""


def test_librdkafka_commits_aborts_and_fences(odradek_cluster: RunningCluster, topic: str) -> None:
    bootstrap = odradek_cluster.bootstrap
    name = f"tx-{uuid4().hex[:8]}"
    first = transactional(bootstrap, name)
    for text, ends in (("committed", first.commit_transaction), ("aborted", first.abort_transaction)):
        first.begin_transaction()
        for number in range(3):
            first.produce(topic, text, partition=number)
        first.flush(60)
        ends(60)
    assert sorted(read(bootstrap, topic, 3)) == [(number, "committed") for number in range(3)]
    assert len(read(bootstrap, topic, 3, "read_uncommitted")) == 6

    first.begin_transaction()
    first.produce(topic, "never", partition=0)
    first.flush(60)
    second = transactional(bootstrap, name)
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        first.commit_transaction(60)
    second.begin_transaction()
    second.produce(topic, "of the second", partition=0)
    second.commit_transaction(60)
    assert sorted(read(bootstrap, topic, 3)) == [
        (0, "committed"),
        (0, "of the second"),
        (1, "committed"),
        (2, "committed"),
    ]


def test_offsets_become_visible_with_the_transaction(odradek_cluster: RunningCluster, topic: str, group: str) -> None:
    bootstrap = odradek_cluster.bootstrap
    producer = transactional(bootstrap, f"tx-{uuid4().hex[:8]}")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = TopicPartition(topic, 0)

    def committed() -> int:
        return consumer.committed([wanted], timeout=60)[0].offset

    for offset, is_commit, expected in ((5, True, 5), (7, False, 5), (9, True, 9)):
        producer.begin_transaction()
        producer.produce(topic, "x", partition=0)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, 60)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(60)
        # librdkafka asks for stable offsets: it waits until the transaction is complete.
        assert committed() == expected
    consumer.close()


def test_a_transaction_that_times_out_is_aborted(odradek_cluster: RunningCluster, topic: str) -> None:
    bootstrap = odradek_cluster.bootstrap
    producer = transactional(bootstrap, f"tx-{uuid4().hex[:8]}", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(topic, "late", partition=0)
    producer.flush(60)

    wait_until(lambda: stable_offsets(bootstrap, topic, 1) != [0], what="the abort of the transaction", seconds=60)
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
    assert read(bootstrap, topic, 3) == []


def test_java_producers_of_every_release(tools: Tools, topic: str) -> None:
    options = ["--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"]
    ends = ["--transactional-id", f"perf-{uuid4().hex[:8]}", "--transaction-duration-ms", "100"]
    servers = ["--producer-props", f"bootstrap.servers={tools.bootstrap}"]
    assert "2000 records sent" in tools.run_plain(PRODUCER_PERFORMANCE, *options, *ends, *servers)
    assert len(read(tools.bootstrap, topic, 3)) == 2000


def test_transactions_command(tools: Tools, topic: str) -> None:
    name = f"tx-{uuid4().hex[:8]}"
    producer = transactional(tools.bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=1)
    producer.flush(60)

    listed = next(line for line in tools.run(TRANSACTIONS, "list").splitlines() if line.startswith(name)).split()
    assert listed[3] == "Ongoing"
    described = tools.run(TRANSACTIONS, "describe", "--transactional-id", name).splitlines()[1].split()
    assert (described[1], described[2], described[3]) == (name, listed[2], "0")
    assert described[-1] == f"{topic}-1"
    of_partition = ["--topic", topic, "--partition", "1"]
    [producers] = tools.run(TRANSACTIONS, "describe-producers", *of_partition).splitlines()[1:]
    assert producers.split()[:2] == [listed[2], "0"]
    tools.run(TRANSACTIONS, "abort", *of_partition, "--start-offset", producers.split()[-1])
    assert read(tools.bootstrap, topic, 3) == []
    with pytest.raises(InteropError):
        tools.run(TRANSACTIONS, "describe", "--transactional-id", "does-not-exist")


# Copiers


@contextmanager
def copiers(folder: Path, bootstrap: str, outputs: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a copier for each partition of `source`. Each ends when it has copied its partition."""
    command = java_command(folder, COPIER, heap="160m", options=quick_start(folder))
    running = []
    for number in range(PARTITIONS):
        options = [
            *("--broker-list", bootstrap, "--input-topic", "source", "--output-topic", "target"),
            *("--input-partition", str(number), "--transactional-id", f"copier-{number}"),
            *("--consumer-group", f"copy-{number}", "--max-messages", str(RECORDS)),
            *("--transaction-size", "100", "--transaction-timeout", "15000"),
            *("--enable-random-aborts", "--use-group-metadata"),
        ]
        with (outputs / f"copier-{number}").open("wb") as output:
            running.append(subprocess.Popen([*command, *options], stdout=output))
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def fill(bootstrap: str, topic: str) -> None:
    """Write numbered records to each partition."""
    results: list[object] = []

    def note(error: object, message: object) -> None:
        results.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for count in range(RECORDS):
        for number in range(PARTITIONS):
            producer.produce(topic, f"{number}:{count}", partition=number, on_delivery=note)
        producer.poll(0)
        while len(producer) > QUEUED:
            producer.poll(1)
    assert producer.flush(120) == 0
    assert results == [None] * RECORDS * PARTITIONS


def create(bootstrap: str, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in topics]
    for created in admin.create_topics(new).values():
        created.result(60)


@pytest.mark.timeout(600 + RECORDS // 10)
def test_message_copiers_neither_lose_nor_repeat_while_brokers_are_killed(
    odradek_cluster_factory: ClusterFactory, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = jars(VERSION, Path(request.config.rootpath) / ".interop")
    cluster = odradek_cluster_factory(brokers=3)
    create(cluster.bootstrap, ["source", "target"])
    fill(cluster.bootstrap, "source")
    chance = random.Random(1)
    kills = 0
    with copiers(folder, cluster.bootstrap, tmp_path) as running:
        while any(process.poll() is None for process in running):
            victim = chance.choice(cluster.broker_ids)
            cluster.kill(victim)
            kills += 1
            enough = sum(stable_offsets(cluster.bootstrap, "target", PARTITIONS)) + 500
            cluster.start_broker(victim)

            def goes_on(enough: int = enough) -> bool:
                has_ended = all(process.poll() is not None for process in running)
                return has_ended or sum(stable_offsets(cluster.bootstrap, "target", PARTITIONS)) >= enough

            wait_until(goes_on, what="more copies after a kill", seconds=180)
        assert [process.wait() for process in running] == [0] * PARTITIONS
    for number in range(PARTITIONS):
        last = (tmp_path / f"copier-{number}").read_text().splitlines()[-1]
        assert json.loads(last)["remaining"] <= 0
    copies = Counter(value for _, value in read(cluster.bootstrap, "target", PARTITIONS))
    expected = {f"{number}:{count}" for number in range(PARTITIONS) for count in range(RECORDS)}
    assert {value for value, count in copies.items() if count > 1} == set(), "repeated"
    assert expected - copies.keys() == set(), "lost"
    assert copies.keys() - expected == set()
    assert kills > 1
