"""One task of the sink, at least once: it ends when all of its records are acknowledged.

Both writers pickle `TaskWriter` into their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from odradek.client.settings import ClientSettings
from pyspark_odradek.options.sink_options import SinkOptions
from pyspark_odradek.sink.row_sender import SinkProducer, write_rows
from pyspark_odradek.sink.shared_producers import shared_producers
from pyspark_odradek.sink.sink_schema import SinkColumns
from pyspark_odradek.worker_heap import freeze_modules


class Producers(Protocol):
    """The producers of a worker, as `SharedProducers`."""

    def get(self, settings: ClientSettings, /) -> SinkProducer:
        """Return the producer for `settings`."""
        ...

    def discard(self, settings: ClientSettings, /) -> None:
        """Close the producer for `settings`."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenTask(WriterCommitMessage):
    """What a task has written."""

    records: int


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """Writes the rows of a task; pickled with the options to each worker."""

    options: SinkOptions
    columns: SinkColumns
    producers: Callable[[], Producers] = shared_producers

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenTask:
        """Write all rows and wait for their acknowledgements.

        Raises the first error of a row. Then records may be missing or, if Spark repeats the task, be there twice.
        """
        freeze_modules()
        producers = self.producers()
        settings = self.options.client
        producer = producers.get(settings)
        try:
            return WrittenTask(write_rows(producer, self.options, self.columns, batches))
        except BaseException:
            # Records that are still buffered would only be duplicates of those of the repeated task.
            producers.discard(settings)
            raise
