"""PySpark data source `odradek`: batch and streaming reads of a Kafka-compatible cluster, without a jar.

PySpark looks for `DefaultSource` in installed packages whose name begins with `pyspark_`, so nothing is registered:

    spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()

`register` helps where Spark does not find it: on a machine that is too busy for its search, and in further threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_odradek.data_source import DefaultSource, register

__all__ = ["DefaultSource", "register"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are used. Workers that read or write import only what they need."""
    if name in __all__:
        from pyspark_odradek import data_source

        return getattr(data_source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
