"""The stream reader: which offsets the next micro-batch ends at, and what may be missing from it.

Spark's calls enter (in one long-lived process for each query, so state is kept on the object), offsets and ranges
leave. Invariants: equal offsets are equal text, or an idle query would run empty batches for ever; the first answer of
`initialOffset` is kept, since Spark asks twice and "latest" moves in between.
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
from pyspark_odradek.lookup import Lookup, OffsetLookup
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
from pyspark_odradek.options import Bound, SourceOptions
from pyspark_odradek.tasks import TaskReader

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
        """`ConfigError` when an option is only for batches. Connects later: Spark also makes readers to pickle them."""
        options.check_stream()
        self._options = options
        self._lookup = OffsetLookup(options) if lookup is None else lookup
        self._now_seconds = now_seconds
        self._initial: SparkOffset | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._last_trigger_seconds: float | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the whole run: what is there now."""
        self._target = self._lookup.latest(self._lookup.assigned())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options. Spark has none that combines two, so `latestOffset` applies all of them itself."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> SparkOffset:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts: `startingOffsets`, by default the latest offsets."""
        if self._initial is None:
            start = self._options.start or Bound(option="startingOffsets", position=LATEST)
            offsets = self._lookup.resolve(
                start, self._lookup.assigned(), latest_when_no_match=self._options.latest_when_no_match
            )
            self._initial = to_spark(offsets)
        return self._initial

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        """The end of the next micro-batch; `start` itself when there shall be none."""
        begin = from_spark(start)
        latest = self._target if self._target is not None else self._lookup.latest(self._lookup.assigned())
        self._latest = latest
        if isinstance(limit, ReadAllAvailable):
            return to_spark(latest)
        # A partition that the query has not seen yet is read from its beginning.
        known = {**self._lookup.earliest(latest.keys() - begin.keys()), **begin}
        if self._should_wait(new_offsets(known, latest)):
            return to_spark(begin)
        self._last_trigger_seconds = self._now_seconds()
        if self._options.max_offsets_per_trigger is None:
            return to_spark(latest)
        return to_spark(admit(known, latest, self._options.max_offsets_per_trigger))

    def _should_wait(self, available: int) -> bool:
        """Whether `minOffsetsPerTrigger` is not reached yet and its delay not over; never with a fixed end."""
        wanted = self._options.min_offsets_per_trigger
        if wanted is None or available >= wanted or self._target is not None or self._last_trigger_seconds is None:
            return False
        return (self._now_seconds() - self._last_trigger_seconds) * 1000 < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802 - Spark's name
        """The newest offsets known, for the progress of the query."""
        return None if self._latest is None else to_spark(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a micro-batch, one for each task; `DataLossError` when some is gone (`failOnDataLoss`)."""
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
        """The rows of one range; runs in a worker."""
        return TaskReader(self._options).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: offsets live in the checkpoint."""

    def stop(self) -> None:
        """Nothing: connections belong to the process and end with it."""
