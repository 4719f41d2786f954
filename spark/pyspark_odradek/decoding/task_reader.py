"""One task: reads a range of one partition and yields Arrow batches.

It runs in the Python worker of an executor. Both readers pickle `TaskReader` into their tasks. Invariants: every record
of the range that still exists is yielded exactly once and in order, or the task fails; only with `failOnDataLoss=false`
may records be missing. A task holds at most `maxTaskMemory` bytes, whatever the stored batches are (`TaskMemory`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from odradek.base.errors import MessageTooLargeError, OffsetOutOfRangeError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.client.models import RawFetch
from odradek.client.settings import ClientSettings
from odradek.records.frame_columns import FrameColumns, FrameDecoder
from pyspark_odradek.decoding.row_batches import BatchMaker
from pyspark_odradek.decoding.row_schema import RowSchema, ValueDecoder
from pyspark_odradek.offsets import DataLossError, OffsetRange
from pyspark_odradek.options.source_options import SourceOptions
from pyspark_odradek.shared_client import shared_client
from pyspark_odradek.worker_heap import freeze_modules

BATCH_ROWS: Final = 10_000
"""Maximum number of rows of an Arrow batch: smaller ones have too much overhead; larger ones do not fit the processor's
caches."""
COUNTED_BATCH_ROWS: Final = 1 << 16
"""The same for rows with nothing but numbers that follow from the headers of batches, as for a count."""

_MAX_UNPACKED_BYTES: Final = 1 << 30
"""Arrow's positions have 32 bits."""

log = logging.getLogger(__name__)


class FetchClient(Protocol):
    """The methods of `BlockingClient` that tasks use; one per process and settings, kept between tasks."""

    def fetch_raw(
        self,
        topic_partition: TopicPartition,
        offset: int,
        /,
        *,
        max_bytes: int = ...,
        max_wait_ms: int | None = ...,
        isolation: str | None = ...,
        end_offset: int | None = ...,
    ) -> RawFetch:
        """Return whole batches from an offset on."""
        ...

    def drop_read_ahead(self, topic_partition: TopicPartition, /) -> None:
        """Free what was fetched ahead of a partition."""
        ...

    def earliest_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        ...


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """How a task divides its memory: fetched data, data fetched ahead, a decompressed batch, and an Arrow batch get
    a quarter each. A normal fetch uses half of its quarter, because a broker returns at least one batch of any size."""

    total: int

    @property
    def fetch_bytes(self) -> int:
        """Maximum size of a normal fetch."""
        return self.total // 8

    @property
    def stored_batch_bytes(self) -> int:
        """Maximum size of a fetch that a single large batch causes."""
        return self.total // 4

    @property
    def unpacked_bytes(self) -> int:
        """Maximum size of a decompressed batch."""
        return min(self.total // 4, _MAX_UNPACKED_BYTES)

    @property
    def arrow_bytes(self) -> int:
        """Maximum size of an Arrow batch of several rows."""
        return self.total // 8


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads the partitions of a plan; pickled with the options to each worker."""

    options: SourceOptions
    columns: RowSchema
    decoder: ValueDecoder | None = None
    connect: Callable[[ClientSettings], FetchClient] = shared_client

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one range; none for the empty partition that Spark adds to an empty plan."""
        offsets: OffsetRange | None = partition.value
        if offsets is None:
            return
        freeze_modules()
        options, memory = self.options, TaskMemory(self.options.max_task_memory)
        maker = BatchMaker(offsets.topic_partition, self.columns, self.decoder)
        only_numbers = not self.columns.fields.in_records and "topic" not in self.columns.names
        most_bytes = min(options.max_batch_bytes, memory.arrow_bytes)
        decoder = FrameDecoder(
            self.columns.fields,
            rows=COUNTED_BATCH_ROWS if only_numbers else BATCH_ROWS,
            limit=memory.unpacked_bytes,
            limit_name=f"what maxTaskMemory={memory.total} allows for one batch; increase it",
            check_crcs=options.client.check_crcs,
            most_bytes=most_bytes,
        )
        for fetched in self._fetches(offsets, memory):
            for columns in decoder.decode(
                fetched.records,
                start_offset=fetched.fetch_offset,
                end_offset=offsets.end,
                aborted=fetched.aborted,
            ):
                for part in cut_by_size(columns, most_bytes):
                    yield maker.make(part)

    def _fetches(self, offsets: OffsetRange, memory: TaskMemory) -> Iterator[RawFetch]:
        """Fetch until the end of the range; each fetch begins where the previous one ended."""
        client = self.connect(self.options.client)
        position = offsets.start
        try:
            last_progress = time.monotonic()
            while position < offsets.end:
                try:
                    fetched = client.fetch_raw(
                        offsets.topic_partition,
                        position,
                        max_bytes=min(self.options.client.max_partition_fetch_bytes, memory.fetch_bytes),
                        isolation=self.options.client.isolation_level,
                        end_offset=offsets.end,
                    )
                except OffsetOutOfRangeError as error:
                    position = self._after_loss(client, offsets, position, error)
                    continue
                if len(fetched.records) > memory.stored_batch_bytes:
                    raise MessageTooLargeError(
                        f"the batch at offset {position} of {offsets.topic_partition} has {len(fetched.records)} "
                        f"bytes, more than maxTaskMemory={memory.total} allows for one batch; increase it"
                    )
                if fetched.next_offset > position:
                    position = fetched.next_offset
                    yield fetched
                    # The time that Spark took for the rows does not count.
                    last_progress = time.monotonic()
                elif (time.monotonic() - last_progress) * 1000 > self.options.poll_timeout_ms:
                    raise RequestTimedOutError(
                        f"no record of {offsets.topic_partition} from offset {position} to {offsets.end} came within "
                        f"kafkaConsumer.pollTimeoutMs={self.options.poll_timeout_ms}"
                    )
        finally:
            if position < offsets.end:
                # The task failed, or Spark needs no more rows.
                client.drop_read_ahead(offsets.topic_partition)

    def _after_loss(
        self, client: FetchClient, offsets: OffsetRange, position: int, error: OffsetOutOfRangeError
    ) -> int:
        """Return where to continue after records were deleted: the first existing offset, or the end of the range."""
        partition = offsets.topic_partition
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"COULD_NOT_READ_OFFSET_RANGE: offsets {position} to {offsets.end} of {partition} cannot be read any "
                "more: they were deleted, or the topic was created again. To skip them, set failOnDataLoss=false"
            ) from error
        earliest = client.earliest_offsets([partition])[partition]
        following = earliest if position < earliest < offsets.end else offsets.end
        log.warning("%s: offsets %d to %d are lost and left out", partition, position, following)
        return following


def cut_by_size(columns: FrameColumns, most_bytes: int) -> Iterator[FrameColumns]:
    """Yield the records in parts of at most `most_bytes`, or of one record."""
    if columns.headers is None and columns.largest_bytes * len(columns) <= most_bytes:
        yield columns
        return
    before = np.append(0, np.cumsum(columns.size_bytes))
    if before[-1] <= most_bytes:
        yield columns
        return
    first = 0
    while first < len(columns):
        last = max(first + 1, int(np.searchsorted(before, before[first] + most_bytes, side="right")) - 1)
        yield columns.slice(first, last)
        first = last
