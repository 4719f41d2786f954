"""PySpark data source `odradek`: batch and streaming reads of a Kafka-compatible cluster, without a jar.

PySpark looks for `DefaultSource` in installed packages whose name begins with `pyspark_`, so nothing is registered:

    spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_odradek.data_source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Import `DefaultSource` when PySpark looks for it. Workers that read or write import only what they need."""
    if name == "DefaultSource":
        from pyspark_odradek.data_source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
