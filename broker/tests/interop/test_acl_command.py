"""Kafka's tool for access rules prints the same with our broker as with Apache Kafka, and leaves the same znodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.security.acls.model import AclRule, ResourcePattern
from odradek.security.acls.nodes import decode_rules, parse_resource_path
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, InteropError, Tools, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
ACLS: Final = "kafka.admin.AclCommand"
PROPERTIES: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.replication.factor": "1",
}
ALICE: Final = ("--allow-principal", "User:alice")
STEPS: Final = (
    ("--list",),
    ("--add", *ALICE, "--producer", "--topic", "orders-", "--resource-pattern-type", "prefixed"),
    ("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "billing"),
    ("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "*"),
    ("--add", *ALICE, "--operation", "Alter", "--cluster"),
    ("--add", *ALICE, "--operation", "Write", "--transactional-id", "tx"),
    ("--list",),
    ("--list", "--topic", "orders-7", "--resource-pattern-type", "match"),
    ("--list", "--principal", "User:alice"),
    ("--remove", "--force", *ALICE, "--operation", "Write", "--transactional-id", "tx"),
    ("--remove", "--force", "--topic", "orders-", "--resource-pattern-type", "prefixed"),
    ("--list",),
)


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


class Place:
    """A chroot of ZooKeeper."""

    def __init__(self, ensemble: str) -> None:
        self.root = f"/{uuid4().hex}"
        self.connect = f"{ensemble}{self.root}"
        self._client = KazooClient(hosts=ensemble)
        self._client.start()
        self._client.create(self.root)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def rules(self) -> Mapping[ResourcePattern, frozenset[AclRule]]:
        """Return the rules in the znodes, of all patterns that have some."""
        found = {}
        for store in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
            for kind in self._client.get_children(f"{self.root}{store}"):
                for name in self._client.get_children(f"{self.root}{store}/{kind}"):
                    path = f"{store}/{kind}/{name}"
                    found[parse_resource_path(path)] = decode_rules(path, self._client.get(f"{self.root}{path}")[0])
        return {pattern: rules for pattern, rules in found.items() if rules}


@pytest.fixture
def brokers(kafka: Path, odradek_zookeeper: str, tmp_path: Path) -> Iterator[list[tuple[Place, Any]]]:
    """A Java broker and ours, each with its own rules."""
    places = [Place(odradek_zookeeper) for _ in range(2)]
    java = ApacheBroker(
        kafka,
        tmp_path / "java",
        broker_id=1,
        zookeeper=places[0].connect,
        properties=PROPERTIES,
        heap="384m",
    )
    ours = OdradekBroker(tmp_path / "ours", zookeeper=places[1].connect, properties=PROPERTIES, broker_id=1)
    started: list[Any] = []
    try:
        for broker in (java, ours):
            started.append(broker)
            broker.start()
        yield list(zip(places, started, strict=True))
    finally:
        for broker in started:
            broker.stop(kill=True)
        for place in places:
            place.close()


def printed(tools: Tools, *arguments: str) -> list[str]:
    """Return the lines that the tool prints, sorted: sets have no order. An error is its last line."""
    try:
        output = tools.run(ACLS, *arguments)
    except InteropError as error:
        output = str(error).strip().splitlines()[-1]
    return sorted(line.strip() for line in output.splitlines() if line.strip())


def test_the_tool_does_the_same_with_both(kafka: Path, brokers: list[tuple[Place, Any]]) -> None:
    (java_place, java), (our_place, ours) = brokers
    theirs, own = (Tools(VERSION, kafka, f"127.0.0.1:{broker.port}") for broker in (java, ours))
    for step in STEPS:
        assert printed(own, *step) == printed(theirs, *step), step
        assert our_place.rules() == java_place.rules(), step
    assert our_place.rules()
