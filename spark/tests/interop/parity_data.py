"""The topics of the comparison with Spark's own source, and how a query is run with either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition as Bound
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.testing.waiting import wait_until
from odradek_demo.load import wait_for_topic
from odradek_testkit.interop.transactional import read
from pyspark_odradek.offsets import from_spark

NATIVE: Final = "kafka"
OURS: Final = "odradek"
START_MS: Final = 1_700_000_000_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED: Final = (
    ("cleanup.policy", "compact"),
    ("segment.bytes", "2048"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("max.compaction.lag.ms", "100"),
)
KEPT: Final = (("retention.ms", "-1"),)
TOO_BUSY: Final = "Python worker failed to connect back"
"""See `tests/local/test_source`: the query is started again."""


def create(client: BlockingClient, name: str, partitions: int, configs: tuple[tuple[str, str], ...] = KEPT) -> None:
    """Create a topic and wait until it can be used."""
    client.admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=1, configs=configs)])
    wait_for_topic(client, name, timeout_seconds=60)


def send(client: BlockingClient, topic: str, partition: int, count: int, *, codec: str = "none") -> None:
    """Append records whose key, value and timestamp follow from their offsets: one second apart."""
    with BlockingClient(client.settings.replace(compression_type=codec)) as sender, sender.producer() as producer:
        where = TopicPartition(topic, partition)
        first = sender.latest_offsets([where])[where]
        numbers = range(first, first + count)
        records = [(b"k%d" % number, b"value %d" % number, START_MS + 1000 * number) for number in numbers]
        producer.send_many(topic, records, partition=partition).result()


@contextmanager
def filled(client: BlockingClient, bootstrap: str) -> Iterator[None]:
    """Create all topics; the open transaction of one is aborted at the end."""
    for name, counts in {"plain": (200, 20, 0), "alike-a": (5, 5), "alike-b": (7,), "beyond": (5,)}.items():
        create(client, name, len(counts))
        for partition, count in enumerate(counts):
            if count:
                send(client, name, partition, count)
    create(client, "codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        send(client, "codecs", partition, 50, codec=codec)
    _headers(client)
    create(client, "trimmed", 1)
    send(client, "trimmed", 0, 30)
    delete_before(bootstrap, "trimmed", 0, 10)
    _compacted(client, bootstrap)
    create(client, "transactions", 1)
    with BlockingClient(bootstrap, transactional_id="parity", transaction_timeout_ms=600_000) as sender:
        producer = sender.producer()
        producer.init_transactions()
        for count, commits in ((10, True), (5, False), (4, True)):
            producer.begin_transaction()
            _numbered(producer, count)
            _ = producer.commit_transaction() if commits else producer.abort_transaction()
        send(client, "transactions", 0, 3)
        producer.begin_transaction()
        _numbered(producer, 6)
        producer.flush()
        send(client, "transactions", 0, 2)
        try:
            yield
        finally:
            producer.abort_transaction()
            producer.close()


def _numbered(producer: Any, count: int) -> None:
    for number in range(count):
        producer.send("transactions", b"%d" % number, partition=0, timestamp_ms=START_MS)


def _headers(client: BlockingClient) -> None:
    create(client, "headers", 1)
    with client.producer() as producer:
        for value, key, headers in (
            (b"v", b"k", (("a", b"1"), ("b", None), ("a", b""))),
            (None, b"", ()),
            (b"", None, (("ü", b"\xff"),)),
        ):
            producer.send("headers", value, key=key, timestamp_ms=START_MS, headers=headers).result()


def _compacted(client: BlockingClient, bootstrap: str) -> None:
    create(client, "compacted", 1, COMPACTED)
    with client.producer() as producer:
        for number in range(120):
            producer.send("compacted", b"%0100d" % number, key=b"%d" % (number % 7), timestamp_ms=START_MS).result()
    wait_until(lambda: len(read(bootstrap, "compacted", 1)) < 60, what="the compaction of the topic", seconds=60)
    # The cleaner must not continue between two queries.
    changes = [ConfigChange(name="cleanup.policy", value="delete"), ConfigChange(name="retention.ms", value="-1")]
    client.admin.incremental_alter_configs({ConfigResource.topic("compacted"): changes})


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """Delete the records before an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.delete_records([Bound(topic, partition, offset)]).values():
        each.result(60)


@dataclass
class StreamRun:
    """What the micro-batches of a query had."""

    batches: list[list[Row]] = field(default_factory=list)
    """The rows of each micro-batch, sorted."""
    ends: list[dict[TopicPartition, int]] = field(default_factory=list)
    """The end of each micro-batch in the progress of the query."""
    latest: list[dict[TopicPartition, int]] = field(default_factory=list)
    """The latest offsets in the progress."""

    @property
    def rows(self) -> list[Row]:
        """All rows, sorted."""
        found = (row for rows in self.batches for row in rows)
        return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))


class Queries:
    """Runs queries with one of the two sources."""

    def __init__(self, spark: SparkSession, source: str, bootstrap: str) -> None:
        """`source` is the name of a format."""
        self._spark = spark
        self._source = source
        self._bootstrap = bootstrap

    def batch(self, options: Mapping[str, str]) -> DataFrame:
        """Return a batch query."""
        return self._spark.read.format(self._source).options(**self._with_servers(options)).load()

    def _with_servers(self, options: Mapping[str, str]) -> dict[str, str]:
        given = {name: value.replace("$SERVERS", self._bootstrap) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self._bootstrap, **given}

    def stream(self, options: Mapping[str, str], checkpoint: Path, *, fail_at: int | None = None) -> StreamRun:
        """Read all records that exist with Trigger.AvailableNow. Fail in the micro-batch `fail_at`."""
        while True:
            try:
                return self._stream(options, checkpoint, fail_at)
            except PySparkException as error:
                if TOO_BUSY not in str(error):
                    raise

    def _stream(self, options: Mapping[str, str], checkpoint: Path, fail_at: int | None) -> StreamRun:
        run = StreamRun()

        def take(batch: DataFrame, number: int) -> None:
            if number == fail_at:
                raise RuntimeError("the query fails here")
            run.batches.append(ordered(batch))

        frame = self._spark.readStream.format(self._source).options(**self._with_servers(options)).load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        for progress in query.recentProgress:
            source = progress["sources"][0]
            run.ends.append(offsets_of(source["endOffset"]))
            run.latest.append(offsets_of(source["latestOffset"]))
        return run


def ordered(frame: DataFrame) -> list[Row]:
    """Return all rows in the order of their partitions and offsets."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def offsets_of(progress: Any) -> dict[TopicPartition, int]:
    """Return offsets in a progress, which are JSON or its values; none if the query does not know them."""
    found = json.loads(progress) if isinstance(progress, str) else progress
    return from_spark(found or {})
