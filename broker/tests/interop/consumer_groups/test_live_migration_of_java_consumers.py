"""A group of classic consumers of Apache Kafka 3.9.1 is replaced by consumers of 4.1.0 with `group.protocol=consumer`,
one by one, and back, while it reads (KIP-848)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import Tools, jars, java_command, quick_start

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

CLASSIC: Final = "3.9.1"
CONSUMER: Final = "4.1.0"
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC: Final = "events"
PARTITIONS: Final = 4
SHORT: Final = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
}
"""Short times, so that rebalances end soon."""
ASSIGNORS: Final = {
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
}


class Member:
    """A VerifiableConsumer, which tells which partitions it has and what it reads."""

    def __init__(self, folder: Path, bootstrap: str, group: str, *options: str) -> None:
        """Start it as a member of the group."""
        arguments = ["--bootstrap-server", bootstrap, "--group-id", group, "--topic", TOPIC]
        command = java_command(folder, VERIFIABLE_CONSUMER, heap="128m", options=quick_start(folder))
        self.process: Final = subprocess.Popen(
            [*command, *arguments, "--reset-policy", "earliest", *options], stdout=subprocess.PIPE, text=True
        )
        self.owned: set[int] = set()
        self.read: list[tuple[int, int]] = []
        """Partition and offset of each record."""
        self._reader: Final = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            partitions = {each["partition"] for each in event.get("partitions", ())}
            match event["name"]:
                case "partitions_assigned":
                    self.owned |= partitions
                case "partitions_revoked":
                    self.owned -= partitions
                case "records_consumed":
                    for row in event["partitions"]:
                        offsets = range(row["minOffset"], row["maxOffset"] + 1)
                        self.read += [(row["partition"], offset) for offset in offsets]

    def stop(self) -> None:
        """Stop it as an administrator does. Idempotent."""
        self.process.terminate()
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Group:
    """A group whose members a test replaces, and the records that it must read."""

    def __init__(self, cluster: RunningCluster, cache: Path, assignor: str) -> None:
        self.name: Final = f"migrating-{uuid4().hex[:8]}"
        self.tools: Final = Tools(CONSUMER, jars(CONSUMER, cache), cluster.bootstrap)
        self._classic: Final = jars(CLASSIC, cache)
        self._assignor: Final = ASSIGNORS[assignor]
        self._producer: Final = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        self.members: Final[list[Member]] = []
        self._stopped: Final[list[Member]] = []
        self._produced = 0

    def start(self, protocol: str) -> None:
        """Start another member."""
        bootstrap = self.tools.bootstrap
        if protocol == "classic":
            options = ["--assignment-strategy", self._assignor]
            self.members.append(Member(self._classic, bootstrap, self.name, *options))
        else:
            self.members.append(Member(self.tools.folder, bootstrap, self.name, "--group-protocol", "consumer"))

    def stop_oldest(self) -> None:
        """Stop the member that was started first."""
        member = self.members.pop(0)
        self._stopped.append(member)
        member.stop()

    def works(self, kind: str) -> None:
        """Wait until the members share the partitions and read new records, and check the kind of the group."""
        wait_until(self._is_balanced, what=f"an assignment for {len(self.members)} members of a {kind} group")
        for partition in range(PARTITIONS):
            for _ in range(5):
                self._producer.produce(TOPIC, b"record", partition=partition)
        assert self._producer.flush(60) == 0
        self._produced += 5
        expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self._produced)}
        wait_until(lambda: set(self._read()) == expected, what="all records")
        listed = self.tools.run(GROUPS, "--list", "--type", kind)
        assert self.name in listed

    def _is_balanced(self) -> bool:
        owned = [set(member.owned) for member in self.members]
        return all(owned) and sorted(part for parts in owned for part in parts) == [*range(PARTITIONS)]

    def _read(self) -> list[tuple[int, int]]:
        return [place for member in self.members + self._stopped for place in list(member.read)]

    def check_nothing_was_read_from_the_start_again(self) -> None:
        """A member commits what it has read before it stops or gives up partitions, so nobody reads it again."""
        places = self._read()
        assert len(places) == len(set(places))


@pytest.fixture(params=ASSIGNORS)
def group(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    odradek_cluster_factory: Callable[..., RunningCluster],
) -> Iterator[Group]:
    """A group whose members end with the test."""
    topics = {TOPIC: {"partitions": PARTITIONS, "replicas": 1}}
    cluster = odradek_cluster_factory(brokers=1, config=SHORT, topics=topics)
    created = Group(cluster, Path(pytestconfig.rootpath) / ".interop", request.param)
    yield created
    for member in created.members:
        member.process.kill()
        member.stop()


def test_members_are_replaced_one_by_one_and_back(group: Group) -> None:
    for _ in range(2):
        group.start("classic")
    group.works("classic")
    for protocol in ("consumer", "classic"):
        for number in range(2):
            group.stop_oldest()
            group.start(protocol)
            is_migrated = protocol == "classic" and number == 1
            group.works("classic" if is_migrated else "consumer")
    group.check_nothing_was_read_from_the_start_again()
