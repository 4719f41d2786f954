"""A broker with two log directories, one of which stops answering while clients use both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.torture.stalling_broker import stall

pytestmark = pytest.mark.java

TOPIC = "t"
SETTINGS = {
    "process.supervision.enable": "true",
    "log.dir.check.interval.ms": "200",
    "log.dir.stall.timeout.ms": "2000",
}


@pytest.fixture
def broker(odradek_zookeeper: str, tmp_path: Path) -> Iterator[OdradekBroker]:
    """A broker with its parent process and two directories that stall on command."""
    properties = {**SETTINGS, "log.dirs": ",".join(map(str, directories(tmp_path)))}
    broker = OdradekBroker(
        tmp_path,
        zookeeper=f"{odradek_zookeeper}/{uuid4().hex}",
        properties=properties,
        program=("odradek_testkit.torture.stalling_broker",),
    )
    yield broker
    broker.stop(kill=True)


def directories(path: Path) -> tuple[Path, Path]:
    return path / "disk-0", path / "disk-1"


class Writer:
    """Sends records to one partition from a thread, and counts the acknowledged and the failed ones."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 3000, "log_level": 0}
        )
        self._partition = partition
        self._ends = threading.Event()
        self.acknowledged = 0
        self.failed = 0

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce(TOPIC, b"value", partition=self._partition, on_delivery=self._delivered)
            self._producer.poll(0.01)
        self._producer.flush(10)

    def more(self) -> None:
        """Return when more records are acknowledged."""
        target = self.acknowledged + 20
        wait_until(lambda: self.acknowledged >= target, what=f"progress of partition {self._partition}")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()


def test_only_the_directory_of_a_stalled_disk_goes_offline(broker: OdradekBroker, tmp_path: Path) -> None:
    broker.start()
    bootstrap = f"127.0.0.1:{broker.port}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    stalled, other = directories(tmp_path)
    first, second = (
        next(part for part in (0, 1) if (folder / f"{TOPIC}-{part}").exists()) for folder in (stalled, other)
    )
    lost, kept = Writer(bootstrap, first), Writer(bootstrap, second)
    with lost.running(), kept.running():
        lost.more()
        kept.more()
        stall(stalled)
        wait_until(lambda: bool(broker.errors()), what="the stall to be noticed")
        wait_until(lambda: lost.failed > 0, what="an error of the producer of the offline directory")
        kept.more()
    assert kept.failed == 0
    (message,) = [line for line in broker.errors() if "goes offline" in line]
    assert f"log directory {stalled} goes offline: log directory {stalled} does not answer: the " in message
    assert "(log.dir.stall.timeout.ms=2000)" in message
    assert broker.is_running
    # The stuck thread does not hold up the end of the process.
    assert broker.stop() == 0
    assert (other / ".kafka_cleanshutdown").exists()
    assert not (stalled / ".kafka_cleanshutdown").exists()
