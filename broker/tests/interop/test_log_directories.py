"""Log directories that Apache Kafka 3.9.1 wrote are served by our broker after SIGKILL, and the other way round.

Kafka's DumpLogSegments reads every file that our broker writes, and its output is the same as that of our tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Final
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.cli.logs.command import log as log_command
from odradek.cli.logs.compact import CompactSettings, compact
from odradek.compression import Codec
from odradek.log import checkpoints
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars, quick_start, run_tool
from odradek_testkit.interop.kafka_logs import dump_segments, read_topic, wait_until_unregistered
from odradek_testkit.logs import open_log, small_segments
from odradek_testkit.loop import ManualClock

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
START_MS: Final = 1_700_000_000_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS: Final = {"0": "0.9.0", "1": "0.10.1", "2": "2.8"}
SMALL: Final = {"segment.bytes": "2000", "index.interval.bytes": "200", "retention.ms": "-1"}
PROPERTIES: Final = {
    # The last version that honours message.format.version.
    "inter.broker.protocol.version": "2.8",
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "100",
}
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

Sent = dict[str, list[str]]
"""The lines that a consumer must print for each topic, in order: `CreateTime:…\\tkey\\tvalue`."""


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Path:
    """The jars of the last version that supports ZooKeeper and old formats."""
    return jars(VERSION, Path(request.config.rootpath) / ".interop")


@pytest.fixture
def ensemble(odradek_zookeeper: str) -> str:
    """A chroot in ZooKeeper for one test."""
    return f"{odradek_zookeeper}/directories-{uuid4().hex[:8]}"


@contextmanager
def running(broker: ApacheBroker | OdradekBroker) -> Iterator[str]:
    """Run a broker. Yield its address."""
    broker.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        broker.stop()


def apache(jars_folder: Path, directory: Path, ensemble: str) -> ApacheBroker:
    return ApacheBroker(jars_folder, directory, broker_id=0, zookeeper=ensemble, properties=PROPERTIES, heap="384m")


def create(bootstrap: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A broker listens shortly before it is the controller, and librdkafka requests the controller only once.
    wait_until(lambda: admin.list_topics(timeout=10).controller_id >= 0, what="a controller")
    wanted = [NewTopic(name, 1, 1, config={**SMALL, **config}) for name, config in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(60)


def line(number: int, key: str | None, value: str) -> str:
    """Return a record in the format of ConsoleConsumer."""
    return f"CreateTime:{START_MS + number}\t{'null' if key is None else key}\t{value}"


class Writer:
    """A client that stores the lines of acknowledged records."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        given = {"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all", "linger.ms": 1000, **settings}
        self.producer = Producer(given)
        self.acknowledged: dict[int, str] = {}

    def send(self, topic: str, count: int, *, first: int = 0) -> None:
        """Batches of five records."""
        for number in range(first, first + count):
            key, value = f"{topic} {number % 7}", f"{topic} value {number} " + "ab" * (number % 9)
            text = line(number, key, value)

            def note(error: object, message: object, text: str = text) -> None:
                assert error is None, f"{topic}: {error}"
                self.acknowledged[message.offset()] = text  # type: ignore[attr-defined]

            # Old formats have no headers, so a broker rejects records with headers in such topics.
            headers = [] if re.search("v[01]-", topic) else [("number", str(number))]
            self.producer.produce(topic, value, key, timestamp=START_MS + number, headers=headers, on_delivery=note)
            if number % 5 == 4:
                assert self.producer.flush(60) == 0
        assert self.producer.flush(60) == 0

    def lines(self) -> list[str]:
        """The acknowledged records by offset."""
        return [text for _, text in sorted(self.acknowledged.items())]


def write(bootstrap: str, topic: str, count: int = 40, **settings: object) -> list[str]:
    writer = Writer(bootstrap, **{name.replace("_", "."): value for name, value in settings.items()})
    writer.send(topic, count)
    return writer.lines()


