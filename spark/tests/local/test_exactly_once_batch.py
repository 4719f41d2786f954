"""Batch queries that write exactly once, from a real Spark to real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic
from pyspark_odradek.options.sink_options import DECISION_TOPIC
from pyspark_odradek.sink.decision_log import DecisionLog

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
_numbers = itertools.count()


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = f"exactly-once-{next(_numbers)}"
    client.admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
    wait_for_topic(client, name, timeout_seconds=30)
    return name


@pytest.fixture
def write(odradek_cluster: RunningCluster, topic: str) -> Callable[..., None]:
    """A function that appends a batch query exactly once."""

    def save(frame: DataFrame, **options: Any) -> None:
        writer = frame.write.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        writer.options(topic=topic, deliveryGuarantee="exactly-once", **options).mode("append").save()

    return save


def seen(client: BlockingClient, topic: str) -> list[int]:
    """Return the values that consumers with read_committed get. No transaction may be open."""
    partition = TopicPartition(topic, 0)
    end, position, found = client.latest_offsets([partition])[partition], 0, []
    while position < end:
        fetch = client.fetch_raw(partition, position, isolation="read_committed", read_ahead=False)
        for records, _ in iterate_records(fetch):
            found += [int(record.value or b"") for record in records]
        position = fetch.next_offset
    return sorted(found)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=3).select(f.col("id").cast("string").alias("value"))


def test_a_job_with_a_sink_id_writes_once(
    spark: SparkSession, client: BlockingClient, topic: str, write: Callable[..., None]
) -> None:
    for _ in range(2):
        write(numbers(spark, 100), sinkId=f"job-{topic}")
    assert seen(client, topic) == list(range(100))
    decision = DecisionLog(client, DECISION_TOPIC, f"job-{topic}").last()
    assert decision is not None
    assert len(decision.transactions) == 3


def test_jobs_without_a_sink_id_are_independent(
    spark: SparkSession, client: BlockingClient, topic: str, write: Callable[..., None]
) -> None:
    for _ in range(2):
        write(numbers(spark, 10))
    assert seen(client, topic) == sorted([*range(10), *range(10)])
    assert client.admin.list_prepared() == []


def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, client: BlockingClient, topic: str, write: Callable[..., None]
) -> None:
    # One task fails after the others have prepared their transactions.
    failing = f.when(f.col("value") == "99", f.raise_error(f.lit("a bad row"))).otherwise(f.col("value"))
    with pytest.raises(PySparkException, match="a bad row"):
        write(numbers(spark, 100).select(failing.cast("string").alias("value")), sinkId=f"job-{topic}")
    write(numbers(spark, 5), sinkId=f"job-{topic}")
    assert seen(client, topic) == list(range(5))
    ids = [row.transactional_id for row in client.admin.list_transactions(states=["Ongoing"])]
    assert [name for name in ids if name.startswith(f"job-{topic}/")] == []


def test_every_batch_of_a_stream_can_be_a_job(
    spark: SparkSession, client: BlockingClient, topic: str, write: Callable[..., None]
) -> None:
    for number in (0, 0, 1):
        write(numbers(spark, 3 + number), sinkId=f"{topic}-{number}")
    assert seen(client, topic) == sorted([*range(3), *range(4)])
