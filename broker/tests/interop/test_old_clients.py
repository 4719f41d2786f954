"""Unmodified clients of Apache Kafka 0.8.2 to 2.0 produce, and fetch the records of all other clients.

One broker has a topic in each record format. A Java process for each version writes to all topics with every codec and
every API that it supports, and then reads them. The result must be the same as with the current librdkafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, NamedTuple
from uuid import uuid4

import confluent_kafka
import pytest
from kazoo.client import KazooClient

from odradek.records.formats import iterate_entries
from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.interop.apache import QUICK_START, compile_java, jars, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1")
SCALA_CLIENTS = VERSIONS[:-1]
"""Versions that still have the producer and the consumers of 0.8."""
JAVA_CONSUMERS = VERSIONS[1:]
CODECS = ("none", "gzip", "snappy", "lz4")
FORMATS = {"format-0": ("0.9.0", 0), "format-1": ("0.10.1", 1), "format-2": (None, 2)}
"""Topic, `message.format.version` and the magic byte that its entries must have on disk."""
COUNT: Final = 12
"""Number of records of each writer, codec and topic. The value of the last one is null."""
LARGE: Final = "1048576"
SOURCES = Path(__file__).with_name("java")


class Read(NamedTuple):
    """A record in the output of a client."""

    offset: int
    timestamp: int
    key: str
    value: str

    @classmethod
    def parse(cls, line: str) -> Read:
        offset, timestamp, key, value = line.split(" ")
        return cls(int(offset), int(timestamp), key, value)


class OldClient:
    """A Java process with the clients of one version."""

    def __init__(self, version: str, cluster: RunningCluster, jars_in: Path, directory: Path) -> None:
        self.version: Final = version
        self._common = {"bootstrap": cluster.bootstrap, "zookeeper": cluster.zookeeper}
        directory.mkdir()
        names = ["Client", "Produce"]
        if version in SCALA_CLIENTS:
            names += ["OldProduce", "OldConsume", "ZooKeeperConsume"]
        names += ["Consume", "Times"] if version in JAVA_CONSUMERS else ["OldOffsets"]
        compile_java(jars_in, [SOURCES / f"{name}.java" for name in names], directory)
        options = [*QUICK_START, "-Dlog4j.defaultInitOverride=true"]
        command = java_command(jars_in, "Client", heap="96m", options=options)
        command[command.index("-cp") + 1] += f":{directory}"
        self._errors_path = directory / "stderr"
        with self._errors_path.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def ask(self, command: str, **arguments: str | int) -> list[str]:
        """Run a command and return its output."""
        given = {**self._common, **arguments}
        words = [command, *(f"{name}={value}" for name, value in given.items())]
        self._pipe(self._process.stdin).write(" ".join(words) + "\n")
        self._pipe(self._process.stdin).flush()
        output: list[str] = []
        for line in self._pipe(self._process.stdout):
            if line == "done\n":
                return output
            if line.startswith("failed "):
                break
            if line.startswith("= "):
                output.append(line[2:-1])
        reason = self._errors_path.read_text(encoding="utf-8", errors="replace")[-4000:]
        pytest.fail(f"{self.version}: {words} failed after {output[-3:]}\n{reason}")

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            self._pipe(pipe).close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A broker with an inter-broker protocol below 3.0, which applies `message.format.version`; a topic of each
    format."""
    topics = {
        name: {"partitions": 1, "replicas": 1, "config": {} if release is None else {"message.format.version": release}}
        for name, (release, _) in FORMATS.items()
    }
    config = {
        "inter.broker.protocol.version": "2.7",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    running = RunningCluster(tmp_path_factory.mktemp("old"), brokers=1, topics=topics, config=config)
    running.start()
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def clients(
    cluster: RunningCluster, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, OldClient]]:
    """A process for each version. They are started at the same time."""
    directory = tmp_path_factory.mktemp("java")

    def start(version: str) -> OldClient:
        return OldClient(version, cluster, jars(version, Path(pytestconfig.rootpath) / ".interop"), directory / version)

    with ThreadPoolExecutor(2) as pool:
        started = dict(zip(VERSIONS, pool.map(start, VERSIONS), strict=True))
    try:
        yield started
    finally:
        for client in started.values():
            client.close()


