"""The consumers and tools of Apache Kafka 4.1.0 in consumer groups (KIP-848, `group.protocol=consumer`)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import Tools, jars, java_command, quick_start

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "4.1.0"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
PARTITIONS: Final = 3
SHORT: Final = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "offsets.topic.replication.factor": 1,
}
"""Short times, so that the end of a killed member is noticed soon."""

Partition = tuple[str, int]


class Member:
    """A VerifiableConsumer, which tells what it is assigned and reads."""

    def __init__(self, tools: Tools, group: str, topic: str, *options: str) -> None:
        """Start it as a member of the group."""
        arguments = ["--bootstrap-server", tools.bootstrap, "--group-id", group, "--topic", topic]
        arguments += ["--group-protocol", "consumer", "--reset-policy", "earliest", *options]
        command = java_command(tools.folder, VERIFIABLE_CONSUMER, heap="128m", options=quick_start(tools.folder))
        self.process: Final = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        self.owned: set[Partition] = set()
        self.read = 0
        self.committed: dict[Partition, int] = {}
        self._reader: Final = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            partitions = {(each["topic"], each["partition"]) for each in event.get("partitions", ())}
            match event["name"]:
                case "partitions_assigned":
                    self.owned |= partitions
                case "partitions_revoked":
                    self.owned -= partitions
                case "records_consumed":
                    self.read += event["count"]
                case "offsets_committed" if event["success"]:
                    self.committed |= {(row["topic"], row["partition"]): row["offset"] for row in event["offsets"]}

    def stop(self, *, kill: bool = False) -> None:
        """Stop it as an administrator does, or kill it. Idempotent."""
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


@pytest.fixture
def tools(kafka: Path, odradek_cluster_factory: Callable[..., RunningCluster]) -> Tools:
    """The tools, with a broker of their own."""
    topics = {"events": {"partitions": PARTITIONS, "replicas": 1}}
    return Tools(VERSION, kafka, odradek_cluster_factory(brokers=1, config=SHORT, topics=topics).bootstrap)


@pytest.fixture
def start(tools: Tools) -> Iterator[Callable[..., Member]]:
    """Starts members, which end with the test."""
    members: list[Member] = []

    def begin(group: str, *options: str) -> Member:
        members.append(Member(tools, group, "events", *options))
        return members[-1]

    yield begin
    for member in members:
        member.stop(kill=True)


def produce(tools: Tools, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": tools.bootstrap})
    for number in range(count):
        producer.produce("events", str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def table(printed: str) -> list[Mapping[str, str]]:
    """Return the rows that ConsumerGroupCommand prints, by column."""
    lines = [line.replace("COORDINATOR (ID)", "COORDINATOR ID") for line in printed.splitlines() if line.strip()]
    start = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
    columns = lines[start].split()
    return [dict(zip(columns, line.split(), strict=False)) for line in lines[start + 1 :]]


def test_members_join_leave_and_fail(tools: Tools, start: Callable[..., Member]) -> None:
    group = f"java-{uuid4().hex[:8]}"
    one = start(group)
    wait_until(lambda: len(one.owned) == PARTITIONS, what="the assignment of the first member")
    two = start(group)
    wait_until(lambda: sorted([len(one.owned), len(two.owned)]) == [1, 2], what="a rebalance")
    assert not one.owned & two.owned
    produce(tools, 30)
    wait_until(lambda: one.read + two.read == 30, what="all records")
    wait_until(lambda: sum((one.committed | two.committed).values()) == 30, what="the commits of all records")
    two.stop()
    wait_until(lambda: len(one.owned) == PARTITIONS, what="the partitions of the member that left")
    three = start(group)
    wait_until(lambda: sorted([len(one.owned), len(three.owned)]) == [1, 2], what="another rebalance")
    three.stop(kill=True)
    wait_until(lambda: len(one.owned) == PARTITIONS, what="the partitions of the member that was killed")
    assert one.read + two.read == 30, "records before the commits are not read again"
    one.stop()
    limits = ["--max-messages", "30", "--timeout-ms", "10000", "--from-beginning"]
    consumer = ["--consumer-property", "group.protocol=consumer", "--group"]
    read = tools.run(CONSOLE_CONSUMER, "--topic", "events", *limits, *consumer, f"{group}-other")
    assert {*read.split()} == {str(number) for number in range(30)}


def test_the_tool_shows_and_changes_consumer_groups(tools: Tools, start: Callable[..., Member]) -> None:
    group = f"java-{uuid4().hex[:8]}"
    classic = confluent_kafka.Consumer({"bootstrap.servers": tools.bootstrap, "group.id": "classic"})
    try:
        classic.subscribe(["events"])
        wait_until(lambda: classic.poll(0.1) is None and len(classic.assignment()) == PARTITIONS, what="a member")
        produce(tools, 6)
        member = start(group, "--group-instance-id", "here")
        wait_until(lambda: len(member.committed) == PARTITIONS, what="the commits")

        assert {*tools.run(GROUPS, "--list").split()} == {group, "classic"}
        typed = table(tools.run(GROUPS, "--list", "--type", "consumer"))
        assert [(row["GROUP"], row["TYPE"]) for row in typed] == [(group, "Consumer")]
        stable = table(tools.run(GROUPS, "--list", "--state", "stable"))
        assert {row["GROUP"] for row in stable} == {group, "classic"}

        rows = table(tools.run(GROUPS, "--describe", "--group", group, "--offsets"))
        assert [(row["TOPIC"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [("events", "2", "0")] * 3
        (state,) = table(tools.run(GROUPS, "--describe", "--group", group, "--state", "--verbose"))
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        assert (state["ASSIGNMENT-STRATEGY"], state["GROUP-EPOCH"]) == ("uniform", state["TARGET-ASSIGNMENT-EPOCH"])
        (shown,) = table(tools.run(GROUPS, "--describe", "--group", group, "--members", "--verbose"))
        assert (shown["GROUP-INSTANCE-ID"], shown["#PARTITIONS"]) == ("here", "3")
        assert shown["CURRENT-ASSIGNMENT"] == shown["TARGET-ASSIGNMENT"] == "events:0,1,2"

        assert "GroupNotEmptyException" in tools.run(GROUPS, "--delete", "--group", group)
        member.stop()
        wait_until(
            lambda: table(tools.run(GROUPS, "--describe", "--group", group, "--state"))[0]["STATE"] == "Empty",
            what="the end of the member",
        )
        tools.run(GROUPS, "--reset-offsets", "--to-earliest", "--execute", "--topic", "events", "--group", group)
        rows = table(tools.run(GROUPS, "--describe", "--group", group, "--offsets"))
        assert {row["CURRENT-OFFSET"] for row in rows} == {"0"}
        assert "successful" in tools.run(GROUPS, "--delete", "--group", group)
        assert tools.run(GROUPS, "--list").split() == ["classic"]
    finally:
        classic.close()
