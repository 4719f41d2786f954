"""The files of moves between directories: start, cancellation, swap, and completion after a stop at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import InvalidTopicError, KafkaStorageError, LogDirNotFoundError, StorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.moves import MARKER_FILE
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek_testkit.disk import Fate, MemoryFiles, PowerCutError
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.logs import batch, small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

A0, LONG = TopicPartition("a", 0), TopicPartition("t" * 240, 0)
TOPIC_ID = UUID(int=77)
CONFIG = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1)


def after_a_power_cut(files: MemoryFiles) -> MemoryFiles:
    """Return the disk after a power failure that loses all unsynced data; the original disk does not change."""
    left = files.fork()
    left.crash(Random(0), (Fate.LOST,))
    return left


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


async def start(files: MemoryFiles, config: BrokerConfig = CONFIG) -> LogManager:
    logs = LogManager(files, VirtualClock(), config, disk_threads=inline_threads)
    await logs.start("cluster", 1)
    return logs


def make(logs: LogManager, records: int = 10, partition: TopicPartition = A0) -> PartitionLog:
    """A log on the first disk."""
    logs.prefer(partition, "/disk1")
    log = logs.get_or_create(partition, TOPIC_ID, small_segments(), is_new=True)
    for _ in range(records):
        log.append_as_leader(batch(b"v"), leader_epoch=3)
    log.high_watermark = log.log_end_offset
    return log


def copy(logs: LogManager) -> PartitionLog:
    """Fill the future log to the end and prepare the swap."""
    current, future = logs.get(A0), logs.future(A0)
    assert current is not None
    assert future is not None
    while future.log_end_offset < current.log_end_offset:
        future.append_as_follower(memoryview(current.read(future.log_end_offset, max_bytes=1 << 20).load()))
    future.flush()
    logs.mark_future(future)
    return future


def content(log: PartitionLog) -> bytes:
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


def names(files: MemoryFiles, disk: str, ending: str) -> list[str]:
    return [name for name in files.list(disk) if name.endswith(ending)]


def test_a_preferred_directory_counts_once(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        for number in range(3):
            partition = TopicPartition("p", number)
            logs.prefer(partition, "/disk2")
            log = logs.get_or_create(partition, TOPIC_ID, TopicConfig(), is_new=True)
            assert logs.directory_of(partition) == "/disk2"
            assert log.directory == f"/disk2/p-{number}"
        logs.delete(TopicPartition("p", 0))
        logs.get_or_create(TopicPartition("p", 0), TOPIC_ID, TopicConfig(), is_new=True)
        assert logs.directory_of(TopicPartition("p", 0)) == "/disk1"
        await logs.close()

    run(main())


def test_which_directories_there_are(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        assert logs.online_directory("/disk1/") == "/disk1"
        with pytest.raises(LogDirNotFoundError):
            logs.online_directory("/elsewhere")
        await logs.close()

    run(main())


def test_a_swap_keeps_records_marks_epochs_and_readers(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        log = make(logs)
        log.delete_records_before(4)
        log.assign_epoch_start(9, log.log_end_offset)
        log.append_as_leader(batch(b"w", producer_id=5, producer_epoch=1, base_sequence=0), leader_epoch=9)
        producers = log.active_producers()
        reader = log.read(4, max_bytes=1 << 20)
        kept = b"".join(log.read(offset, max_bytes=1).load() for offset in range(4, 11))
        logs.create_future(A0, "/disk2")
        assert logs.future_directory(A0) == "/disk2"
        (report,) = [one for one in logs.directories() if one.path == "/disk2"]
        assert (list(report.sizes), list(report.future_sizes)) == ([], [A0])
        future = copy(logs)
        held = reader.load()
        assert logs.swap_future(A0) is future
        assert logs.get(A0) is future
        assert logs.future(A0) is None
        assert (future.directory, future.topic_id) == ("/disk2/a-0", TOPIC_ID)
        assert (future.log_start_offset, future.high_watermark, future.log_end_offset) == (4, 10, 11)
        assert future.latest_epoch == 9
        assert future.end_offset_for_epoch(3).end_offset == 10
        assert future.active_producers() == producers
        assert content(future) == kept
        assert reader.load() == held
        future.append_as_leader(batch(b"x"), leader_epoch=9)
        assert not files.exists("/disk1/a-0")
        await asyncio.sleep(1)
        assert not files.exists(f"/disk2/a-0/{MARKER_FILE}")
        assert future.recovery_point == 12
        assert files.read("/disk2/recovery-point-offset-checkpoint") == b"0\n1\na 0 11\n"
        assert files.read("/disk1/recovery-point-offset-checkpoint") == b"0\n0\n"
        await asyncio.sleep(CONFIG.log_segment_delete_delay_ms / 1000)
        assert not names(files, "/disk1", "-delete")
        await logs.close()

        logs = await start(files)
        again = logs.get(A0)
        assert again is not None
        assert (again.directory, again.log_start_offset, again.log_end_offset) == ("/disk2/a-0", 4, 12)
        assert again.active_producers() == producers
        await logs.close()

    run(main())


def test_a_cancelled_move_leaves_nothing(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        log = make(logs)
        logs.create_future(A0, "/disk2")
        copy(logs)
        logs.drop_future(A0)
        logs.drop_future(A0)
        assert logs.get(A0) is log
        assert names(files, "/disk2", "-delete")
        await asyncio.sleep(CONFIG.log_segment_delete_delay_ms / 1000 + 1)
        assert not [name for name in files.list("/disk2") if name.startswith("a-0")]
        await logs.close()

    run(main())


def test_the_deletion_of_a_topic_cancels_its_move(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        make(logs)
        logs.create_future(A0, "/disk2")
        logs.delete(A0)
        assert logs.future(A0) is None
        await logs.close()
        logs = await start(files)
        assert logs.get(A0) is None
        await logs.close()

    run(main())


def test_a_name_that_is_too_long_to_move_is_refused(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        make(logs, 1, LONG)
        with pytest.raises(InvalidTopicError):
            logs.create_future(LONG, "/disk2")
        await logs.close()

    run(main())


def test_nothing_begins_to_move_while_a_directory_is_offline(files: MemoryFiles) -> None:
    async def main() -> None:
        files.fail = lambda operation, path: StorageError("dead", path=path) if path.startswith("/disk3") else None
        logs = await start(files, replace(CONFIG, log_dirs=("/disk1", "/disk2", "/disk3")))
        make(logs)
        with pytest.raises(KafkaStorageError, match="/disk3"):
            logs.create_future(A0, "/disk2")
        with pytest.raises(KafkaStorageError):
            logs.online_directory("/disk3")
        await logs.close()

    run(main())


@pytest.mark.parametrize("failing", ["/disk1", "/disk2"])
def test_a_directory_that_fails_in_a_move_leaves_the_other_copy_alone(files: MemoryFiles, failing: str) -> None:
    async def main() -> None:
        logs = await start(files)
        log = make(logs)
        future = logs.create_future(A0, "/disk2")
        copy(logs)
        blamed = log if failing == "/disk1" else future
        logs.directory_failed(blamed, StorageError("dead", path=failing))
        assert logs.future(A0) is None
        assert logs.is_offline(A0) is (failing == "/disk1")
        assert (logs.get(A0) is log) is (failing == "/disk2")
        await logs.close(clean=False)
        # With both directories online again, the move continues.
        logs = await start(files)
        assert [logs.directory_of(A0), logs.future_directory(A0)] == ["/disk1", "/disk2"]
        await logs.close()

    run(main())


@pytest.mark.parametrize("failing", ["/disk1", "/disk2"])
def test_a_rename_that_fails_in_the_swap_keeps_the_healthy_copy(files: MemoryFiles, failing: str) -> None:
    async def main() -> None:
        logs = await start(files)
        log = make(logs)
        logs.create_future(A0, "/disk2")
        future = copy(logs)
        files.fail = lambda operation, path: (
            StorageError("dead", path=path) if operation == "rename" and path.startswith(failing) else None
        )
        if failing == "/disk2":
            with pytest.raises(KafkaStorageError):
                logs.swap_future(A0)
        else:
            logs.swap_future(A0)
        assert logs.get(A0) is (log if failing == "/disk2" else future)
        assert logs.offline_directories == (failing,)
        assert not logs.is_offline(A0)
        await logs.close()

    run(main())


def test_interrupted_moves_are_completed_at_the_start(files: MemoryFiles) -> None:
    """A second future log is removed, and one without a current log becomes the current log."""

    async def main() -> None:
        logs = await start(files)
        make(logs)
        logs.create_future(A0, "/disk2")
        future = copy(logs)
        await logs.close()
        name = future.directory.rpartition("/")[2]
        files.make_directories(f"/disk1/{name.replace('a-0.', 'a-0.f')}")
        files.remove_tree("/disk1/a-0")
        logs = await start(files)
        log = logs.get(A0)
        assert log is not None
        assert logs.future(A0) is None
        await logs.close()

    run(main())


def test_a_future_log_alone_waits_for_directories_that_are_offline(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await start(files)
        make(logs)
        logs.create_future(A0, "/disk2")
        copy(logs)
        await logs.close()
        files.fail = lambda operation, path: StorageError("dead", path=path) if path.startswith("/disk1") else None
        logs = await start(files)
        assert (logs.get(A0), logs.future(A0)) == (None, None)
        await logs.close()
        files.fail = None
        logs = await start(files)
        assert (logs.directory_of(A0), logs.future_directory(A0)) == ("/disk1", "/disk2")
        await logs.close()

    run(main())


def test_a_swap_is_durable_when_it_is_done(files: MemoryFiles) -> None:
    """Otherwise a checkpoint without the old log, or another move, could coexist with an old log that reappears."""

    async def move() -> MemoryFiles:
        logs = await start(files)
        make(logs).flush()
        logs.create_future(A0, "/disk2")
        copy(logs)
        logs.swap_future(A0)
        left = after_a_power_cut(files)
        await logs.close()
        return left

    async def recover(left: MemoryFiles) -> None:
        assert left.exists("/disk2/a-0")
        assert not left.exists("/disk1/a-0")
        assert not left.exists(f"/disk2/a-0/{MARKER_FILE}")
        logs = await start(left)
        log = logs.get(A0)
        assert log is not None
        assert (log.directory, log.log_end_offset) == ("/disk2/a-0", 10)
        await logs.close()

    run(recover(run_virtual(move())))


@pytest.mark.parametrize("failing", ["/disk1", "/disk2"])
def test_a_swap_that_cannot_be_made_durable_ends_the_directory(files: MemoryFiles, failing: str) -> None:
    async def main() -> None:
        logs = await start(files)
        make(logs)
        logs.create_future(A0, "/disk2")
        copy(logs)

        def fail(operation: str, path: str) -> StorageError | None:
            is_meant = operation == "sync directory" and path == failing
            return StorageError("broken", path=path) if is_meant else None

        files.fail = fail
        future = logs.swap_future(A0)
        files.fail = None
        assert logs.offline_directories == (failing,)
        assert future.is_offline == (failing == "/disk2")
        # While the old log may reappear, the marker is kept, because it shows which log is newer.
        assert files.exists(f"/disk2/a-0/{MARKER_FILE}")
        await logs.close()

    run(main())


async def moved(files: MemoryFiles) -> int:
    """Play a complete move. Returns the durable and acknowledged end offset when the power failed, if it did."""
    logs = await start(files)
    log = make(logs, 6)
    log.flush()
    await logs.write_checkpoints()
    logs.create_future(A0, "/disk2")
    copy(logs)
    log.append_as_leader(batch(b"late"), leader_epoch=3)
    copy(logs)
    logs.swap_future(A0)
    await asyncio.sleep(1)
    await asyncio.sleep(CONFIG.log_segment_delete_delay_ms / 1000)
    await logs.close()
    return log.log_end_offset


def count_operations() -> int:
    files = MemoryFiles()
    run_virtual(moved(files))
    return files.operations


@pytest.mark.parametrize("seed", range(2))
def test_a_crash_at_any_point_of_a_move_loses_nothing_that_was_durable(seed: int) -> None:
    """After the flush of the first six records every power failure leaves one log with them, or a move to continue."""
    chance = Random(seed)
    played = 0
    for stop_after in range(count_operations()):
        files = MemoryFiles()
        files.stop_after = stop_after
        with suppress(PowerCutError, BaseExceptionGroup):  # or it happens only in a background task
            run_virtual(moved(files))
        is_flushed = files.exists("/disk2") and bool(names(files, "/disk2", "-future") or files.exists("/disk2/a-0"))
        files.crash(chance)
        if not is_flushed:
            continue
        played += 1

        async def recover(files: MemoryFiles = files, stop_after: int = stop_after) -> None:
            logs = await start(files)
            assert not logs.offline_directories, stop_after
            log = logs.get(A0)
            assert log is not None, stop_after
            assert log.log_end_offset >= 6, stop_after
            await logs.close()

        run_virtual(recover())
    assert played > 20
