"""The stream reader: the end of the next micro-batch, its ranges, and missing records.

Spark calls it in one long-lived process per query, so state is kept on the object. Invariants: equal offsets have equal
text, otherwise an idle query would run empty batches forever; the first result of `initialOffset` is kept, because
Spark calls it twice and "latest" changes in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.base.types import TopicPartition
from pyspark_odradek.decoding.task_reader import TaskReader
from pyspark_odradek.offsets import (
    LATEST,
    DataLossError,
    OffsetRange,
    SparkOffset,
    admit,
    data_losses,
    from_spark,
    new_offsets,
    ranges_between,
    split,
    to_spark,
)
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.source.lookup import Lookup, OffsetLookup

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("odradek")`."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        lookup: Lookup | None = None,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `ConfigError` if an option is only for batches. Connects later: Spark also creates readers to pickle
        them."""
        options.check_stream()
        self._options = options
        self._lookup = OffsetLookup(options) if lookup is None else lookup
        self._now_seconds = now_seconds
        self._initial: SparkOffset | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._last_trigger_seconds: float | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the whole run at the current offsets."""
        self._target = self._lookup.latest(self._lookup.assigned())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit in the options. Spark's limits cannot be combined, so `latestOffset` applies all of them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> SparkOffset:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint starts: `startingOffsets`, by default the latest offsets."""
        if self._initial is None:
            start = self._options.start or Bound(option="startingOffsets", position=LATEST)
            offsets = self._lookup.resolve(
                start, self._lookup.assigned(), latest_when_no_match=self._options.latest_when_no_match
            )
            self._initial = to_spark(offsets)
        return self._initial

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself for none."""
        begin = from_spark(start)
        latest = self._target if self._target is not None else self._lookup.latest(self._lookup.assigned())
        self._latest = latest
        if isinstance(limit, ReadAllAvailable):
            return to_spark(latest)
        # A partition that is new to the query is read from its beginning.
        known = {**self._lookup.earliest(latest.keys() - begin.keys()), **begin}
        if self._should_wait(new_offsets(known, latest)):
            return to_spark(begin)
        self._last_trigger_seconds = self._now_seconds()
        if self._options.max_offsets_per_trigger is None:
            return to_spark(latest)
        return to_spark(admit(known, latest, self._options.max_offsets_per_trigger))

    def _should_wait(self, available: int) -> bool:
        """Whether to wait for `minOffsetsPerTrigger`, within its delay; never with a fixed end."""
        wanted = self._options.min_offsets_per_trigger
        if wanted is None or available >= wanted or self._target is not None or self._last_trigger_seconds is None:
            return False
        return (self._now_seconds() - self._last_trigger_seconds) * 1000 < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802 - Spark's name
        """Return the newest known offsets, for the progress of the query."""
        return None if self._latest is None else to_spark(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch, one per task. Raises `DataLossError` if records are missing
        (`failOnDataLoss`)."""
        return [
            InputPartition(piece)
            for piece in split(
                self._ranges(from_spark(start), from_spark(end)),
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
        ]

    def _ranges(self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> list[OffsetRange]:
        earliest_of_new = self._lookup.earliest(end.keys() - start.keys())
        losses = data_losses(start, end, earliest_of_new)
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. To go on without these records, set failOnDataLoss=false")
        for loss in losses:
            log.warning("%s", loss)
        begin = {**earliest_of_new, **start}
        readable = {partition: offset for partition, offset in end.items() if partition in begin}
        return ranges_between(begin, readable)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range. Runs in a worker."""
        return TaskReader(self._options).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: offsets are in the checkpoint."""

    def stop(self) -> None:
        """Do nothing: connections belong to the process and end with it."""
