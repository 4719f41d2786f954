"""Measures how fast a Spark source or sink in Python can be at most, whatever it reads or writes.

Run it with `.venv/bin/python broker/tests/bench/spark_floor.py`. What remains is Spark's own work with two cores
(`local[2]`), so no connector that uses Spark's interface for Python can be faster. Prints the rows per second of the
fastest of the queries.

The source has the columns of the Kafka source and yields one prepared Arrow batch again and again: the rows pass to the
JVM, become rows of Spark, and go to its sink `noop`. With `--fetch`, it also fetches a topic from Apache Kafka, which
runs on the same machine, but does not look at the records. With `--sink`, a sink drops the rows that the scenarios of
Spark's sink write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final

import click
import pyarrow as pa
from comparison import machine
from comparison.clients.spark_read import session
from comparison.clients.spark_sink import value_rows
from comparison.command import ROOT
from comparison.figures import THEIRS
from comparison.scenarios import CATALOGUE
from comparison.systems import running
from comparison.workloads.base import Bench
from comparison.workloads.spark_reads import TOPIC, SparkRead
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek.base.types import TopicPartition
from odradek_testkit.interop.apache import jars
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.decoding.task_reader import BATCH_ROWS
from pyspark_odradek.options.source_options import parse
from pyspark_odradek.shared_client import shared_client

COLUMNS: Final = RowSchema.full(include_headers=False)
PARTITIONS: Final = 6
PREPARE_SECONDS: Final = 600.0
"""Limit for filling the topic of a scenario."""
READS: Final = {
    each.name: each.workload
    for each in CATALOGUE
    if isinstance(each.workload, SparkRead) and each.workload.mode in ("noop", "count")
}
"""The scenarios of `make bench` that read a topic with Spark, by name."""


def prepared(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Return a batch with keys of 8 bytes."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"%08d" % number for number in range(rows)], pa.binary()),
            pa.array([b"x" * value_bytes] * rows, pa.binary()),
            pa.array(["read"] * rows, pa.string()),
            pa.array([0] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ],
        schema=COLUMNS.arrow,
    )


class PreparedReader(DataSourceReader):
    """Yields the first rows of one batch until a partition has all its rows."""

    def __init__(self, options: Mapping[str, str], names: list[str]) -> None:
        self._rows, self._batch_rows, self._value_bytes = (
            int(options[name]) for name in ("rows", "batch_rows", "value_bytes")
        )
        self._bootstrap = options.get("bootstrap")
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """As many as the topic of the comparison has."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition."""
        batch = prepared(self._batch_rows, self._value_bytes).select(self._names)
        for rows in self._fetches(partition.value) if self._bootstrap else [self._rows]:
            for begin in range(0, rows, self._batch_rows):
                yield batch.slice(0, min(self._batch_rows, rows - begin))

    def _fetches(self, partition: int) -> Iterator[int]:
        """Fetch a partition, and yield the number of records of each fetch."""
        settings = parse({"kafka.bootstrap.servers": self._bootstrap or "", "subscribe": TOPIC}).client
        client, offset = shared_client(settings), 0
        while offset < self._rows:
            fetched = client.fetch_raw(
                TopicPartition(TOPIC, partition),
                offset,
                max_bytes=settings.max_partition_fetch_bytes,
                end_offset=self._rows,
            )
            yield fetched.next_offset - offset
            offset = fetched.next_offset


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and does nothing with them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


class FloorSource(DataSource):
    """The format `floor`: prepared rows to read, and nothing to write to."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "floor"

    def schema(self) -> StructType:
        """The columns of the Kafka source."""
        return COLUMNS.spark

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for batch queries."""
        return PreparedReader(self.options, schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer for batch queries."""
        return DroppingWriter()


@click.command(help=__doc__)
@click.option("--value-bytes", default=100, show_default=True, type=click.IntRange(min=1), help="Size of a value.")
@click.option("--rows", default=18_000_000, show_default=True, type=click.IntRange(min=1), help="Rows of a query.")
@click.option("--batch-rows", default=BATCH_ROWS, show_default=True, type=click.IntRange(min=1), help="Rows per batch.")
@click.option("--queries", default=4, show_default=True, type=click.IntRange(min=1), help="The fastest one counts.")
@click.option("--fetch", type=click.Choice(list(READS)), help="Fetch the topic of this scenario; its rows count.")
@click.option("--sink", is_flag=True, help="Measure a sink instead of a source.")
def main(value_bytes: int, rows: int, batch_rows: int, queries: int, fetch: str | None, sink: bool) -> None:
    """Run the queries."""
    with ExitStack() as closing:
        spark = session("")
        closing.callback(spark.stop)
        spark.dataSource.register(FloorSource)
        if sink:
            query = _writing(spark, rows, value_bytes)
        elif fetch is not None:
            work = READS[fetch]
            rows, query = work.batches * work.batch_records, _fetching(spark, fetch, batch_rows, closing)
        else:
            rows -= rows % PARTITIONS
            query = _reading(spark, {"rows": rows // PARTITIONS, "batch_rows": batch_rows, "value_bytes": value_bytes})
        seconds = []
        for _ in range(queries):
            began = time.perf_counter()
            query()
            seconds.append(time.perf_counter() - began)
    click.echo(f"{rows / min(seconds):,.0f} rows/s")


def _reading(spark: SparkSession, options: Mapping[str, str | int], *, count: bool = False) -> Callable[[], object]:
    reader = spark.read.format("floor").options(**options)
    if count:
        return lambda: reader.schema("offset BIGINT").load().count()
    return lambda: reader.load().write.format("noop").mode("overwrite").save()


def _fetching(spark: SparkSession, scenario: str, batch_rows: int, closing: ExitStack) -> Callable[[], object]:
    """Return a query that fetches the topic of a scenario from Apache Kafka, which is started."""
    folder, work = jars(machine.KAFKA_VERSION, ROOT / ".interop"), READS[scenario]
    system = closing.enter_context(running(THEIRS, 1, {}, jars=folder, tls=False))
    work.prepare(Bench(system, folder, PREPARE_SECONDS, closing.enter_context(ExitStack()), THEIRS))
    options: dict[str, str | int] = {
        "bootstrap": system.client_bootstrap,
        "rows": work.batches * work.batch_records // PARTITIONS,
        "batch_rows": batch_rows,
        "value_bytes": work.record_bytes,
    }
    return _reading(spark, options, count=work.mode == "count")


def _writing(spark: SparkSession, rows: int, value_bytes: int) -> Callable[[], object]:
    frame = value_rows(spark, rows, value_bytes)
    return lambda: frame.write.format("floor").mode("append").save()


if __name__ == "__main__":
    main()
