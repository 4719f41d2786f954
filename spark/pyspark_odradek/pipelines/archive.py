"""Archives a topic as Parquet by date, only records since the last run. A `spark-submit` application.

The rows are those of the source: key, value, topic, partition, offset, timestamp, timestampType, headers. The date is
that of the record's timestamp in UTC. `manifest` explains how offsets and files stay consistent.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from pyspark_odradek.offsets import check_not_backwards, new_offsets, to_json
from pyspark_odradek.options import source_options as source
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options, tell
from pyspark_odradek.pipelines.manifest import Archive
from pyspark_odradek.source.lookup import OffsetLookup

_DESCRIPTION: Final = """Archive a topic as Parquet files by date.

The first run archives all records of the topic, each later run those that are new. The archive contains the offsets too
and commits them together with the data, so a run that is killed at any time neither loses nor duplicates a record."""

_EPILOG: Final = """example:
  spark-submit archive.py --bootstrap-servers 127.0.0.1:9092 --topic departures --output /data/archive

The archive is an ordinary folder of Parquet: spark.read.parquet("/data/archive")."""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--output", required=True, type=Path, help="folder of the archive; created if it does not exist"
    )
    arguments = parser.parse_args(argv)
    return run(lambda: _archive(arguments, open_session))


def _archive(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = source_options(arguments)
    parsed = source.parse(with_config_file(options))
    archive = Archive(arguments.output, arguments.topic)
    with archive.opened(), BlockingClient.shared(parsed.client):
        start, end = _range(OffsetLookup(parsed), archive)
        wanted = new_offsets(start, end)
        tell("planned", records=wanted, partitions=len(end))
        rows = 0
        if wanted:
            number, staging = archive.next_run()
            with open_session(f"archive {arguments.topic}") as spark:
                _write(spark, {**options, "startingOffsets": to_json(start), "endingOffsets": to_json(end)}, staging)
            rows = archive.commit(number, start, end).rows
    return {"rows": rows, "until": to_json(end), "seconds": round(time.monotonic() - began, 3)}


def _range(lookup: OffsetLookup, archive: Archive) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the start, where the archive ends (the beginning for new partitions), and the current end.

    Both are fixed here, before Spark plans: the manifest and the query must use the same offsets.
    """
    assigned = lookup.assigned()
    known = archive.archived()
    new = [partition for partition in assigned if partition not in known]
    start = {**{partition: known[partition] for partition in assigned if partition in known}, **lookup.earliest(new)}
    end = lookup.latest(assigned)
    check_not_backwards(start, end)
    return start, end


def _write(spark: SparkSession, options: dict[str, str], staging: Path) -> None:
    records = spark.read.format("odradek").options(includeHeaders="true", **options).load()
    # Spark's default is a timestamp type that Parquet has deprecated, and that readers take for nanoseconds.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    dated = records.withColumn("date", f.to_date("timestamp"))
    # One file per date: otherwise every task would write a file for each date.
    dated.repartition("date").write.partitionBy("date").parquet(str(staging.absolute()))


if __name__ == "__main__":
    sys.exit(main())
