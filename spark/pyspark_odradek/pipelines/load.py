"""Loads topics into Parquet files by date, only records since the last run. A `spark-submit` application.

The rows are those of the source: key, value, topic, partition, offset, timestamp, timestampType, headers. The date is
that of the record's timestamp in UTC. `manifest` explains how offsets and files stay consistent.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from odradek.base.types import ZERO_UUID
from odradek.client.blocking.client import BlockingClient
from pyspark_odradek.offsets import check_not_backwards, new_offsets, to_json
from pyspark_odradek.options import source_options as source
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options, tell
from pyspark_odradek.pipelines.file_store import FileStore
from pyspark_odradek.pipelines.hadoop_store import open_store
from pyspark_odradek.pipelines.load_plan import LoadPlan, check_selection, check_topic_ids, plan, plan_reload
from pyspark_odradek.pipelines.manifest import BY_DATE, BY_TOPIC, Archive, Manifest
from pyspark_odradek.source.lookup import OffsetLookup

OpenStore = Callable[[SparkSession, str], FileStore]

_DESCRIPTION: Final = """Load topics into Parquet files by date.

The first run loads all records of the topics, each later run those that are new, also of new partitions and of new
topics that match --pattern. The folder contains the offsets too and commits them together with the data, so a run that
is killed at any time neither loses nor duplicates a record. --output may be in any file system that Spark can write,
such as HDFS or S3."""

_EPILOG: Final = """--from-time loads the records from a time on again: all runs with such records are replaced.
It fails if the topic no longer has one of them. In a new folder, the first run starts there.

Of two runs at the same time, only one succeeds; a run that starts takes over from one that is unfinished.

example:
  spark-submit load.py --bootstrap-servers 127.0.0.1:9092 --topic departures --output s3a://bucket/departures

The result is an ordinary folder of Parquet: spark.read.parquet("s3a://bucket/departures")."""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session, stores: OpenStore = open_store) -> int:
    """Run the application and return its exit code."""
    arguments = arguments_parser().parse_args(argv)
    return run(lambda: _load(arguments, open_session, stores), lambda result: _summary(arguments, result))


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--output", required=True, metavar="PATH", help="folder of the files; created if it does not exist"
    )
    parser.add_argument(
        "--by-topic", action="store_true", help="a folder for each topic, with a folder for each date: topic=T/date=D"
    )
    parser.add_argument(
        "--from-time", type=_time_ms, metavar="TIME", help="load again from this time on, such as 2026-01-31T10:00:00Z"
    )
    return parser


def _time_ms(text: str) -> int:
    """Convert a time to milliseconds; without a time zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2026-01-31T10:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _summary(arguments: argparse.Namespace, result: dict[str, Any]) -> str:
    if not result["rows"]:
        return f"No new records; {arguments.output} is complete."
    return (
        f"Loaded {result['rows']:,} records of {result['topics']} topics into {arguments.output}: "
        f"{result['files']} files in {result['seconds']} s."
    )


def _load(arguments: argparse.Namespace, open_session: OpenSession, stores: OpenStore) -> dict[str, Any]:
    began = time.monotonic()
    options = source_options(arguments)
    parsed = source.parse(with_config_file(options))
    layout = BY_TOPIC if arguments.by_topic else BY_DATE
    with open_session(f"load {arguments.topic or arguments.pattern}") as spark:
        archive = Archive(stores(spark, arguments.output), layout=layout)
        last = archive.recover()
        with BlockingClient.shared(parsed.client) as client:
            planned, topic_ids = _plan(OffsetLookup(parsed), client, archive, last, arguments.from_time)
        wanted = new_offsets(planned.start, planned.end)
        tell("planned", records=wanted, partitions=len(planned.end), replaced_runs=len(planned.replaced))
        rows = files = 0
        if wanted:
            this = archive.next_run(last)
            location = f"{archive.store.location}/{this.staging}"
            ends = {"startingOffsets": to_json(planned.start), "endingOffsets": to_json(planned.end)}
            _write(spark, {**options, **ends}, location, layout)
            written = archive.staged(this)
            # From the footers: numbers of rows in Spark's metrics include tasks that were repeated.
            rows = spark.read.parquet(location).count() if written else 0
            manifest = archive.commit(
                this, planned.start, planned.known, rows=rows, topic_ids=topic_ids, replaced=planned.replaced
            )
            files = len(manifest.files)
    return {
        "rows": rows,
        "files": files,
        "topics": len({topic for topic, _ in planned.end}),
        "replaced_runs": len(planned.replaced),
        "until": to_json(planned.end),
        "seconds": round(time.monotonic() - began, 3),
    }


def _plan(
    lookup: OffsetLookup, client: BlockingClient, archive: Archive, last: Manifest | None, from_time_ms: int | None
) -> tuple[LoadPlan, dict[str, str]]:
    """Return the range of the run and the ids of its topics, by name.

    The range is fixed here, before Spark plans: the manifest and the query must use the same offsets.
    """
    assigned = lookup.assigned()
    topics = {topic for topic, _ in assigned}
    existing = set(client.topics(internal=True))
    check_selection(last, lambda topic: topic in topics or topic not in existing)
    described = client.admin.describe_topics(sorted(topics)).values() if topics else ()
    topic_ids = {topic.name: str(topic.topic_id) for topic in described if topic.topic_id != ZERO_UUID}
    check_topic_ids(last, topic_ids)
    earliest, latest = lookup.earliest(assigned), lookup.latest(assigned)
    if from_time_ms is None:
        planned = plan(last, earliest, latest)
    else:
        bound = source.Bound(option="--from-time", timestamp_ms=from_time_ms)
        since = lookup.positions(lookup.bounds(bound, assigned, latest_when_no_match=True))
        planned = plan_reload(archive.history(), since, earliest, latest)
    check_not_backwards(planned.start, planned.end)
    return planned, {**(last.topic_ids if last is not None else {}), **topic_ids}


def _write(spark: SparkSession, options: dict[str, str], location: str, layout: tuple[str, ...]) -> None:
    records = spark.read.format("odradek").options(includeHeaders="true", **options).load()
    # Spark's default is a timestamp type that Parquet has deprecated, and that readers take for nanoseconds.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    dated = records.withColumn("date", f.to_date("timestamp"))
    # Without it, every task would write a file for each date. Spark splits a date that is too large for one file.
    dated.hint("rebalance", *layout).write.partitionBy(*layout).parquet(location)


if __name__ == "__main__":
    sys.exit(main())
