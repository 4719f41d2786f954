"""Archive a topic as Parquet by date, taking only what is new since the last run. A `spark-submit` application.

Rows are the source's: key, value, topic, partition, offset, timestamp, timestampType, headers; the date is that of the
record's timestamp in UTC. See `manifest` for how offsets and files stay in step.
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
from pyspark_odradek import options as source
from pyspark_odradek.lookup import OffsetLookup
from pyspark_odradek.offsets import check_not_backwards, new_offsets, to_json
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options, tell
from pyspark_odradek.pipelines.manifest import Archive

_DESCRIPTION: Final = """Archive a topic as Parquet files by date.

The first run takes everything that the topic holds, each further one what came since. Offsets are kept in the
archive, written in one step with the data, so a run that is killed at any point neither loses nor doubles a record."""

_EPILOG: Final = """example:
  spark-submit archive.py --bootstrap-servers 127.0.0.1:9092 --topic departures --output /data/archive

The archive is an ordinary folder of Parquet: spark.read.parquet("/data/archive")."""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """The application; its exit code."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--output", required=True, type=Path, help="folder of the archive; made when it is not there")
    arguments = parser.parse_args(argv)
    return run(lambda: _archive(arguments, open_session))


def _archive(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = source_options(arguments)
    parsed = source.parse(options)
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
    """From where the archive ends, for new partitions from their beginning, to what is there now.

    Both are fixed here, before Spark plans: what the manifest says and what is read must be the same.
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
    # Spark's default is a type that Parquet has long given up, and that readers take for nanoseconds.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    dated = records.withColumn("date", f.to_date("timestamp"))
    # One file for each date: without this every task would write one for each.
    dated.repartition("date").write.partitionBy("date").parquet(str(staging.absolute()))


if __name__ == "__main__":
    sys.exit(main())
