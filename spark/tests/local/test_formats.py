"""Typed values in a real Spark, compared with Spark's own functions and with Apache Avro, which Spark includes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import QueryTerminatedEvent
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic
from odradek_testkit.interop.guides import fenced_blocks
from pyspark_odradek.formats.ddl_types import parse_schema
from pyspark_odradek.formats.value_formats import value_decoder
from pyspark_odradek.observation import QueryListener

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
GUIDE = Path(__file__).resolve().parents[3] / "docs/spark.md"
TOO_BUSY = "Python worker failed to connect back"
"""The error if the planning process of a streaming source does not start within ten seconds; see `test_source`."""
NOW_MS = 1_800_000_000_000
DDL = "id BIGINT, name STRING, tags ARRAY<STRING>, prices MAP<STRING, DECIMAL(10, 2)>, day DATE, at TIMESTAMP"
GOOD = [
    b'{"id": 1, "name": "a", "tags": ["x", null], "prices": {"p": 1.25, "q": null}, "day": "2026-01-31"}',
    b'{"id": 2, "at": "2026-01-31T10:00:00.5Z"}',
    b"{}",
    b'{"id": 9223372036854775807, "name": "\\u00e4", "unknown": {"a": [1]}}',
]
BAD = [b'{"id": "x"}', b"{", b'{"id": 1.5}', b'{"prices": {"p": "z"}}', b'{"day": "tomorrow"}']


@pytest.fixture
def load(spark: SparkSession, odradek_cluster: RunningCluster) -> Callable[..., DataFrame]:
    """A function that reads a topic in a batch query."""

    def read(topic: str, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek_cluster.bootstrap)
        reader = reader.options(subscribe=topic, **options)
        return (reader.schema(schema) if schema else reader).load()

    return read


@pytest.fixture
def fill(client: BlockingClient) -> Callable[[str, list[bytes | None]], None]:
    """A function that creates a topic with these values."""

    def send(topic: str, values: list[bytes | None]) -> None:
        client.admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
        wait_for_topic(client, topic, timeout_seconds=30)
        with client.producer() as producer:
            producer.send_many(topic, [(None, value, NOW_MS) for value in values], partition=0).result()

    return send


@pytest.mark.parametrize(
    "ddl",
    [DDL, "a DEC(5), `b ``c` STRUCT<x: INT, y TIMESTAMP_NTZ> NOT NULL COMMENT 'z', d: CHAR(3), e MAP<STRING, REAL>"],
)
def test_schemas_are_those_of_spark(spark: SparkSession, ddl: str) -> None:
    assert parse_schema("valueSchema", ddl).simpleString() == StructType.fromDDL(ddl).simpleString().replace(
        "char(3)", "string"
    )


def test_json_is_read_as_by_from_json(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    values: list[bytes | None] = [*GOOD, None, *BAD]
    fill("formats-json", values)
    own = load("formats-json", valueFormat="json", valueSchema=DDL).orderBy("offset").collect()
    text = f.col("value").cast("string")
    theirs = load("formats-json").orderBy("offset").select(f.from_json(text, DDL).alias("value")).collect()
    for number, value in enumerate(values):
        if value in BAD:
            assert (own[number]["value"], bytes(own[number]["_corrupt"])) == (None, value)
        else:
            assert (own[number]["value"], own[number]["_corrupt"]) == (theirs[number]["value"], None), value


def test_csv_is_read_as_by_from_csv(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    ddl = "id BIGINT, name STRING, price DECIMAL(10, 2), rate DOUBLE, open BOOLEAN, day DATE, at TIMESTAMP"
    good = [
        b"1,a,1.25,0.5,true,2026-01-31,2026-01-31T10:00:00Z",
        b'2,"x, y",,,,,',
        b'3,"",-1,NaN,FALSE,,2026-01-31 10:00:00',
    ]
    bad = [b"x,a,,,,,", b"1,a", b"1,a,1.2.3,,,,", b"1,a,,,perhaps,,"]
    fill("formats-csv", [*good, *bad])
    own = load("formats-csv", valueFormat="csv", valueSchema=ddl).orderBy("offset").collect()
    text = f.col("value").cast("string")
    theirs = load("formats-csv").orderBy("offset").select(f.from_csv(text, ddl).alias("value")).collect()
    # NaN is not equal to itself, so rows are compared as text.
    assert [str(row["value"]) for row in own[: len(good)]] == [str(row["value"]) for row in theirs[: len(good)]]
    assert [bytes(row["_corrupt"]) for row in own[len(good) :]] == bad


def test_a_narrower_schema_selects_columns(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    fill("formats-narrow", [b'{"id": 1}', b"x"])
    options = {"valueFormat": "json", "valueSchema": "id INT"}
    both = "_corrupt BINARY, value STRUCT<id: INT>"
    rows = load("formats-narrow", both, **options).collect()
    assert [(row["_corrupt"], row["value"]) for row in rows] == [(None, (1,)), (bytearray(b"x"), None)]
    assert load("formats-narrow", "offset BIGINT", **options).count() == 2
    rows = load("formats-narrow", "value STRING", valueFormat="string").collect()
    assert [row["value"] for row in rows] == ['{"id": 1}', "x"]


def test_the_examples_of_the_guide_run(
    spark: SparkSession, odradek_cluster: RunningCluster, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    fill("departures", [b"to Tromso"])
    fill("orders", [b'{"id": 7, "items": [{"name": "apple", "price": 1.5}]}', b"{"])
    examples = [each for each in fenced_blocks(GUIDE.read_text(encoding="utf-8"), "python") if ".show()" in each]
    for example in examples:
        exec(example.replace("localhost:9092", odradek_cluster.bootstrap), {"spark": spark})
    shown = capsys.readouterr().out
    assert len(examples) == 2
    assert all(text in shown for text in ("to Tromso", "[{apple, 1.50}]", "[7B]")), shown


@pytest.fixture
def avro(spark: SparkSession) -> Iterator[Callable[[str, list[str]], list[bytes]]]:
    """A function that encodes JSON with Apache Avro, in the JVM of Spark."""
    jvm: Any = spark.sparkContext._jvm
    apache = jvm.org.apache.avro

    def encode(schema_text: str, values: list[str]) -> list[bytes]:
        schema = apache.Schema.Parser().parse(schema_text)
        reader, writer = apache.generic.GenericDatumReader(schema), apache.generic.GenericDatumWriter(schema)
        found = []
        for value in values:
            datum = reader.read(None, apache.io.DecoderFactory.get().jsonDecoder(schema, value))
            stream = jvm.java.io.ByteArrayOutputStream()
            encoder = apache.io.EncoderFactory.get().binaryEncoder(stream, None)
            writer.write(datum, encoder)
            encoder.flush()
            found.append(bytes(stream.toByteArray()))
        return found

    yield encode


def test_avro_of_apache_avro_is_read(avro: Callable[[str, list[str]], list[bytes]]) -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": ["null", "string"]},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "prices", "type": {"type": "map", "values": "double"}},
                {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            ],
        }
    )
    rows = [
        {
            "id": number * 10**15,
            "name": None,
            "tags": ["x"] * number,
            "prices": {"p": number / 2},
            "kind": "AB"[number % 2],
        }
        for number in range(-5, 20)
    ]
    values = avro(schema, [json.dumps(row) for row in rows])
    named = {"name": {"string": "ä"}}
    values += avro(schema, [json.dumps({**row, **named}) for row in rows])
    made = value_decoder({"valueFormat": "avro", "valueAvroSchema": schema})
    assert made is not None
    typed, wrong = made.decode(pa.array(values, pa.binary()))
    expected = [{**row, "prices": [*row["prices"].items()], "tags": list(row["tags"])} for row in rows]
    assert typed.to_pylist() == expected + [{**row, "name": "ä"} for row in expected]
    assert wrong.null_count == len(values)


class Listener(QueryListener):
    """Tells when it has noted the end of a query."""

    def __init__(self, *, progress: Mapping[str, str]) -> None:
        super().__init__(progress=progress)
        self.ended = threading.Semaphore(0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        super().onQueryTerminated(event)
        self.ended.release()


def run(writer: DataStreamWriter) -> str:
    """Run a query to its end, and return its id. On a machine that is too busy, it is started again."""
    while True:
        query = writer.start()
        try:
            query.awaitTermination()
        except PySparkException as error:
            if TOO_BUSY not in str(error):
                raise
        else:
            return str(query.id)


def test_a_query_is_visible_as_a_group_and_in_metrics(
    spark: SparkSession,
    odradek_cluster: RunningCluster,
    client: BlockingClient,
    fill: Callable[..., None],
    tmp_path: Any,
) -> None:
    fill("formats-stream", [b'{"id": %d}' % number for number in range(7)])
    options = {"kafka.bootstrap.servers": odradek_cluster.bootstrap, "progressGroup": "of-the-source"}
    listener = Listener(progress={**options, "progressGroup": "true"})
    spark.streams.addListener(listener)
    try:
        frame = (
            spark.readStream.format("odradek")
            .options(subscribe="formats-stream", startingOffsets="earliest", maxOffsetsPerTrigger="3", **options)
            .options(valueFormat="json", valueSchema="id INT")
            .load()
        )
        writer = frame.select("value.id").writeStream.format("parquet").queryName("visible").trigger(availableNow=True)
        writer = writer.options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
        query_id = run(writer)
        # The last event comes after the query has ended.
        while listener.snapshot()["visible"]["numInputRows"] < 7 or listener.snapshot()["visible"]["running"]:
            assert listener.ended.acquire(timeout=300)
    finally:
        spark.streams.removeListener(listener)
    listener.close()
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [*range(7)]
    state = listener.snapshot()["visible"]
    assert (state["batchId"], state["numInputRows"], state["offsetsBehindLatest"], state["error"]) == (2, 7, 0, None)
    (found,) = client.admin.group_offsets("visible").values()
    assert (found.offset, json.loads(found.metadata)) == (7, {"query": "visible", "id": query_id, "batch": 2})
    (found,) = client.admin.group_offsets("of-the-source").values()
    assert (found.offset, json.loads(found.metadata)) == (7, {"query": "of-the-source"})
    assert sum(lag.records or 0 for lag in client.admin.group_lag("visible").values()) == 0
