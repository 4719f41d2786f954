"""Members of many clients share a group, while they are killed, paused and added."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import QUICK_START, client_jars, compile_java, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1800)]

SOURCES: Final = Path(__file__).parents[1]
PARTITIONS: Final = 12
RECORDS_AT_ONCE: Final = 1200
ROUNDS: Final = int(os.environ.get("ODRADEK_GROUP_ROUNDS", "6"))
"""How often a member is killed, paused or added. 150 rounds take about ten minutes."""
JAVA_VERSIONS: Final = ("2.7.2", "3.9.1", "4.1.0")
SESSION: Final = ("session.timeout.ms=6000", "heartbeat.interval.ms=1000")
RANGE: Final = "partition.assignment.strategy"
CLASSIC: Final = {
    "java": (*SESSION, f"{RANGE}=org.apache.kafka.clients.consumer.RangeAssignor"),
    "librdkafka": (*SESSION, f"{RANGE}=range"),
}

_LINE: Final = re.compile(r"(assigned|records)((?: -?\d+)+)")


class MemberProcess:
    """One member and what it has printed."""

    def __init__(self, name: str, command: Sequence[str], output: Path) -> None:
        """Start it."""
        self.name = name
        self._output = output
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=out, stderr=errors)

    def lines(self) -> Iterator[tuple[str, list[int]]]:
        """Yield what it has printed about assignments and records; the last line may be incomplete."""
        text = self._output.read_text(encoding="utf-8")
        for line in text[: text.rfind("\n") + 1].splitlines():
            if found := _LINE.fullmatch(line):
                yield found[1], [int(number) for number in found[2].split()]

    @property
    def has_partitions(self) -> bool:
        """Whether its last assignment has partitions."""
        assignments = [numbers for kind, numbers in self.lines() if kind == "assigned"]
        return bool(assignments) and len(assignments[-1]) > 1

    def check(self) -> None:
        """Fail if it has ended."""
        errors = self._output.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        assert self._process.poll() is None, f"{self.name} has ended: {errors[-2000:]}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it; also if it is paused."""
        self._process.kill()
        self._process.wait()


class GroupOfMembers:
    """The members of one group, those that live and those that have ended."""

    def __init__(self, commands: Mapping[str, Sequence[str]], directory: Path) -> None:
        """`commands`: how to start a member of each client."""
        self._commands = commands
        self._directory = directory
        self.all: list[MemberProcess] = []
        self.alive: list[MemberProcess] = []

    def add(self, name: str) -> MemberProcess:
        """Start a member."""
        member = MemberProcess(name, self._commands[name], self._directory / f"{len(self.all)}-{name}.out")
        self.all.append(member)
        self.alive.append(member)
        return member

    def kill(self, member: MemberProcess) -> None:
        """Kill a member."""
        self.alive.remove(member)
        member.kill()

    def close(self) -> None:
        """Kill all members."""
        for member in list(self.alive):
            self.kill(member)

    def received(self) -> dict[int, set[int]]:
        """Return the offsets of each partition that any member has received."""
        found: dict[int, set[int]] = defaultdict(set)
        for member in self.all:
            for kind, numbers in member.lines():
                if kind == "records":
                    partition, first, last = numbers
                    found[partition].update(range(first, last + 1))
        return found

    def owners(self) -> dict[tuple[int, int], set[int]]:
        """Return the members of each generation and partition, for clients that tell their generation."""
        found: dict[tuple[int, int], set[int]] = defaultdict(set)
        for place, member in enumerate(self.all):
            for kind, numbers in member.lines():
                if kind == "assigned" and numbers[0] >= 0:
                    for partition in numbers[1:]:
                        found[numbers[0], partition].add(place)
        return found


@contextmanager
def group_of(commands: Mapping[str, Sequence[str]], directory: Path) -> Iterator[GroupOfMembers]:
    group = GroupOfMembers(commands, directory)
    try:
        for name in commands:
            group.add(name)
        yield group
    finally:
        group.close()


