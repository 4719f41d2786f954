"""Access rules of a real broker process with real ZooKeeper and librdkafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.security.acls.model import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import EVERYONE, USER, Principal
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.access_rules import set_rules

pytestmark = pytest.mark.java

SECONDS: Final = 60
ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


class Guarded:
    """A broker with an authorizer, and the users admin, alice and bob; admin is a super user."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        clients, between = free_ports(2)
        self.address = f"127.0.0.1:{clients}"
        users = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
            f'user_{name}="{name}-secret"' for name in ("admin", "alice", "bob")
        )
        properties = {
            "listeners": f"CLIENTS://127.0.0.1:{clients},BETWEEN://127.0.0.1:{between}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BETWEEN:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f"{users};",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
        self.broker = OdradekBroker(directory, zookeeper=zookeeper, properties=properties, port=between)

    def settings(self, user: str, **more: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
            "log_level": 0,
            **more,
        }

    def allow(self, resource: ResourcePattern, *rules: AclRule) -> None:
        set_rules(self.zookeeper, resource, rules)

    def create(self, topic: str) -> None:
        admin = AdminClient(self.settings("admin"))
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)

    def write(self, user: str, topic: str) -> KafkaError | None:
        """Send a record. Return its error."""
        producer = confluent_kafka.Producer(self.settings(user, **{"enable.idempotence": False}))
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS) == 0
        return errors[0]

    def visible(self, user: str) -> set[str]:
        """Return the topics in the metadata of a user."""
        return {*AdminClient(self.settings(user)).list_topics(timeout=SECONDS).topics}


