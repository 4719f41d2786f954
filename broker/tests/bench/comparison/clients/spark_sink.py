"""A Spark application that writes rows to a topic through a connector, and prints the rate of the second write.

The first write warms up the JVM, the Python workers and the connections. Started by `workloads/spark_writing`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from comparison.clients import calling
from comparison.processes import Meter

CORES: Final = 2
WARM_UP_SHARE: Final = 4
"""The first write has this part of the rows."""


def main() -> None:
    """Write rows twice, and return the rate of the second write."""
    wanted = calling.options()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.jars", wanted["jars"])
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    records, record_bytes = int(wanted["records"]), int(wanted["record_bytes"])
    _write(value_rows(session, records // WARM_UP_SHARE, record_bytes), wanted)
    rows = value_rows(session, records, record_bytes)
    with Meter(lambda: [os.getpid()]) as meter:
        started = time.perf_counter()
        _write(rows, wanted)
        seconds = time.perf_counter() - started
    session.stop()
    calling.answer(
        {
            "rows_per_s": records / seconds,
            "megabytes_per_s": records * record_bytes / seconds / 1e6,
            "spark_us": meter.figures()["cpu_s"] / records * 1e6,
            "records": float(records + records // WARM_UP_SHARE),
        }
    )


def value_rows(session: SparkSession, records: int, record_bytes: int) -> DataFrame:
    """Return rows with a key of 8 bytes and a value."""
    rows = session.range(0, records, numPartitions=CORES)
    return rows.selectExpr("lpad(cast(id as string), 8, '0') as key", f"repeat('v', {record_bytes}) as value")


def _write(rows: DataFrame, wanted: dict[str, object]) -> None:
    writer = rows.write.format(str(wanted["format"])).mode("append").option("topic", str(wanted["topic"]))
    writer.option("kafka.bootstrap.servers", str(wanted["bootstrap"])).save()


if __name__ == "__main__":
    main()
