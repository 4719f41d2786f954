"""A streaming query that writes exactly once, while its processes and brokers are killed between any two steps.

A run chooses a fault point and whom to kill there, sends records, and waits until all of them are visible in the
target, each once. ODRADEK_SINK_RUNS sets the number of runs, and ODRADEK_SINK_SEED the first seed. The driver is the
only executor, unless ODRADEK_SINK_EXECUTORS sets a number of executors.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from pyspark_odradek.sink.fault_points import FAULTS_VARIABLE, FaultPoint

EXECUTORS: Final = int(os.environ.get("ODRADEK_SINK_EXECUTORS", "0"))
RUNS: Final = int(os.environ.get("ODRADEK_SINK_RUNS", "3"))
SEED: Final = int(os.environ.get("ODRADEK_SINK_SEED", "1"))
SECONDS: Final = 600.0
"""Longest wait for a condition. A restart of Spark takes minutes on a busy machine."""
VICTIMS: Final = ("process", "driver", "broker", "all", *(("executor",) if EXECUTORS else ()))
MASTER: Final = f"local-cluster[{EXECUTORS},1,512]" if EXECUTORS else "local[2,8]"
BROKERS: Final = 2
PARTITIONS: Final = 2
_LOG: Final = logging.getLogger(__name__)
SCRIPT: Final = Path(__file__).with_name("exactly_once_query.py")
CONFIG: Final = {
    "zookeeper.session.timeout.ms": 6_000,
    "transaction.state.log.num.partitions": 2,
    "default.replication.factor": BROKERS,
}

pytestmark = [pytest.mark.java, pytest.mark.timeout(1200 + 300 * RUNS)]


class QueryProcess:
    """The driver of the query with its executors. Each start continues from the checkpoint."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.faults: Final = folder / "faults"
        self.faults.mkdir()
        self.starts = 0
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start the driver, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill_all()
        self.starts += 1
        variables = {
            **os.environ,
            FAULTS_VARIABLE: str(self.faults),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        scratch = str(self._folder / f"scratch-{self.starts}")
        with (self._folder / f"query-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *self._arguments, scratch, MASTER],
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._folder,
            )

    def kill_driver(self) -> None:
        """Kill the driver, but not the Python processes of its tasks, which may go on for a while."""
        process = self._process
        assert process is not None
        for pid in (*children(process.pid), process.pid):
            kill(pid)
        process.wait()

    def kill_all(self) -> None:
        """Kill every process of the query."""
        process = self._process
        if process is None:
            return
        for pid in session_members(process.pid):
            kill(pid)
        process.wait()
        self._process = None

    def logs(self) -> str:
        """Return the end of the logs."""
        paths = sorted(self._folder.glob("query-*.log"), key=lambda path: path.stat().st_mtime)[-2:]
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in paths)

    # Faults

    def visits(self, point: FaultPoint) -> int:
        """Return how often the point was reached."""
        return sum(path.suffix[1:].isdigit() for path in self.faults.glob(f"{point.value}.*"))

    def plan(self, point: FaultPoint, visit: int, action: str) -> Path:
        """Have a visit of a point do something. Return the file that the visit creates."""
        reached = self.faults / f"{point.value}.{visit}"
        if action == "pause":
            os.mkfifo(self.faults / f"{reached.name}.gate")
        temporary = self.faults / "next"
        temporary.write_text(action, encoding="ascii")
        temporary.rename(self.faults / f"{reached.name}.action")
        return reached


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


