"""Loading of all directories: failures, ignored directories, and progress messages of the recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.loading import RecoveryProgress
from odradek.log.log_manager import LogManager
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import inline_threads, threads_that
from odradek_testkit.logs import batch
from odradek_testkit.loop import VirtualClock, run_virtual

T = TypeVar("T")

CONFIG = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


async def start(files: MemoryFiles, config: BrokerConfig = CONFIG) -> LogManager:
    logs = LogManager(files, VirtualClock(), config, disk_threads=inline_threads)
    await logs.start("cluster", 1)
    return logs


def test_the_progress_of_a_recovery_is_reported() -> None:
    progress = RecoveryProgress("/disk1", 3)
    progress.sizes = {"/disk1/a-0": 5 << 20, "/disk1/a-1": 3 << 20, "/disk1/a-2": 1 << 20}
    progress.loaded("/disk1/a-1")
    assert str(progress) == "/disk1: 1 of 3 logs are recovered, 3 of 9 MiB"


def test_a_long_recovery_ends_its_reports(files: MemoryFiles) -> None:
    """Each log takes a minute here; no task of the progress messages is left when loading has ended."""

    async def main() -> None:
        logs = await start(files)
        for number in range(4):
            log = logs.get_or_create(TopicPartition("a", number), UUID(int=7), TopicConfig(), is_new=True)
            log.append_as_leader(batch(b"v"), leader_epoch=0)
        await logs.close(clean=False)

        async def slowly(function: Callable[[], T]) -> T:
            await asyncio.sleep(60)
            return function()

        clock, config = VirtualClock(), replace(CONFIG, log_dir_stall_timeout_ms=0)

        def run_blocking(function: Callable[[], T], /) -> Awaitable[T]:
            return slowly(function)

        logs = LogManager(files, clock, config, disk_threads=threads_that(run_blocking))
        started_ms = clock.monotonic_ms()
        await logs.start("cluster", 1)
        # Two directories at once, one log of each at a time.
        assert clock.monotonic_ms() - started_ms < 8 * 60_000
        assert {log.log_end_offset for log in logs.logs()} == {1}
        await logs.close()

    run_virtual(main())


@pytest.mark.parametrize("operation", ["create", "read", "list", "rename"])
def test_a_disk_that_fails_at_the_start_takes_its_own_logs_only(files: MemoryFiles, operation: str) -> None:
    async def main() -> None:
        logs = await start(files)
        for partition in (A0, A1):
            logs.get_or_create(partition, UUID(int=7), TopicConfig(), is_new=True)
        bad = logs.directory_of(A0)
        await logs.close(clean=False)
        assert bad is not None
        files.fail = lambda name, path: (
            StorageError("dead", path=path) if name == operation and path.startswith(bad) else None
        )
        logs = await start(files)
        assert logs.get(A1) is not None
        assert bad in logs.offline_directories or logs.get(A0) is not None
        await logs.close()

    run_virtual(main())


def test_a_read_only_disk_is_offline_and_not_the_broker(files: MemoryFiles) -> None:
    """Not even its lock can be taken; only a lock of another process prevents the broker from starting."""

    async def main() -> None:
        files.fail = lambda name, path: (
            StorageError("read-only", path=path) if path.startswith("/disk1") and name not in ("read", "list") else None
        )
        logs = await start(files)
        assert logs.offline_directories == ("/disk1",)
        await logs.close()

    run_virtual(main())


def test_what_was_deleted_or_moved_since_does_not_fail_with_its_old_directory(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        for partition in (A0, A1):
            logs.prefer(partition, "/disk1")
            logs.get_or_create(partition, UUID(int=7), TopicConfig(), is_new=True)
        await logs.close()

        logs = await start(files)
        logs.create_future(A0, "/disk2")
        logs.swap_future(A0)
        logs.delete(A1)
        other = logs.get_or_create(TopicPartition("b", 0), UUID(int=8), TopicConfig(), is_new=True)
        assert logs.directory_of(other.topic_partition) == "/disk1"
        logs.directory_failed(other, StorageError("dead", path="/disk1"))
        assert [logs.is_offline(tp) for tp in (A0, A1, other.topic_partition)] == [False, False, True]
        await logs.close()

    run_virtual(main())


def test_stray_and_unknown_directories_are_ignored(files: MemoryFiles) -> None:
    async def main() -> None:
        names = ["a-0.0123-stray", "lost+found", "notes"]
        for name in names:
            files.make_directories(f"/disk1/{name}")
        logs = await start(files)
        assert not logs.logs()
        await logs.close()
        assert set(names) <= set(files.list("/disk1"))

    run_virtual(main())


def test_an_error_other_than_a_full_disk_fails_the_directory_at_a_roll(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        log = logs.get_or_create(A0, UUID(int=7), replace(TopicConfig(), segment_bytes=100), is_new=True)
        log.append_as_leader(batch(b"v"), leader_epoch=0)
        files.fail = lambda name, path: StorageError("dead", path=path) if name == "create" else None
        with pytest.raises(KafkaStorageError, match="offline"):
            log.append_as_leader(batch(b"w"), leader_epoch=0)
        assert logs.offline_directories == (log.directory.rpartition("/")[0],)
        await logs.close()

    run_virtual(main())
