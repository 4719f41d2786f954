from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.space import DirectorySpace, reserve_of
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.records.checks.validate import AppendOrigin
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.logs import batch, small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

GIB = 1 << 30
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CONFIG = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1, log_dir_free_check_interval_ms=1000)
ENOUGH, LITTLE = (50 * GIB, 100 * GIB), (GIB - 1, 100 * GIB)


@pytest.mark.parametrize(
    ("setting", "total", "reserve"),
    [
        (GIB, 100 * GIB, GIB),
        (GIB, 20 * GIB, GIB),
        (GIB, 10 * GIB, GIB // 2),
        (GIB, 0, 0),
        (GIB, -1, 0),
        (0, 100 * GIB, 0),
        (-1, 100 * GIB, 0),
    ],
)
def test_the_reserve_is_at_most_a_twentieth_of_the_disk(setting: int, total: int, reserve: int) -> None:
    assert reserve_of(setting, total) == reserve


@pytest.mark.parametrize(("free", "is_short"), [(9, True), (10, False), (0, True), (-1, False)])
def test_when_space_is_short(free: int, is_short: bool) -> None:
    assert DirectorySpace(free, 200, 10).is_short is is_short


async def start(files: MemoryFiles, config: BrokerConfig = CONFIG) -> tuple[LogManager, PartitionLog, PartitionLog]:
    """Return two logs, one on each disk, in the order of the disks."""
    files.free |= {"/disk1": ENOUGH, "/disk2": ENOUGH}
    logs = LogManager(files, VirtualClock(), config, disk_threads=inline_threads)
    await logs.start("cluster", 1)
    made = [logs.get_or_create(each, UUID(int=7), small_segments(), is_new=True) for each in (A0, A1)]
    first, second = sorted(made, key=lambda log: log.directory)
    return logs, first, second


def append(log: PartitionLog, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    if origin is AppendOrigin.REPLICATION:
        log.append_as_follower(batch(b"v", base_offset=log.log_end_offset, leader_epoch=0))
    else:
        log.append_as_leader(batch(b"v"), leader_epoch=0, origin=origin)


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


@pytest.mark.parametrize("origin", AppendOrigin)
def test_a_nearly_full_disk_refuses_every_kind_of_append_and_heals(files: MemoryFiles, origin: AppendOrigin) -> None:
    async def main() -> None:
        logs, log, elsewhere = await start(files)
        append(log, origin)
        content = log.read(0, max_bytes=1 << 20).load()
        files.free["/disk1"] = LITTLE
        await asyncio.sleep(1.5)
        with pytest.raises(KafkaStorageError) as refused:
            append(log, origin)
        for part in ("/disk1", str(LITTLE[0]), str(GIB), "log.dir.min.free.bytes"):
            assert part in str(refused.value)
        # Nothing was written, nothing is offline, reads continue, and the other disk is not affected.
        assert log.log_end_offset == 1
        assert files.size(log.active_segment.path()) == len(content)
        assert not log.is_offline
        assert not logs.offline_directories
        assert log.read(0, max_bytes=1 << 20).load() == content
        append(elsewhere, origin)
        files.free["/disk1"] = ENOUGH
        await asyncio.sleep(1.5)
        append(log, origin)
        assert log.log_end_offset == 2
        await logs.close()

    run(main())


def test_retention_continues_while_writes_are_refused(files: MemoryFiles) -> None:
    async def main() -> None:
        logs, log, _ = await start(files)
        for _ in range(20):
            append(log)
        log.high_watermark = 20
        files.free["/disk1"] = LITTLE
        await asyncio.sleep(1.5)
        logs.get_or_create(log.topic_partition, UUID(int=7), small_segments(retention_bytes=1))
        assert await logs.apply_retention() > 0
        assert log.log_start_offset > 0
        await logs.close()

    run(main())


def test_a_roll_measures_the_free_space_at_once(files: MemoryFiles) -> None:
    async def main() -> None:
        logs, log, _ = await start(files, replace(CONFIG, log_dir_free_check_interval_ms=10**9))
        await asyncio.sleep(100)
        files.free["/disk1"] = LITTLE
        append(log)
        while len(log.segments) == 1:
            append(log)
        await asyncio.sleep(0.01)
        with pytest.raises(KafkaStorageError, match=r"log\.dir\.min\.free\.bytes"):
            append(log)
        await logs.close()

    run(main())


def test_it_can_be_turned_off(files: MemoryFiles) -> None:
    async def main() -> None:
        logs, log, _ = await start(files, replace(CONFIG, log_dir_min_free_bytes=0))
        files.free["/disk1"] = (0, 100 * GIB)
        await asyncio.sleep(1.5)
        append(log)
        assert logs.space.of("/disk1") == DirectorySpace(0, 100 * GIB, 0)
        await logs.close()

    run(main())


def test_a_disk_that_cannot_be_measured_accepts_writes(files: MemoryFiles) -> None:
    async def main() -> None:
        logs, log, _ = await start(files)
        files.fail = lambda operation, path: (
            StorageError("no answer", path=path) if operation == "measure" and path == "/disk1" else None
        )
        files.free["/disk1"] = LITTLE
        await asyncio.sleep(1.5)
        append(log)
        files.fail = None
        await asyncio.sleep(1.5)
        with pytest.raises(KafkaStorageError):
            append(log)
        await logs.close()

    run(main())


def test_a_full_disk_fails_the_write_and_the_log_continues() -> None:
    """A burst between two measurements: the write fails, is undone, and the log works again when space is free."""

    async def main() -> None:
        files = MemoryFiles()
        logs, log, _ = await start(files)
        append(log)
        size = log.size_bytes
        files.capacity_bytes = files.capacity_bytes - files.room() + 10
        with pytest.raises(KafkaStorageError, match="no space"):
            append(log)
        assert (log.log_end_offset, log.size_bytes, log.is_offline) == (1, size, False)
        assert not logs.offline_directories
        files.capacity_bytes += 1 << 20
        append(log)
        assert log.log_end_offset == 2
        await logs.close()

    run(main())