@pytest.fixture(scope="module")
def guarded(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"), f"{odradek_zookeeper}/{uuid4().hex}")
    guarded.broker.start()
    yield guarded
    guarded.broker.stop()


@pytest.fixture
def topic(guarded: Guarded) -> str:
    name = f"t-{uuid4().hex[:8]}"
    guarded.create(name)
    return name


def code(error: KafkaError | None) -> int | None:
    return None if error is None else error.code()


def test_a_rule_takes_effect_and_ends_with_its_removal(guarded: Guarded, topic: str) -> None:
    resource = ResourcePattern(TOPIC, topic)
    assert code(guarded.write("alice", topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert topic not in guarded.visible("alice")
    guarded.allow(resource, AclRule(ALICE, ALLOW, AclOperation.WRITE))
    wait_until(lambda: guarded.write("alice", topic) is None, what="the rule")
    assert topic in guarded.visible("alice")
    assert topic not in guarded.visible("bob")
    assert code(guarded.write("bob", topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.allow(resource)
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait_until(lambda: code(guarded.write("alice", topic)) == refused, what="the removal of the rule")


def test_prefixes_wildcards_and_denials(guarded: Guarded, topic: str) -> None:
    guarded.allow(
        ResourcePattern(TOPIC, topic[:-1], PatternType.PREFIXED),
        AclRule(EVERYONE, ALLOW, AclOperation.ALL, "127.0.0.1"),
    )
    wait_until(lambda: guarded.write("bob", topic) is None, what="the rule of the prefix")
    guarded.allow(ResourcePattern(TOPIC, "*"), AclRule(BOB, DENY, AclOperation.WRITE))
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait_until(lambda: code(guarded.write("bob", topic)) == refused, what="the rule that denies")
    assert guarded.write("alice", topic) is None
    guarded.allow(ResourcePattern(TOPIC, "*"))
    wait_until(lambda: guarded.write("bob", topic) is None, what="the end of the denial")


def test_consumers_need_rights_on_topic_and_group(guarded: Guarded, topic: str) -> None:
    assert guarded.write("admin", topic) is None
    guarded.allow(ResourcePattern(TOPIC, topic), AclRule(BOB, ALLOW, AclOperation.READ))
    wait_until(lambda: topic in guarded.visible("bob"), what="the rule of the topic")
    group = f"g-{uuid4().hex[:8]}"
    settings = guarded.settings("bob", **{"group.id": group, "auto.offset.reset": "earliest"})
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([topic])
        refused = KafkaError.GROUP_AUTHORIZATION_FAILED

        def is_refused() -> bool:
            message = consumer.poll(1)
            return message is not None and code(message.error()) == refused

        wait_until(is_refused, what="the error of the group")
        guarded.allow(ResourcePattern(GROUP, group), AclRule(BOB, ALLOW, AclOperation.READ))
        values: list[bytes | None] = []

        def reads() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
            return bool(values)

        wait_until(reads, what="the record")
        assert values == [b"value"]
    finally:
        consumer.close()


def test_administration_needs_rights_on_the_cluster(guarded: Guarded) -> None:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient(guarded.settings("alice"))

    def created() -> int | None:
        try:
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)
        except KafkaException as error:
            return int(error.args[0].code())
        return None

    assert created() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.allow(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), AclRule(ALICE, ALLOW, AclOperation.CREATE))
    wait_until(lambda: created() is None, what="the right to create topics")
    assert name in guarded.visible("admin")
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics([name])[name].result(SECONDS)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


# The commands


class Commands:
    """Runs `odradek` as a user of the broker."""

    def __init__(self, guarded: Guarded, directory: Path) -> None:
        self._guarded = guarded
        self._directory = directory

    def run(self, user: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        config = self._directory / f"{user}.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} required username="{user}" password="{user}-secret";\n'
        )
        config.chmod(0o600)
        options = ("-b", self._guarded.address, "--command-config", str(config))
        return subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", *arguments, *options],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run("admin", *arguments, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def commands(guarded: Guarded, tmp_path: Path) -> Commands:
    return Commands(guarded, tmp_path)


def test_rules_by_command(guarded: Guarded, topic: str, commands: Commands) -> None:
    prefix = ("--topic", topic[:-1], "--resource-pattern-type", "prefixed")
    added = commands.run("admin", "acl", "add", "--allow-principal", "User:alice", "--producer", *prefix)
    assert added.returncode == 0, added.stderr
    assert {"Write", "Describe", "Create"} <= {word for line in added.stdout.splitlines() for word in line.split()}
    wait_until(lambda: guarded.write("alice", topic) is None, what="the rule")
    listed = commands.json("acl", "list", "--topic", topic, "--resource-pattern-type", "match")
    assert {(rule["principal"], rule["operation"]) for rule in listed} == {
        ("User:alice", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")
    }
    asked = commands.run("admin", "acl", "remove", "--operation", "Write", *prefix, stdin="n\n")
    assert asked.returncode == 1
    assert "Remove the selected access rules" in asked.stderr
    removed = commands.json("acl", "remove", "--operation", "Write", *prefix, "--yes")
    assert [rule["operation"] for rule in removed] == ["WRITE"]
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait_until(lambda: code(guarded.write("alice", topic)) == refused, what="the removal of the rule")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("acl", "add", "--operation", "Read", "--topic", "t"), "--allow-principal or --deny-principal"),
        (("acl", "add", "--allow-principal", "User:a", "--operation", "Read"), "Name at least one resource"),
        (("acl", "add", "--allow-principal", "User:a", "--topic", "t"), "--operation, --producer or --consumer"),
        (("acl", "add", "--allow-principal", "a", "--operation", "Read", "--topic", "t"), "not a principal"),
        (("user", "add", "u", "--password-file", "/nowhere"), "cannot be read"),
        (("user", "remove", "nobody", "--yes"), "has no SCRAM credentials"),
        (("quota", "set", "--user", "u", "speed=1"), "is not a quota"),
        (("quota", "set", "producer_byte_rate=1"), "Say for whom"),
        (("quota", "set", "--user", "u", "producer_byte_rate=1.5"), "whole number"),
        (("quota", "set", "--user", "u", "--ip", "10.0.0.1", "producer_byte_rate=1"), "must not have"),
    ],
)
def test_mistakes_are_explained(commands: Commands, arguments: tuple[str, ...], message: str) -> None:
    done = commands.run("admin", *arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_user_without_the_right_changes_nothing(commands: Commands) -> None:
    for arguments in (
        ("acl", "list"),
        ("acl", "add", "--allow-principal", "User:bob", "--operation", "All", "--cluster"),
        ("user", "list"),
        ("quota", "list"),
        ("quota", "set", "--user", "bob", "producer_byte_rate=1"),
    ):
        done = commands.run("bob", *arguments)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    assert commands.json("quota", "list", "--user", "bob") == []


def test_users_and_quotas_by_command(commands: Commands) -> None:
    added = commands.run("admin", "user", "add", "carol", "--password-file", "-", stdin="carol-secret\n")
    assert added.returncode == 0, added.stderr
    more = ("--mechanism", "scram-sha-256", "--iterations", "8192", "--password-file", "-")
    assert commands.run("admin", "user", "add", "carol", *more, stdin="carol-secret\n").returncode == 0
    (carol,) = commands.json("user", "list", "carol")
    assert carol == {"user": "carol", "credentials": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}}
    assert "carol" in commands.run("admin", "user", "list").stdout
    values = ("producer_byte_rate=1048576", "request_percentage=12.5")
    assert "1,048,576" in commands.run("admin", "quota", "set", "--user", "carol", *values).stdout
    assert commands.run("admin", "quota", "set", "--ip-default", "connection_creation_rate=9999").returncode == 0
    assert commands.json("quota", "list", "--user", "carol") == [
        {"entity": {"user": "carol"}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}}
    ]
    assert "(default)" in commands.run("admin", "quota", "list").stdout
    assert commands.run("admin", "quota", "remove", "--user", "carol", "producer_byte_rate").returncode == 0
    assert commands.json("quota", "list", "--user", "carol")[0]["quotas"] == {"request_percentage": 12.5}
    removed = commands.run("admin", "user", "remove", "carol", "--mechanism", "SCRAM-SHA-512", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert commands.json("user", "list", "carol")[0]["credentials"] == {"SCRAM-SHA-256": 8192}
    assert commands.run("admin", "user", "remove", "carol", "--yes").returncode == 0
    assert commands.run("admin", "user", "list", "carol").returncode == 1
