"""The two systems under test: brokers of either kind as child processes, each kind with a ZooKeeper of its own.

Enters: how many brokers and their settings, the same for both. Leaves: a running `System` and ways to stop, kill and
start it. Invariants: everything lives in one temporary folder, ends with this process, and nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from comparison.figures import OURS
from comparison.processes import with_descendants
from comparison.waiting import wait_until
from comparison.wire import Address, Connection, metadata_frame, partitions_of
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.free_ports import free_ports
from odradek_operator.embedded.child import ChildProcess
from odradek_operator.embedded.ports import LOOPBACK
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_testkit.apache import java_command

START_SECONDS: Final = 120.0
TOPIC_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0

# What Kafka's own start scripts give a broker (bin/kafka-server-start.sh, bin/kafka-run-class.sh). Three brokers on one
# machine get half of the heap each.
_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_HEAPS: Final = {1: "1g", 3: "512m"}

# Installed packages have their byte code; a developer's shell may forbid Python to keep it beside the sources.
_ENVIRONMENT: Final = {"PYTHONDONTWRITEBYTECODE": ""}

_HIDDEN: Final = ("hypothesis",)
"""Libraries of the tests, which users do not have: a broker that found them here would load them at its start."""

_COMMON: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",  # Else the start of each consumer would measure this wait.
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",  # What a run wrote is gone before the next one.
    "offsets.topic.num.partitions": "12",
    "zookeeper.session.timeout.ms": "6000",  # How long a start after SIGKILL waits for its old session to end.
    "controlled.shutdown.retry.backoff.ms": "500",
}


class System:
    """A cluster of one kind. `start` and `stop` may alternate; the log stays."""

    def __init__(self, name: str, folder: Path, *, brokers: int, properties: Mapping[str, str], jars: Path) -> None:
        """`name` is one of `figures.SYSTEMS`; `folder` gets everything; `jars` holds Apache Kafka's."""
        self.name: Final = name
        self.zookeeper: Final = ZooKeeperServer(folder / "zookeeper", free_ports(1)[0], synchronous=False)
        self.addresses: Final = [Address(LOOPBACK, port) for port in free_ports(brokers)]
        self.bootstrap: Final = ",".join(f"{host}:{port}" for host, port in self.addresses)
        self.log_folders: Final = [folder / f"broker-{number}" / "log" for number in range(brokers)]
        self._jars = jars
        self._children: list[ChildProcess] = []
        environment = {**_ENVIRONMENT, "PYTHONPATH": str(_hiding(folder / "hidden"))}
        for number in range(brokers):
            path = self._write_properties(folder / f"broker-{number}", number, properties)
            log = path.with_name("broker.log")
            command = self._command(path, brokers)
            self._children.append(ChildProcess(f"{name} {number}", command, log, environment=environment))

    def _write_properties(self, folder: Path, number: int, properties: Mapping[str, str]) -> Path:
        host, port = self.addresses[number]
        factor = str(len(self.addresses))
        settings = {
            **_COMMON,
            "offsets.topic.replication.factor": factor,
            "default.replication.factor": factor,
            **properties,
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": str(self.log_folders[number]),
            "zookeeper.connect": self.zookeeper.connect,
        }
        folder.mkdir(parents=True)
        path = folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return path

    def _command(self, path: Path, brokers: int) -> list[str]:
        if self.name == OURS:
            return [sys.executable, "-m", "odradek.cli.main", "broker", str(path)]
        heap = _HEAPS[brokers]
        return [*java_command(self._jars, "kafka.Kafka", heap=heap, options=(f"-Xms{heap}", *_JVM)), str(path)]

    @property
    def pids(self) -> list[int]:
        """Process ids of the brokers that run."""
        return [child.pid for child in self._children if child.running and child.pid is not None]

    @property
    def first(self) -> Address:
        """The first broker's address."""
        return self.addresses[0]

    def start(self) -> None:
        """Start ZooKeeper and the brokers; returns when each of them knows all of them."""
        self.zookeeper.start()
        self.zookeeper.wait_until_ready()
        self.start_brokers()
        wait_until(self._complete, f"{self.name}: all brokers", timeout_seconds=START_SECONDS)

    def start_brokers(self) -> None:
        """Start the processes and wait for nothing."""
        for child in self._children:
            child.start()

    def stop_brokers(self) -> None:
        """SIGTERM in turn, as a rolling stop; returns when they have ended."""
        for child in reversed(self._children):
            child.stop(STOP_SECONDS)

    def kill_brokers(self) -> None:
        """SIGKILL; returns when they have ended."""
        for child in self._children:
            child.kill()

    def crash(self, number: int) -> None:
        """SIGKILL to one broker's own process, as the kernel's killer would, and to nothing that looks after it."""
        pid = self._children[number].pid
        assert pid is not None, "not started"
        below = with_descendants([pid])[1:] if self.name == OURS else []
        os.kill(below[0] if below else pid, signal.SIGKILL)

    def revive(self, timeout_seconds: float) -> None:
        """Start brokers that crashed, after all of their processes have ended; returns when each knows all again."""
        wait_until(self._any_ended, f"{self.name}: end of a crashed broker", timeout_seconds=timeout_seconds)
        self.start_brokers()
        wait_until(self._complete, f"{self.name}: all brokers again", timeout_seconds=timeout_seconds)

    def _any_ended(self) -> bool:
        return any(not child.running for child in self._children)

    def close(self) -> None:
        """End everything at once; what was written is thrown away."""
        self.kill_brokers()
        self.zookeeper.stop()

    def wait_until_forgotten(self) -> None:
        """Return when ZooKeeper has ended the sessions of brokers that were killed."""
        wait_until(lambda: self._ephemerals() == 0, f"{self.name}: end of sessions", timeout_seconds=60)

    def _ephemerals(self) -> int:
        with socket.create_connection((LOOPBACK, self.zookeeper.port), timeout=5) as connection:
            connection.sendall(b"mntr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
        counts = dict(line.split("\t", 1) for line in answer.decode().splitlines() if "\t" in line)
        return int(counts["zk_ephemerals_count"])

    def _complete(self) -> bool:
        self.check()
        try:
            return all(self._knows_all(address) for address in self.addresses)
        except OSError:
            return False

    def _knows_all(self, address: Address) -> bool:
        with Connection(address, timeout_seconds=5) as connection:
            return len(connection.metadata([]).brokers) == len(self.addresses)

    def check(self) -> None:
        """Raise `RuntimeError` with its last words when a broker has ended by itself."""
        for child in self._children:
            if child.exit_code is not None and not child.running:
                raise RuntimeError(f"{child.name} {child.how_it_ended()}")

    def create_topic(
        self, topic: str, partitions: int, *, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; returns when every partition has a leader that every broker knows."""
        described = tuple((configs or {}).items())
        with BlockingClient(self.bootstrap) as client:
            client.admin.create_topics(
                [NewTopic(name=topic, partitions=partitions, replication_factor=replicas, configs=described)]
            )
        wait_until(lambda: self._led(topic, partitions), f"leaders of {topic}", timeout_seconds=TOPIC_SECONDS)

    def _led(self, topic: str, partitions: int) -> bool:
        for address in self.addresses:
            with Connection(address) as connection:
                found = partitions_of(connection.call(metadata_frame([topic])))
            if len(found) != partitions or any(one.leader < 0 for one in found.values()):
                return False
        return True

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; returns when its files are gone."""
        with BlockingClient(self.bootstrap) as client:
            client.admin.delete_topics([topic])
        wait_until(lambda: not self._folders(topic), f"removal of {topic}", timeout_seconds=TOPIC_SECONDS)

    def _folders(self, topic: str) -> Sequence[Path]:
        return [path for folder in self.log_folders for path in folder.glob(f"{topic}-*")]


def _hiding(folder: Path) -> Path:
    """A folder that makes Python believe that the hidden libraries are not installed."""
    folder.mkdir(parents=True)
    for name in _HIDDEN:
        (folder / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('{name} is hidden from brokers')\n", encoding="ascii"
        )
    return folder


@contextmanager
def running(name: str, brokers: int, properties: Mapping[str, str], *, jars: Path) -> Iterator[System]:
    """A system that is started, and gone afterwards with all its files."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    system = None
    try:
        system = System(name, folder, brokers=brokers, properties=properties, jars=jars)
        system.start()
        yield system
    finally:
        if system is not None:
            system.close()
        shutil.rmtree(folder)
