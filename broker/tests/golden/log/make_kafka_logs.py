"""Creates the golden log directories: Apache Kafka 3.9.1 writes them, librdkafka is the client.

    .venv/bin/python broker/tests/golden/log/make_kafka_logs.py

Needs Java 17 and Maven; takes a minute. Offsets and records are the same each time; producer ids, topic ids, timestamps
of control records and the position of a crash are not. The JSON files next to the directories contain the records that
librdkafka read, the `.dump` files the output of Kafka's DumpLogSegments for each partition.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_testkit.interop.apache import ApacheBroker, jars
from odradek_testkit.interop.kafka_logs import PlainRecord, dump_segments, read_topic, wait_until_unregistered

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
VERSION: Final = "3.9.1"
TARGET = HERE / f"kafka-{VERSION}"
START_MS: Final = 1_700_000_000_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS: Final = {0: "0.9.0", 1: "0.10.1", 2: "2.8"}
BROKER: Final = {
    # The last version in which message.format.version has an effect.
    "inter.broker.protocol.version": "2.8",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.segment.bytes": "4096",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.segment.bytes": "4096",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "zookeeper.session.timeout.ms": "4000",
    "log.index.size.max.bytes": "960",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
SMALL: Final = {"index.interval.bytes": "200", "segment.index.bytes": "960"}
COMPACTED: Final = {
    **SMALL,
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}


def topics() -> dict[str, dict[str, str]]:
    """Name and settings of every topic in the directory of the broker that is stopped cleanly."""
    found: dict[str, dict[str, str]] = {}
    for magic, version in FORMATS.items():
        for codec in CODECS:
            if codec != "zstd" or magic == 2:
                found[f"v{magic}-{codec}"] = {**SMALL, "message.format.version": version, "segment.bytes": "900"}
        found[f"v{magic}-compacted"] = {**COMPACTED, "message.format.version": version}
    stamped = {**SMALL, "message.timestamp.type": "LogAppendTime"}
    return found | {
        "mixed": {**SMALL, "segment.bytes": "1200", "message.format.version": FORMATS[0]},
        "recompressed": {**SMALL, "compression.type": "gzip"},
        "v1-append-time": {**stamped, "message.format.version": FORMATS[1]},
        "v2-append-time": stamped,
        "headers": SMALL,
        "idempotent": {**SMALL, "segment.bytes": "700"},
        "transactions": {**SMALL, "segment.bytes": "1000"},
        "compacted-idempotent": COMPACTED,
        "compacted-transactions": COMPACTED,
        "trimmed": {**SMALL, "segment.bytes": "500"},
    }


def create(bootstrap: str, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Create topics with one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A broker listens shortly before it is elected, and librdkafka requests the controller only once.
    wait_until(lambda: admin.list_topics(timeout=10).controller_id >= 0, what="a controller")
    for future in admin.create_topics([NewTopic(name, 1, 1, config=dict(c)) for name, c in wanted.items()]).values():
        future.result(60)


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[str | None, str | None]], first: int = 0, **settings: Any
) -> None:
    """Write records in batches of three, a second of record time apart."""
    producer = Producer({**client(bootstrap), "acks": "all", **properties(settings)})
    send(producer, topic, records, first)


def send(producer: Producer, topic: str, records: Iterable[tuple[str | None, str | None]], first: int = 0) -> None:
    """Write three records per batch: nothing is sent before the flush."""
    waiting = list(records)
    for begin in range(0, len(waiting), 3):
        for place, (key, value) in enumerate(waiting[begin : begin + 3]):
            producer.produce(topic, value, key, timestamp=START_MS + 1000 * (first + begin + place))
        left = producer.flush(60)
        if left:
            raise click.ClickException(f"{left} records of {topic} were not acknowledged.")


def client(bootstrap: str) -> dict[str, Any]:
    """Return the properties of all clients: a flush sends batches, and lost connections are not logged."""
    return {"bootstrap.servers": bootstrap, "linger.ms": 2000, "log_level": 0}


def properties(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as client properties."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def pairs(count: int, *, keys: int = 1000, first: int = 0) -> Iterator[tuple[str | None, str | None]]:
    """Return records with a fixed set of keys; the value of every seventh record has nothing to compress."""
    for number in range(first, first + count):
        yield f"key {number % keys}", f"value {number} " + "ab" * (number % 7)


def with_tombstones(count: int, *, keys: int) -> Iterator[tuple[str | None, str | None]]:
    """Return such records; every fifth is a tombstone."""
    for number, (key, value) in enumerate(pairs(count, keys=keys)):
        yield key, None if number % 5 == 4 else value


def set_format(bootstrap: str, topic: str, version: str) -> None:
    """Change the format of a topic for its further records."""
    entry = ConfigEntry("message.format.version", version, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def write_formats(bootstrap: str) -> None:
    """Write every format with every codec, and one log with all of them."""
    for magic in FORMATS:
        for codec in CODECS:
            if codec != "zstd" or magic == 2:
                produce(bootstrap, f"v{magic}-{codec}", pairs(24), compression_type=codec)
    for place, version in enumerate(FORMATS.values()):
        set_format(bootstrap, "mixed", version)
        for codec in CODECS[:-1]:
            first = 24 * place + 6 * CODECS.index(codec)
            produce(bootstrap, "mixed", pairs(6, first=first), first=first, compression_type=codec)
    produce(bootstrap, "recompressed", pairs(12), compression_type="lz4")
    for topic in ("v1-append-time", "v2-append-time"):
        for codec in ("none", "lz4"):
            produce(bootstrap, topic, pairs(6), compression_type=codec)


def write_headers(bootstrap: str) -> None:
    """Write headers with null values, duplicate names and binary values; null keys and values."""
    producer = Producer({**client(bootstrap), "compression.type": "zstd"})
    lists: list[list[tuple[str, str | bytes | None]]] = [
        [("trace", "abc")],
        [("twice", b"1"), ("twice", b"2"), ("", b"")],
        [("none", None), ("bytes", bytes(range(256))), ("número", "ñ".encode())],
        [],
    ]
    for number, headers in enumerate(lists):
        key, value = (None, b"\xff\x00") if number == 2 else (f"key {number}".encode(), b"")
        producer.produce("headers", value, key, timestamp=START_MS + number, headers=headers)
    producer.produce("headers", None, None, timestamp=START_MS + 9)
    producer.flush(60)


def transactional(bootstrap: str, name: str) -> Producer:
    """Return a producer that is ready for its first transaction."""
    producer = Producer({**client(bootstrap), "transactional.id": name, "transaction.timeout.ms": 900_000})
    producer.init_transactions(60)
    return producer


def write_transactions(bootstrap: str, topic: str, *, open_at_end: bool, keys: int = 1000) -> list[Producer]:
    """Write interleaved transactions of two producers, alternately committed and aborted; optionally leave one open."""
    first, second = transactional(bootstrap, f"{topic}-a"), transactional(bootstrap, f"{topic}-b")
    number = 0
    for turn in range(6):
        first.begin_transaction()
        send(first, topic, pairs(3, first=number, keys=keys), number)
        second.begin_transaction()
        send(second, topic, pairs(2, first=number + 3, keys=keys), number + 3)
        send(first, topic, pairs(2, first=number + 5, keys=keys), number + 5)
        (first.commit_transaction if turn % 2 else first.abort_transaction)(60)
        (second.abort_transaction if turn % 3 == 2 else second.commit_transaction)(60)
        number += 7
    produce(bootstrap, topic, pairs(3, first=number, keys=keys), number)
    if not open_at_end:
        return [first, second]
    first.begin_transaction()
    send(first, topic, pairs(3, first=number + 3, keys=keys), number + 3)
    produce(bootstrap, topic, pairs(2, first=number + 6, keys=keys), number + 6)
    return [first, second]


def write_compacted(bootstrap: str) -> list[Producer]:
    """Write logs for the cleaner."""
    for magic in FORMATS:
        produce(bootstrap, f"v{magic}-compacted", with_tombstones(60, keys=9), compression_type="none")
    produce(bootstrap, "v2-compacted", with_tombstones(60, keys=9), first=60, compression_type="snappy")
    produce(bootstrap, "v1-compacted", with_tombstones(60, keys=9), first=60, compression_type="gzip")
    # The last batch of the first producer loses all records, and is kept for its sequence.
    produce(bootstrap, "compacted-idempotent", pairs(9, keys=3), enable_idempotence=True)
    produce(bootstrap, "compacted-idempotent", pairs(40, keys=3, first=9), first=9, enable_idempotence=True)
    return write_transactions(bootstrap, "compacted-transactions", open_at_end=False, keys=5)


def write_groups(bootstrap: str) -> None:
    """Commit offsets of two groups, delete one of them, and let a group of consumers read and leave."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for group, offset in (("billing", 7), ("billing", 12), ("gone", 3)):
        partitions = [TopicPartition("v2-none", 0, offset), TopicPartition("headers", 0, 2, metadata="half way")]
        request = [ConsumerGroupTopicPartitions(group, partitions)]
        admin.alter_consumer_group_offsets(request)[group].result(60)
    admin.delete_consumer_groups(["gone"])["gone"].result(60)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["headers"])
    while (message := consumer.poll(60)) is None or message.error() is not None:
        continue
    consumer.commit(message, asynchronous=False)
    consumer.close()


