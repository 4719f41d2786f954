"""The bounds for sealed segments that all logs of a manager share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.log.log_manager import SEALED_SHARE, LogManager
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import LOADED_BYTES
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.logs import batch, roll, small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CONFIG = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1)


@asynccontextmanager
async def started(
    files: MemoryFiles, config: BrokerConfig = CONFIG, max_open_files: int = 1024
) -> AsyncIterator[tuple[LogManager, PartitionLog, PartitionLog]]:
    """Start a manager with two logs in different directories; each has two sealed segments of two records."""
    logs = LogManager(files, VirtualClock(), config, disk_threads=inline_threads, max_open_files=max_open_files)
    await logs.start("cluster", 1)
    made = [logs.get_or_create(each, UUID(int=77), small_segments(), is_new=True) for each in (A0, A1)]
    for log in made:
        for _ in range(2):
            log.append_as_leader(batch(b"one"), leader_epoch=0)
            log.append_as_leader(batch(b"two"), leader_epoch=0)
            roll(log)
        log.high_watermark = log.log_end_offset
        log.flush()
    yield logs, made[0], made[1]
    await logs.close()


def read_all(*logs: PartitionLog) -> None:
    for log in logs:
        for offset in (0, 2):
            log.read(offset, max_bytes=1)


def loaded(*logs: PartitionLog) -> list[bool]:
    return [segment.loaded_bytes > LOADED_BYTES for log in logs for segment in log.segments[:-1]]


def test_the_setting_bounds_the_memory_of_all_logs_and_can_change(files: MemoryFiles) -> None:
    async def main() -> None:
        config = replace(CONFIG, log_index_cache_bytes=0)
        async with started(files, config) as (logs, one, two):
            read_all(one, two)
            assert loaded(one, two) == [False, False, False, True]
            logs.reconfigure(CONFIG)
            read_all(one, two)
            assert loaded(one, two) == [True, True, True, True]
            logs.reconfigure(config)
            read_all(one)
            assert loaded(one, two) == [False, True, False, False]

    run_virtual(main())


def test_a_share_of_the_file_descriptors_holds_sealed_segments_open(files: MemoryFiles) -> None:
    async def main() -> None:
        async with started(files, max_open_files=3 * SEALED_SHARE) as (_, one, two):
            read_all(one, two)
            assert loaded(one, two) == [False, True, True, True]

    run_virtual(main())


def test_logs_that_are_deleted_or_whose_directory_fails_free_their_share(files: MemoryFiles) -> None:
    async def main() -> None:
        async with started(files, max_open_files=2 * SEALED_SHARE) as (logs, one, two):
            read_all(one)
            logs.delete(A0)
            read_all(two)
            assert loaded(one, two) == [False, False, True, True]
            logs.directory_failed(two, StorageError("dead", path="/disk2"))
            other = logs.get_or_create(TopicPartition("b", 0), UUID(int=78), small_segments(), is_new=True)
            other.append_as_leader(batch(b"one"), leader_epoch=0)
            roll(other)
            other.flush()
            other.read(0, max_bytes=1)
            # The failed log is not in the cache, so nothing is released for the new one.
            assert loaded(two) == [True, True]

    run_virtual(main())
