"""The two systems under test: brokers as child processes, with a separate ZooKeeper for each system.

Both have the same number of brokers and the same settings. Invariants: all files are in one temporary folder; all
processes end with this one; nothing is left behind.
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
from odradek_testkit.interop.apache import java_command
from odradek_testkit.security.certificates import Authority, key_pem, pem

START_SECONDS: Final = 120.0
TOPIC_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0

# JVM options of Kafka's start scripts (bin/kafka-server-start.sh, bin/kafka-run-class.sh). If several brokers share the
# machine, each has half of the heap.
_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_HEAP: Final = "1g"
_SHARED_HEAP: Final = "512m"
_MOST_REPLICAS: Final = 3

# Installed packages have compiled byte code; the environment of a developer may prevent Python from storing it.
_ENVIRONMENT: Final = {"PYTHONDONTWRITEBYTECODE": ""}

_HIDDEN: Final = ("hypothesis",)
"""Libraries of the tests, which users do not have: a broker that finds them would load them at its start."""

_COMMON: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",  # Otherwise the start of each consumer would include this delay.
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",  # Data of a run is removed before the next one.
    "offsets.topic.num.partitions": "12",
    "zookeeper.session.timeout.ms": "6000",  # How long a start after SIGKILL waits for the old session to expire.
    "controlled.shutdown.retry.backoff.ms": "500",
}


class _Secured:
    """The listeners with TLS of a system, and their certificate."""

    def __init__(self, folder: Path, brokers: int) -> None:
        """Write the certificate to `folder`."""
        addresses = [Address(LOOPBACK, port) for port in free_ports(brokers)]
        authority = Authority.root("root")
        issued = authority.issue("broker", hosts=(LOOPBACK,))
        self._addresses = addresses
        self._keystore, self._truststore = folder / "broker.pem", folder / "root.pem"
        self._keystore.write_text(key_pem(issued.key) + issued.chain_pem, encoding="ascii")
        self._truststore.write_text(pem(authority.certificate), encoding="ascii")
        self.bootstrap: Final = ",".join(f"{host}:{port}" for host, port in addresses)
        self.client_properties: Final = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._truststore),
        }

    def broker_properties(self, plaintext: str, number: int) -> dict[str, str]:
        """Return the properties of a broker. `plaintext`: its other listener."""
        host, port = self._addresses[number]
        return {
            "listeners": f"{plaintext},SSL://{host}:{port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
        }


class System:
    """A cluster of one system. It can be stopped and started again with its logs."""

    def __init__(
        self, name: str, folder: Path, *, brokers: int, properties: Mapping[str, str], jars: Path, tls: bool = False
    ) -> None:
        """`name` is one of `figures.SYSTEMS`; `folder` is for all files; `jars` has Apache Kafka's jars.

        `tls`: the clients that a scenario measures connect with TLS; the others do not.
        """
        self.name: Final = name
        self._secured: Final = _Secured(folder, brokers) if tls else None
        self.zookeeper: Final = ZooKeeperServer(folder / "zookeeper", free_ports(1)[0], synchronous=False)
        self.addresses: Final = [Address(LOOPBACK, port) for port in free_ports(brokers)]
        self.bootstrap: Final = ",".join(f"{host}:{port}" for host, port in self.addresses)
        self.log_folders: Final = [folder / f"broker-{number}" / "log" for number in range(brokers)]
        self._jars = jars
        self._children: list[ChildProcess] = []
        # PYTHONPATH may contain the folder of the compiled core.
        paths = filter(None, [str(_hiding(folder / "hidden")), os.environ.get("PYTHONPATH")])
        environment = {**_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
        for number in range(brokers):
            path = self._write_properties(folder / f"broker-{number}", number, properties)
            log = path.with_name("broker.log")
            command = self._command(path, brokers)
            self._children.append(ChildProcess(f"{name} {number}", command, log, environment=environment))

    def _write_properties(self, folder: Path, number: int, properties: Mapping[str, str]) -> Path:
        host, port = self.addresses[number]
        factor = str(min(len(self.addresses), _MOST_REPLICAS))
        settings = {
            **_COMMON,
            "offsets.topic.replication.factor": factor,
            "default.replication.factor": factor,
            **properties,
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{host}:{port}",
            **({} if self._secured is None else self._secured.broker_properties(f"PLAINTEXT://{host}:{port}", number)),
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
        heap = _HEAP if brokers == 1 else _SHARED_HEAP
        return [*java_command(self._jars, "kafka.Kafka", heap=heap, options=(f"-Xms{heap}", *_JVM)), str(path)]

    @property
    def client_bootstrap(self) -> str:
        """The addresses for the clients that a scenario measures."""
        return self.bootstrap if self._secured is None else self._secured.bootstrap

    @property
    def client_security(self) -> dict[str, str]:
        """The properties of these clients for TLS, by the names of Java clients."""
        return {} if self._secured is None else self._secured.client_properties

    @property
    def pids(self) -> list[int]:
        """Process ids of the running brokers."""
        return [child.pid for child in self._children if child.running and child.pid is not None]

    @property
    def first(self) -> Address:
        """The address of the first broker."""
        return self.addresses[0]

    def start(self) -> None:
        """Start ZooKeeper and the brokers, and wait until each broker knows all others."""
        self.zookeeper.start()
        self.zookeeper.wait_until_ready()
        self.start_brokers()
        wait_until(self._complete, f"{self.name}: all brokers", timeout_seconds=START_SECONDS)

    def start_brokers(self) -> None:
        """Start the processes without waiting."""
        for child in self._children:
            child.start()

    def stop_brokers(self) -> None:
        """Stop the brokers one after the other with SIGTERM, and wait until they have ended."""
        for child in reversed(self._children):
            child.stop(STOP_SECONDS)

    def kill_brokers(self) -> None:
        """Kill the brokers with SIGKILL, and wait until they have ended."""
        for child in self._children:
            child.kill()

    def crash(self, number: int) -> None:
        """Kill the process of a broker with SIGKILL, like the kernel's OOM killer, but not its parent process."""
        pid = self._children[number].pid
        assert pid is not None, "not started"
        below = with_descendants([pid])[1:] if self.name == OURS else []
        os.kill(below[0] if below else pid, signal.SIGKILL)

    def revive(self, timeout_seconds: float) -> None:
        """Restart crashed brokers after all of their processes have ended, and wait until each knows all others."""
        wait_until(self._any_ended, f"{self.name}: end of a crashed broker", timeout_seconds=timeout_seconds)
        self.start_brokers()
        wait_until(self._complete, f"{self.name}: all brokers again", timeout_seconds=timeout_seconds)

    def _any_ended(self) -> bool:
        return any(not child.running for child in self._children)

    def close(self) -> None:
        """Kill all processes and remove all data."""
        self.kill_brokers()
        self.zookeeper.stop()

    def wait_until_forgotten(self) -> None:
        """Wait until the sessions of killed brokers have expired."""
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
        """Raise `RuntimeError` with the end of its log if a broker has ended unexpectedly."""
        for child in self._children:
            if child.exit_code is not None and not child.running:
                raise RuntimeError(f"{child.name} {child.how_it_ended()}")

    def create_topic(
        self, topic: str, partitions: int, *, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until every broker knows a leader of every partition."""
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
        """Delete a topic, and wait until its files are removed."""
        with BlockingClient(self.bootstrap) as client:
            client.admin.delete_topics([topic])
        wait_until(lambda: not self._folders(topic), f"removal of {topic}", timeout_seconds=TOPIC_SECONDS)

    def _folders(self, topic: str) -> Sequence[Path]:
        return [path for folder in self.log_folders for path in folder.glob(f"{topic}-*")]


def _hiding(folder: Path) -> Path:
    """Create a folder for PYTHONPATH whose modules make imports of the hidden libraries fail."""
    folder.mkdir(parents=True)
    for name in _HIDDEN:
        (folder / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('{name} is hidden from brokers')\n", encoding="ascii"
        )
    return folder


@contextmanager
def running(
    name: str, brokers: int, properties: Mapping[str, str], *, jars: Path, tls: bool = False
) -> Iterator[System]:
    """Run a system while the block runs, and remove all its files afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    system = None
    try:
        system = System(name, folder, brokers=brokers, properties=properties, jars=jars, tls=tls)
        system.start()
        yield system
    finally:
        if system is not None:
            system.close()
        shutil.rmtree(folder)
