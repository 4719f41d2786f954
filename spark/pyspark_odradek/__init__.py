"""PySpark data source `odradek`: batch and streaming reads of a Kafka-compatible cluster, without a jar.

PySpark looks for `DefaultSource` in installed packages whose name begins with `pyspark_`, so nothing is registered:

    spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()
"""

from pyspark_odradek.data_source import DefaultSource

__all__ = ["DefaultSource"]
