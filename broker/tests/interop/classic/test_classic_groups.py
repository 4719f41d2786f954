"""Our high-level consumer in one group with those of Apache Kafka 0.8.2.2 and 0.9.0.1.

Members join, leave and are killed while records arrive. Every record is received, a member that leaves hands over
exactly, and the owners in ZooKeeper are those of the algorithm. ODRADEK_CLASSIC_ROUNDS sets the number of rounds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from odradek.base.types import TopicPartition
from odradek.classic.assignment import assign_range, threads_of
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import QUICK_START, compile_java, jars, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS: Final = int(os.environ.get("ODRADEK_CLASSIC_ROUNDS", "6"))
PARTITIONS: Final = 12
APACHE: Final = ("0.8.2.2", "0.9.0.1")
OURS: Final = "ours"
MOST_MEMBERS: Final = 6
SECONDS: Final = 120.0
SOURCE: Final = Path(__file__).parents[1] / "java" / "ZooKeeperMember.java"
MEMBER: Final = Path(__file__).with_name("classic_member.py")


class ClassicMember:
    """The process of one member."""

    def __init__(self, kind: str, command: Sequence[str], output: Path) -> None:
        self.kind = kind
        self._output = output
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors)

    def received(self) -> list[tuple[int, int]]:
        """Return partition and offset of each record."""
        text = self._output.read_text(encoding="ascii")
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [(int(words[1]), int(words[2])) for words in map(str.split, lines) if words[0] == "record"]

    def check(self) -> None:
        """Fail if it has ended."""
        errors = self._output.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        assert self._process.poll() is None, f"{self.kind} has ended: {errors[-3000:]}"

    def leave(self) -> None:
        """Let it leave the group, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class ClassicGroup:
    """The members of one group, those that are alive and those that have ended."""

    def __init__(self, cluster: RunningCluster, cache: Path, directory: Path, topic: str, **settings: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.alive: list[ClassicMember] = []
        self.all: list[ClassicMember] = []
        self.killed_offsets: set[tuple[int, int]] = set()
        self._directory = directory
        self._zk = KazooClient(hosts=cluster.zookeeper)
        self._zk.start()
        properties = {
            "zookeeper.connect": cluster.zookeeper,
            "group.id": self.group,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "200",
            "zookeeper.session.timeout.ms": "6000",
            "rebalance.backoff.ms": "500",
            "rebalance.max.retries": "60",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        words = [topic, *(f"{name}={value}" for name, value in properties.items())]
        self._commands = {OURS: [sys.executable, str(MEMBER), *words]}
        for version in APACHE:
            folder, classes = jars(version, cache), directory / version
            classes.mkdir()
            compile_java(folder, [SOURCE], classes)
            options = [*QUICK_START, "-Dlog4j.defaultInitOverride=true"]
            java = java_command(folder, "ZooKeeperMember", heap="96m", options=options, classes=classes)
            self._commands[version] = [*java, *words]

    def add(self, kind: str) -> None:
        """Start a member."""
        member = ClassicMember(kind, self._commands[kind], self._directory / f"{len(self.all)}-{kind}.out")
        self.all.append(member)
        self.alive.append(member)

    def received(self) -> Counter[tuple[int, int]]:
        """Return how often each record was received."""
        for member in self.alive:
            member.check()
        return Counter(record for member in self.all for record in member.received())

    def owners(self) -> dict[int, str]:
        """Return the consumer that owns each partition, from ZooKeeper."""
        found = {}
        for number in range(PARTITIONS):
            try:
                data, _ = self._zk.get(f"/consumers/{self.group}/owners/{self.topic}/{number}")
            except NoNodeError:
                continue
            found[number] = data.decode().rpartition("-")[0]
        return found

    def is_balanced(self) -> bool:
        """Whether all members are registered, and own what the algorithm gives them."""
        try:
            members = self._zk.get_children(f"/consumers/{self.group}/ids")
        except NoNodeError:
            return False
        threads = [thread for member in members for thread in threads_of(member, 1)]
        wanted = assign_range({self.topic: range(PARTITIONS)}, {self.topic: threads})
        return len(members) == len(self.alive) and self.owners() == {
            number: wanted[TopicPartition(self.topic, number)].consumer_id for number in range(PARTITIONS) if wanted
        }

    def close(self) -> None:
        """Kill all members."""
        for member in self.alive:
            member.kill()
        self._zk.stop()
        self._zk.close()


@pytest.fixture
def client(odradek_cluster: RunningCluster) -> Iterator[BlockingClient]:
    with BlockingClient(odradek_cluster.bootstrap) as made:
        yield made


def send(client: BlockingClient, topic: str, ends: Counter[int], count: int) -> None:
    """Send records to each partition."""
    with client.producer() as producer:
        for number in range(PARTITIONS):
            for _ in range(count):
                producer.send(topic, b"x" * 10, partition=number)
            ends[number] += count


def everything(ends: Counter[int]) -> set[tuple[int, int]]:
    return {(number, offset) for number, end in ends.items() for offset in range(end)}


def test_members_of_three_implementations_share_a_group(
    odradek_cluster: RunningCluster, client: BlockingClient, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    topic, choices = "classic-shared", random.Random(7)
    client.admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS)])
    group = ClassicGroup(odradek_cluster, Path(pytestconfig.rootpath) / ".interop", tmp_path, topic)
    ends: Counter[int] = Counter()
    try:
        for kind in (OURS, *APACHE):
            group.add(kind)
        wait_until(group.is_balanced, what="all members own their partitions", seconds=SECONDS)
        again: set[tuple[int, int]] = set()
        for _ in range(ROUNDS):
            send(client, topic, ends, 20)
            action = choices.choice(("join", "leave", "kill")) if len(group.alive) > 2 else "join"
            if action == "join" or len(group.alive) < 2:
                group.add(choices.choice((OURS, *APACHE)))
            else:
                member = group.alive.pop(choices.randrange(len(group.alive)))
                if action == "kill":
                    member.kill()
                    # What it has received since its last commit is received again.
                    again.update(member.received())
                else:
                    member.leave()
            if len(group.alive) > MOST_MEMBERS:
                group.alive.pop(0).leave()
            wait_until(lambda: group.received().keys() == everything(ends), what="all records", seconds=SECONDS)
            wait_until(group.is_balanced, what="all members own their partitions", seconds=SECONDS)
        twice = {record for record, count in group.received().items() if count > 1}
        assert twice <= again
    finally:
        group.close()


