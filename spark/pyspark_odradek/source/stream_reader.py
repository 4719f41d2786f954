"""The stream reader: the end of the next micro-batch, its ranges, and missing records.

Spark calls it in one long-lived process per query, so state is kept on the object. Invariants: equal offsets have equal
text, otherwise an idle query would run empty batches forever; the first result of `initialOffset` is kept, because
Spark calls it twice and "latest" changes in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.decoding.task_reader import TaskReader
from pyspark_odradek.observation.progress_commits import WAIT_SECONDS, ProgressCommits
from pyspark_odradek.offsets import (
    LATEST,
    DataLossError,
    OffsetRange,
    SparkOffset,
    admit,
    check_available_now,
    data_losses,
    new_offsets,
    ranges_between,
    split,
    to_spark,
)
from pyspark_odradek.options.source_options import Bound, SourceOptions
from pyspark_odradek.source.lookup import Lookup, OffsetLookup
from pyspark_odradek.source.stream_offsets import StreamOffset

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("odradek")`."""

    def __init__(
        self,
        options: SourceOptions,
        columns: RowSchema,
        *,
        lookup: Lookup | None = None,
        progress: ProgressCommits | None = None,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`columns`: those that the query wants. Raises `ConfigError` if an option is only for batches. Connects later:
        Spark also creates readers to pickle them."""
        options.check_stream()
        self._options = options
        self._columns = columns
        self._lookup = OffsetLookup(options) if lookup is None else lookup
        group = options.progress_group
        self._progress = ProgressCommits(options.client, group=group) if group and progress is None else progress
        self._now_seconds = now_seconds
        self._initial: SparkOffset | None = None
        self._target: StreamOffset | None = None
        self._latest: StreamOffset | None = None
        self._last_trigger_seconds: float | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the whole run at the current offsets."""
        self._target = self._now({})

    def _now(self, known: Mapping[TopicPartition, int]) -> StreamOffset:
        """Return the latest offsets: one request for metadata, and one for offsets to each broker."""
        partitions, topic_ids = self._lookup.assignment()
        return StreamOffset(self._lookup.latest(partitions, known), topic_ids)

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
            bound = self._options.start or Bound(option="startingOffsets", position=LATEST)
            partitions, topic_ids = self._lookup.assignment()
            offsets = self._lookup.bounds(bound, partitions, latest_when_no_match=self._options.latest_when_no_match)
            self._initial = StreamOffset(self._lookup.positions(offsets), topic_ids).to_spark()
        return self._initial

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself for none."""
        begin = StreamOffset.parse(start)
        if self._progress is not None:
            # Spark asks for the next end as soon as the micro-batch that ends at `start` is finished. `commit` comes
            # one micro-batch later, and never for the last one.
            self._progress.finished(begin.offsets, wait_seconds=WAIT_SECONDS)
        # After a restart, the first call has the end of a micro-batch, and a later one may equal the new start.
        is_first = self._latest is None and start == self._initial
        self._latest = latest = self._target or self._now(begin.offsets)
        end = self._admitted(begin, latest, limit)
        if is_first:
            return StreamOffset(end, latest.topic_ids, begin.offsets).to_spark()
        if end == begin.offsets and not begin.created_again(latest.topic_ids):
            # Spark compares text, and that of another source or of the first micro-batch differs from ours.
            return start
        return StreamOffset(end, latest.topic_ids).to_spark()

    def _admitted(self, begin: StreamOffset, latest: StreamOffset, limit: ReadLimit) -> Mapping[TopicPartition, int]:
        """Apply the limits of the options, unless Spark requests everything."""
        if isinstance(limit, ReadAllAvailable):
            return latest.offsets
        # A partition that is new to the query is read from its beginning.
        changed = begin.created_again(latest.topic_ids)
        kept = begin.without(changed)
        known = {**self._lookup.earliest(latest.offsets.keys() - kept.keys()), **kept}
        if not changed and self._should_wait(new_offsets(known, latest.offsets)):
            return begin.offsets
        self._last_trigger_seconds = self._now_seconds()
        if self._options.max_offsets_per_trigger is None:
            return latest.offsets
        return admit(known, latest.offsets, self._options.max_offsets_per_trigger)

    def _should_wait(self, available: int) -> bool:
        """Whether to wait for `minOffsetsPerTrigger`, within its delay; never with a fixed end."""
        wanted = self._options.min_offsets_per_trigger
        if wanted is None or available >= wanted or self._target is not None or self._last_trigger_seconds is None:
            return False
        return (self._now_seconds() - self._last_trigger_seconds) * 1000 < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802 - Spark's name
        """Return the newest known offsets, for the progress of the query."""
        return None if self._latest is None else to_spark(self._latest.offsets)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch, one per task.

        Raises `DataLossError` if records are missing (`failOnDataLoss`), and `PlannedOffsetsError` if a run with
        Trigger.AvailableNow cannot go on.
        """
        begin, finish = StreamOffset.parse(start), StreamOffset.parse(end)
        if finish.first is not None:
            # After a failure before the first commit, Spark has asked for the start again.
            begin = StreamOffset(finish.first, finish.topic_ids)
        return [
            InputPartition(piece)
            for piece in split(
                self._ranges(begin, finish, self._gone(finish)),
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
        ]

    def _gone(self, end: StreamOffset) -> frozenset[str]:
        """Return the topics of a plan that were created again since it was stored."""
        if self._latest is None:
            # The first plan after a restart is one from the checkpoint. It can be older than the end of this run.
            return end.created_again(self._lookup.assignment().topic_ids) if end.topic_ids else frozenset()
        if self._target is None:
            return end.created_again(self._latest.topic_ids)
        latest = self._now(end.offsets)
        gone = end.created_again(latest.topic_ids)
        check_available_now(self._target.offsets, end.offsets, latest.without(gone))
        return gone

    def _ranges(self, begin: StreamOffset, end: StreamOffset, gone: frozenset[str]) -> list[OffsetRange]:
        changed = begin.created_again(end.topic_ids)
        start = begin.without(changed | gone)
        finish = end.without(gone)
        earliest_of_new = self._lookup.earliest(finish.keys() - start.keys())
        losses = [
            f"PARTITION_OFFSET_CHANGED: topic {topic} was deleted and created again, so its earlier records cannot be "
            "read any more"
            for topic in sorted(changed | gone)
        ]
        losses += data_losses(start, finish, earliest_of_new)
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. To go on without these records, set failOnDataLoss=false")
        for loss in losses:
            log.warning("%s", loss)
        known = {**earliest_of_new, **start}
        return ranges_between(known, {each: offset for each, offset in finish.items() if each in known})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range. Runs in a worker."""
        return TaskReader(self._options, self._columns, self._columns.decoder).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: offsets are in the checkpoint."""

    def stop(self) -> None:
        """Do nothing: connections belong to the process and end with it."""
