"""Streams over failures, changes of topics, and records that are lost, in a real Spark with real brokers.

The changes happen inside of `foreachBatch`, so each is between the same two steps of a query in every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Bound
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odradek.base.errors import TopicAlreadyExistsError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
_numbers = itertools.count()
TOO_BUSY = "Python worker failed to connect back"
"""See `test_source`: the query is started again."""
Change = Callable[[int], None]


class Query:
    """A streaming query of one topic, with a checkpoint that its runs share."""

    def __init__(self, spark: SparkSession, client: BlockingClient, topic: str, folder: Path) -> None:
        self._spark = spark
        self._client = client
        self._checkpoint = str(folder / "checkpoint")
        self.topic = topic
        self.rows: list[tuple[int, int]] = []
        """Partition and offset of each row, in the order of the micro-batches."""
        self.batches = 0

    def run(self, *, change: Change = lambda number: None, until: int | None = None, **options: str) -> None:
        """Read with Trigger.AvailableNow, or with `until` continuously until there are so many rows.

        `change` is called at the start of each micro-batch with its number.
        """
        while True:
            try:
                return self._run(change, until, options)
            except PySparkException as error:
                if TOO_BUSY not in str(error):
                    raise

    def _run(self, change: Change, until: int | None, options: dict[str, str]) -> None:
        def take(batch: DataFrame, number: int) -> None:
            change(number)
            self.rows += [(row.partition, row.offset) for row in batch.select("partition", "offset").collect()]
            self.batches += 1
            if until is not None and len(self.rows) >= until:
                raise EnoughRowsError

        frame = (
            self._spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", ",".join(self._client.settings.bootstrap_servers))
            .options(subscribe=self.topic, **options)
            .load()
        )
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", self._checkpoint)
        query = (writer.trigger(availableNow=True) if until is None else writer).start()
        try:
            query.awaitTermination()
        except PySparkException as error:
            if until is None or EnoughRowsError.__name__ not in str(error):
                raise


class EnoughRowsError(Exception):
    """Ends a query that would wait for records forever."""


@pytest.fixture
def query(spark: SparkSession, client: BlockingClient, tmp_path: Path) -> Iterator[Query]:
    """A query of a new topic with one partition."""
    topic = f"recovery-{next(_numbers)}"
    create(client, topic)
    yield Query(spark, client, topic, tmp_path)


@pytest.fixture
def admin(odradek_cluster: RunningCluster) -> AdminClient:
    """A client that can delete records."""
    return AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})


def create(client: BlockingClient, topic: str) -> None:
    made = False
    while not made:
        # A deleted topic disappears from the list before its deletion is complete.
        with suppress(TopicAlreadyExistsError):
            client.admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
            made = True
    wait_for_topic(client, topic, timeout_seconds=60)


def send(client: BlockingClient, topic: str, count: int, partition: int = 0) -> None:
    with client.producer() as producer:
        producer.send_many(topic, [(None, b"v", 4_000_000_000_000)] * count, partition=partition).result()


def offsets(first: int, end: int, partition: int = 0) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def fail(number: int) -> None:
    raise RuntimeError(f"the query fails in micro-batch {number}")


def test_the_first_offsets_survive_a_failure_before_the_first_commit(query: Query, client: BlockingClient) -> None:
    """The start is "latest". It is in the checkpoint when the query fails in its first micro-batch; the records that
    follow must not be skipped by another "latest"."""
    send(client, query.topic, 5)
    with pytest.raises(PySparkException, match="fails in micro-batch 0"):
        query.run(change=fail)
    send(client, query.topic, 4)
    query.run()
    assert query.rows == offsets(5, 9)


def test_the_records_of_the_first_micro_batch_survive_its_failure(query: Query, client: BlockingClient) -> None:
    send(client, query.topic, 5)
    first = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    with pytest.raises(PySparkException, match="fails in micro-batch 0"):
        query.run(change=fail, **first)
    # The restarted query would start at the end.
    query.run(startingOffsets="latest", maxOffsetsPerTrigger="3")
    assert query.rows == offsets(0, 5)
    assert query.batches == 2


def test_partitions_that_are_added_during_a_query_are_read_from_their_beginning(
    query: Query, client: BlockingClient
) -> None:
    send(client, query.topic, 6)

    def grow(number: int) -> None:
        if number == 1:
            client.admin.create_partitions({query.topic: 2})
            wait_for_topic(client, query.topic, timeout_seconds=60)
            send(client, query.topic, 4, partition=1)

    query.run(change=grow, until=10, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert sorted(query.rows) == offsets(0, 6) + offsets(0, 4, partition=1)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_overtakes_a_query(query: Query, client: BlockingClient, admin: AdminClient, fails: str) -> None:
    send(client, query.topic, 40)

    def overtake(number: int) -> None:
        if number == 1:
            admin.delete_records([Bound(query.topic, 0, 27)])[Bound(query.topic, 0)].result(60)
            assert client.earliest_offsets([TopicPartition(query.topic, 0)]) == {TopicPartition(query.topic, 0): 27}

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "failOnDataLoss": fails}
    if fails == "true":
        with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
            query.run(change=overtake, **options)
        options["failOnDataLoss"] = "false"
    query.run(change=overtake, **options)
    rows = [row for row in query.rows if row not in offsets(10, 20)]
    assert rows == offsets(0, 10) + offsets(27, 40), "exactly the records that are left"


@pytest.mark.parametrize("new", [3, 50])
def test_a_topic_that_was_created_again_is_noticed_after_a_restart(
    query: Query, client: BlockingClient, new: int
) -> None:
    send(client, query.topic, 20)
    query.run(startingOffsets="earliest")
    client.admin.delete_topics([query.topic])
    create(client, query.topic)
    send(client, query.topic, new)
    with pytest.raises(PySparkException, match=r"PARTITION_OFFSET_CHANGED: topic .* was deleted and created again"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows == offsets(0, 20) + offsets(0, new)


def test_a_topic_that_was_created_again_is_noticed_during_a_query(query: Query, client: BlockingClient) -> None:
    send(client, query.topic, 20)

    def replace(number: int) -> None:
        if number == 1:
            client.admin.delete_topics([query.topic])
            create(client, query.topic)
            send(client, query.topic, 30)

    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    with pytest.raises(PySparkException, match=r"PARTITION_OFFSET_CHANGED: topic .* was deleted and created again"):
        query.run(change=replace, until=1000, **limits)


@pytest.mark.daily
@pytest.mark.timeout(3600)
def test_a_query_restarts_from_a_checkpoint_of_a_thousand_micro_batches(query: Query, client: BlockingClient) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    send(client, query.topic, 1000)
    query.run(**options)
    assert query.batches == 1000
    send(client, query.topic, 5)
    query.run(**options)
    assert query.rows == offsets(0, 1005)
    assert query.batches == 1005


def test_each_action_on_a_batch_reads_up_to_the_latest_offset(
    query: Query, spark: SparkSession, client: BlockingClient, odradek_cluster: RunningCluster
) -> None:
    send(client, query.topic, 3)
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
    frame = reader.option("subscribe", query.topic).load()
    assert frame.count() == 3
    send(client, query.topic, 4)
    assert frame.count() == 7
