"""Keeps aggregates over windows of time up to date in Parquet files. A `spark-submit` application.

Windows are aggregated in update mode: whenever a window changes, its new row replaces the old one in
`output/date=.../windows.parquet`. So the result is always complete, including open windows, which append mode would
hold back until later events arrive; the watermark limits the state. A repeated micro-batch writes the same rows again,
which makes the job exactly-once.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.base.errors import ConfigError
from pyspark_odradek.options import source_options as source
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options, tell
from pyspark_odradek.pipelines.file_store import FileStore
from pyspark_odradek.pipelines.hadoop_store import open_store
from pyspark_odradek.pipelines.stream_runs import add_stream_arguments, run_stream
from pyspark_odradek.pipelines.upserts import upsert_by_date

_DESCRIPTION: Final = """Aggregate the records of topics over windows of time, as a streaming query.

By default it reads everything that is new since the last run, and ends. With --continuous it runs until it is stopped.
--checkpoint keeps the offsets and the state: use a separate one for each output, and keep both together.

The result has a row for each window and group, with the columns window_start, window_end, groups and aggregates. It is
meant for results of up to some thousand rows a day: the driver merges the file of a date in memory."""

_EPILOG: Final = """Expressions are those of Spark SQL over the columns of the source and of --column. Records that are
older than the newest record of earlier micro-batches by more than --lateness are ignored and counted in the result as
dropped_late. The partitions of a long backlog may cover different times: read it in one micro-batch, the default, or
raise --lateness if you limit micro-batches with --option maxOffsetsPerTrigger=...

example: departures and their mean delay by carrier and hour
  spark-submit rollup.py --bootstrap-servers 127.0.0.1:9092 --topic departures \\
      --output /data/windows --checkpoint /data/windows-checkpoint --window "1 hour" \\
      --column "from_json(string(value), 'dep_delay DOUBLE').dep_delay AS delay" \\
      --group-by "string(key) AS carrier" \\
      --aggregate "count(*) AS departures" --aggregate "avg(delay) AS mean_delay"

The result is an ordinary folder of Parquet: spark.read.parquet("/data/windows")."""

_TIME: Final = "_rollup_time"


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    arguments = arguments_parser().parse_args(argv)
    return run(lambda: _rollup(arguments, open_session), lambda result: _summary(arguments, result))


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--output", required=True, metavar="PATH", help="folder of the result, created if needed")
    add_stream_arguments(parser)
    expressions = parser.add_argument_group("result")
    expressions.add_argument("--window", required=True, metavar="DURATION", help='length of a window, such as "1 hour"')
    expressions.add_argument(
        "--aggregate",
        required=True,
        action="append",
        metavar="EXPR AS NAME",
        help="an aggregate, such as count(*) AS records; may be repeated",
    )
    expressions.add_argument(
        "--group-by", action="append", default=[], metavar="EXPR AS NAME", help="a group; may be repeated"
    )
    expressions.add_argument(
        "--column", action="append", default=[], metavar="EXPR AS NAME", help="a further column; may be repeated"
    )
    expressions.add_argument(
        "--time", default="timestamp", metavar="EXPR", help="time of a record (default: %(default)s)"
    )
    expressions.add_argument(
        "--lateness", default="1 day", metavar="DURATION", help="how late a record may be (default: %(default)s)"
    )
    return parser


def _summary(arguments: argparse.Namespace, result: dict[str, Any]) -> str:
    late = f", {result['dropped_late']:,} of them too late" if result["dropped_late"] else ""
    return f"Aggregated {result['rows']:,} records{late} into {arguments.output} in {result['seconds']} s."


def _rollup(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = {"startingOffsets": "earliest", **source_options(arguments)}
    source.parse(with_config_file(options))
    with open_session(f"rollup of {arguments.topic or arguments.pattern}") as spark:
        store = open_store(spark, arguments.output)
        windows, keys = _windows(_records(spark, options), arguments)
        writer = windows.writeStream.outputMode("update").foreachBatch(
            lambda updates, number: _store(store, keys, updates, number)
        )
        result = run_stream(spark, writer, arguments)
    return {**result, "seconds": round(time.monotonic() - began, 3)}


def _records(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("odradek").options(**options).load()


def _windows(records: DataFrame, arguments: argparse.Namespace) -> tuple[DataFrame, list[str]]:
    """Return the aggregated windows, and the names of the columns that identify a row."""
    known = records.selectExpr("*", *arguments.column).withColumn(_TIME, f.expr(arguments.time))
    groups = known.selectExpr(*arguments.group_by).columns
    if taken := {"window_start", "window_end", "date"} & {*groups}:
        raise ConfigError(f"--group-by: the name {min(taken)} is that of a column of the result: choose another")
    rows = (
        known.withWatermark(_TIME, arguments.lateness)
        .groupBy(f.window(_TIME, arguments.window).alias("window"), *map(f.expr, arguments.group_by))
        .agg(*map(f.expr, arguments.aggregate))
    )
    start = f.col("window.start")
    dated = rows.select(
        start.alias("window_start"),
        f.col("window.end").alias("window_end"),
        *(f.col(f"`{name}`") for name in rows.columns if name != "window"),
        f.date_format(start, "yyyy-MM-dd").alias("date"),
    )
    return dated, ["window_start", *groups]


def _store(store: FileStore, keys: list[str], updates: DataFrame, number: int) -> None:
    """Runs on the driver for each micro-batch, and again with the same rows if one is repeated after a crash."""
    rows = updates.toArrow()
    dates = upsert_by_date(store, rows.combine_chunks(), keys=keys)
    tell("upsert", number=number, windows=rows.num_rows, dates=dates)


if __name__ == "__main__":
    sys.exit(main())
