"""Kafka's tool for quotas and credentials prints the same with our broker as with Apache Kafka, and leaves the same
znodes. A user that it has created logs in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from odradek.testing.free_ports import free_ports
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, InteropError, Tools, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PROPERTIES: Final = {"offsets.topic.replication.factor": "1"}
ALICE: Final = ("--entity-type", "users", "--entity-name", "alice")
ALICE_APP: Final = (*ALICE, "--entity-type", "clients", "--entity-name", "app 1")
QUOTAS: Final = (
    ("--describe", "--entity-type", "users"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=1024,request_percentage=12.5"),
    ("--alter", *ALICE_APP, "--add-config", "consumer_byte_rate=2048,controller_mutation_rate=0.5"),
    ("--alter", "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=1"),
    ("--alter", "--entity-type", "users", "--entity-default", "--add-config", "consumer_byte_rate=7"),
    ("--alter", "--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config", "connection_creation_rate=3"),
    ("--describe", *ALICE),
    ("--describe", *ALICE_APP),
    ("--describe", "--entity-type", "users", "--entity-type", "clients"),
    ("--describe", "--entity-type", "clients"),
    ("--describe", "--entity-type", "ips"),
    ("--alter", *ALICE, "--delete-config", "request_percentage"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=0.5"),
    ("--alter", "--entity-type", "clients", "--entity-default", "--delete-config", "producer_byte_rate"),
    ("--describe", "--entity-type", "users"),
)
PASSWORD: Final = "alice-secret"
USERS: Final = ("--entity-type", "users")
CREDENTIALS: Final = (
    ("--alter", *ALICE, "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]"),
    ("--alter", *ALICE, "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=1024"),
    ("--alter", *USERS, "--entity-name", "bob smith", "--add-config", "SCRAM-SHA-512=[password=bob-secret]"),
    ("--describe", *USERS),
    ("--describe", *ALICE),
    ("--describe", *USERS, "--entity-name", "carol"),
    ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"),
    ("--alter", *ALICE, "--delete-config", "SCRAM-SHA-256"),
    ("--alter", *ALICE, "--delete-config", "SCRAM-SHA-256"),
    ("--alter", *USERS, "--entity-name", "bob smith", "--delete-config", "SCRAM-SHA-512"),
    ("--describe", *USERS),
)


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


class Chroot:
    """A part of ZooKeeper with the quotas and users of one broker."""

    sasl_port = 0
    """The port at which its users log in."""

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
    )
    plain, sasl = free_ports(2)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    properties = {**PROPERTIES, **listeners}
    ours = OdradekBroker(tmp_path / "ours", zookeeper=places[1].connect, properties=properties, broker_id=1, port=plain)
    places[1].sasl_port = sasl
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
    """Return whether the tool succeeds, and what it prints then: the lines and the settings in each, both sorted.

    The tool prints them in the order of Java's maps, which can differ from one process to the next.
    """
    try:
        output = tools.run(CONFIGS, *arguments)
    except InteropError:
        return False, []
    lines = [line.strip().partition(" are ") for line in output.splitlines() if line.strip()]
    return True, sorted(f"{entity}{verb}{', '.join(sorted(values.split(', ')))}" for entity, verb, values in lines)


def test_the_tool_does_the_same_with_both(kafka: Path, brokers: list[tuple[Chroot, Any]]) -> None:
    (java_place, java), (our_place, ours) = brokers
    theirs, own = (Tools(VERSION, kafka, f"127.0.0.1:{broker.port}") for broker in (java, ours))
    for step in QUOTAS:
        assert printed(own, *step) == printed(theirs, *step), step
        assert our_place.settings() == java_place.settings(), step
    assert our_place.settings()


def login(port: int, user: str, password: str) -> set[str]:
    """Return the topics that a user sees."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }
    return {*AdminClient(settings).list_topics(timeout=10).topics}


def test_credentials_are_managed_in_the_same_way(kafka: Path, brokers: list[tuple[Chroot, Any]]) -> None:
    (java_place, java), (our_place, ours) = brokers
    theirs, own = (Tools(VERSION, kafka, f"127.0.0.1:{broker.port}") for broker in (java, ours))
    for step in CREDENTIALS:
        assert printed(own, *step) == printed(theirs, *step), step
        # Salts are random, so the values differ.
        names = [{path: set(config) for path, config in place.settings().items()} for place in (our_place, java_place)]
        assert names[0] == names[1], step
    assert login(our_place.sasl_port, "alice", PASSWORD) == set()
    with pytest.raises(KafkaException):
        login(our_place.sasl_port, "alice", "another")
