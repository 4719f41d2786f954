"""The batch reader: the driver resolves start and end when the query is planned, and splits them into tasks.

Invariant: `partitions` stores nothing on the reader, because Spark has pickled it before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_odradek.decoding.task_reader import TaskReader
from pyspark_odradek.offsets import EARLIEST, LATEST, check_not_backwards, ranges_between, split
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.source.lookup import Lookup, OffsetLookup


class BatchReader(DataSourceReader):
    """`spark.read.format("odradek")`."""

    def __init__(self, options: SourceOptions, *, lookup: Lookup | None = None) -> None:
        """Raises `ConfigError` if an option is only for streams."""
        options.check_batch()
        self._options = options
        self._lookup = OffsetLookup(options) if lookup is None else lookup

    def partitions(self) -> list[InputPartition]:
        """Return one range for each partition with records, or as many as the options request."""
        options = self._options
        lookup = self._lookup
        assigned = lookup.assigned()
        start = lookup.resolve(
            options.start or Bound(option="startingOffsets", position=EARLIEST),
            assigned,
            latest_when_no_match=options.latest_when_no_match,
        )
        end = lookup.resolve(
            options.end or Bound(option="endingOffsets", position=LATEST), assigned, latest_when_no_match=True
        )
        check_not_backwards(start, end)
        ranges = split(
            ranges_between(start, end),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [InputPartition(piece) for piece in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range. Runs in a worker."""
        return TaskReader(self._options).read(partition)
