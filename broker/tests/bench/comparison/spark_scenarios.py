"""The scenarios of Spark: our connector and Spark's own connector for Kafka, from `scenarios`.

Both sides have a broker of the same kind, Apache Kafka, so that only the connectors differ.
"""

from __future__ import annotations

from typing import Final

from comparison.declarations import Scenario, Theme
from comparison.figures import THEIRS
from comparison.workloads.spark_reads import SparkRead
from odradek.compression import Codec

_TEXT: Final = (
    "PySpark with two cores (`local[2]`) reads 6 partitions from Apache Kafka 3.9.1: with the format `odradek`, in the "
    "columns of Odradek, and with Spark's own connector, in the columns of Apache Kafka. "
)
_MEMORY: Final = "worker_mb"

SPARK_THEMES: Final = (
    Theme(
        name="spark-100",
        title="Spark: whole batches of records of 100 B",
        text=_TEXT + "The rows go to Spark's sink `noop`; the fastest of three queries counts.",
        metrics=("rows_per_s_100", _MEMORY),
    ),
    Theme(
        name="spark-1000",
        title="Spark: whole batches of records of 1000 B",
        text=_TEXT,
        metrics=("rows_per_s_1000", _MEMORY),
    ),
    Theme(
        name="spark-shapes",
        title="Spark: small batches, codecs and headers",
        text=_TEXT + "Records have 100 B.",
        metrics=("rows_per_s", _MEMORY),
    ),
    Theme(
        name="spark-count",
        title="Spark: counting",
        text=_TEXT + "`count()`; with our connector over a schema with the column `offset` only.",
        metrics=("counted_per_s", _MEMORY),
    ),
    Theme(
        name="spark-stream",
        title="Spark: a micro-batch with one record",
        text=_TEXT + "Median of the durations that Spark reports as `triggerExecution`.",
        metrics=("micro_batch_ms", _MEMORY),
    ),
)


def _scenario(name: str, theme: str, title: str, workload: SparkRead) -> Scenario:
    return Scenario(
        name=f"spark-{name}",
        theme=theme,
        title=title,
        workload=workload,
        seconds=80,
        prepare_seconds=30,
        warm_ups=0,
        same_broker=THEIRS,
    )


def _shape(name: str, title: str, **shape: object) -> Scenario:
    values: dict[str, object] = {"records": 1_200_000, "record_bytes": 100, "batch_records": 500, **shape}
    return _scenario(name, "spark-shapes", title, SparkRead(**values))  # type: ignore[arg-type]


SPARK_SCENARIOS: Final = (
    _scenario(
        "read-100b",
        "spark-100",
        "noop, 100 B",
        SparkRead(records=6_000_000, record_bytes=100, batch_records=1000, metric="rows_per_s_100"),
    ),
    _scenario(
        "read-1000b",
        "spark-1000",
        "noop, 1000 B",
        SparkRead(records=1_200_000, record_bytes=1000, batch_records=130, metric="rows_per_s_1000"),
    ),
    _shape("read-single", "batches of one record", records=300_000, batch_records=1),
    _shape("read-ten", "batches of 10 records", records=1_000_000, batch_records=10),
    _shape("read-zstd", "zstd", codec=Codec.ZSTD),
    _shape("read-lz4", "lz4", codec=Codec.LZ4),
    _shape("read-headers", "two headers for each record", mode="headers"),
    _scenario(
        "count",
        "spark-count",
        "count, 100 B",
        SparkRead(records=6_000_000, record_bytes=100, batch_records=1000, mode="count", metric="counted_per_s"),
    ),
    _scenario(
        "micro-batch",
        "spark-stream",
        "one record",
        SparkRead(records=12_000, record_bytes=100, batch_records=1000, mode="micro-batches"),
    ),
)
