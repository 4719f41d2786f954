"""Segments that retention removes keep their names until a thread has renamed their files."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.types import TopicPartition
from odradek.log import disk_lock
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek_testkit.cleaning import settle, write_cleaned
from odradek_testkit.disk import MemoryFiles, PowerCutError
from odradek_testkit.inline_ports import StallingThreads
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, open_log, small_segments
from odradek_testkit.loop import ManualClock, VirtualClock, run_virtual

A0 = TopicPartition("a", 0)
TOPIC_ID = UUID(int=77)
BROKER = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1, log_dir_stall_timeout_ms=0)
CONFIG = small_segments(segment_bytes=200, file_delete_delay_ms=5_000)
"""Two records fill a segment."""


def fill(log: PartitionLog, records: int = 10) -> None:
    for _ in range(records):
        log.append_as_leader(batch(b"v"), leader_epoch=3)
    log.high_watermark = log.log_end_offset


def expire(log: PartitionLog, offset: int) -> int:
    log.delete_records_before(offset)
    return log.delete_expired(0)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def logs_in(files: MemoryFiles, directory: str = DIRECTORY, ending: str = ".log") -> list[int]:
    return [int(name.split(".")[0]) for name in files.list(directory) if name.endswith(ending)]


def first_offset(log: PartitionLog) -> int:
    return int.from_bytes(log.read(log.log_start_offset, max_bytes=1).load()[:8], "big")


@pytest.fixture
def host(files: MemoryFiles) -> RecordingHost:
    host = RecordingHost(files)
    host.holds_renames = True
    return host


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> PartitionLog:
    """A durable log with the segments 0, 2, 4, 6 and 8."""
    log = open_log(files, clock, host=host, config=CONFIG)
    fill(log)
    settle(log)
    files.sync_directory("/")
    return log


# In one log


def test_the_log_changes_at_once_and_the_names_later(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost
) -> None:
    held = log.read(0, max_bytes=1 << 20)
    operations = files.operations
    assert expire(log, 4) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 4)
    assert files.operations == operations
    assert logs_in(files) == [0, 2, 4, 6, 8]
    host.run_renames()
    assert logs_in(files) == [4, 6, 8]
    ((paths, delay_ms),) = host.removed
    assert delay_ms == 5_000
    assert [path for path in paths if ".log" in path] == [
        f"{DIRECTORY}/00000000000000000000.log.deleted",
        f"{DIRECTORY}/00000000000000000002.log.deleted",
    ]
    assert held.load()


@pytest.mark.parametrize("checkpointed", [0, 4, 6])
def test_segments_that_a_crash_brings_back_expire_again(
    log: PartitionLog, files: MemoryFiles, clock: ManualClock, checkpointed: int
) -> None:
    """Cut the power at each operation of the renames of two retention runs."""
    log.abandon()
    for done in range(100):
        crashed = files.fork()
        host = RecordingHost(crashed)
        host.holds_renames = True
        log = open_log(crashed, clock, host=host, config=CONFIG, recovery_point=10)
        log.high_watermark = 10
        assert (expire(log, 4), expire(log, 6)) == (2, 1)
        crashed.stop_after = crashed.operations + done
        try:
            host.run_renames()
        except PowerCutError:
            crashed.crash(Random(done))
        found = open_log(crashed, clock, config=CONFIG, recovery_point=10, log_start_offset=checkpointed)
        first = bases(found)[0]
        assert bases(found) == list(range(first, 10, 2))
        assert (found.log_start_offset, found.log_end_offset) == (max(checkpointed, first), 10)
        assert first_offset(found) == found.log_start_offset
        found.high_watermark = 10
        expire(found, 6)
        assert (bases(found), logs_in(crashed)) == ([6, 8], [6, 8])
        if host.removed:
            assert done > 10
            return
    raise AssertionError("the renames never end")


@pytest.mark.parametrize("offset", [0, 2, 3, 50])
def test_a_log_that_starts_again_gets_no_name_of_an_expired_segment(
    log: PartitionLog, files: MemoryFiles, clock: ManualClock, host: RecordingHost, offset: int
) -> None:
    expire(log, 4)
    log.truncate_fully_and_start_at(offset)
    log.append_as_follower(batch(b"new", base_offset=offset, leader_epoch=4))
    log.append_as_follower(batch(b"new", base_offset=offset + 1, leader_epoch=4))
    assert logs_in(files) == [offset]
    host.run_renames()
    assert logs_in(files) == [offset]
    log.flush()
    files.crash(Random(0))
    log = open_log(files, clock, config=CONFIG, log_start_offset=offset)
    assert (bases(log), log.log_end_offset) == ([offset], offset + 2)


def test_a_follower_whose_first_batch_begins_below_its_log_starts_again(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost
) -> None:
    log.delete_records_before(-1)
    log.delete_expired(0)
    log.truncate_to(8)
    log.append_as_follower(batch(b"v", b"v", b"v", base_offset=6, leader_epoch=4))
    host.run_renames()
    assert logs_in(files) == bases(log) == [6]


def test_a_truncation_within_the_log_waits_for_no_rename(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost
) -> None:
    expire(log, 4)
    log.truncate_to(5)
    fill(log, 6)
    assert logs_in(files)[:2] == [0, 2]
    host.run_renames()
    assert logs_in(files) == bases(log)
    assert bases(log)[0] == 4


def test_a_snapshot_that_is_gone_is_no_failure(log: PartitionLog, files: MemoryFiles, host: RecordingHost) -> None:
    expire(log, 4)
    assert 2 in logs_in(files, ending=".snapshot")
    log.truncate_to(5)
    assert 2 not in logs_in(files, ending=".snapshot")
    host.run_renames()
    assert not host.failures


def test_a_swap_follows_the_renames(log: PartitionLog, files: MemoryFiles, clock: ManualClock) -> None:
    """A cleaned segment may lack the tombstone of a record in an expired segment."""
    expire(log, 4)
    swap = write_cleaned(files, log, clock, 2, keeps=lambda header: header.base_offset != 5)
    changes: list[tuple[str, str]] = []
    files.on_change = lambda operation, path: changes.append((operation, path.removeprefix(f"{DIRECTORY}/")))
    assert log.swap_cleaned(swap)
    renamed = [name for operation, name in changes if operation == "rename"]
    assert renamed.index("00000000000000000002.log") < renamed.index("00000000000000000004.log.cleaned")
    assert logs_in(files) == bases(log)


def test_a_clean_stop_renames_what_waits(log: PartitionLog, files: MemoryFiles) -> None:
    expire(log, 4)
    log.close()
    assert logs_in(files) == [4, 6, 8]


# Threads


def test_a_deletion_waits_until_a_segment_is_renamed_whole(log: PartitionLog, files: MemoryFiles) -> None:
    expire(log, 4)
    in_rename, goes_on = Event(), Event()

    def stop_once(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("000.index"):
            in_rename.set()
            goes_on.wait()

    def delete() -> list[str]:
        log.release_names()
        return files.list(DIRECTORY)

    files.on_change = stop_once
    with ThreadPoolExecutor(2) as threads:
        renaming = threads.submit(log.expired.run)
        in_rename.wait()
        deleting = threads.submit(delete)
        while log.expired.is_waiting:
            pass
        assert not deleting.done()
        goes_on.set()
        renaming.result()
        left = deleting.result()
    assert [name for name in left if name.startswith("00000000000000000000.") and not name.endswith(".deleted")] == []
    assert [name for name in left if name.startswith("00000000000000000002.") and name.endswith(".deleted")] == []


@pytest.mark.parametrize("how", ["restart", "release"])
def test_the_loop_does_not_wait_forever_for_a_thread_that_renames(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(disk_lock, "LONGEST_WAIT_S", 0.01)
    expire(log, 4)

    def stuck(operation: str, path: str) -> None:
        files.on_change = None
        if how == "restart":
            with pytest.raises(KafkaStorageError, match="has not completed the rename of an expired segment"):
                log.truncate_fully_and_start_at(0)
        else:
            with pytest.raises(StorageError, match="has not completed the rename of an expired segment"):
                log.release_names()

    files.on_change = stuck
    host.run_renames()
    assert files.on_change is None
    assert len(host.failures) == (how == "restart")


# In a broker


class Disks:
    """A broker with two log directories, the first of which stalls on command, and a log in it."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.threads = StallingThreads()
        self.failed: list[str] = []
        self.logs = LogManager(
            files,
            VirtualClock(),
            BROKER,
            disk_threads=self.threads,
            on_directory_failure=lambda path, partitions: self.failed.append(path),
        )

    async def expired(self) -> PartitionLog:
        """Return a log whose segments 0 and 2 are expired and whose renames wait for the disk."""
        await self.logs.start("cluster", 1)
        log = self.make()
        fill(log)
        await asyncio.sleep(1)
        self.threads.stall("/disk1")
        assert expire(log, 4) == 2
        await asyncio.sleep(0)
        assert logs_in(self.files, "/disk1/a-0") == [0, 2, 4, 6, 8]
        return log

    def make(self) -> PartitionLog:
        self.logs.prefer(A0, "/disk1")
        return self.logs.get_or_create(A0, TOPIC_ID, CONFIG, is_new=True)

    async def resume(self) -> None:
        self.threads.resume("/disk1")
        await asyncio.sleep(1)

    def move(self, path: str) -> PartitionLog:
        current, future = self.logs.get(A0), self.logs.create_future(A0, path)
        assert current is not None
        while future.log_end_offset < current.log_end_offset:
            future.append_as_follower(memoryview(current.read(future.log_end_offset, max_bytes=1 << 20).load()))
        future.flush()
        self.logs.mark_future(future)
        return self.logs.swap_future(A0)


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


