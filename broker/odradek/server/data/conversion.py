"""Converts the records of Fetch responses for consumers that do not support their format.

`server/data/produce_and_fetch` uses it for Fetch versions below 10. Records in a format that the version supports are
not changed. Invariant: `respond` is called exactly once, unless the request fails because the broker stops or because
of a bug.

Sending records to a worker process and back costs this process nearly as much as converting simple records, and three
times as much in total. So a partition is sent to a worker only if its conversion would probably block the event loop
for too long. The others are converted on the event loop, as many per iteration as the limit allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OdradekError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from odradek.base.ports import Buffer, Workers
from odradek.base.types import TopicPartition
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.connection import Request
from odradek.protocol.hotpath import FetchedPartition
from odradek.records.conversion.down import converted_down
from odradek.records.v2.batch import CODEC_MASK, HEADER_SIZE, MAGIC
from odradek.server.failures import wire_error

FORMAT_1_SINCE: Final = 2
FORMAT_2_SINCE: Final = 4
"""First Fetch versions whose clients support message format 1 and record format 2 (KIP-32, KIP-98)."""
STORAGE_ERRORS_SINCE: Final = 6
"""First Fetch version whose clients know KAFKA_STORAGE_ERROR; older ones would treat it as final (KIP-112)."""
ZSTD_SINCE: Final = 10
"""First Fetch version whose clients support zstd (KIP-110). As in Kafka, the topic's `compression.type` decides for
versions 4 to 9, because their records are not inspected."""
TURN_US: Final = 8_000
"""Maximum estimated time of conversions in one iteration of the event loop, in microseconds. For one MiB of
uncompressed records of 200 bytes in typical batches, the estimate is 5,000; if all have the same structure, 3,000 are
needed. To send it to a worker costs the event loop 2,800."""

_BATCH_US: Final = 40
_FEW_RECORDS: Final = 48
"""Batches with fewer records are converted one record at a time, larger ones mostly as a whole."""
_SMALL_BATCH_US: Final = 8
_RECORD_ALONE_US: Final = 2
_PACKED_BYTES_PER_US: Final = 16
"""For compressed batches, which are decompressed, converted and compressed again."""

_SIZE_AND_MAGIC: Final = Struct(">8xi4xB")
_ATTRIBUTES_AND_COUNT: Final = Struct(">21xH34xi")
_OLD_ATTRIBUTES_AT: Final = 17
_LOG_OVERHEAD: Final = 12
_MIN_SIZE: Final = 14

logger = logging.getLogger(__name__)

Respond = Callable[[list[FetchedPartition]], None]
ConfigOf = Callable[[TopicPartition], TopicConfig | None]


def holds_newer(records: Buffer, magic: int) -> bool:
    """Whether the records contain a complete entry of a newer format than `magic`.

    An incomplete entry does not count: it cannot be converted, and its length field is the same in all formats.
    """
    unpack, end = _SIZE_AND_MAGIC.unpack_from, len(records)
    position = 0
    while position + _SIZE_AND_MAGIC.size <= end:
        size, found = unpack(records, position)
        following = position + _LOG_OVERHEAD + size
        if size < _MIN_SIZE or following > end:
            return False
        if found > magic:
            return True
        position = following
    return False


def estimated_us(records: Buffer) -> int:
    """Estimate the conversion time of the records in microseconds, from the headers of entries only."""
    end, position, total = len(records), 0, 0
    while position + HEADER_SIZE <= end:
        size, magic = _SIZE_AND_MAGIC.unpack_from(records, position)
        if magic == MAGIC:
            attributes, count = _ATTRIBUTES_AND_COUNT.unpack_from(records, position)
        else:
            attributes, count = records[position + _OLD_ATTRIBUTES_AT], 1
        if size < _MIN_SIZE:
            break
        if attributes & CODEC_MASK:
            total += size // _PACKED_BYTES_PER_US
        elif count < _FEW_RECORDS:
            total += _SMALL_BATCH_US + _RECORD_ALONE_US * max(count, 0)
        else:
            total += _BATCH_US + count
        position += _LOG_OVERHEAD + size
    return total


class DownConversion:
    """Converts Fetch responses for old versions."""

    def __init__(self, config_of: ConfigOf, topic_stats: BrokerTopicStats, workers: Workers | None = None) -> None:
        """`config_of` returns the settings of a hosted partition. `topic_stats` counts the converted records.

        Without `workers`, all records are converted on the event loop.
        """
        self._config_of: Final = config_of
        self._topic_stats: Final = topic_stats
        self._workers: Final = workers
        self._tasks: set[asyncio.Task[None]] = set()

    def fit(self, request: Request, rows: list[FetchedPartition], offsets: Sequence[int], respond: Respond) -> None:
        """Call `respond` with rows that the request's version supports. `offsets` are the requested offsets.

        `respond` is called before this method returns, unless there is too much to convert in one iteration.
        """
        version = request.api_version
        waiting: list[_Waiting] = []
        left_us = TURN_US
        for index, row in enumerate(rows):
            rows[index] = row = self._with_known_error(version, row)
            if version < FORMAT_2_SINCE and row.held and holds_newer(row.held, _known_magic(version)):
                if not self._may_convert(row):
                    rows[index] = _failed(row, UnsupportedVersionError.code)
                    continue
                row_us = estimated_us(row.held)
                if self._workers is None or row_us <= left_us:
                    rows[index] = self._inline(row, _known_magic(version), offsets[index])
                    left_us -= row_us
                else:
                    waiting.append(_Waiting(index, offsets[index], row_us))
        if self._workers is None or not waiting:
            respond(rows)
            return
        work = self._convert_later(self._workers, _known_magic(version), rows, waiting)
        task = asyncio.get_running_loop().create_task(work, name=f"convert-{request}")
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._converted(done, request, rows, respond))

    def _with_known_error(self, version: int, row: FetchedPartition) -> FetchedPartition:
        """Return the row. An error that the version does not know is replaced by one that it knows."""
        if row.error_code == KafkaStorageError.code and version < STORAGE_ERRORS_SINCE:
            return row._replace(error_code=NotLeaderOrFollowerError.code)
        if row.held:
            config = self._config(row)
            if config is not None and config.compression_type == "zstd":
                return _failed(row, UnsupportedCompressionTypeError.code)
        return row

    def _may_convert(self, row: FetchedPartition) -> bool:
        config = self._config(row)
        return config is None or config.message_downconversion_enable

    def _config(self, row: FetchedPartition) -> TopicConfig | None:
        return None if row.topic is None else self._config_of(TopicPartition(row.topic, row.partition))

    async def _convert_later(
        self, workers: Workers, magic: int, rows: list[FetchedPartition], waiting: Sequence[_Waiting]
    ) -> None:
        async def in_worker(index: int, offset: int) -> None:
            row = rows[index]
            try:
                converted = await workers.run(converted_down, bytes(row.held), magic, offset)
            except OdradekError as error:
                rows[index] = _logged_failure(row, error)
            else:
                rows[index] = self._counted(row, *converted)

        async with asyncio.TaskGroup() as group:
            for index, offset, row_us in waiting:
                if row_us > TURN_US:
                    group.create_task(in_worker(index, offset))
            for index, offset, row_us in waiting:
                if row_us <= TURN_US:
                    # Other tasks run between two partitions.
                    await asyncio.sleep(0)
                    rows[index] = self._inline(rows[index], magic, offset)

    def _inline(self, row: FetchedPartition, magic: int, first_offset: int) -> FetchedPartition:
        try:
            return self._counted(row, *converted_down(row.held, magic, first_offset))
        except OdradekError as error:
            return _logged_failure(row, error)

    def _counted(self, row: FetchedPartition, records: bytes, count: int) -> FetchedPartition:
        """Return the row with converted records, and count those that differ from the log."""
        if row.topic is not None:
            self._topic_stats.of(row.topic).fetch_conversions += count
        return row._replace(records=records)

    def _converted(
        self, task: asyncio.Task[None], request: Request, rows: list[FetchedPartition], respond: Respond
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            request.fail("the broker is stopping")
        elif task.exception() is not None:
            logger.error("%s: the conversion of records for an old consumer failed", request, exc_info=task.exception())
            request.fail("the records cannot be converted")
        else:
            respond(rows)

    async def close(self) -> None:
        """Cancel conversions in progress. Idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Waiting(NamedTuple):
    """A row that is converted later: its index, the requested offset and the estimated time."""

    place: int
    offset: int
    row_us: int


def _known_magic(version: int) -> int:
    return 0 if version < FORMAT_1_SINCE else 1


def _logged_failure(row: FetchedPartition, error: OdradekError) -> FetchedPartition:
    logger.warning("%s-%d: records cannot be converted for an old consumer: %s", row.topic, row.partition, error)
    return _failed(row, wire_error(error).code)


def _failed(row: FetchedPartition, code: int) -> FetchedPartition:
    """Return the partition of a response with only an error, as in Kafka."""
    return FetchedPartition(row.topic, row.topic_id, row.partition, code)
