"""The batch reader: the driver plans ranges; a task resolves the ends of its range that are not numbers.

Spark plans a Python source once for each `load()`. Therefore "earliest" and "latest" stay in the plan, and every action
on the same DataFrame resolves them again, as with Spark's own source for Kafka. Invariant: `partitions` stores nothing
on the reader, because Spark has pickled it before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from odradek.base.types import TopicPartition
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.decoding.task_reader import TaskReader
from pyspark_odradek.offsets import EARLIEST, LATEST, OffsetRange, check_not_backwards, ranges_between, split
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.source.lookup import Lookup, OffsetLookup
from pyspark_odradek.source.pushed_filters import Narrowing, narrowing

log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """`spark.read.format("odradek")`."""

    def __init__(self, options: SourceOptions, columns: RowSchema, *, lookup: Lookup | None = None) -> None:
        """`columns`: those that the query wants. Raises `ConfigError` if an option is only for streams."""
        options.check_batch()
        self._options = options
        self._columns = columns
        self._narrowing = Narrowing()
        self._lookup = OffsetLookup(options) if lookup is None else lookup

    def partitions(self) -> list[InputPartition]:
        """Return one range for each partition, or as many as the options request. Logs options for streams."""
        options = self._options
        for warning in options.batch_warnings():
            log.warning("%s", warning)
        assigned = self._lookup.assignment().partitions
        start = self._lookup.bounds(
            options.start or Bound(option="startingOffsets", position=EARLIEST),
            assigned,
            latest_when_no_match=options.latest_when_no_match,
        )
        end = self._lookup.bounds(
            options.end or Bound(option="endingOffsets", position=LATEST), assigned, latest_when_no_match=True
        )
        check_not_backwards(start, end)
        whole = {each: OffsetRange(each, start[each], end[each]) for each in assigned if self._narrowing.keeps(each)}
        if self._narrowing != Narrowing():
            return [InputPartition(piece) for piece in self._pieces(whole)]
        if options.max_records_per_partition is None and (options.min_partitions or 0) <= len(whole):
            return [InputPartition(each) for each in whole.values()]
        return [InputPartition(piece) for piece in self._pieces(whole)]

    def _pieces(self, whole: Mapping[TopicPartition, OffsetRange]) -> list[OffsetRange]:
        """Split ranges as they are now. The outer ends of each partition are resolved by the tasks. A range that starts
        after its end has no piece, as in Spark's own source."""
        start = self._lookup.positions({each: piece.start for each, piece in whole.items()})
        end = self._lookup.positions({each: piece.end for each, piece in whole.items()})
        pieces = split(
            self._narrowed(ranges_between(start, end)),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [
            OffsetRange(
                topic_partition,
                whole[topic_partition].start if first == start[topic_partition] else first,
                whole[topic_partition].end if last == end[topic_partition] else last,
            )
            for topic_partition, first, last in ((piece.topic_partition, piece.start, piece.end) for piece in pieces)
        ]

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of the ranges that can match the filters."""
        narrowing = self._narrowing
        first: Mapping[TopicPartition, int] = {}
        if narrowing.earliest_ms is not None and ranges:
            bound = Bound(option="pushFilters", timestamp_ms=narrowing.earliest_ms)
            partitions = [piece.topic_partition for piece in ranges]
            # The ends were resolved before, so a record that is written now cannot be missed.
            first = self._lookup.positions(self._lookup.bounds(bound, partitions, latest_when_no_match=True))
        return [narrowing.cut(piece, first.get(piece.topic_partition)) for piece in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range. Runs in a worker."""
        piece: OffsetRange | None = partition.value
        if piece is not None and not piece.is_resolved:
            piece = self._resolved(piece)
            if piece.size <= 0:
                return iter(())
        return TaskReader(self._options, self._columns, self._columns.decoder).read(InputPartition(piece))

    def _resolved(self, piece: OffsetRange) -> OffsetRange:
        """Return the range from the earliest or up to the latest offset of this moment."""
        partition = piece.topic_partition
        start = self._lookup.positions({partition: piece.start})
        end = self._lookup.positions({partition: piece.end})
        if piece.start >= 0:
            check_not_backwards(start, end)
        return OffsetRange(partition, start[partition], end[partition])


class FilteringBatchReader(BatchReader):
    """The batch reader with the option pushFilters.

    A class of its own, because Spark fails each query of a reader that overrides `pushFilters` unless the setting
    spark.sql.python.filterPushdown.enabled is on.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the ranges of `partitions`. Returns all filters, so that Spark evaluates them again."""
        self._narrowing = narrowing(filters)
        return filters


def batch_reader(options: SourceOptions, columns: RowSchema) -> BatchReader:
    """Return the reader for these options. Raises `ConfigError` if an option is only for streams."""
    return (FilteringBatchReader if options.push_filters else BatchReader)(options, columns)
