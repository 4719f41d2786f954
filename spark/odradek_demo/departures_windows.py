"""Keeps departures and mean delay per carrier and hour up to date with a streaming query. A `spark-submit` application.

Events are JSON; the key is the carrier, the record's timestamp the scheduled hour, `dep_delay` the delay in minutes,
null for a cancelled flight (`departures` counts it, `departed` does not).

Windows of event time are aggregated in update mode: whenever a window changes, its new total replaces the old one in
`output/date=.../windows.parquet`. So the result is always complete, including open windows, which append mode would
hold back until later events arrive; the watermark limits the state. A repeated micro-batch writes the same totals
again, which makes the job exactly-once.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_odradek.options import source_options as source
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, run, session, source_options, tell
from pyspark_odradek.pipelines.files import upsert_by_date

_DESCRIPTION: Final = """Count departures and their mean delay per carrier and hour, as a streaming query.

By default it reads everything that is new since the last run, and ends. With --continuous it runs until it is stopped.
--checkpoint keeps the offsets and the state: use a separate one for each output, and keep both together."""

_EPILOG: Final = """example:
  spark-submit departures_windows.py --bootstrap-servers 127.0.0.1:9092 --topic departures \\
      --output /data/windows --checkpoint /data/windows-checkpoint

The result is an ordinary folder of Parquet: spark.read.parquet("/data/windows").

Events that are older than the newest event of earlier micro-batches by more than --lateness are ignored and counted in
the result as dropped_late. The partitions of a long backlog may cover different times: read it in one micro-batch, the
default, or raise --lateness if you limit micro-batches with --option maxOffsetsPerTrigger=..."""

_KEYS: Final = ("window_start", "carrier")
_EVENT: Final = "dep_delay DOUBLE"


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--output", required=True, type=Path, help="folder of the result; created if it does not exist")
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder of the checkpoint of the query")
    parser.add_argument("--lateness", default="1 day", help="how late an event may be (default: %(default)s)")
    parser.add_argument(
        "--continuous", metavar="INTERVAL", help='keep running, with a micro-batch per interval, such as "10 seconds"'
    )
    arguments = parser.parse_args(argv)
    return run(lambda: _aggregate(arguments, open_session))


def _aggregate(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    options = {"startingOffsets": "earliest", **source_options(arguments)}
    source.parse(options)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with open_session(f"departures of {arguments.topic}") as spark:
        totals = _Totals()
        spark.streams.addListener(totals)
        events = spark.readStream.format("odradek").options(**options).load()
        writer = (
            _windows(events, arguments.lateness)
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(arguments.checkpoint.absolute()))
            .foreachBatch(lambda updates, number: _store(arguments.output, updates, number))
        )
        if arguments.continuous:
            query = writer.trigger(processingTime=arguments.continuous).start()
        else:
            query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        result = totals.result()
    return {**result, "seconds": round(time.monotonic() - began, 3)}


def _windows(events: DataFrame, lateness: str) -> DataFrame:
    # Rows of the result are identified by their keys, so an event without a key counts for the carrier "".
    carrier = f.coalesce(f.col("key").cast("string"), f.lit(""))
    delay = f.from_json(f.col("value").cast("string"), _EVENT)["dep_delay"]
    return (
        events.select("timestamp", carrier.alias("carrier"), delay.alias("delay"))
        .withWatermark("timestamp", lateness)
        .groupBy(f.window("timestamp", "1 hour").alias("window"), "carrier")
        .agg(
            f.count("*").alias("departures"),
            f.count("delay").alias("departed"),
            f.avg("delay").alias("mean_delay"),
        )
    )


def _store(output: Path, updates: DataFrame, number: int) -> None:
    """Runs on the driver for each micro-batch, and again with the same rows if one is repeated after a crash."""
    rows = updates.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        "carrier",
        "departures",
        "departed",
        "mean_delay",
        f.date_format("window.start", "yyyy-MM-dd").alias("date"),
    ).toArrow()
    dates = upsert_by_date(output, rows.combine_chunks(), keys=_KEYS)
    tell("batch", number=number, windows=rows.num_rows, dates=dates)


class _Totals(StreamingQueryListener):
    """Sums the reports of the micro-batches of the session's query; Spark only keeps the latest hundred."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._rows = self._batches = self._dropped = 0

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to add."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to add."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add a micro-batch."""
        self._rows += event.progress.numInputRows
        self._batches += bool(event.progress.numInputRows)
        self._dropped += sum(state.numRowsDroppedByWatermark for state in event.progress.stateOperators)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Handle the last event; events arrive after the query, from another thread."""
        self._ended.set()

    def result(self) -> dict[str, int]:
        """Return the sums, once the query has ended."""
        self._ended.wait()
        return {"rows": self._rows, "batches": self._batches, "dropped_late": self._dropped}


if __name__ == "__main__":
    sys.exit(main())