def consume(jars_folder: Path, bootstrap: str, *, count: int, committed: bool = False) -> Sent:
    """Return the output of Kafka's ConsoleConsumer by topic, for all topics except internal ones and that of the
    load."""
    arguments = ["--bootstrap-server", bootstrap, "--include", "(v|t|i|ours-).*", "--from-beginning"]
    arguments += ["--max-messages", str(count), "--timeout-ms", "20000"]
    arguments += ["--property", "print.timestamp=true", "--property", "print.key=true"]
    if committed:
        arguments += ["--isolation-level", "read_committed"]
    found: Sent = {}
    for text in run_tool(jars_folder, CONSOLE_CONSUMER, arguments, options=quick_start(jars_folder)).splitlines():
        found.setdefault(text.split("\t")[1].split(" ")[0], []).append(text)
    return found


def without_time(lines: list[str]) -> list[str]:
    """Format 0 has no timestamps."""
    return [re.sub(r"^CreateTime:\d+", "NO_TIMESTAMP", text) for text in lines]


def count_of(sent: Sent) -> int:
    return sum(map(len, sent.values()))


def write_transactions(bootstrap: str, topic: str) -> tuple[list[str], list[str], Producer]:
    """Return all lines, the committed lines, and the producer of a transaction that stays open."""
    writer = Writer(bootstrap, **{"transactional.id": topic, "transaction.timeout.ms": 600_000})
    writer.producer.init_transactions(60)
    committed: list[str] = []
    for turn in range(4):
        writer.producer.begin_transaction()
        before = set(writer.acknowledged)
        writer.send(topic, 10, first=10 * turn)
        if turn == 3:
            break
        if turn % 2:
            writer.producer.abort_transaction(60)
        else:
            writer.producer.commit_transaction(60)
            committed += [text for offset, text in sorted(writer.acknowledged.items()) if offset not in before]
    return writer.lines(), committed, writer.producer


