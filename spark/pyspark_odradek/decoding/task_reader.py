"""One task: reads a range of one partition and yields Arrow batches.

It runs in the Python worker of an executor. Both readers pickle `TaskReader` into their tasks. Invariant: every record
of the range that still exists is yielded exactly once and in order, or the task fails; only with `failOnDataLoss=false`
may records be missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from odradek.base.errors import OffsetOutOfRangeError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.client.models import RawFetch
from odradek.client.settings import ClientSettings
from odradek.records.columns import Unpacked, decode, unpack
from pyspark_odradek.decoding.row_batches import BatchMaker
from pyspark_odradek.offsets import DataLossError, OffsetRange
from pyspark_odradek.options.source_options import SourceOptions
from pyspark_odradek.shared_client import shared_client

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 << 20
"""Limits of an Arrow batch: smaller ones have too much overhead; larger ones do not fit the processor's caches."""

UNPACKED_LIMIT_BYTES: Final = 512 << 20
"""Maximum size of a decompressed record batch: it limits the memory for a compression bomb, and Arrow ends at 2 GiB."""

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
    ) -> RawFetch:
        """Return whole batches from an offset on."""
        ...

    def earliest_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        ...


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads the partitions of a plan; pickled with the options to each worker."""

    options: SourceOptions
    connect: Callable[[ClientSettings], FetchClient] = shared_client

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one range; none for the empty partition that Spark adds to an empty plan."""
        offsets: OffsetRange | None = partition.value
        if offsets is None:
            return
        options = self.options
        maker = BatchMaker(offsets.topic_partition, include_headers=options.include_headers)
        for start, batches in _in_portions(self._unpacked(offsets)):
            columns = decode(
                batches,
                start_offset=start,
                end_offset=offsets.end,
                with_headers=options.include_headers,
            )
            if len(columns):
                yield maker.make(columns)

    def _unpacked(self, offsets: OffsetRange) -> Iterator[tuple[int, Unpacked]]:
        """Yield batches with the offset from which they were fetched: records before it must be skipped."""
        for fetched in self._fetches(offsets):
            for batch in unpack(
                fetched.records,
                limit=UNPACKED_LIMIT_BYTES,
                start_offset=fetched.fetch_offset,
                end_offset=offsets.end,
                aborted=fetched.aborted,
                check_crcs=self.options.client.check_crcs,
            ):
                yield fetched.fetch_offset, batch

    def _fetches(self, offsets: OffsetRange) -> Iterator[RawFetch]:
        """Fetch until the end of the range; each fetch begins where the previous one ended."""
        client = self.connect(self.options.client)
        position = offsets.start
        last_progress = time.monotonic()
        while position < offsets.end:
            try:
                fetched = client.fetch_raw(
                    offsets.topic_partition,
                    position,
                    max_bytes=self.options.client.max_partition_fetch_bytes,
                    isolation=self.options.client.isolation_level,
                )
            except OffsetOutOfRangeError as error:
                position = self._after_loss(client, offsets, position, error)
                continue
            if fetched.next_offset > position:
                last_progress = time.monotonic()
                position = fetched.next_offset
                yield fetched
            elif (time.monotonic() - last_progress) * 1000 > self.options.poll_timeout_ms:
                raise RequestTimedOutError(
                    f"no record of {offsets.topic_partition} from offset {position} to {offsets.end} came within "
                    f"kafkaConsumer.pollTimeoutMs={self.options.poll_timeout_ms}"
                )

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


def _in_portions(batches: Iterator[tuple[int, Unpacked]]) -> Iterator[tuple[int, list[Unpacked]]]:
    """Group batches until an Arrow batch is worthwhile, with the first requested offset of each group."""
    portion: list[Unpacked] = []
    start = rows = size = 0
    for fetch_offset, (header, payload) in batches:
        # Only the first batch of a group can begin before its fetch, and is then cut.
        if portion and (rows >= BATCH_ROWS or size >= BATCH_BYTES or header.base_offset < fetch_offset):
            yield start, portion
            portion, rows, size = [], 0, 0
        if not portion:
            start = fetch_offset
        portion.append((header, payload))
        rows += header.record_count
        size += len(payload)
    if portion:
        yield start, portion
