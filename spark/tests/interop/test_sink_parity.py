"""Our sink and Spark's own one write the same records of the same rows, and refuse the same mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import Headers, NewTopic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

NATIVE, OURS = "kafka", "odradek"
PARTITIONS = 3
Stored = tuple[int, bytes | None, bytes | None, Headers]
Write = Callable[[DataFrame, str, dict[str, str]], None]


@pytest.fixture
def write(bootstrap: str) -> Write:
    """A function that appends rows through a connector."""

    def save(frame: DataFrame, connector: str, options: dict[str, str]) -> None:
        writer = frame.write.format(connector).option("kafka.bootstrap.servers", bootstrap)
        writer.options(**options).mode("append").save()

    return save


@pytest.fixture
def topics(client: BlockingClient) -> dict[str, str]:
    """A new topic for each connector."""
    names = {connector: f"parity-{connector}-{uuid4().hex[:8]}" for connector in (NATIVE, OURS)}
    client.admin.create_topics(
        [NewTopic(name=name, partitions=PARTITIONS, replication_factor=1) for name in names.values()]
    )
    return names


def stored(client: BlockingClient, topic: str) -> list[Stored]:
    """Return partition, key, value and headers of each record, by partition and offset."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = client.latest_offsets(partitions)
    found: list[Stored] = []
    for partition in partitions:
        offset = 0
        while offset < ends[partition]:
            fetched = client.fetch_raw(partition, offset)
            found += [
                (partition.partition, record.key, record.value, tuple(record.headers))
                for records, _ in iterate_records(fetched)
                for record in records
            ]
            offset = fetched.next_offset
    return found


ROWS = {
    "keys and values": (
        "select cast(id as string) as key, concat('value ', id) as value from range(0, 5000, 1, 1)",
        True,
    ),
    "binary columns": ("select unhex(hex(id)) as key, unhex(hex(id * 7)) as value from range(0, 3000, 1, 1)", True),
    "long keys": (
        "select repeat(cast(id as string), 1 + id % 30) as key, 'v' as value from range(0, 2000, 1, 1)",
        True,
    ),
    "nulls": (
        "select if(id % 2 = 0, null, cast(id as string)) as key, if(id % 3 = 0, null, 'v') as value "
        "from range(0, 600, 1, 1)",
        False,
    ),
    "partitions": (
        "select 'k' as key, cast(id as string) as value, cast(id % 3 as int) as partition from range(0, 900, 1, 1)",
        True,
    ),
    "headers": (
        "select cast(id as string) as key, 'v' as value, case when id % 3 = 0 then null when id % 3 = 1 then array() "
        "else array(named_struct('key', 'a', 'value', cast(cast(id as string) as binary)), "
        "named_struct('key', '', 'value', cast(null as binary))) end as headers from range(0, 900, 1, 1)",
        True,
    ),
    "ignored columns": (
        "select cast(id as string) as key, 'v' as value, id as other, current_timestamp() as timestamp "
        "from range(0, 300, 1, 1)",
        True,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_same_rows_become_the_same_records(
    spark: SparkSession, client: BlockingClient, topics: dict[str, str], write: Write, name: str
) -> None:
    query, is_keyed = ROWS[name]
    for connector, topic in topics.items():
        write(spark.sql(query), connector, {"topic": topic})
    native, ours = (stored(client, topics[connector]) for connector in (NATIVE, OURS))
    if not is_keyed:
        # Rows without key go to random partitions.
        native, ours = (sorted((record[1:] for record in found), key=repr) for found in (native, ours))  # type: ignore[misc]
    assert len(ours) > 0
    assert ours == native


def test_a_topic_column_is_used(
    spark: SparkSession, client: BlockingClient, topics: dict[str, str], write: Write
) -> None:
    for connector, topic in topics.items():
        rows = spark.sql(f"select 'k' as key, cast(id as string) as value, '{topic}' as topic from range(0, 50, 1, 1)")
        write(rows, connector, {})
    assert stored(client, topics[OURS]) == stored(client, topics[NATIVE])
    assert len(stored(client, topics[OURS])) == 50


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("select 'v' as value", {}, "topic option required when no 'topic' attribute is present"),
        ("select 'v' as key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("select 1 as value", {"topic": "t"}, r"value must be a\(n\) (string or binary|STRING or BINARY)"),
        ("select 'v' as value, 1 as key", {"topic": "t"}, "key attribute unsupported type"),
        ("select 'v' as value, 1L as partition", {"topic": "t"}, "partition attribute unsupported type"),
        ("select 'v' as value, 'h' as headers", {"topic": "t"}, "headers attribute unsupported type"),
        ("select 'v' as value, 1 as topic", {}, "topic attribute unsupported type"),
        ("select 'v' as value", {"topic": "t", "kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
        ("select 'v' as value", {"topic": "t", "kafka.value.serializer": "x"}, "'value.serializer' is not supported"),
        ("select 'v' as value, cast(null as string) as topic", {}, "(?i)null.topic"),
    ],
)
def test_the_same_mistakes_are_refused(
    spark: SparkSession, write: Write, query: str, options: dict[str, str], message: str
) -> None:
    for connector in (NATIVE, OURS):
        with pytest.raises((PySparkException, Py4JJavaError), match=message):
            write(spark.sql(query), connector, options)


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_streams_write_the_same(
    spark: SparkSession,
    client: BlockingClient,
    topics: dict[str, str],
    bootstrap: str,
    tmp_path: Path,
    mode: str,
) -> None:
    rows = spark.sql("select cast(id % 7 as string) as key, cast(id as string) as value from range(0, 500, 1, 1)")
    rows.write.parquet(str(tmp_path / "rows"))
    for connector, topic in topics.items():
        frame = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
        if mode == "complete":
            frame = frame.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        query = (
            frame.writeStream.format(connector)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / connector))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    native, ours = (sorted(stored(client, topics[connector]), key=repr) for connector in (NATIVE, OURS))
    assert len(ours) == (500 if mode == "append" else 7)
    assert ours == native