def at_once(clients: Mapping[str, OldClient], work: Callable[[OldClient], None]) -> None:
    """Run the work of each version, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, clients.values()))


def writers() -> list[tuple[str, str]]:
    """Return each writer, as the prefix of its keys, and its codec."""
    old = [(f"{version}/{api}/{codec}/", codec) for api, version in apis("produce") for codec in CODECS]
    return [*old, *((f"today/{codec}/", codec) for codec in CODECS)]


def apis(kind: str) -> list[tuple[str, str]]:
    """Return (class in `java/`, version) for each API to produce or consume."""
    if kind == "produce":
        return [("Produce", version) for version in VERSIONS] + [("OldProduce", version) for version in SCALA_CLIENTS]
    return [("Consume", version) for version in JAVA_CONSUMERS] + [("OldConsume", version) for version in SCALA_CLIENTS]


def write(client: OldClient) -> None:
    """Write with every API and codec of a version to every topic."""
    for number, (prefix, codec) in enumerate(each for each in writers() if each[0].startswith(f"{client.version}/")):
        api = prefix.split("/")[1]
        for topic in FORMATS:
            acks = ("all", "1")[number % 2] if api == "Produce" else ("-1", "1")[number % 2]
            offsets = client.ask(api, topic=topic, acks=acks, codec=codec, count=COUNT, key=prefix, value="v" * 50)
            assert len(set(offsets)) == (COUNT if api == "Produce" else 0), (client.version, api, offsets)


def write_today(bootstrap: str) -> None:
    """Write with librdkafka, with headers."""
    failed: list[object] = []
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100}
        )
        for topic in FORMATS:
            for number in range(COUNT):
                producer.produce(
                    topic,
                    key=f"today/{codec}/{number}",
                    value=None if number == COUNT - 1 else f"{'v' * 50}{number}",
                    headers=[("source", b"today")] if topic == "format-2" else None,
                    partition=0,
                    on_delivery=lambda error, _: failed.append(error) if error is not None else None,
                )
        assert producer.flush(60) == 0
    assert failed == []


def read_today(bootstrap: str, topic: str) -> list[Read]:
    """Return all records of a topic, read with librdkafka."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "today", "check.crcs": True})
    try:
        partition = confluent_kafka.TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.assign([partition])
        found: list[Read] = []
        while len(found) < end:
            message = consumer.poll(30)
            assert message is not None, f"nothing more after {len(found)} of {end} records"
            found.append(told_today(message))
        return found
    finally:
        consumer.close()


def told_today(message: confluent_kafka.Message) -> Read:
    """Return a record of librdkafka in the form of the other clients."""
    assert message.error() is None
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    kind, timestamp = message.timestamp()
    texts = [data.decode() if isinstance(data, bytes) else "null" for data in (key, value)]
    return Read(offset, -1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp, *texts)


@pytest.fixture(scope="module")
def written(cluster: RunningCluster, clients: Mapping[str, OldClient]) -> Mapping[str, Sequence[Read]]:
    """Return the records of each topic after all clients have written."""
    at_once(clients, write)
    write_today(cluster.bootstrap)
    return {topic: read_today(cluster.bootstrap, topic) for topic in FORMATS}


@pytest.mark.parametrize("topic", FORMATS)
def test_all_records_are_read_in_order(written: Mapping[str, Sequence[Read]], topic: str) -> None:
    records = written[topic]
    assert [record.offset for record in records] == list(range(len(records)))
    for prefix, _ in writers():
        own = [(record.key, record.value) for record in records if record.key.startswith(prefix)]
        expected = [(f"{prefix}{number}", f"{'v' * 50}{number}") for number in range(COUNT - 1)]
        assert own == [*expected, (f"{prefix}{COUNT - 1}", "null")], prefix
    assert len(records) == COUNT * len(writers())


