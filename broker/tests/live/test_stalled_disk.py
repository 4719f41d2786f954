"""A broker with two log directories, one of which stops answering while clients use both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.torture.stalling_broker import resume, stall

pytestmark = pytest.mark.java

TOPIC = "t"
SETTINGS = {
    "process.supervision.enable": "true",
    "log.dir.check.interval.ms": "200",
    "log.dir.stall.timeout.ms": "2000",
}


@pytest.fixture
def settings() -> dict[str, str]:
    """The settings of the broker."""
    return SETTINGS


@pytest.fixture
def broker(odradek_zookeeper: str, tmp_path: Path, settings: dict[str, str]) -> Iterator[OdradekBroker]:
    """A broker with its parent process and two directories that stall on command."""
    properties = {**settings, "log.dirs": ",".join(map(str, directories(tmp_path)))}
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

    def __init__(self, bootstrap: str, partition: int, *, timeout_ms: int = 3000) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": timeout_ms,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._partition = partition
        self._ends = threading.Event()
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce(TOPIC, b"%d" % self.sent, partition=self._partition, on_delivery=self._delivered)
            self.sent += 1
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


def consume(bootstrap: str, partition: int, count: int) -> list[int]:
    """Read that many records of a partition from its start."""
    # A consumer with automatic commits would wait 45 s for its coordinator when it closes: `__consumer_offsets` needs
    # three brokers by default.
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([Place(TOPIC, partition, 0)])
    found: list[int] = []

    def has_all() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            value = message.value()
            assert value is not None
            found.append(int(value))
        return len(found) >= count

    wait_until(has_all, what=f"{count} records of partition {partition}")
    consumer.close()
    return found


@pytest.mark.parametrize("settings", [{**SETTINGS, "log.dir.stall.timeout.ms": "120000", "log.dir.slow.ms": "1000"}])
def test_appends_to_a_slow_directory_wait_while_the_other_one_goes_on(broker: OdradekBroker, tmp_path: Path) -> None:
    broker.start()
    bootstrap = f"127.0.0.1:{broker.port}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    slow, other = directories(tmp_path)
    first, second = (next(part for part in (0, 1) if (folder / f"{TOPIC}-{part}").exists()) for folder in (slow, other))
    queued = Writer(bootstrap, first, timeout_ms=120_000)
    kept = Writer(bootstrap, second)
    with queued.running(), kept.running():
        queued.more()
        kept.more()
        before = len(broker.log())  # A busy machine may have been slow already.
        stall(slow)
        wait_until(
            lambda: f"log directory {slow} is slow" in broker.log()[before:], what="the slow directory to be noticed"
        )
        queued.more()  # the thread writes to the page cache
        stall(slow, writes=True)
        target = queued.sent + 100
        wait_until(lambda: queued.sent >= target, what="records that wait")
        for _ in range(5):
            kept.more()
        waiting = queued.sent - queued.acknowledged
        assert waiting >= 50
        resume(slow)
        wait_until(
            lambda: f"log directory {slow} is no longer slow" in broker.log()[before:], what="the end of the slow time"
        )
        queued.more()
    assert (queued.failed, kept.failed) == (0, 0)
    assert queued.acknowledged == queued.sent
    assert consume(bootstrap, first, queued.sent) == list(range(queued.sent))
    assert consume(bootstrap, second, kept.sent) == list(range(kept.sent))
    assert not broker.errors()
    assert broker.stop() == 0
