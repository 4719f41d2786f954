"""The unmodified ReassignPartitionsCommand and LeaderElectionCommand of Apache Kafka move replicas and leaders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, Tools

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TOPIC = "moving"
RECORDS = 500


class Brokers(NamedTuple):
    """The roles of three brokers."""

    one: int
    two: int
    spare: int
    """A broker that has no replica at first and is not the controller, so that it can be paused."""


@pytest.fixture
def empty_cluster(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    """Three brokers. Their session timeout is longer than any pause in the tests."""
    settings = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": 60_000}
    return odradek_cluster_factory(brokers=3, config=settings)


@pytest.fixture
def brokers(empty_cluster: RunningCluster) -> Brokers:
    """The roles of the brokers."""
    admin = AdminClient({"bootstrap.servers": empty_cluster.bootstrap})
    controller = admin.describe_cluster().result(60).controller.id
    others = [broker for broker in empty_cluster.broker_ids if broker != controller]
    return Brokers(controller, *others)


@pytest.fixture
def cluster(empty_cluster: RunningCluster, brokers: Brokers) -> Iterator[RunningCluster]:
    """Create a topic of two partitions with records, which must still exist at the end."""
    running = empty_cluster
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    one, two, _ = brokers
    new = NewTopic(TOPIC, num_partitions=2, replica_assignment=[[one, two], [two, one]])
    admin.create_topics([new])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % 2)
    assert producer.flush(60) == 0
    yield running
    assert read_all(running) == {str(number).encode() for number in range(RECORDS)}


def read_all(cluster: RunningCluster) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(2)])
    found: set[bytes] = set()

    def is_read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value() or b"")
        return len(found) == RECORDS

    try:
        wait_until(is_read, what="every record")
    finally:
        consumer.close()
    return found


@pytest.fixture
def tools(kafka_jars: tuple[str, Path], cluster: RunningCluster) -> Tools:
    """The tools of each version, for the cluster of this test."""
    version, folder = kafka_jars
    return Tools(version, folder, cluster.bootstrap)


class Reassignment:
    """Runs ReassignPartitionsCommand with a file of assignments."""

    def __init__(self, tools: Tools, directory: Path, replicas: list[list[int]]) -> None:
        self._tools = tools
        partitions = [{"topic": TOPIC, "partition": number, "replicas": each} for number, each in enumerate(replicas)]
        self._file = directory / "wishes.json"
        self._file.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
        self._patience = directory / "client.properties"
        # The tool may send its first request to the paused broker.
        self._patience.write_text("request.timeout.ms=3000\n", encoding="utf-8")

    def run(self, action: str, *options: str) -> str:
        client = ["--command-config", str(self._patience)]
        return self._tools.run(REASSIGN, "--reassignment-json-file", str(self._file), action, *client, *options)

    def is_complete(self) -> bool:
        return self.run("--verify").count("is completed.") == 2

    def listed(self) -> str:
        return self._tools.run(REASSIGN, "--list", "--command-config", str(self._patience))


def described(tools: Tools) -> list[tuple[str, str]]:
    """Return leader and replicas of each partition."""
    printed = tools.run(TOPICS, "--describe", "--topic", TOPIC)
    return re.findall(r"Leader: (\d+)\s+Replicas: ([\d,]+)", printed)


def test_partitions_are_moved_and_verified(tools: Tools, brokers: Brokers, tmp_path: Path) -> None:
    one, two, spare = brokers
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}), encoding="utf-8")
    options = ["--topics-to-move-json-file", str(wanted), "--broker-list", "0,1,2"]
    proposed: dict[str, Any] = json.loads(tools.run(REASSIGN, "--generate", *options).strip().splitlines()[-1])
    assert {part["partition"] for part in proposed["partitions"]} == {0, 1}
    moving = Reassignment(tools, tmp_path, [[spare, one], [spare, two]])
    assert f"Successfully started partition reassignments for {TOPIC}-0,{TOPIC}-1" in moving.run("--execute")
    wait_until(moving.is_complete, what="the end of the reassignments")
    assert [replicas for _, replicas in described(tools)] == [f"{spare},{one}", f"{spare},{two}"]
    assert "No partition reassignments found." in moving.listed()
    with pytest.raises(InteropError, match="9"):
        Reassignment(tools, tmp_path, [[9], [spare, two]]).run("--execute")


def test_a_reassignment_in_progress_is_listed_and_cancelled(
    tools: Tools, cluster: RunningCluster, brokers: Brokers, tmp_path: Path
) -> None:
    one, two, spare = brokers
    moving = Reassignment(tools, tmp_path, [[spare, one], [two, one]])
    cluster.pause(spare)
    try:
        moving.run("--execute")
        assert f"{TOPIC}-0: replicas: {spare},{one},{two}. adding: {spare}. removing: {two}." in moving.listed()
        assert f"Reassignment of partition {TOPIC}-0 is still in progress." in moving.run("--verify")
        with pytest.raises(InteropError, match=r"already in progress|existing"):
            moving.run("--execute")
        # The tool would also try to remove throttles from the paused broker.
        printed = moving.run("--cancel", "--preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {TOPIC}-0" in printed
        assert "No partition reassignments found." in moving.listed()
    finally:
        cluster.resume(spare)
    assert [set(replicas.split(",")) for _, replicas in described(tools)] == [{str(one), str(two)}] * 2


def test_preferred_leaders_are_elected(tools: Tools, cluster: RunningCluster, brokers: Brokers, tmp_path: Path) -> None:
    one, two, _ = brokers
    cluster.stop_broker(one)
    cluster.start_broker(one)
    in_sync = re.compile(rf"Isr: (?:{one},{two}|{two},{one})\b")
    wait_until(
        lambda: len(in_sync.findall(tools.run(TOPICS, "--describe", "--topic", TOPIC))) == 2, what="both in sync"
    )
    assert {leader for leader, _ in described(tools)} == {str(two)}
    wanted = tmp_path / "partitions.json"
    partitions = [{"topic": TOPIC, "partition": number} for number in range(2)]
    wanted.write_text(json.dumps({"partitions": partitions}), encoding="utf-8")
    printed = tools.run(ELECT, "--election-type", "preferred", "--path-to-json-file", str(wanted))
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in printed
    assert f"Valid replica already elected for partitions {TOPIC}-1" in printed
    assert [leader for leader, _ in described(tools)] == [str(one), str(two)]
    named = ["--topic", TOPIC, "--partition", "0"]
    assert "Valid replica already elected" in tools.run(ELECT, "--election-type", "unclean", *named)
    with pytest.raises(InteropError, match="UnknownTopicOrPartition"):
        tools.run(ELECT, "--election-type", "preferred", "--topic", "nothing", "--partition", "0")