def test_a_running_group_moves_its_offsets_to_kafka_and_back(
    odradek_cluster: RunningCluster, client: BlockingClient, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """The documented migration, by rolling restarts; a member of each implementation is in the group."""
    topic = "classic-moved"
    client.admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS)])
    ends: Counter[int] = Counter()
    settings = (
        {"offsets_storage": "zookeeper"},
        {"offsets_storage": "kafka", "dual_commit_enabled": "true"},
        {"offsets_storage": "kafka", "dual_commit_enabled": "false"},
        {"offsets_storage": "kafka", "dual_commit_enabled": "true"},
        {"offsets_storage": "zookeeper"},
    )
    before: list[ClassicGroup] = []
    received: Counter[tuple[int, int]] = Counter()
    try:
        for number, each in enumerate(settings):
            directory = tmp_path / str(number)
            directory.mkdir()
            group = ClassicGroup(odradek_cluster, Path(pytestconfig.rootpath) / ".interop", directory, topic, **each)
            before.append(group)
            for place, kind in enumerate((OURS, "0.8.2.2")):
                group.add(kind)
                if number:
                    # One member after the other is restarted with the new settings.
                    before[number - 1].alive[0].leave()
                    before[number - 1].alive.pop(0)
                send(client, topic, ends, 10)

                def all_received() -> bool:
                    received.clear()
                    for one in before:
                        received.update(one.received())
                    return received.keys() == everything(ends)

                wait_until(all_received, what=f"all records in step {number}.{place}", seconds=SECONDS)
        assert max(received.values()) == 1
    finally:
        for group in before:
            group.close()