def wait_for_cleaner(data: Path) -> None:
    """Wait until every compacted log is clean up to its last segment."""
    names = [name for name, settings in topics().items() if settings.get("cleanup.policy") == "compact"]

    def clean() -> bool:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        done = {line.split()[0]: int(line.split()[2]) for line in lines}
        return all(done.get(name, -1) == last_segment(data / f"{name}-0") for name in names)

    wait_until(clean, what="the cleaner's work", seconds=120)


def last_segment(directory: Path) -> int:
    """Return the base offset of the active segment."""
    return max(int(path.stem) for path in directory.glob("*.log"))


def write_everything(bootstrap: str) -> list[Producer]:
    """Write the directory of the broker that is stopped cleanly; the producers must exist until the stop."""
    create(bootstrap, topics())
    write_formats(bootstrap)
    write_headers(bootstrap)
    produce(bootstrap, "idempotent", pairs(30), enable_idempotence=True)
    kept = write_transactions(bootstrap, "transactions", open_at_end=True)
    kept += write_compacted(bootstrap)
    write_groups(bootstrap)
    produce(bootstrap, "trimmed", pairs(30))
    trimmed = TopicPartition("trimmed", 0, 13)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([trimmed])[trimmed].result(60)
    return kept


def write_second_epoch(bootstrap: str) -> None:
    """Write after a restart: another leader epoch, further segments."""
    for topic in ("v2-none", "v1-gzip", "idempotent", "v2-compacted"):
        produce(bootstrap, topic, pairs(6, first=200), first=200)


