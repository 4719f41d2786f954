"""Measures how fast a Spark source in Python can be at most, whatever it reads.

Run it with `.venv/bin/python broker/tests/bench/spark_floor.py`. The source has the columns of the Kafka source and
yields one prepared Arrow batch again and again, so it neither fetches nor decodes; what remains is the transport to the
JVM, the conversion to rows, and Spark's sink `noop`, with two cores (`local[2]`). No connector that uses Spark's
interface for Python sources can be faster. Prints the rows per second of the fastest of the queries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click
import pyarrow as pa
from comparison.clients.spark_read import session
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.decoding.task_reader import BATCH_ROWS

COLUMNS: Final = RowSchema.full(include_headers=False)
PARTITIONS: Final = 6


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
    """Yields the same batch `batches` times for each partition."""

    def __init__(self, rows: int, value_bytes: int, batches: int) -> None:
        self._rows, self._value_bytes, self._batches = rows, value_bytes, batches

    def partitions(self) -> list[InputPartition]:
        """As many as the topic of the comparison has."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition."""
        batch = prepared(self._rows, self._value_bytes)
        for _ in range(self._batches):
            yield batch


class PreparedSource(DataSource):
    """The format `prepared`, with the options rows, value_bytes and batches."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "prepared"

    def schema(self) -> StructType:
        """The columns of the Kafka source."""
        return COLUMNS.spark

    def reader(self, schema: object) -> DataSourceReader:
        """Return the reader for batch queries."""
        rows, value_bytes, batches = (int(self.options[name]) for name in ("rows", "value_bytes", "batches"))
        return PreparedReader(rows, value_bytes, batches)


@click.command(help=__doc__)
@click.option("--value-bytes", default=100, show_default=True, type=click.IntRange(min=1), help="Size of a value.")
@click.option("--rows", default=18_000_000, show_default=True, type=click.IntRange(min=1), help="Rows of a query.")
@click.option("--batch-rows", default=BATCH_ROWS, show_default=True, type=click.IntRange(min=1), help="Rows per batch.")
@click.option("--queries", default=4, show_default=True, type=click.IntRange(min=1), help="The fastest one counts.")
def main(value_bytes: int, rows: int, batch_rows: int, queries: int) -> None:
    """Run the queries."""
    spark = session("")
    spark.dataSource.register(PreparedSource)
    batches = -(-rows // (PARTITIONS * batch_rows))
    options = {"rows": batch_rows, "value_bytes": value_bytes, "batches": batches}
    seconds = []
    for _ in range(queries):
        frame = spark.read.format("prepared").options(**options).load()
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    spark.stop()
    click.echo(f"{PARTITIONS * batches * batch_rows / min(seconds):,.0f} rows/s")


if __name__ == "__main__":
    main()
