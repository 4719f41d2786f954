"""Periodic work of a broker's logs: retention, timed flushes, checkpoints, idle producers and disk space.

`LogManager` starts it after loading. Invariant: retention skips a log until its topic's settings are known, because the
broker's defaults might delete what the topic keeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import KafkaStorageError
from odradek.base.ports import Clock
from odradek.log.directories.background import Background
from odradek.log.directories.directory import LogDirectory
from odradek.log.directories.directory_worker import DirectoryWorkers
from odradek.log.directories.disk_work import DiskWork
from odradek.log.directories.log_table import LogTable
from odradek.log.directories.space import DiskSpace
from odradek.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

PRODUCER_CHECK_INTERVAL_MS: Final = 600_000
"""Interval of checks for idle producers (Kafka's producer.id.expiration.check.interval.ms)."""

YIELD_EVERY: Final = 64
"""Number of logs that a schedule processes before it yields to the event loop."""

SILENT_MS: Final = 10_000.0
"""Retention, which may create a segment on the event loop, skips a directory whose disk did not answer for so long."""

NEVER_MS: Final = 2**63 - 1


class LogSchedules:
    """The periodic work of one broker's logs."""

    def __init__(
        self,
        table: LogTable,
        clock: Clock,
        config: BrokerConfig,
        *,
        disk_work: DiskWork,
        space: DiskSpace,
        workers: DirectoryWorkers,
    ) -> None:
        """Create the schedules; nothing runs before `start`."""
        self._table = table
        self._clock = clock
        self._config = config
        self._disk_work = disk_work
        self._space = space
        self._workers = workers

    def start(self, background: Background) -> None:
        """Start the schedules; most wait until the broker serves its partitions (`log.initial.task.delay.ms`)."""
        config = self._config
        first_ms = config.log_initial_task_delay_ms
        plan: list[tuple[int, int, Callable[[], Awaitable[object]]]] = [
            (first_ms, config.log_retention_check_interval_ms, self.apply_retention),
            (first_ms, PRODUCER_CHECK_INTERVAL_MS, self.expire_producers),
        ]
        if config.log_flush_scheduler_interval_ms < NEVER_MS:
            plan.append((first_ms, config.log_flush_scheduler_interval_ms, self.flush_due))
        checkpoint_ms, space_ms = config.log_flush_offset_checkpoint_interval_ms, config.log_dir_free_check_interval_ms
        for directory in self._table.directories.values():
            # Each directory repeats its work by itself, because one whose disk is slow must not delay the others.
            plan += [
                (first_ms, checkpoint_ms, partial(self._disk_work.write_checkpoints, directory)),
                (space_ms, space_ms, partial(self._look_for_space, directory)),
            ]
        for delay_ms, every_ms, work in plan:
            background.spawn(self._repeat(delay_ms, every_ms, work))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply new settings, except for the intervals, which do not change after the start."""
        self._config = config

    async def _repeat(self, first_ms: int, every_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        await self._clock.sleep_ms(first_ms)
        while True:
            await work()
            await self._clock.sleep_ms(every_ms)

    async def apply_retention(self) -> int:
        """Remove expired segments of all logs whose topic settings are known. Returns their number."""
        removed = 0
        for count, log in enumerate(list(self._table.current.values()), 1):
            if log.topic_partition in self._table.configured and not log.is_offline and not self._is_silent(log):
                try:
                    removed += log.delete_expired(self._clock.wall_ms())
                except KafkaStorageError as error:
                    logger.error("%s", error)
            if count % YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)
        return removed

    def _is_silent(self, log: PartitionLog) -> bool:
        directory = self._table.home(log)
        return directory is not None and self._workers.at(directory.path).stalled(SILENT_MS) is not None

    async def expire_producers(self) -> None:
        """Drop producers that were idle for `producer.id.expiration.ms`."""
        for count, log in enumerate(list(self._table.current.values()), 1):
            log.expire_producers(self._clock.wall_ms(), self._config.producer_id_expiration_ms)
            if count % YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)

    async def write_checkpoints(self) -> None:
        """Checkpoint recovery points and log start offsets of all directories."""
        await asyncio.gather(*map(self._disk_work.write_checkpoints, self._table.directories.values()))

    async def flush_due(self) -> None:
        """Flush the logs whose last flush is at least `flush.ms` ago."""
        now_ms = self._clock.monotonic_ms()
        for log in list(self._table.current.values()):
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._disk_work.flush_soon(log)

    async def _look_for_space(self, directory: LogDirectory) -> None:
        if directory.failure is None:
            await self._space.look((directory.path,))
