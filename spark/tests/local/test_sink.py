"""Writes with `format("odradek")` from a real Spark to real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.client.producer.partitioning import partition_of_key
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic
from pyspark_odradek import register

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
_numbers = itertools.count()

MakeTopic = Callable[[int], str]
HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def make_topic(client: BlockingClient) -> MakeTopic:
    """A function that creates a topic with a new name and the given number of partitions, and returns the name."""

    def make(partitions: int) -> str:
        name = f"spark-sink-{next(_numbers)}"
        client.admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=1)])
        wait_for_topic(client, name, timeout_seconds=30)
        return name

    return make


@pytest.fixture
def write(odradek_cluster: RunningCluster) -> Callable[..., None]:
    """A function that appends a batch query."""

    def save(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        writer.options(**options).mode(mode).save()

    return save


@pytest.fixture
def stored(spark: SparkSession, odradek_cluster: RunningCluster) -> Callable[[str], list[Row]]:
    """A function that returns the records of a topic, by partition and offset."""

    def read(topic: str) -> list[Row]:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        return frame.orderBy("partition", "offset").collect()

    return read


def test_all_columns_arrive(
    spark: SparkSession, make_topic: MakeTopic, write: Callable[..., None], stored: Callable[[str], list[Row]]
) -> None:
    first, second = make_topic(3), make_topic(1)
    headers = [("a", b"1"), ("a", None), ("", b"")]
    rows = [
        (b"k1", "v1", first, 2, headers),
        (b"", "", first, 0, []),
        (None, None, first, 2, None),
        (b"k4", "ü", second, None, headers[:1]),
    ]
    schema = f"key binary, value string, topic string, partition int, headers {HEADERS}, ignored int"
    frame = spark.createDataFrame([(*row, 7) for row in rows], schema).coalesce(1)
    write(frame)
    found = [(row.key, row.value, row.partition, row.headers) for row in stored(first)]
    expected = [Row(key=name, value=value) for name, value in headers]
    assert found == [(b"", b"", 0, None), (b"k1", b"v1", 2, expected), (None, None, 2, None)]
    assert [(row.key, row.value, row.headers) for row in stored(second)] == [(b"k4", "ü".encode(), expected[:1])]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_choose_partitions_as_the_java_client(
    spark: SparkSession,
    make_topic: MakeTopic,
    write: Callable[..., None],
    stored: Callable[[str], list[Row]],
    codec: str,
) -> None:
    topic = make_topic(3)
    frame = spark.range(0, 25_000, numPartitions=2).select(
        f.col("id").cast("string").alias("key"),
        f.concat(f.lit("value "), "id").alias("value"),
        f.lit("x").alias("topic"),
    )
    write(frame, topic=topic, **{"kafka.compression.type": codec})
    rows = stored(topic)
    assert sorted(int(row.key) for row in rows) == list(range(25_000))
    assert all(row.value == b"value " + row.key and row.partition == partition_of_key(row.key, 3) for row in rows)


def test_several_threads_of_a_driver_write(
    spark: SparkSession, make_topic: MakeTopic, write: Callable[..., None], stored: Callable[[str], list[Row]]
) -> None:
    """Without `register`, Spark does not find the format in a thread that has no active session."""
    topic = make_topic(2)

    def save(number: int) -> None:
        register(spark)
        write(spark.range(number, number + 10).selectExpr("cast(id as string) as value"), topic=topic)

    with ThreadPoolExecutor(2) as threads:
        unregistered = threads.submit(write, spark.range(1).selectExpr("'x' as value"), topic=topic)
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
            unregistered.result()
        list(threads.map(save, [0, 10]))
    assert sorted(int(row.value) for row in stored(topic)) == list(range(20))


def test_rows_without_key_use_all_partitions(
    spark: SparkSession, make_topic: MakeTopic, write: Callable[..., None], stored: Callable[[str], list[Row]]
) -> None:
    topic = make_topic(2)
    frame = spark.range(5_000).select(f.col("id").cast("string").alias("value"))
    write(frame, topic=topic, **{"kafka.batch.size": "1000"})
    rows = stored(topic)
    assert {row.partition for row in rows} == {0, 1}
    assert sorted(int(row.value) for row in rows) == list(range(5_000))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["'v' as value"], {}, "topic option required when no 'topic' attribute is present"),
        (["'v' as key"], {"topic": "t"}, "Required attribute 'value' not found"),
        (
            ["1 as value"],
            {"topic": "t"},
            r"unsupported type int. value must be a\(n\) string or binary",
        ),
        (["'v' as value", "'a' as partition"], {"topic": "t"}, r"partition must be a\(n\) int"),
        (["'v' as value"], {"topic": "t", "kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
    ],
)
def test_mistakes_are_told_when_the_query_is_planned(
    spark: SparkSession, write: Callable[..., None], columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.range(1).selectExpr(*columns), **options)


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_other_save_modes_are_refused(spark: SparkSession, write: Callable[..., None], mode: str) -> None:
    with pytest.raises(PySparkException, match=r"(?i)mode"):
        write(spark.range(1).selectExpr("'v' as value"), mode, topic="t")


def test_a_null_topic_fails_the_query(spark: SparkSession, write: Callable[..., None]) -> None:
    with pytest.raises(PySparkException, match="KAFKA_NULL_TOPIC_IN_DATA"):
        write(spark.range(1).selectExpr("'v' as value", "cast(null as string) as topic"))


def test_a_record_that_is_too_large_fails_the_query(
    spark: SparkSession, make_topic: MakeTopic, write: Callable[..., None]
) -> None:
    topic = make_topic(1)
    with pytest.raises(PySparkException, match=f"a batch for topic {topic} with records of"):
        write(spark.range(1).selectExpr("repeat('v', 2000000) as value"), topic=topic)


def test_a_failed_query_can_be_repeated(
    spark: SparkSession,
    make_topic: MakeTopic,
    write: Callable[..., None],
    stored: Callable[[str], list[Row]],
    tmp_path: Path,
) -> None:
    """The first attempt fails after rows were sent. No row is missing after the second, at least once."""
    topic = make_topic(2)
    marker = str(tmp_path / "failed")

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not Path(marker).exists():
            Path(marker).touch()
            raise RuntimeError("the first attempt")

    rows = spark.range(0, 12_000, numPartitions=2).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    frame = rows.mapInArrow(fail_once, rows.schema)
    with pytest.raises(PySparkException, match="the first attempt"):
        write(frame, topic=topic)
    write(frame, topic=topic)
    assert {int(row.value) for row in stored(topic)} == set(range(12_000))


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_a_stream_appends_in_both_modes(
    spark: SparkSession,
    odradek_cluster: RunningCluster,
    make_topic: MakeTopic,
    write: Callable[..., None],
    stored: Callable[[str], list[Row]],
    tmp_path: Path,
    mode: str,
) -> None:
    source, target = make_topic(2), make_topic(2)
    numbers = spark.range(300).select((f.col("id") % 3).cast("string").alias("key"), f.lit("v").alias("value"))
    rows = 0
    for run in range(2):
        write(numbers, topic=source)
        read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        frame = read.option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
        if mode != "append":
            frame = frame.groupBy("key").count().select("key", f.col("count").cast("string").alias("value"))
        query = (
            frame.writeStream.format("odradek")
            .option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows += sum(progress["sink"]["numOutputRows"] for progress in query.recentProgress if progress["numInputRows"])
        values = [row.value for row in stored(target)]
        if mode == "append":
            assert values == [b"v"] * (300 * (run + 1))
        else:
            assert sorted(values) == sorted([b"100"] * 3 + [b"200"] * 3 * run)
        assert rows == len(values)


def test_update_mode_writes_from_a_function(
    spark: SparkSession,
    odradek_cluster: RunningCluster,
    make_topic: MakeTopic,
    write: Callable[..., None],
    stored: Callable[[str], list[Row]],
    tmp_path: Path,
) -> None:
    """Spark refuses this mode for each sink that is written in Python, so the query writes each batch itself."""
    source, target = make_topic(1), make_topic(1)
    write(spark.range(30).selectExpr("cast(id % 3 as string) as key", "'v' as value"), topic=source)
    read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
    counted = read.option("subscribe", source).option("startingOffsets", "earliest").load().groupBy("key").count()
    query = (
        counted.selectExpr("key", "cast(count as string) as value")
        .writeStream.foreachBatch(lambda batch, _: write(batch, topic=target))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted((row.key, row.value) for row in stored(target)) == [(b"%d" % key, b"10") for key in range(3)]
