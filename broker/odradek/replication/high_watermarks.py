"""The high watermark checkpoint: reads the high watermarks at startup and writes them every few seconds.

`roles` claims a stored high watermark when a partition gets its log; `replica_manager` triggers writes in the
background and once more at shutdown. Invariant: the high watermark of a log that has no role yet is written again
unchanged, so that two crashes in a row lose nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.log.log_manager import LogManager
from odradek.replication.partition_table import PartitionTable

logger = logging.getLogger(__name__)


class HighWatermarks:
    """The stored and written high watermarks of one broker."""

    def __init__(self, table: PartitionTable, log_manager: LogManager) -> None:
        """The checkpoint is read when the first high watermark is claimed, after the log manager has started."""
        self._table: Final = table
        self._logs: Final = log_manager
        self._stored: dict[TopicPartition, int] | None = None
        self._written: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def claim(self, topic_partition: TopicPartition) -> int:
        """Return a stored high watermark, once; 0 if there is none."""
        return self._unclaimed().pop(topic_partition, 0)

    def write_soon(self) -> None:
        """Write the high watermarks in the background, if one has changed and no write is in progress."""
        if self._task is None:
            marks = self._current()
            if marks != self._written:
                self._task = asyncio.get_running_loop().create_task(self._write(marks))

    def moved(self) -> None:
        """Force the next write, because a log has moved to another directory and its high watermark has to follow."""
        self._written = {}

    async def close(self) -> None:
        """Wait for a write in progress, then write the final high watermarks. Idempotent."""
        if self._task is not None:
            await self._task
        marks = self._current()
        if marks != self._written:
            await self._write(marks)

    async def _write(self, marks: dict[TopicPartition, int]) -> None:
        try:
            await self._logs.checkpoint_high_watermarks(marks)
            self._written = marks
        except OdradekError:
            logger.exception("the high watermarks of %d partitions cannot be written", len(marks))
        finally:
            self._task = None

    def _current(self) -> dict[TopicPartition, int]:
        marks = dict(self._unclaimed())
        marks.update((tp, partition.log.high_watermark) for tp, partition in self._table.online.items())
        return marks

    def _unclaimed(self) -> dict[TopicPartition, int]:
        if self._stored is None:
            self._stored = dict(self._logs.read_high_watermarks())
        return self._stored