@pytest.fixture(scope="module")
def java_members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The command of a Java member of each version, without arguments."""
    cache = Path(request.config.rootpath) / ".interop"
    classes = tmp_path_factory.mktemp("members")
    compile_java(client_jars(JAVA_VERSIONS[0], cache), [SOURCES / "java/GroupMember.java"], classes)
    return {
        version: java_command(
            client_jars(version, cache), "GroupMember", heap="96m", options=QUICK_START, classes=classes
        )
        for version in JAVA_VERSIONS
    }


@pytest.fixture(scope="module")
def go_members(request: pytest.FixtureRequest) -> dict[str, str]:
    """The programs of the Go clients."""
    assert shutil.which("go") is not None, "Go is needed to build the members of franz-go and sarama: install it."
    folder = Path(request.config.rootpath) / ".interop/go-members"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", f"{folder}/", "./franz", "./sarama"]
    built = subprocess.run(command, cwd=SOURCES / "go", capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    return {name: str(folder / name) for name in ("franz", "sarama")}


def test_members_of_all_clients_share_a_group(
    odradek_cluster: RunningCluster,
    java_members: Mapping[str, list[str]],
    go_members: Mapping[str, str],
    tmp_path: Path,
) -> None:
    group, topic = f"mixed-{uuid4().hex[:8]}", f"mixed-{uuid4().hex[:8]}"
    where = [odradek_cluster.bootstrap, group, topic]
    python = [sys.executable, str(Path(__file__).with_name("python_members.py"))]
    commands = {
        **{f"java-{version}": [*command, *where, *CLASSIC["java"]] for version, command in java_members.items()},
        **{name: [program, *where] for name, program in go_members.items()},
        "librdkafka": [*python, "librdkafka", *where, *CLASSIC["librdkafka"]],
        "aiokafka": [*python, "aiokafka", *where],
        "kafka-python": [*python, "kafka-python", *where],
    }
    play(odradek_cluster.bootstrap, topic, commands, tmp_path)


def play(bootstrap: str, topic: str, commands: Mapping[str, Sequence[str]], directory: Path) -> None:
    """Kill, pause and add members while records are written, and check that all are received."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    chance = random.Random(1)
    with group_of(commands, directory) as group:
        written = 0
        for number in range(ROUNDS + 1):
            written += RECORDS_AT_ONCE
            for count in range(RECORDS_AT_ONCE):
                producer.produce(topic, b"x", partition=count % PARTITIONS)
            assert producer.flush(60) == 0
            await_records(group, written // PARTITIONS)
            if number < ROUNDS:
                disturb(group, chance, number)
        for member in group.alive:
            wait_until(lambda member=member: member.has_partitions, what=f"partitions for {member.name}", seconds=120)
            member.check()
        doubles = {key: members for key, members in group.owners().items() if len(members) > 1}
    assert doubles == {}
    admin.delete_topics([topic])[topic].result(60)


def disturb(group: GroupOfMembers, chance: random.Random, number: int) -> None:
    """Kill a member and start another one, or pause one, whose session expires, and let it continue."""
    member = chance.choice(group.alive)
    if number % 2:
        before = [(each, list(each.lines())) for each in group.alive if each is not member]
        member.send(signal.SIGSTOP)
        wait_until(
            lambda: any(list(each.lines()) != lines for each, lines in before),
            what="another assignment after a pause",
            seconds=120,
        )
        member.send(signal.SIGCONT)
    else:
        group.kill(member)
        group.add(member.name)


def await_records(group: GroupOfMembers, per_partition: int) -> None:
    """Wait until the group has received all records of each partition."""
    expected = set(range(per_partition))

    def have_all() -> bool:
        received = group.received()
        return all(received[partition] >= expected for partition in range(PARTITIONS))

    wait_until(have_all, what=f"all {per_partition} records of each partition", seconds=240)