def write_under_load(bootstrap: str, broker: ApacheBroker) -> list[Producer]:
    """Write until the broker is killed."""
    settings = {"segment.bytes": "8000", **SMALL}
    names = ("load-v2", "load-v1", "load-transactions")
    configs = {name: {**settings, "message.format.version": FORMATS[1 if name == "load-v1" else 2]} for name in names}
    create(bootstrap, configs)
    kept = write_transactions(bootstrap, "load-transactions", open_at_end=True)
    enough, over = threading.Semaphore(0), threading.Event()

    def load(topic: str, codec: str) -> None:
        fast = {"compression.type": codec, "linger.ms": 0, "batch.num.messages": 20}
        producer = Producer({**client(bootstrap), **fast})
        for number, (key, value) in enumerate(pairs(100_000)):
            producer.produce(topic, value, key, timestamp=START_MS + number, on_delivery=lambda *_: enough.release())
            producer.poll(0.0005)
            if over.is_set():
                break
        producer.purge()
        producer.flush(0)

    threads = [threading.Thread(target=load, args=what) for what in (("load-v2", "lz4"), ("load-v1", "snappy"))]
    for thread in threads:
        thread.start()
    for _ in range(900):
        enough.acquire()
    broker.stop(kill=True)
    over.set()
    for thread in threads:
        thread.join()
    return kept