def stat(pid: int) -> list[str]:
    """Return name, state, parent, group and session of a process."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    name, _, rest = text.partition("(")[2].rpartition(")")
    return [name, *rest.split()[:4]]


def session_members(session: int) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                if stat(int(path.name))[4] == str(session):
                    found.append(int(path.name))
    return found


def java_of(pid: int) -> int:
    """Return the JVM that has started a Python process."""
    while pid > 1:
        fields = stat(pid)
        if fields[0] == "java":
            return pid
        pid = int(fields[2])
    raise AssertionError("the process has no JVM")


class Target:
    """The records of the target that consumers with read_committed get."""

    def __init__(self, client: BlockingClient, topic: str) -> None:
        self.records: Counter[bytes] = Counter()
        self._client = client
        self._positions = {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}

    def read(self) -> None:
        """Add the records that are new."""
        for partition, position in self._positions.items():
            fetch = self._client.fetch_raw(
                partition, position, max_wait_ms=50, isolation="read_committed", read_ahead=False
            )
            for records, _ in iterate_records(fetch):
                self.records.update(record.value or b"" for record in records)
            self._positions[partition] = fetch.next_offset


class Scenario:
    """The cluster, the query and what was sent."""

    def __init__(self, cluster: RunningCluster, client: BlockingClient, query: QueryProcess) -> None:
        self._cluster, self._client, self._query = cluster, client, query
        self._target = Target(client, "target")
        self._sent = 0
        self.fired: Counter[str] = Counter()

    def send(self, count: int) -> None:
        with self._client.producer() as producer:
            for number in range(self._sent, self._sent + count):
                producer.send("source", b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
        self._sent += count

    def wait(self) -> None:
        """Wait until everything is visible. Nothing may be visible twice at any time."""

        def is_complete() -> bool:
            self._query.ensure()
            # A broker that was killed may not have returned.
            with suppress(OdradekError):
                self._target.read()
            doubled = [value for value, count in self._target.records.items() if count > 1]
            assert not doubled, f"{doubled} are visible more than once"
            return len(self._target.records) == self._sent

        try:
            wait_until(is_complete, what=f"{self._sent} records in the target", seconds=SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {len(self._target.records)} are visible\n{self._query.logs()}") from error
        assert self._target.records == Counter(b"%d" % number for number in range(self._sent))

    def run(self, choices: random.Random) -> None:
        """Plan a fault, send records and wait for them."""
        point, victim = choices.choice(list(FaultPoint)), choices.choice(VICTIMS)
        visit = self._query.visits(point) + choices.choice((1, 1, 1, 2))
        reached = self._query.plan(point, visit, "kill" if victim == "process" else "pause")
        executioner = threading.Thread(target=self._execute, args=(reached, victim), daemon=True)
        if victim != "process":
            executioner.start()
        self.send(choices.randrange(1, 40))
        self.wait()
        fired = reached.exists()
        if victim != "process":
            if not fired:
                # Nobody has reached the point: end the thread, and let later visits go on.
                reached.with_name(f"{reached.name}.action").unlink()
                reached.with_name(f"{reached.name}.gate").read_bytes()
            executioner.join(SECONDS)
            assert not executioner.is_alive()
        self.fired[f"{victim} at {point.value}" if fired else "not reached"] += 1
        _LOG.info("%s at %s.%s: %s", victim, point.value, visit, "killed" if fired else "not reached")

    def _execute(self, reached: Path, victim: str) -> None:
        with reached.with_name(f"{reached.name}.gate").open("wb"):
            # The process waits at the point until this file is closed.
            if not reached.exists():
                return
            pid = int(reached.read_text(encoding="ascii"))
            if victim == "executor" or (victim == "all" and EXECUTORS):
                kill(java_of(pid))
            if victim in ("driver", "all"):
                self._query.kill_driver()
            killed = {"broker": [self._sent % BROKERS], "all": self._cluster.broker_ids}.get(victim, [])
            for broker in killed:
                self._cluster.kill(broker)
            for broker in killed:
                self._cluster.start_broker(broker, wait=False)


@pytest.fixture
def scenario(odradek_cluster_factory: ClusterFactory, tmp_path: Path) -> Iterator[Scenario]:
    cluster = odradek_cluster_factory(brokers=BROKERS, config=CONFIG)
    settings = ClientSettings.of(cluster.bootstrap, default_api_timeout_ms=60_000)
    with BlockingClient(settings) as client:
        client.admin.create_topics(
            [NewTopic(name=name, partitions=PARTITIONS, replication_factor=BROKERS) for name in ("source", "target")]
        )
        arguments = [cluster.bootstrap, "source", "target", str(tmp_path / "checkpoint")]
        query = QueryProcess(tmp_path, arguments)
        try:
            yield Scenario(cluster, client, query)
        finally:
            query.kill_all()


def test_every_record_arrives_once_whoever_is_killed(scenario: Scenario) -> None:
    scenario.send(10)
    scenario.wait()
    for number in range(RUNS):
        scenario.run(random.Random(SEED + number))
    _LOG.info("%s runs: %s", RUNS, dict(scenario.fired))
