"""The stock command-line tools of Apache Kafka 3.9.1 and 4.1.0 do their work against this broker."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest

from odradek.testing.apache import run_tool
from odradek.testing.cluster import RunningCluster

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def console_producer(folder: Path) -> str:
    """The class moved between the two versions."""
    return "kafka.tools.ConsoleProducer" if "3.9" in folder.name else "org.apache.kafka.tools.ConsoleProducer"


@pytest.fixture
def bootstrap(odradek_cluster: RunningCluster) -> list[str]:
    return ["--bootstrap-server", odradek_cluster.bootstrap]


@pytest.fixture
def topic(kafka_jars: Path, bootstrap: list[str]) -> str:
    name = f"java-{uuid4().hex[:8]}"
    create = ["--create", "--topic", name, "--partitions", "3", "--replication-factor", "3"]
    assert "Created topic" in run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, *create])
    return name


def test_topic_command(kafka_jars: Path, bootstrap: list[str], topic: str) -> None:
    assert topic in run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--list"]).split()
    described = run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--describe", "--topic", topic])
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 3", described)
    assert described.count("Leader: ") == 3
    run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--alter", "--topic", topic, "--partitions", "5"])
    described = run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--describe", "--topic", topic])
    assert "PartitionCount: 5" in described
    run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--delete", "--topic", topic])
    assert topic not in run_tool(kafka_jars, TOPIC_COMMAND, [*bootstrap, "--list"]).split()


def test_console_tools_and_groups(kafka_jars: Path, bootstrap: list[str], topic: str) -> None:
    lines = [f"k{number}:value {number}" for number in range(100)]
    producer = ["--topic", topic, "--reader-property" if "4.1" in kafka_jars.name else "--property"]
    run_tool(
        kafka_jars,
        console_producer(kafka_jars),
        [*bootstrap, *producer, "parse.key=true", producer[-1], "key.separator=:"],
        stdin="\n".join(lines) + "\n",
    )
    group = f"group-{uuid4().hex[:8]}"
    consumer = ["--topic", topic, "--from-beginning", "--max-messages", "100", "--timeout-ms", "60000"]
    read = run_tool(
        kafka_jars,
        CONSOLE_CONSUMER,
        [*bootstrap, *consumer, "--group", group, "--formatter-property", "print.key=true"],
    )
    assert sorted(read.replace("\t", ":").splitlines()) == sorted(lines)

    assert group in run_tool(kafka_jars, GROUP_COMMAND, [*bootstrap, "--list"]).split()
    described = run_tool(kafka_jars, GROUP_COMMAND, [*bootstrap, "--describe", "--group", group])
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 100
    assert {row[5] for row in rows} == {"0"}
    run_tool(
        kafka_jars,
        GROUP_COMMAND,
        [*bootstrap, "--reset-offsets", "--to-earliest", "--execute", "--topic", topic, "--group", group],
    )
    described = run_tool(kafka_jars, GROUP_COMMAND, [*bootstrap, "--describe", "--group", group])
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[5]) for row in rows) == 100
    deleted = run_tool(kafka_jars, GROUP_COMMAND, [*bootstrap, "--delete", "--group", group])
    assert "successful" in deleted


def test_performance_tools(kafka_jars: Path, bootstrap: list[str], topic: str) -> None:
    servers = f"bootstrap.servers={bootstrap[1]}"
    sent = run_tool(
        kafka_jars,
        PRODUCER_PERFORMANCE,
        [
            *("--topic", topic, "--num-records", "50000", "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", servers, "acks=all", "linger.ms=5", "compression.type=lz4"),
        ],
    )
    assert "50000 records sent" in sent
    read = run_tool(
        kafka_jars,
        CONSUMER_PERFORMANCE,
        [*bootstrap, "--topic", topic, "--messages", "50000", "--timeout", "60000"],
    )
    counts = [line.split(",")[4].strip() for line in read.splitlines() if line.startswith("20")]
    assert sum(int(count) for count in counts) >= 50_000
