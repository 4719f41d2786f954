"""A streaming query from topic to topic, exactly once. Tests run it as a process and kill it.

Arguments: bootstrap servers, source topic, target topic, checkpoint, scratch folder, master.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(bootstrap: str, source: str, target: str, checkpoint: str, scratch: str, master: str) -> None:
    """Run the query until it fails or is killed."""
    session = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.network.timeout", "600s")
        .config("spark.local.dir", str(Path(scratch) / "local"))
        .config("spark.sql.warehouse.dir", str(Path(scratch) / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    reader = session.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value").writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    options = {"topic": target, "deliveryGuarantee": "exactly-once", "checkpointLocation": checkpoint}
    writer.options(**options).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
