"""A Spark application that reads a topic through one of the connectors.

Options: jars, format, bootstrap, topic, records, mode. The modes are `noop` and `headers` (a batch query into Spark's
sink that does nothing), `count` (`count()`, with our connector over the column `offset` only) and `micro-batches` (a
streaming query that gets one record at a time). Figures: rows per second of the fastest of several queries, or the
median duration of a micro-batch; and the largest memory of a Python worker. The first query warms up the JVM, the
Python workers and the connections, and is not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from comparison.clients.calling import answer, options
from comparison.processes import MEGABYTE, with_descendants
from odradek.client.blocking.client import BlockingClient

CORES: Final = 2
QUERIES: Final = 3
MICRO_BATCHES: Final = 25
WARM_UP_BATCHES: Final = 5


def session(jars: str) -> SparkSession:
    """Return a local Spark with the jars of the native connector."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": jars,
    }
    built = SparkSession.builder.master(f"local[{CORES}]").config(map=settings).getOrCreate()
    built.sparkContext.setLogLevel("OFF")
    return built


def main() -> None:
    """Run the queries and return the figures."""
    wanted = options()
    spark = session(wanted["jars"])
    figures = _micro_batches(spark, wanted) if wanted["mode"] == "micro-batches" else _queries(spark, wanted)
    figures["worker_mb"] = _worker_bytes() / MEGABYTE
    spark.stop()
    answer(figures)


def _frame(reader: Any, wanted: dict[str, Any]) -> DataFrame:
    given = {"kafka.bootstrap.servers": wanted["bootstrap"], "subscribe": wanted["topic"]}
    if wanted["mode"] == "headers":
        given["includeHeaders"] = "true"
    if wanted["mode"] == "count" and wanted["format"] == "odradek":
        reader = reader.schema("offset BIGINT")
    frame: DataFrame = reader.format(wanted["format"]).options(**given).load()
    return frame


def _queries(spark: SparkSession, wanted: dict[str, Any]) -> dict[str, float]:
    seconds = []
    for _ in range(1 + QUERIES):
        frame = _frame(spark.read, wanted)
        began = time.perf_counter()
        if wanted["mode"] == "count":
            counted = frame.count()
            if counted != wanted["records"]:
                raise RuntimeError(f"{counted} records were counted, not {wanted['records']}")
        else:
            frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return {"rows_per_s": wanted["records"] / min(seconds[1:])}


def _micro_batches(spark: SparkSession, wanted: dict[str, Any]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, BlockingClient(wanted["bootstrap"]) as client:
        writer = _frame(spark.readStream, wanted).writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(processingTime="0 seconds").start()
        durations = []
        with client.producer() as producer:
            query.processAllAvailable()
            for _ in range(WARM_UP_BATCHES + MICRO_BATCHES):
                producer.send(wanted["topic"], b"x").result()
                query.processAllAvailable()
                done = [each for each in query.recentProgress if each["numInputRows"]]
                durations.append(done[-1]["durationMs"]["triggerExecution"])
        query.stop()
    return {"micro_batch_ms": statistics.median(durations[WARM_UP_BATCHES:])}


def _worker_bytes() -> int:
    """Return the largest resident memory that a Python worker has had."""
    most = 0
    for pid in with_descendants([os.getpid()])[1:]:
        folder = Path(f"/proc/{pid}")
        try:
            if b"pyspark.daemon" not in (folder / "cmdline").read_bytes():
                continue
            status = (folder / "status").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue
        lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        most = max(most, *(int(line.split()[1]) << 10 for line in lines), 0)
    return most


if __name__ == "__main__":
    main()
