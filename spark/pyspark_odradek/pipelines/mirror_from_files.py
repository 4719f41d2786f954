"""Writes the files of `mirror_to_files` or `load` back into topics. A `spark-submit` application."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.base.errors import ConfigError
from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.options.sink_options import parse_sink
from pyspark_odradek.pipelines.application import OpenSession, job_parser, name_and_value, run, session, tell
from pyspark_odradek.pipelines.mirror_sender import COLUMNS, MirrorSender

_NEEDED: Final = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")

_DESCRIPTION: Final = """Write the records of mirrored files back into topics, with headers, timestamps and partitions.

The topics must exist. Records of a partition keep their order; their offsets are new. If the run fails, some records
are in the topic already, and a second run writes them again: delete them first, or use an empty topic."""

_EPILOG: Final = """example:
  spark-submit mirror_from_files.py --bootstrap-servers 127.0.0.1:9092 --input s3a://bucket/mirror --to-topic restored

Without --to-topic, each record goes to the topic that it came from."""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = job_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--input", required=True, metavar="PATH", help="folder of mirror_to_files or load")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to")
    parser.add_argument("--to-topic", metavar="TOPIC", help="write all records to this topic")
    parser.add_argument("--by-key", action="store_true", help="let the key choose the partition, as producers do")
    parser.add_argument(
        "--where", metavar="CONDITION", help="only some records, such as \"timestamp >= '2026-01-01' AND topic = 'a'\""
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=name_and_value,
        help="an option of the sink, such as kafka.compression.type=zstd or configFile=FILE; may be repeated",
    )
    arguments = parser.parse_args(argv)
    return run(
        lambda: _mirror(arguments, open_session),
        lambda result: f"Wrote {result['rows']:,} records to {result['topics']} topics in {result['seconds']} s.",
    )


def _mirror(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = {"kafka.bootstrap.servers": arguments.bootstrap_servers, **dict(arguments.option)}
    settings = parse_sink(with_config_file(options)).client
    with open_session(f"mirror of {arguments.input}") as spark:
        rows = _rows(spark, arguments)
        found = rows.groupBy("topic").agg(f.count("*").alias("records"), f.max("partition").alias("last")).collect()
        last = {str(row["topic"]): int(row["last"]) for row in found}
        _check_topics(settings, last, arguments)
        tell("planned", records=sum(int(row["records"]) for row in found), topics=len(last))
        sender = MirrorSender(settings, topic=arguments.to_topic, by_key=arguments.by_key)
        # All records of a partition are in one task, in their order.
        ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        # Arrow functions of DataFrames would need pandas.
        sent = ordered.withColumn("timestamp_ms", f.unix_millis("timestamp")).select(*COLUMNS).rdd.mapPartitions(sender)
        records = int(sent.sum())
    return {
        "rows": records,
        "topics": 1 if arguments.to_topic else len(last),
        "seconds": round(time.monotonic() - began, 3),
    }


def _rows(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    files = spark.read.parquet(arguments.input)
    missing = sorted({*_NEEDED} - {*files.columns})
    if missing:
        raise ConfigError(
            f"--input {arguments.input} has no column {missing[0]}: it must be a folder of mirror_to_files or load"
        )
    rows = files.select(*_NEEDED).withColumn("topic", f.col("topic").cast("string"))
    return rows if arguments.where is None else rows.where(arguments.where)


def _check_topics(settings: ClientSettings, last: dict[str, int], arguments: argparse.Namespace) -> None:
    """Raise an error if a topic does not exist, or has fewer partitions than its records need."""
    with BlockingClient.shared(settings) as client:
        for topic, number in last.items():
            target = arguments.to_topic or topic
            partitions = client.partitions(target)
            if number >= len(partitions) and not arguments.by_key:
                raise ConfigError(
                    f"topic {target} has {len(partitions)} partitions, but there are records of partition {number} of "
                    f"{topic}: add partitions, or use --by-key"
                )


if __name__ == "__main__":
    sys.exit(main())
