"""A log manager with a cleaner, in virtual time."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.ports import DiskThreadsMaker
from odradek.base.types import TopicPartition
from odradek.log.compaction.cleaner import LogCleaner
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.cleaning import settle
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import InlineWorkers, inline_threads
from odradek_testkit.logs import small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CONFIG = replace(BrokerConfig(), log_dirs=("/disk1",), broker_id=1, log_cleaner_backoff_ms=1000)
COMPACT = small_segments(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)


class Broker:
    """A log manager with a cleaner, created as in `app/broker`."""

    def __init__(
        self, files: MemoryFiles, *, config: BrokerConfig = CONFIG, disk_threads: DiskThreadsMaker = inline_threads
    ) -> None:
        self.files = files
        self.clock = VirtualClock()
        self.workers = InlineWorkers()
        self.failures: list[str] = []
        self.config = config
        self.logs = LogManager(
            files,
            self.clock,
            config,
            disk_threads=disk_threads,
            on_directory_failure=lambda path, _: self.failures.append(path),
        )
        self.cleaner = self.cleaner_with(self.workers)

    def cleaner_with(self, workers: InlineWorkers) -> LogCleaner:
        return LogCleaner(self.logs, workers, self.files, self.clock, self.config)

    async def start(self) -> None:
        await self.logs.start("cluster", 1)

    def make(self, partition: TopicPartition = A, config: TopicConfig = COMPACT) -> PartitionLog:
        return self.logs.get_or_create(partition, UUID(int=hash(partition) & 0xFFFF), config, is_new=True)

    def fill(
        self, log: PartitionLog, *, rounds: int = 20, keys: int = 2, value: bytes = b"v" * 80, leader_epoch: int = 0
    ) -> None:
        """Append batches with the same keys; all but the last segment can then be cleaned."""
        for number in range(rounds):
            builder = BatchBuilder(limit_bytes=1 << 20)
            for key in range(keys):
                builder.append(b"key %d" % key, b"%d " % number + value, timestamp_ms=self.clock.wall_ms())
            log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=leader_epoch)
        settle(log)

    async def stop(self) -> None:
        await self.cleaner.close()
        await self.logs.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)
