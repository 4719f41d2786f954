"""Copies topics into Parquet files with all columns, for `mirror_from_files`. A `spark-submit` application.

A streaming query with Spark's file sink: each record is in the files once, for readers that honour the sink's log
`_spark_metadata`, as Spark does.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from pyspark_odradek.options import source_options as source
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options
from pyspark_odradek.pipelines.stream_runs import add_stream_arguments, run_stream

_DESCRIPTION: Final = """Copy topics into Parquet files with all columns, also headers, offsets and timestamps.

By default it copies everything that is new since the last run, and ends. With --continuous it runs until it is stopped.
--checkpoint keeps the offsets: use a separate one for each output, and keep both together. mirror_from_files writes
the files back into a topic."""

_EPILOG: Final = """example:
  spark-submit mirror_to_files.py --bootstrap-servers 127.0.0.1:9092 --pattern "orders-.*" \\
      --output s3a://bucket/mirror --checkpoint s3a://bucket/mirror-checkpoint

Read the files with Spark: a crash may leave files that only the log of the folder (_spark_metadata) excludes."""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--output", required=True, metavar="PATH", help="folder of the files, created if needed")
    add_stream_arguments(parser)
    arguments = parser.parse_args(argv)
    return run(
        lambda: _mirror(arguments, open_session),
        lambda result: f"Copied {result['rows']:,} records into {arguments.output} in {result['seconds']} s.",
    )


def _mirror(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = {"startingOffsets": "earliest", **source_options(arguments), "includeHeaders": "true"}
    source.parse(with_config_file(options))
    with open_session(f"mirror of {arguments.topic or arguments.pattern}") as spark:
        # Spark's default is a timestamp type that Parquet has deprecated, and that readers take for nanoseconds.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        records = spark.readStream.format("odradek").options(**options).load()
        writer = records.writeStream.format("parquet").partitionBy("topic").option("path", arguments.output)
        result = run_stream(spark, writer, arguments)
    return {**result, "seconds": round(time.monotonic() - began, 3)}


if __name__ == "__main__":
    sys.exit(main())
