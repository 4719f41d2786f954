"""Fetch answers for consumers that are older than the records: down to the format of their version, or why not.

The partitions of an answer enter, with the records as the log holds them; the same rows leave, at once or, when much
is to be converted, from worker processes a little later. `server/data` calls this for Fetch versions below 10 alone.
Invariant: `respond` is called exactly once, or the request is failed when the broker stops or a bug strikes; records
that the version knows are passed on as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

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
from odradek.network.connection import Request
from odradek.protocol.hotpath import FetchedPartition
from odradek.records.convert import converted_down
from odradek.server.failures import wire_error

FORMAT_1_SINCE: Final = 2
FORMAT_2_SINCE: Final = 4
"""First Fetch versions whose clients know the format (KIP-32, KIP-98)."""
STORAGE_ERRORS_SINCE: Final = 6
"""First Fetch version whose clients know KAFKA_STORAGE_ERROR; older ones would take it for a final one (KIP-112)."""
ZSTD_SINCE: Final = 10
"""First Fetch version whose clients know zstd (KIP-110). As in Kafka it is the topic's `compression.type` that decides
for versions 4 to 9, which get their bytes unread."""
INLINE_BYTES: Final = 256 << 10
"""Sets up to this size are converted on the event loop, in one to four ms; sending them away costs it as much."""

_SIZE_AND_MAGIC: Final = Struct(">8xi4xB")
_LOG_OVERHEAD: Final = 12
_MIN_SIZE: Final = 14

logger = logging.getLogger(__name__)

Respond = Callable[[list[FetchedPartition]], None]
ConfigOf = Callable[[TopicPartition], TopicConfig | None]


def holds_newer(records: Buffer, magic: int) -> bool:
    """Whether a whole entry of a newer format than `magic` is among the records.

    One that is cut off does not count: nothing can be converted of it, and its length is told alike in all formats.
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


class DownConversion:
    """Fits Fetch answers to old versions."""

    def __init__(self, config_of: ConfigOf, workers: Workers | None = None) -> None:
        """`config_of` tells a hosted partition's settings. Without `workers` everything is converted on the loop."""
        self._config_of: Final = config_of
        self._workers: Final = workers
        self._tasks: set[asyncio.Task[None]] = set()

    def fit(self, request: Request, rows: list[FetchedPartition], offsets: Sequence[int], respond: Respond) -> None:
        """Call `respond` with rows that the request's version knows; `offsets` are those that were asked for.

        It is called before this returns unless records go to a worker process.
        """
        version = request.api_version
        large: list[int] = []
        for index, row in enumerate(rows):
            rows[index] = row = self._told(version, row)
            if version < FORMAT_2_SINCE and row.records and holds_newer(row.records, _known_magic(version)):
                if not self._may_convert(row):
                    rows[index] = _failed(row, UnsupportedVersionError.code)
                elif self._workers is None or len(row.records) <= INLINE_BYTES:
                    rows[index] = _inline(row, _known_magic(version), offsets[index])
                else:
                    large.append(index)
        if self._workers is None or not large:
            respond(rows)
            return
        work = self._convert_away(self._workers, _known_magic(version), rows, {each: offsets[each] for each in large})
        task = asyncio.get_running_loop().create_task(work, name=f"convert-{request}")
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._converted(done, request, rows, respond))

    def _told(self, version: int, row: FetchedPartition) -> FetchedPartition:
        """The row with the errors that its version knows."""
        if row.error_code == KafkaStorageError.code and version < STORAGE_ERRORS_SINCE:
            return row._replace(error_code=NotLeaderOrFollowerError.code)
        if row.records:
            config = self._config(row)
            if config is not None and config.compression_type == "zstd":
                return _failed(row, UnsupportedCompressionTypeError.code)
        return row

    def _may_convert(self, row: FetchedPartition) -> bool:
        config = self._config(row)
        return config is None or config.message_downconversion_enable

    def _config(self, row: FetchedPartition) -> TopicConfig | None:
        return None if row.topic is None else self._config_of(TopicPartition(row.topic, row.partition))

    @staticmethod
    async def _convert_away(
        workers: Workers, magic: int, rows: list[FetchedPartition], offsets: dict[int, int]
    ) -> None:
        async def one(index: int, offset: int) -> None:
            row = rows[index]
            try:
                records = await workers.run(converted_down, bytes(row.records), magic, offset)
            except OdradekError as error:
                rows[index] = _told_failed(row, error)
            else:
                rows[index] = row._replace(records=records)

        async with asyncio.TaskGroup() as group:
            for index, offset in offsets.items():
                group.create_task(one(index, offset))

    def _converted(
        self, task: asyncio.Task[None], request: Request, rows: list[FetchedPartition], respond: Respond
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            request.fail("the broker is stopping")
        elif task.exception() is not None:
            logger.error("%s: the conversion failed", request, exc_info=task.exception())
            request.fail("the records cannot be converted")
        else:
            respond(rows)

    async def close(self) -> None:
        """Give up what is under way; idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _known_magic(version: int) -> int:
    return 0 if version < FORMAT_1_SINCE else 1


def _inline(row: FetchedPartition, magic: int, first_offset: int) -> FetchedPartition:
    try:
        return row._replace(records=converted_down(row.records, magic, first_offset))
    except OdradekError as error:
        return _told_failed(row, error)


def _told_failed(row: FetchedPartition, error: OdradekError) -> FetchedPartition:
    logger.warning("%s-%d: records cannot be converted for an old consumer: %s", row.topic, row.partition, error)
    return _failed(row, wire_error(error).code)


def _failed(row: FetchedPartition, code: int) -> FetchedPartition:
    """A partition's part of an answer that tells an error and nothing else, as Kafka has it."""
    return FetchedPartition(row.topic, row.topic_id, row.partition, code)
