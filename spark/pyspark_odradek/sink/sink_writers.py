"""What Spark calls to write: one writer for batch queries, one for streams. Tasks write; `commit` has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from pyspark_odradek.sink.task_writer import TaskWriter, WrittenTask


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("odradek")`."""

    def __init__(self, task: TaskWriter) -> None:
        """`task` runs in each worker."""
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenTask:
        """Write the rows of one task. Runs in a worker."""
        return self._task.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek")`. The modes append and complete both append, as in the native sink.

    Spark refuses the mode update for each sink that is written in Python. Such a query uses `foreachBatch` and writes
    each batch as a batch query.
    """

    def __init__(self, task: TaskWriter) -> None:
        """`task` runs in each worker."""
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenTask:
        """Write the rows of one task. Runs in a worker."""
        return self._task.write(iterator)
