"""Reads with `format("odradek")` in a real Spark from real brokers."""

from __future__ import annotations

import datetime
import gc
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic
from pyspark_odradek.worker_heap import freeze_modules

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
_numbers = itertools.count()
EPOCH = datetime.datetime(1970, 1, 1)
NOW_MS = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)

MakeTopic = Callable[[int], str]
TOO_BUSY = "Python worker failed to connect back"
"""The error if the planning process of a streaming source does not start within ten seconds, which happens on a busy
machine. Spark has no setting for this limit. No row has been read by then, so the query is started again."""


@pytest.fixture
def make_topic(client: BlockingClient) -> MakeTopic:
    """A function that creates a topic with a new name and the given number of partitions, and returns the name."""

    def make(partitions: int) -> str:
        name = f"spark-{next(_numbers)}"
        client.admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=1)])
        wait_for_topic(client, name, timeout_seconds=30)
        return name

    return make


def send(client: BlockingClient, topic: str, partition: int, count: int, *, codec: str = "none") -> None:
    settings = client.settings.replace(compression_type=codec)
    with BlockingClient(settings) as sender, sender.producer() as producer:
        first = sender.latest_offsets([TopicPartition(topic, partition)])[TopicPartition(topic, partition)]
        records = [(b"k%d" % number, b"value %d" % number, NOW_MS + number) for number in range(first, first + count)]
        producer.send_many(topic, records, partition=partition).result()


@pytest.fixture
def read(spark: SparkSession, odradek_cluster: RunningCluster) -> Callable[..., DataFrame]:
    """A function that returns a batch query with the given options."""

    def load(**options: Any) -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        return reader.options(**options).load()

    return load


def test_every_codec_arrives_whole(
    client: BlockingClient, make_topic: MakeTopic, read: Callable[..., DataFrame]
) -> None:
    topic = make_topic(5)
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        send(client, topic, partition, 300, codec=codec)
    rows = read(subscribe=topic).orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(p, o) for p in range(5) for o in range(300)]
    assert all(row.key == b"k%d" % row.offset and row.value == b"value %d" % row.offset for row in rows)
    assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}