class Load:
    """A producer that still writes while its broker is killed."""

    TOPIC: Final = "load"

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0, "batch.num.messages": 20}
        self._producer = Producer({**settings, "compression.type": "lz4"})
        self._over = Event()
        self._busy = Semaphore(0)
        self.acknowledged: dict[int, str] = {}
        self._thread = Thread(target=self._run)

    def kill_under_it(self, broker: ApacheBroker | OdradekBroker) -> None:
        """Send SIGKILL when some hundreds of records are acknowledged and others are in flight."""
        self._thread.start()
        for _ in range(700):
            assert self._busy.acquire(timeout=60)
        broker.stop(kill=True)
        self._over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(0)

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                self._producer.produce(self.TOPIC, str(number), on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)  # the maximum number of records is in flight
                continue
            self._producer.poll(0.0002)
            number += 1

    def _note(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[message.offset() or 0] = str(message.value(), "ascii")  # type: ignore[arg-type]
            self._busy.release()

    def check(self, bootstrap: str) -> None:
        """Check that every acknowledged record has the same offset, and that there are no records that were not
        sent."""
        found = {record["offset"]: record["value"] for record in read_topic(bootstrap, self.TOPIC)}
        assert len(self.acknowledged) >= 700
        assert {offset: found[offset] for offset in self.acknowledged} == self.acknowledged
        assert list(found) == list(range(len(found)))
        assert list(found.values()) == [str(number) for number in range(len(found))]


def test_kafkas_directory_is_served_by_ours_after_sigkill(kafka: Path, ensemble: str, tmp_path: Path) -> None:
    topics: dict[str, dict[str, str]] = {
        f"v{magic}-{codec}": {"message.format.version": version}
        for magic, version in FORMATS.items()
        for codec in CODECS
        if codec != "zstd" or magic == "2"
    }
    sent: Sent = {}
    broker = apache(kafka, tmp_path, ensemble)
    with running(broker) as bootstrap:
        create(bootstrap, {**topics, "transactions": {}, "idempotent": {}, Load.TOPIC: {}})
        for topic in topics:
            lines = write(bootstrap, topic, compression_type=topic.partition("-")[2])
            sent[topic] = without_time(lines) if topic.startswith("v0") else lines
        sent["idempotent"] = write(bootstrap, "idempotent", enable_idempotence=True)
        sent["transactions"], committed, _open = write_transactions(bootstrap, "transactions")
        load = Load(bootstrap)
        load.kill_under_it(broker)
    wait_until_unregistered(ensemble, 0)
    ours = OdradekBroker(tmp_path, zookeeper=ensemble, properties=PROPERTIES)
    with running(ours) as bootstrap:
        assert consume(kafka, bootstrap, count=count_of(sent)) == sent
        of_committed = {**sent, "transactions": committed}
        assert consume(kafka, bootstrap, count=count_of(of_committed), committed=True) == of_committed
        load.check(bootstrap)
    assert ours.errors() == []


# Ours


def append(directory: Path, write_to: Callable[..., None], **settings: object) -> int:
    """Append to a log in a directory with our code, without a broker. Return the end offset."""
    config = small_segments(segment_bytes=1000, index_interval_bytes=200, **settings)
    log = open_log(SystemFiles(), ManualClock(), config=config, directory=str(directory), clean=True)
    write_to(log)
    end: int = log.log_end_offset
    log.high_watermark = end
    log.close()
    return end


def record_batch(topic: str, first: int, count: int, *, codec: Codec = Codec.NONE, producer_id: int = -1) -> memoryview:
    builder = BatchBuilder(limit_bytes=1 << 20, codec=codec)
    for number in range(first, first + count):
        # One of four keys occurs once. Its record is kept when the others are compacted.
        key = f"{topic} {number % 7 if number % 4 else number}".encode()
        value = f"{topic} value {number}".encode()
        builder.append(key, value, timestamp_ms=START_MS + number, headers=[("number", b"%d" % number), ("none", None)])
    is_transactional = producer_id >= 0
    content = builder.build(
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=first if is_transactional else -1,
        is_transactional=is_transactional,
    )
    return memoryview(bytearray(content))


def write_every_codec(topic: str) -> Callable[..., None]:
    def write_to(log: object) -> None:
        for number in range(20):
            batch = record_batch(topic, 5 * number, 5, codec=Codec(number % 5))
            log.append_as_leader(batch, leader_epoch=0)  # type: ignore[attr-defined]

    return write_to


def write_own_transactions(topic: str) -> Callable[..., None]:
    """Write transactions to several segments. Every third one is aborted, and the last one stays open."""

    def write_to(log: object) -> None:
        append_as_leader = log.append_as_leader  # type: ignore[attr-defined]
        for turn in range(13):
            append_as_leader(record_batch(topic, 4 * turn, 4, producer_id=9), leader_epoch=0)
            if turn < 12:
                kind = ControlType.ABORT if turn % 3 == 2 else ControlType.COMMIT
                ending = marker_batch(
                    kind, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START_MS + 4 * turn
                )
                append_as_leader(memoryview(bytearray(ending)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    return write_to


def lines_in(directory: Path, *, committed: Callable[[int], bool] = lambda _number: True) -> list[str]:
    """Return the lines of the records in a directory, read by our code."""
    found = []
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        for position, header in iterate_entries(content):
            for record in iterate_records(content, position, header, limit=1 << 20):
                if not header.is_control and committed(record.timestamp - START_MS):
                    key, value = (record.key or b"").decode(), (record.value or b"").decode()
                    found.append(line(record.timestamp - START_MS, key, value))
    return found


def test_our_directory_is_served_by_kafka_after_sigkill(kafka: Path, ensemble: str, tmp_path: Path) -> None:
    codecs = {f"ours-{codec}": {} for codec in CODECS}
    old = {
        f"ours-v{magic}-{codec}": {"message.format.version": FORMATS[magic]}
        for magic in ("0", "1")
        for codec in ("none", "gzip", "lz4")
    }
    sent: Sent = {}
    ours = OdradekBroker(tmp_path, zookeeper=ensemble, properties=PROPERTIES)
    with running(ours) as bootstrap:
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99"}
        create(
            bootstrap,
            {
                **codecs,
                **old,
                "ours-idempotent": {},
                "ours-compacted": compacted,
                "ours-transactions": {},
                Load.TOPIC: {},
            },
        )
        for topic in (*codecs, *old):
            lines = write(bootstrap, topic, compression_type=topic.rpartition("-")[2])
            sent[topic] = without_time(lines) if topic.startswith("ours-v0") else lines
        sent["ours-idempotent"] = write(bootstrap, "ours-idempotent", enable_idempotence=True)
        write(bootstrap, "ours-compacted", 90)
        load = Load(bootstrap)
        load.kill_under_it(ours)
    data = tmp_path / "data"
    # While the broker is down, write transactions, which it does not accept from clients, and compact immediately.
    append(data / "ours-transactions-0", write_own_transactions("ours-transactions"))
    report = compact(
        data / "ours-compacted-0", CompactSettings(dirty_from=0, up_to=90, segment_bytes=2000), lambda *_: None
    )
    assert report.records_after < report.records_before
    sent["ours-compacted"] = lines_in(data / "ours-compacted-0")
    sent["ours-transactions"] = lines_in(data / "ours-transactions-0")
    wait_until_unregistered(ensemble, 0)
    theirs = apache(kafka, tmp_path, ensemble)
    with running(theirs) as bootstrap:
        assert consume(kafka, bootstrap, count=count_of(sent)) == sent
        is_committed = lambda number: number < 48 and number // 4 % 3 != 2  # noqa: E731
        of_committed = {
            **sent,
            "ours-transactions": lines_in(data / "ours-transactions-0", committed=is_committed),
        }
        assert consume(kafka, bootstrap, count=count_of(of_committed), committed=True) == of_committed
        load.check(bootstrap)
        text = (tmp_path / "broker.log").read_text()
    # A sealed segment gets its index files when it is synced. If the kill came before, Kafka reports and rebuilds them.
    expected = "Could not find offset index file"
    errors = [each for each in text.splitlines() if re.search(r"ERROR|[Cc]orrupt", each) and expected not in each]
    assert errors == []


@pytest.fixture(scope="module")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that our code wrote: every codec, transactions, a compacted log."""
    data = tmp_path_factory.mktemp("own") / "data"
    append(data / "codecs-0", write_every_codec("codecs"))
    append(data / "transactions-0", write_own_transactions("transactions"))
    end = append(data / "compacted-0", write_every_codec("compacted"))
    marks = checkpoints.encode_offsets({TopicPartition("compacted", 0): end})
    SystemFiles().write_atomically(f"{data}/{checkpoints.HIGH_WATERMARK_FILE}", marks)
    compact(
        data / "compacted-0",
        CompactSettings(dirty_from=0, segment_bytes=1000, index_interval_bytes=200),
        lambda *_: None,
    )
    return data


def files_in(data: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in data.rglob("*") if path.suffix in suffixes)


def test_kafkas_tool_and_ours_have_the_same_output_for_our_files(kafka: Path, own_directory: Path) -> None:
    files = files_in(own_directory, *SUFFIXES)
    assert {path.suffix for path in files} == set(SUFFIXES)
    theirs = dump_segments(kafka, files, "--deep-iteration", "--print-data-log")
    ours = CliRunner().invoke(log_command, ["dump", *map(str, files), "--print-data-log"])
    assert ours.exit_code == 0
    assert ours.stdout.splitlines() == theirs.printed.splitlines()
    gaps = re.findall(r"^Non-consecutive offsets in (\S+)", theirs.complaints, re.MULTILINE)
    assert {Path(path).parent.name for path in gaps} == {"compacted-0"}
    assert sorted(theirs.complaints.splitlines()) == sorted(ours.stderr.splitlines())


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_kafkas_tool_accepts_our_indexes(kafka: Path, own_directory: Path, check: str) -> None:
    files = files_in(own_directory, ".index", ".timeindex")
    theirs = dump_segments(kafka, files, check)
    assert theirs.complaints == ""
    ours = CliRunner().invoke(log_command, ["dump", *map(str, files), check])
    assert (ours.exit_code, ours.stderr) == (0, "")
    assert ours.stdout.splitlines() == theirs.printed.splitlines()