@pytest.mark.parametrize(("topic", "magic"), [(topic, magic) for topic, (_, magic) in FORMATS.items()])
def test_a_topic_keeps_its_format_on_disk(
    cluster: RunningCluster, written: Mapping[str, Sequence[Read]], topic: str, magic: int
) -> None:
    (segment,) = cluster.directory.rglob(f"{topic}-0/*.log")
    data = segment.read_bytes()
    headers = [header for _, header in iterate_entries(data)]
    assert {header.magic for header in headers} == {magic}
    assert {header.codec.name.lower() for header in headers} == set(CODECS)
    assert sum(header.size for header in headers) == len(data)
    assert headers[-1].next_offset == len(written[topic])


@pytest.mark.parametrize(("api", "version"), apis("consume"))
def test_each_client_reads_the_records_of_all(
    clients: Mapping[str, OldClient], written: Mapping[str, Sequence[Read]], api: str, version: str
) -> None:
    for topic, expected in written.items():
        for size in (LARGE, "4096"):
            group = f"group-{uuid4().hex[:8]}"
            output = clients[version].ask(api, topic=topic, end=len(expected), bytes=size, group=group)
            found = [Read.parse(line) for line in output]
            if api == "OldConsume" or version == "0.9.0.1":
                assert found == [record._replace(timestamp=-1) for record in expected]
            else:
                assert found == list(expected)


@pytest.mark.parametrize("topic", FORMATS)
@pytest.mark.parametrize("version", SCALA_CLIENTS)
def test_a_record_above_the_fetch_size_is_an_error(
    clients: Mapping[str, OldClient], written: Mapping[str, Sequence[Read]], version: str, topic: str
) -> None:
    """From Fetch 3 on (KIP-74), the first record is returned as a whole."""
    output = clients[version].ask("OldConsume", topic=topic, end=len(written[topic]), bytes=40)
    if version in ("0.8.2.2", "0.9.0.1", "0.10.0.1"):
        assert output == ["too large"]
    else:
        assert [Read.parse(line).offset for line in output] == list(range(len(written[topic])))


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("version", SCALA_CLIENTS)
def test_the_consumer_that_lives_by_zookeeper(
    cluster: RunningCluster,
    clients: Mapping[str, OldClient],
    written: Mapping[str, Sequence[Read]],
    version: str,
    storage: str,
) -> None:
    group = f"group-{uuid4().hex[:8]}"
    expected = written["format-2"]
    arguments = {"topic": "format-2", "end": len(expected), "bytes": LARGE, "group": group, "storage": storage}
    output = clients[version].ask("ZooKeeperConsume", **arguments)
    assert [Read.parse(line) for line in output] == [record._replace(timestamp=-1) for record in expected]
    if storage == "zookeeper":
        kazoo = KazooClient(cluster.zookeeper)
        kazoo.start()
        try:
            assert kazoo.get(f"/consumers/{group}/offsets/format-2/0")[0] == str(len(expected)).encode()
        finally:
            kazoo.stop()
            kazoo.close()
    else:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        (committed,) = consumer.committed([confluent_kafka.TopicPartition("format-2", 0)], timeout=30)
        consumer.close()
        assert committed.offset == len(expected)


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_through_the_broker(cluster: RunningCluster, clients: Mapping[str, OldClient], version: int) -> None:
    group = f"group-{uuid4().hex[:8]}"
    output = clients["0.8.2.2"].ask("OldOffsets", topic="format-0", group=group, version=version, offset=7)
    assert output == ["0 7 0"]
    kazoo = KazooClient(cluster.zookeeper)
    kazoo.start()
    try:
        assert (kazoo.exists(f"/consumers/{group}/offsets/format-0/0") is not None) is (version == 0)
    finally:
        kazoo.stop()
        kazoo.close()