def test_headers_nulls_and_timestamps(
    client: BlockingClient, make_topic: MakeTopic, read: Callable[..., DataFrame]
) -> None:
    topic = make_topic(1)
    with client.producer() as producer:
        producer.send(topic, b"v", key=b"k", timestamp_ms=NOW_MS, headers=(("a", b"1"), ("b", None))).result()
        producer.send(topic, None, timestamp_ms=NOW_MS + 1).result()
    first, second = read(subscribePattern=f"^{topic}$", includeHeaders="true").orderBy("offset").collect()
    assert first.headers == [Row(key="a", value=b"1"), Row(key="b", value=None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    stamp = read(assign=f'{{"{topic}":[0]}}').select(f.unix_millis("timestamp")).first()
    assert stamp is not None
    assert stamp[0] == NOW_MS


PLAN = """
import sys
from pyspark_odradek.data_source import DefaultSource

def loaded(*names):
    return [name for name in names if name in sys.modules]

source = DefaultSource({"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]})
schema = source.schema()
print("CREATED", loaded("odradek.client.blocking", "pyspark_odradek.sink.sink_writers"))
planned = source.reader(schema).partitions()
libraries = loaded("cryptography", "javaproperties", "jwt", "prometheus_client", "pyarrow.compute", "unicodedata")
print("PLANNED", len(planned), libraries, loaded("odradek.client.admin", "odradek.client.producer.producer"))
"""


def test_the_processes_that_plan_a_query_import_only_what_reading_needs(
    odradek_cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    # The first query of a session waits for these imports.
    command = [sys.executable, "-c", PLAN, odradek_cluster.bootstrap, make_topic(2)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["CREATED []", "PLANNED 2 [] []"]


def test_workers_exclude_their_modules_from_garbage_collections(spark: SparkSession) -> None:
    # If PySpark changes how it starts workers, they no longer do, and each task takes 50 ms longer.
    class FrozenReader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            freeze_modules()
            yield (gc.get_freeze_count(),)

    # A local class is pickled by value, so workers need not import this module.
    class Frozen(DataSource):
        @classmethod
        def name(cls) -> str:
            return "frozen"

        def schema(self) -> str:
            return "objects BIGINT"

        def reader(self, schema: StructType) -> DataSourceReader:
            return FrozenReader()

    spark.dataSource.register(Frozen)
    (row,) = spark.read.format("frozen").load().collect()
    assert row.objects > 10_000


def test_ranges_and_splits(client: BlockingClient, make_topic: MakeTopic, read: Callable[..., DataFrame]) -> None:
    topic = make_topic(2)
    for _ in range(3):
        send(client, topic, 0, 100)
    frame = read(
        subscribe=topic,
        startingOffsets=f'{{"{topic}":{{"0":50,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":250,"1":-1}}}}',
        minPartitions="4",
    )
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(50, 250))
    later = read(subscribe=topic, startingTimestamp=str(NOW_MS + 290), startingOffsetsByTimestampStrategy="latest")
    assert later.agg(f.min("offset"), f.count("*")).first() == (290, 10)


def test_an_empty_topic_is_no_row(make_topic: MakeTopic, read: Callable[..., DataFrame]) -> None:
    assert read(subscribe=make_topic(2)).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern and assign"),
        ({"subscribe": "t", "failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps' is not allowed"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, r"kafka\.auto\.offset\.reset is not allowed"),
    ],
)
def test_a_wrong_option_is_told_at_load(read: Callable[..., DataFrame], options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(**options)


def test_a_schema_of_ones_own_can_only_select_columns(
    spark: SparkSession, client: BlockingClient, make_topic: MakeTopic, odradek_cluster: RunningCluster
) -> None:
    topic = make_topic(2)
    send(client, topic, 1, 30)
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
    reader = reader.option("subscribe", topic)
    assert reader.schema("offset BIGINT").load().count() == 30
    rows = reader.schema("value BINARY, partition INT").load().collect()
    assert sorted(rows) == sorted(Row(value=b"value %d" % number, partition=1) for number in range(30))
    with pytest.raises(AnalysisException, match="the schema is not allowed"):
        reader.schema("key STRING").load().count()


def test_pushed_filters_narrow_the_ranges(
    spark: SparkSession, client: BlockingClient, make_topic: MakeTopic, read: Callable[..., DataFrame]
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        send(client, topic, partition, 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(subscribe=topic, pushFilters="true")
        some = frame.where((f.col("partition") == 1) & (f.col("offset") >= 90))
        assert some.rdd.getNumPartitions() == 1
        assert sorted(row.offset for row in some.collect()) == list(range(90, 100))
        moment = datetime.datetime.fromtimestamp((NOW_MS + 95) / 1000, tz=datetime.UTC)
        assert frame.where(f.col("timestamp") > f.lit(moment)).count() == 3 * 4
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    with pytest.raises(PySparkException, match=r"filterPushdown"):
        read(subscribe=topic, pushFilters="true").count()


def test_records_that_are_gone_fail_the_query(
    client: BlockingClient, make_topic: MakeTopic, read: Callable[..., DataFrame]
) -> None:
    topic = make_topic(1)
    send(client, topic, 0, 5)
    beyond = {"startingOffsets": f'{{"{topic}":{{"0":7}}}}', "endingOffsets": f'{{"{topic}":{{"0":9}}}}'}
    with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
        read(subscribe=topic, **beyond).collect()
    assert read(subscribe=topic, failOnDataLoss="false", **beyond).collect() == []


class Stream:
    """A streaming query with a checkpoint. Each call of `run` continues where the previous one ended."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._checkpoint = str(folder / "checkpoint")
        self._options = options
        self.rows: list[tuple[int, int]] = []
        self.sizes: list[int] = []

    def run(self, *, stop_before: int | None = None) -> None:
        """Read all existing records. Fail at the micro-batch `stop_before` to simulate a crash."""
        while True:
            try:
                return self._try(stop_before)
            except PySparkException as error:
                if TOO_BUSY not in str(error):
                    raise

    def _try(self, stop_before: int | None) -> None:
        frame = self._spark.readStream.format("odradek").options(**self._options).load()

        def take(batch: DataFrame, number: int) -> None:
            rows = [(row.partition, row.offset) for row in batch.select("partition", "offset").collect()]
            if number == stop_before:
                raise RuntimeError("a crash")
            self.rows += rows
            self.sizes.append(len(rows))

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def test_a_stream_reads_everything_once_over_limits_crashes_and_restarts(
    spark: SparkSession, odradek_cluster: RunningCluster, client: BlockingClient, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    send(client, topic, 0, 90)
    send(client, topic, 1, 30)
    options = {
        "kafka.bootstrap.servers": odradek_cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    stream = Stream(spark, tmp_path, options)
    with pytest.raises(PySparkException, match="a crash"):
        stream.run(stop_before=1)
    assert stream.sizes == [40]
    send(client, topic, 1, 10)
    stream.run()
    assert max(stream.sizes) <= 41
    assert sorted(stream.rows) == [(0, offset) for offset in range(90)] + [(1, offset) for offset in range(40)]
    before = len(stream.sizes)
    stream.run()
    assert len(stream.sizes) == before


def test_a_stream_reads_a_new_partition_from_its_beginning(
    spark: SparkSession, odradek_cluster: RunningCluster, client: BlockingClient, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1)
    send(client, topic, 0, 3)
    options = {"kafka.bootstrap.servers": odradek_cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path, options)
    stream.run()
    client.admin.create_partitions({topic: 2})
    wait_for_topic(client, topic, timeout_seconds=30)
    send(client, topic, 1, 4)
    stream.run()
    assert sorted(stream.rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
