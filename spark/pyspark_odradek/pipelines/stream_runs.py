"""Runs a streaming query of an application until it ends, and sums up what it has done."""

from __future__ import annotations

import argparse
import threading
from collections import Counter, defaultdict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.application import tell


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of applications with a checkpoint."""
    parser.add_argument(
        "--checkpoint", required=True, metavar="PATH", help="folder of the checkpoint, on any file system of Hadoop"
    )
    parser.add_argument(
        "--continuous", metavar="INTERVAL", help='keep running, with a micro-batch per interval, such as "10 seconds"'
    )


def run_stream(spark: SparkSession, writer: DataStreamWriter, arguments: argparse.Namespace) -> dict[str, int]:
    """Run a query until it ends: by itself when it has read what was there at its start, or with --continuous never.

    Returns the input rows (`rows`), the micro-batches with rows (`batches`), and rows that were older than the
    watermark (`dropped_late`).
    """
    totals = QueryTotals()
    spark.streams.addListener(totals)
    try:
        writer = writer.option("checkpointLocation", arguments.checkpoint)
        if arguments.continuous:
            query = writer.trigger(processingTime=arguments.continuous).start()
        else:
            query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return totals.result(str(query.id))
    finally:
        spark.streams.removeListener(totals)


class QueryTotals(StreamingQueryListener):
    """Sums the reports of micro-batches, and tells each one; Spark only keeps the latest hundred."""

    def __init__(self) -> None:
        """Add it to a session before the query starts."""
        self._ended: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._totals: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to add."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to add."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add a micro-batch."""
        progress = event.progress
        rows = int(progress.numInputRows)
        self._totals[str(progress.id)] += Counter(
            rows=rows,
            batches=int(bool(rows)),
            dropped_late=sum(int(state.numRowsDroppedByWatermark) for state in progress.stateOperators),
        )
        if rows:
            tell("batch", number=int(progress.batchId), rows=rows, rows_per_second=progress.processedRowsPerSecond)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Handle the last event; events arrive after the query, from another thread."""
        self._ended[str(event.id)].set()

    def result(self, query_id: str) -> dict[str, int]:
        """Return the sums, once the query has ended."""
        self._ended[query_id].wait()
        return {name: self._totals[query_id][name] for name in ("rows", "batches", "dropped_late")}
