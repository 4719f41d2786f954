"""Kafka's tool for quotas prints the same with our broker as with Apache Kafka, and leaves the same znodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import QUICK_START, ApacheBroker, InteropError, Tools, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PROPERTIES: Final = {"offsets.topic.replication.factor": "1"}
ALICE: Final = ("--entity-type", "users", "--entity-name", "alice")
ALICE_APP: Final = (*ALICE, "--entity-type", "clients", "--entity-name", "app 1")
STEPS: Final = (
    ("--describe", "--entity-type", "clients"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=1024,request_percentage=12.5"),
    ("--alter", *ALICE_APP, "--add-config", "consumer_byte_rate=2048,controller_mutation_rate=0.5"),
    ("--alter", "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=1"),
    ("--alter", "--entity-type", "users", "--entity-default", "--add-config", "consumer_byte_rate=7"),
    ("--alter", "--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config", "connection_creation_rate=3"),
    ("--describe", *ALICE_APP),
    ("--describe", "--entity-type", "users", "--entity-type", "clients"),
    ("--describe", "--entity-type", "clients"),
    ("--describe", "--entity-type", "ips"),
    ("--alter", *ALICE, "--delete-config", "request_percentage"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=0.5"),
    ("--alter", "--entity-type", "clients", "--entity-default", "--delete-config", "producer_byte_rate"),
    ("--describe", "--entity-type", "users", "--entity-type", "clients"),
)


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


class Chroot:
    """A part of ZooKeeper with the quotas of one broker."""

    def __init__(self, ensemble: str) -> None:
        self.root = f"/{uuid4().hex}"
        self.connect = f"{ensemble}{self.root}"
        self._client = KazooClient(hosts=ensemble)
        self._client.start()
        self._client.create(self.root)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def settings(self) -> dict[str, Any]:
        """Return the settings of each entity that has some."""
        found: dict[str, Any] = {}

        def read(path: str) -> None:
            data, _ = self._client.get(f"{self.root}{path}")
            if data and (config := json.loads(data).get("config")):
                found[path] = config
            for child in self._client.get_children(f"{self.root}{path}"):
                read(f"{path}/{child}")

        for kind in ("users", "clients", "ips"):
            if self._client.exists(f"{self.root}/config/{kind}"):
                read(f"/config/{kind}")
        return found


@pytest.fixture
def brokers(kafka: Path, odradek_zookeeper: str, tmp_path: Path) -> Iterator[list[tuple[Chroot, Any]]]:
    """A Java broker and ours, each with its own quotas."""
    places = [Chroot(odradek_zookeeper) for _ in range(2)]
    java = ApacheBroker(
        kafka,
        tmp_path / "java",
        broker_id=1,
        zookeeper=places[0].connect,
        properties=PROPERTIES,
        heap="384m",
        options=QUICK_START,
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


def printed(tools: Tools, *arguments: str) -> tuple[bool, list[str]]:
    """Return whether the tool succeeds, and the sorted lines that it prints then: sets have no order."""
    try:
        output = tools.run(CONFIGS, *arguments)
    except InteropError:
        return False, []
    return True, sorted(line.strip() for line in output.splitlines() if line.strip())


def test_the_tool_does_the_same_with_both(kafka: Path, brokers: list[tuple[Chroot, Any]]) -> None:
    (java_place, java), (our_place, ours) = brokers
    theirs, own = (Tools(VERSION, kafka, f"127.0.0.1:{broker.port}") for broker in (java, ours))
    for step in STEPS:
        assert printed(own, *step) == printed(theirs, *step), step
        assert our_place.settings() == java_place.settings(), step
    assert our_place.settings()
