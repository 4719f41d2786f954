"""The examples in the help of every command run, without encryption and with TLS and SCRAM, against the same brokers.

Before each line, what it needs is there: topics with records, groups with offsets, files. A command without an example
fails, and so does a line with an exit code other than 0.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from odradek import (
    AuthenticationError,
    BlockingClient,
    BlockingProducer,
    ClientSettings,
    NewTopic,
    OffsetAndMetadata,
    ScramPassword,
    TopicAlreadyExistsError,
    TopicPartition,
)
from odradek.base.errors import UnknownTopicOrPartitionError
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek.testing.in_process import InProcessBroker
from odradek.testing.waiting import wait_until
from odradek_testkit.commands.command_examples import Line, as_process, commands, examples, parsed, run_line
from odradek_testkit.security.secured_cluster import BROKER_PASSWORD, SecuredCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

COMMANDS: Final = dict(commands())
PARSED_ONLY: Final = ("broker", "console", "demo", "mirror", "up")
"""Commands that run until they are stopped. Other tests run them; here only their arguments are checked."""
WITHOUT_BROKERS: Final = ("log", "profile", "completion")
"""Commands that connect to no broker, so that one run is enough."""
SECURED_ONLY: Final = ("token",)
"""Commands that need a user who has logged in."""
ENDS: Final = frozenset("-n --max-records -e --until-end --until-time --end-offset".split())
"""Options with which `odradek consume` ends."""
USERS: Final = {"alice": "password of alice", "bob": "password of bob"}
PARTITIONS: Final = 6
RECORDS: Final = 5100
"""Records of each partition of `orders`; an example deletes those before offset 5000."""
OTHER_TOPICS: Final = ("departures", "arrivals", "customers", "events", "images", "load", "scratch", "greetings")
GROUPS: Final = ("billing", "shipping", "billing-test")


@pytest.fixture(scope="module")
def cluster(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path_factory.mktemp("cluster"), odradek_zookeeper)
    more = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
        "delegation.token.secret.key": "a secret of the brokers",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
    }
    try:
        for _ in range(3):
            cluster.add(replicas=2, more=more).start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that has stopped, with the partitions that examples name."""
    broker = InProcessBroker(tmp_path_factory.mktemp("logs"), {"offsets.topic.num.partitions": 8})
    broker.start()
    try:
        with BlockingClient(broker.bootstrap) as client:
            client.admin.create_topics([NewTopic(name=name, partitions=1) for name in ("orders", "customers")])
            client.admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(0)})
            with client.producer() as producer:
                for topic in ("orders", "customers"):
                    producer.send(topic, b"value", key=b"k" * 8)
    finally:
        broker.close()
    # Only a log that was compacted before can be compacted without an option.
    (broker.directory / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 0\ncustomers 0 0\n", encoding="utf-8")
    return broker.directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder of the examples, which later ones share with earlier ones."""
    return tmp_path_factory.mktemp("folder")


class World:
    """Prepares the cluster and the files for examples."""

    def __init__(self, cluster: SecuredCluster, folder: Path) -> None:
        self.folder = folder
        self.secured = f"localhost:{cluster.between[0]}"
        self._roots = f"{cluster.folder}/root.pem"
        self._cluster = cluster
        self.client = BlockingClient(cluster.bootstrap)
        self._open: list[BlockingProducer] = []
        self.write_files()

    def close(self) -> None:
        for producer in self._open:
            producer.close()
        self.client.close()

    def properties(self, user: str, password: str) -> str:
        """Return the content of a file with client properties for TLS and SCRAM."""
        values = {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{LOGIN_MODULE} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._roots,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def write_files(self) -> None:
        files = {
            "client.properties": self.properties("broker", BROKER_PASSWORD),
            **{f"{user}.properties": self.properties(user, password) for user, password in USERS.items()},
            "events.jsonl": '{"event": 1}\n{"event": 2}\n',
            "photos/one.jpg": "one",
            "home/.keep": "",
            "bin/pwgen": "#!/bin/sh\necho of-pwgen\n",
        }
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        (self.folder / "bin/pwgen").chmod(0o755)

    def environment(self, *, secured: bool) -> dict[str, str]:
        """Return the variables with which commands connect."""
        if secured:
            file = str(self.folder / "client.properties")
            return {"ODRADEK_BOOTSTRAP_SERVER": self.secured, "ODRADEK_COMMAND_CONFIG": file}
        return {"ODRADEK_BOOTSTRAP_SERVER": self._cluster.bootstrap}

    def prepare(self, path: str, line: str) -> str:
        """Prepare for a line of a command, and return the line with the numbers of this cluster."""
        self._quotas()
        self._topics(line)
        self._groups()
        self._records()
        self._users()
        command = path.split()[0]
        if command == "reassign":
            self._plan()
        if command == "token":
            wait_until(self._create_token, what="a login of alice")
        if command == "transaction":
            line = self._transactions(line)
        return line

    def _quotas(self) -> None:
        """Remove the quotas of earlier examples, which would slow down all clients."""
        admin = self.client.admin
        found = admin.describe_client_quotas()
        if found:
            admin.alter_client_quotas({entity: dict.fromkeys(values) for entity, values in found.items()})

    def _topics(self, line: str) -> None:
        admin = self.client.admin
        words = line.split()
        if "create" in words and "topic" in words:
            name = words[words.index("create") + 1]
            self._delete(name)
            return
        if "orders" in admin.list_topics() and self._differs():
            self._delete("orders")
        wait_until(self._all_exist, what="topics")
        wait_until(self._is_healthy, what="partitions that are in sync")

    def _all_exist(self) -> bool:
        """Create the topics that are missing. Return whether all exist."""
        admin = self.client.admin
        missing = {"orders", "sensors-1", *OTHER_TOPICS} - set(admin.list_topics())
        numbers = {"orders": PARTITIONS}
        replicas = ((1, 2), (2, 3), (3, 1))
        try:
            admin.create_topics(
                [
                    NewTopic(
                        name=name,
                        assignments=tuple(replicas[number % 3] for number in range(numbers.get(name, 1))),
                        configs=(("cleanup.policy", "compact"),) if name == "customers" else (("retention.ms", "-1"),),
                    )
                    for name in sorted(missing)
                ]
            )
        except TopicAlreadyExistsError:
            # The broker that listed the topics learns of one a moment after the controller.
            return False
        return not missing

    def _differs(self) -> bool:
        """Whether `orders` is not as the examples need it, or is being deleted."""
        try:
            parts = self.client.admin.describe_topics(["orders"])["orders"].partitions
        except UnknownTopicOrPartitionError:
            return True  # Brokers learn of a deletion one after the other.
        return len(parts) < PARTITIONS or any(len(part.replicas) != 2 for part in parts)

    def _delete(self, name: str) -> None:
        admin = self.client.admin
        if name in admin.list_topics():
            with suppress(UnknownTopicOrPartitionError):
                admin.delete_topics([name])

        def is_gone() -> bool:
            try:
                admin.create_topics([NewTopic(name=name)], validate_only=True)
            except TopicAlreadyExistsError:
                return False
            return name not in admin.list_topics()

        wait_until(is_gone, what=f"the end of {name}")

    def _is_healthy(self) -> bool:
        admin = self.client.admin
        topics = admin.describe_topics(admin.list_topics(internal=True)).values()
        parts = [part for topic in topics for part in topic.partitions]
        return all(part.leader >= 0 and set(part.isr) == set(part.replicas) for part in parts)

    def _groups(self) -> None:
        wanted = {TopicPartition("orders", number): OffsetAndMetadata(100) for number in range(2)}
        if "orders" in self.client.admin.list_topics():
            for group in GROUPS:
                self.client.admin.alter_group_offsets(group, wanted)

    def _records(self) -> None:
        topics = dict.fromkeys(("departures", "arrivals", "sensors-1", "load"), 1) | {"orders": PARTITIONS}
        counts = {"orders": RECORDS, "departures": 250, "load": 10_000}
        known = set(self.client.admin.list_topics())
        places = [
            TopicPartition(name, number) for name, count in topics.items() for number in range(count) if name in known
        ]
        ends = self.client.latest_offsets(places)
        with self.client.producer() as producer:
            for place in places:
                missing = counts.get(place.topic, 10) - ends[place]
                if missing > 0:
                    records = [(b"k" * 8, b'{"value": 1}', time.time_ns() // 1_000_000)] * missing
                    producer.send_many(place.topic, records, partition=place.partition)

    def _users(self) -> None:
        passwords = [ScramPassword(user, password) for user, password in USERS.items()]
        self.client.admin.alter_user_scram_credentials(passwords=passwords)

    def _plan(self) -> None:
        place = TopicPartition("orders", 0)
        present = self.client.admin.describe_topics(["orders"])["orders"].partitions[0].replicas
        target = [3, 1] if set(present) == {1, 2} else [1, 2]
        text = f'{{"version": 1, "partitions": [{{"topic": "{place.topic}", "partition": 0, "replicas": {target}}}]}}'
        (self.folder / "plan.json").write_text(text, encoding="utf-8")

    def _create_token(self) -> bool:
        """Create a token. Return whether alice could log in: brokers learn her password a moment after it was set."""
        settings, _ = ClientSettings.parse(dict(_pairs(self.properties("alice", USERS["alice"]))))
        try:
            with BlockingClient(settings) as client:
                created = client.admin.create_delegation_token(renewers=["User:bob"])
        except AuthenticationError:
            return False
        (self.folder / "hmac.txt").write_text(base64.b64encode(created.hmac).decode(), encoding="utf-8")
        return True

    def _transactions(self, line: str) -> str:
        """Open the transaction that a line ends, and return the line with its numbers."""
        ends_prepared = "--producer-id" in line
        if not ends_prepared and "--start-offset" not in line and "describe" not in line:
            return line
        producer = BlockingProducer(self._cluster.bootstrap, transactional_id="billing-1")
        self._open.append(producer)
        producer.init_transactions()
        producer.begin_transaction()
        start = producer.send_and_wait("orders", b"open", partition=3).offset
        if ends_prepared:
            prepared = producer.prepare_transaction()
            line = line.replace("4000", str(prepared.producer_id))
            return line.replace("--producer-epoch 3", f"--producer-epoch {prepared.epoch}")
        return line.replace("1042", str(start))


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition("=") for line in text.splitlines())]


@pytest.fixture(scope="module")
def world(cluster: SecuredCluster, folder: Path) -> Iterator[World]:
    world = World(cluster, folder)
    try:
        yield world
    finally:
        world.close()


def cases() -> list[Any]:
    """Return each command that connects to brokers, with the listeners that it is run with."""
    return list(_cases())


def _cases() -> Iterator[Any]:
    for path in COMMANDS:
        command = path.split()[0]
        if command in PARSED_ONLY or command in WITHOUT_BROKERS:
            continue
        if command not in SECURED_ONLY:
            yield pytest.param(path, False, id=f"{path}, plaintext")
        yield pytest.param(path, True, id=f"{path}, TLS and SCRAM")


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize(("path", "secured"), cases())
def test_the_examples_of_a_command_run(world: World, path: str, secured: bool) -> None:
    lines = examples(COMMANDS[path])
    assert lines, f"the help of `odradek {path}` has no example"
    for text in lines:
        environment = world.environment(secured=secured)
        if "--command-config" in text:
            # The file of the example has the servers.
            environment = {"ODRADEK_COMMAND_CONFIG": str(world.folder / "client.properties")}
        line = parsed(world.prepare(path, text))
        if any("consume" in program and not ENDS & set(program) and "perf" not in program for program in line.programs):
            run_until_output(world, line, environment)
            continue
        result = run_line(line, folder=world.folder, environment=environment, answers="y\ny\n")
        assert result.exit_code == 0, f"{text}\n{result.stdout}\n{result.stderr}"


def run_until_output(world: World, line: Line, environment: dict[str, str]) -> None:
    """Run a command that does not end: produce records until it prints some, and stop it with Ctrl-C."""
    (program,) = line.programs
    output = world.folder / "endless.txt"
    with output.open("w", encoding="utf-8") as stdout:
        # A shell lets its background processes ignore Ctrl-C, and their children inherit that.
        command = ["env", "--default-signal=INT", *as_process(program)]
        process = subprocess.Popen(command, stdout=stdout, env={**os.environ, **environment})
        try:
            with world.client.producer() as producer:

                def has_printed() -> bool:
                    for topic in ("departures", "sensors-1"):
                        producer.send(topic, b'{"value": 2}', key=b"k" * 8)
                    return output.stat().st_size > 0

                wait_until(has_printed, what=f"records that {' '.join(program)} prints")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.usefixtures("in_folder", "world")
@pytest.mark.parametrize("path", [path for path in COMMANDS if path.split()[0] in WITHOUT_BROKERS])
def test_the_examples_of_a_command_without_brokers_run(logs: Path, folder: Path, path: str) -> None:
    lines = examples(COMMANDS[path])
    assert lines, f"the help of `odradek {path}` has no example"
    for text in lines:
        line = parsed(text.replace("/data", str(logs)))
        result = run_line(line, folder=folder, environment={}, answers="y\ny\n")
        assert result.exit_code == 0, f"{text}\n{result.stdout}\n{result.stderr}"


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("path", PARSED_ONLY)
def test_the_arguments_of_an_example_that_starts_brokers_are_valid(folder: Path, path: str) -> None:
    (folder / "manifests/examples").mkdir(parents=True, exist_ok=True)
    lines = [line for line in examples(COMMANDS[path]) if line.startswith(f"odradek {path}")]
    assert lines, f"the help of `odradek {path}` has no example"
    for text in lines:
        (program,) = parsed(text).programs
        COMMANDS[path].make_context(path, list(program[2:]))
