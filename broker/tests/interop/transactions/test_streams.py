"""A Kafka Streams application counts exactly once while brokers and its own processes are killed."""

from __future__ import annotations

import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import QUICK_START, compile_java, java_command, streams_jars
from odradek_testkit.interop.transactional import read_keyed

VERSION: Final = "3.9.1"
PARTITIONS: Final = 3
WORDS: Final = tuple(f"word-{number}" for number in range(20))
PROCESSES: Final = 2
RECORDS: Final = int(os.environ.get("ODRADEK_STREAMED_RECORDS", "6000"))
"""Words that the application counts. A process or a broker is killed after each `STEP` of them."""
STEP: Final = 1500

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1500 + RECORDS // 20)]


class StreamsApplication:
    """Processes of one application, each with a directory for its state, which a restart uses again."""

    def __init__(self, command: list[str], bootstrap: str, directory: Path) -> None:
        self._command = [*command, bootstrap, "word-count"]
        self._directory = directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """Start a process."""
        with (self._directory / f"application-{number}.log").open("ab") as log:
            command = [*self._command, str(self._directory / f"state-{number}")]
            self._running[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """Kill a process, which gets no time to end its transaction or to leave its group."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all processes."""
        for number in list(self._running):
            self.kill(number)


@contextmanager
def application(root: Path, bootstrap: str, directory: Path) -> Iterator[StreamsApplication]:
    folder, classes = streams_jars(VERSION, root / ".interop"), directory / "classes"
    classes.mkdir()
    compile_java(folder, [root / "broker/tests/interop/java/StreamsCount.java"], classes)
    command = java_command(folder, "StreamsCount", heap="256m", options=QUICK_START, classes=classes)
    started = StreamsApplication(command, bootstrap, directory)
    try:
        for number in range(PROCESSES):
            started.start(number)
        yield started
    finally:
        started.close()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in ("words", "counts")]
    for created in admin.create_topics(new).values():
        created.result(60)


def write_words(bootstrap: str, first: int, count: int) -> None:
    """Write the words with these numbers, each exactly once."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(first, first + count):
        producer.produce("words", WORDS[number % len(WORDS)], partition=number % PARTITIONS)
    assert producer.flush(120) == 0


def test_a_streams_application_counts_exactly_once_while_processes_are_killed(
    odradek_cluster_factory: ClusterFactory, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cluster = odradek_cluster_factory(brokers=3)
    create_topics(cluster.bootstrap)
    chance = random.Random(1)
    with application(Path(request.config.rootpath), cluster.bootstrap, tmp_path) as running:
        for first in range(0, RECORDS, STEP):
            write_words(cluster.bootstrap, first, STEP)
            await_counts(cluster, first + STEP // 3)
            victim = chance.choice(cluster.broker_ids)
            process = chance.randrange(PROCESSES)
            cluster.kill(victim)
            running.kill(process)
            cluster.start_broker(victim)
            running.start(process)
        await_counts(cluster, RECORDS)
    counts: dict[str, list[int]] = defaultdict(list)
    for _, key, value in read_keyed(cluster.bootstrap, "counts", PARTITIONS):
        counts[key].append(int(value))
    per_word = RECORDS // len(WORDS)
    assert {word: sorted(found) for word, found in counts.items()} == {
        word: list(range(1, per_word + 1)) for word in WORDS
    }


def await_counts(cluster: RunningCluster, count: int) -> None:
    """Wait until the application has counted this many words."""
    wait_until(
        lambda: len(read_keyed(cluster.bootstrap, "counts", PARTITIONS)) >= count,
        what=f"{count} counted words",
        seconds=300,
    )