@contextmanager
def kafka(folder: Path, directory: Path, zookeeper: str) -> Iterator[ApacheBroker]:
    """Run a broker; with the same directory and ensemble it is a restart."""
    broker = ApacheBroker(folder, directory, broker_id=0, zookeeper=zookeeper, properties=BROKER, heap="512m")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def partitions_of(data: Path) -> list[str]:
    """Return the names of the partition directories."""
    return sorted(path.name for path in data.iterdir() if path.is_dir())


def read_everything(bootstrap: str, data: Path) -> dict[str, dict[str, list[PlainRecord] | list[int]]]:
    """Return all records and the committed records of every partition, as librdkafka reads them."""
    found: dict[str, dict[str, list[PlainRecord] | list[int]]] = {}
    for name in partitions_of(data):
        topic = name.removesuffix("-0")
        records = read_topic(bootstrap, topic)
        committed = [record["offset"] for record in read_topic(bootstrap, topic, committed_only=True)]
        found[name] = {"records": records}
        if committed != [record["offset"] for record in records]:
            found[name]["committed"] = committed
    return found


def decoder_options(partition: str) -> list[str]:
    """Return the additional options of DumpLogSegments for a partition."""
    kinds = {"__consumer_offsets-0": "--offsets-decoder", "__transaction_state-0": "--transaction-log-decoder"}
    return [kinds[partition]] if partition in kinds else ["--print-data-log"]


def keep(folder: Path, data: Path, name: str, records: object) -> None:
    """Copy a broker's directory here, and write the files that describe its content."""
    target = TARGET / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(data, target, ignore=shutil.ignore_patterns(".lock"))
    lines = json.dumps(records).replace('{"offset"', '\n{"offset"').replace("}, ", "},")
    (TARGET / f"{name}.json").write_text(lines + "\n", encoding="utf-8")
    dumps = TARGET / f"{name}.dump"
    shutil.rmtree(dumps, ignore_errors=True)
    dumps.mkdir()
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for partition in partitions_of(target):
        # The tool opens indexes for writing, so it gets a copy.
        files = sorted(path for path in (data / partition).iterdir() if path.suffix in suffixes)
        dumped = dump_segments(folder, files, "--deep-iteration", *decoder_options(partition), directory=data)
        (dumps / f"{partition}.txt").write_text(dumped.printed, encoding="utf-8")


@click.command()
def main() -> None:
    """Create the golden log directories."""
    folder = jars(VERSION, ROOT / ".interop")
    with tempfile.TemporaryDirectory(prefix="golden-logs-") as name, ExitStack() as running:
        work = Path(name)
        zookeeper = ZooKeeperServer(work / "zookeeper", free_ports(1)[0], synchronous=False)
        running.callback(zookeeper.stop)
        zookeeper.start()
        zookeeper.wait_until_ready()
        stopped, connect = work / "stopped", f"{zookeeper.connect}/stopped"
        with kafka(folder, stopped, connect) as broker:
            kept = write_everything(f"127.0.0.1:{broker.port}")
        with kafka(folder, stopped, connect) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            write_second_epoch(bootstrap)
            wait_for_cleaner(stopped / "data")
            records = read_everything(bootstrap, stopped / "data")
        keep(folder, stopped / "data", "stopped", records)
        del kept
        killed, connect = work / "killed", f"{zookeeper.connect}/killed"
        with kafka(folder, killed, connect) as broker:
            kept = write_under_load(f"127.0.0.1:{broker.port}", broker)
        shutil.copytree(killed / "data", work / "as-killed")
        wait_until_unregistered(connect, 0)
        with kafka(folder, killed, connect) as broker:
            records = read_everything(f"127.0.0.1:{broker.port}", killed / "data")
        keep(folder, work / "as-killed", "killed", records)
        del kept
    click.echo(f"Made {TARGET.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