def test_a_slow_disk_renames_and_removes_later(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()
        assert expire(log, 6) == 1
        fill(log, 1)
        await disks.resume()
        assert logs_in(files, "/disk1/a-0") == bases(log) == [6, 8, 10]
        assert logs_in(files, "/disk1/a-0", ".log.deleted") == [0, 2, 4]
        await asyncio.sleep(5)
        assert logs_in(files, "/disk1/a-0", ".log.deleted") == []
        assert expire(log, 8) == 1
        await asyncio.sleep(6)
        assert [name for name in files.list("/disk1/a-0") if name.startswith("00000000000000000006")] == []
        await disks.logs.close()

    run(main())


def test_segments_that_expire_while_a_job_ends_are_renamed(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()
        disks.threads.resume("/disk1")
        assert expire(log, 6) == 1
        assert logs_in(files, "/disk1/a-0") == [4, 6, 8]
        await asyncio.sleep(1)
        assert logs_in(files, "/disk1/a-0") == [6, 8]
        await disks.logs.close()

    run(main())


@pytest.mark.parametrize("how", ["deletion", "move"])
def test_the_directory_of_a_log_is_not_renamed_during_a_rename_in_it(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(disk_lock, "LONGEST_WAIT_S", 0.01)

    async def main() -> None:
        disks = Disks(files)
        await disks.expired()

        def interrupt(operation: str, path: str) -> None:
            if operation == "rename" and path.endswith("/a-0/00000000000000000000.log"):
                files.on_change = None
                if how == "move":
                    assert disks.move("/disk2").directory == "/disk2/a-0"
                else:
                    with pytest.raises(KafkaStorageError, match="has not completed the rename"):
                        disks.logs.delete(A0)

        files.on_change = interrupt
        await disks.resume()
        assert disks.failed == ["/disk1"]
        assert logs_in(files, "/disk1/a-0") == [2, 4, 6, 8]
        await disks.logs.close()

    run(main())


def test_a_log_that_is_created_again_keeps_its_segments(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        await disks.expired()
        disks.logs.delete(A0)
        again = disks.make()
        fill(again, 5)
        await disks.resume()
        assert logs_in(files, "/disk1/a-0") == bases(again) == [0, 2, 4]
        assert expire(again, 2) == 1
        await asyncio.sleep(1)
        assert logs_in(files, "/disk1/a-0") == [2, 4]
        await disks.logs.close()

    run(main())


def test_a_log_that_moves_away_and_back_keeps_its_segments(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()
        assert bases(disks.move("/disk2")) == [4, 6, 8]
        moved = disks.move("/disk1")
        moved.truncate_fully_and_start_at(0)
        fill(moved, 5)
        assert moved.directory == log.directory == "/disk1/a-0"
        await disks.resume()
        assert logs_in(files, "/disk1/a-0") == bases(moved) == [0, 2, 4]
        assert not disks.failed
        await disks.logs.close()

    run(main())


def test_nothing_is_renamed_in_a_directory_that_is_offline(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()
        log.read_failed(StorageError("broken", path="/disk1"))
        assert disks.logs.is_offline(A0)
        await disks.resume()
        assert logs_in(files, "/disk1/a-0") == [0, 2, 4, 6, 8]
        await disks.logs.close()

    run(main())


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_rename_that_fails_takes_the_directory_offline(files: MemoryFiles, suffix: str) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()

        def fail(operation: str, path: str) -> StorageError | None:
            broken = operation == "rename" and path == f"/disk1/a-0/00000000000000000002{suffix}"
            return StorageError(f"cannot rename {path}: broken", path=path) if broken else None

        files.fail = fail
        await disks.resume()
        assert disks.failed == ["/disk1"]
        assert log.is_offline
        await disks.logs.close()

    run(main())


def test_a_stop_renames_what_no_thread_has_begun(files: MemoryFiles) -> None:
    async def main() -> None:
        disks = Disks(files)
        log = await disks.expired()
        await disks.resume()
        assert expire(log, 6) == 1
        await disks.logs.close()
        assert logs_in(files, "/disk1/a-0") == [6, 8]

    run(main())
