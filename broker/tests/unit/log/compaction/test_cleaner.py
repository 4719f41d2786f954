"""The cleaner in virtual time: choice of logs, aborts and pauses, clean offsets, and failures."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.log.compaction.clean_offsets import CLEANER_CHECKPOINT_FILE
from odradek.log.compaction.cleaner import LogCleaner, Uncleanable
from odradek.log.compaction.cleaning_decisions import ABORT_FILE
from odradek_testkit.cleaning import records_of, settle
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import InlineWorkers
from odradek_testkit.logs import small_segments

from .cleaner_bench import COMPACT, CONFIG, A, B, Broker, run

T = TypeVar("T")

CHECKPOINT = f"/disk1/{CLEANER_CHECKPOINT_FILE}"


class HeldWorkers(InlineWorkers):
    """Workers whose functions start on request, so that the test can act during a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_run = asyncio.Event()

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        self.begun.set()
        await self.may_run.wait()
        return await super().run(function, *arguments)


def cleaned_offset(files: MemoryFiles) -> str:
    return files.read(CHECKPOINT).decode()


def test_a_dirty_log_is_cleaned_and_the_offset_checkpointed(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        before, end = log.size_bytes, log.cleanable()[-1].next_offset
        assert await broker.cleaner.clean_dirtiest()
        assert log.size_bytes < before / 2
        kept = [record.offset for record in records_of(log) if record.offset < end]
        assert kept == [end - 2, end - 1]
        assert cleaned_offset(files) == f"0\n1\na 0 {end}\n"
        assert not await broker.cleaner.clean_dirtiest()
        assert not [name for name in files.list(log.directory) if name.endswith((".cleaned", ".swap"))]
        await broker.stop()

    run(main())


def test_dirty_segments_do_not_wait_for_the_schedule_of_checkpoints(files: MemoryFiles) -> None:
    """Segments may be rewritten only below the checkpointed recovery point, which is written if necessary."""

    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        broker.fill(broker.make(B))
        log.checkpointed(0)
        assert not log.cleanable()
        waits = log.awaits_checkpoint
        assert waits
        before = log.size_bytes
        assert await broker.cleaner.clean_dirtiest()
        assert log.size_bytes < before / 2
        assert not log.awaits_checkpoint
        written = files.read("/disk1/recovery-point-offset-checkpoint")
        while await broker.cleaner.clean_dirtiest():
            pass
        assert f"a 0 {log.recovery_point}\n".encode() in written
        assert files.read("/disk1/recovery-point-offset-checkpoint") == written
        await broker.stop()

    run(main())


def test_the_schedule_cleans_by_itself_and_stops(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.cleaner.start()
        await asyncio.sleep(0.5)
        assert broker.workers.calls == 0
        broker.fill(log)
        before = log.size_bytes
        await asyncio.sleep(1)
        assert log.size_bytes < before / 2
        assert broker.workers.calls == 1
        await broker.stop()

    run(main())


def test_it_can_be_turned_off(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files, config=replace(CONFIG, log_cleaner_enable=False))
        await broker.start()
        broker.fill(broker.make())
        broker.cleaner.start()
        await asyncio.sleep(100)
        assert broker.workers.calls == 0
        await broker.stop()

    run(main())


def test_only_compacted_topics_are_cleaned_and_only_once_their_settings_are_known(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files, config=replace(CONFIG, log_cleanup_policy=("compact",)))
        await broker.start()
        broker.fill(broker.make(B, small_segments(cleanup_policy=("delete",))))
        log = broker.make(A)
        broker.fill(log)
        await broker.stop()

        broker = Broker(files, config=replace(CONFIG, log_cleanup_policy=("compact",)))
        await broker.start()
        for known in broker.logs.logs():
            known.high_watermark = known.log_end_offset
        assert not await broker.cleaner.clean_dirtiest()
        broker.make(A)
        assert await broker.cleaner.clean_dirtiest()
        assert not await broker.cleaner.clean_dirtiest()
        assert broker.workers.calls == 1
        await broker.stop()

    run(main())


def test_the_dirtiest_comes_first(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        first, second = broker.make(A), broker.make(B)
        broker.fill(first)
        clean = first.cleanable()[-1].next_offset
        assert await broker.cleaner.clean_dirtiest()
        broker.fill(first)
        broker.fill(second)
        views = first.cleanable()
        ratio = sum(each.size for each in views if each.base_offset >= clean) / sum(each.size for each in views)
        before = first.size_bytes
        assert await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.max_dirty_ratio == 1.0
        assert (first.size_bytes, second.size_bytes < before) == (before, True)
        assert await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.max_dirty_ratio == pytest.approx(ratio)
        assert first.size_bytes < before
        await broker.stop()

    run(main())


def test_the_clean_offset_outlives_a_restart(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        assert await broker.cleaner.clean_dirtiest()
        await broker.stop()
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        log.high_watermark = log.log_end_offset
        assert not await broker.cleaner.clean_dirtiest()
        await broker.stop()

    run(main())


@pytest.mark.parametrize("content", [b"rubbish", b"0\n1\na 0 999999\n"])
def test_an_invalid_clean_offset_is_ignored(files: MemoryFiles, content: bytes) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        files.write_atomically(CHECKPOINT, content)
        end = log.cleanable()[-1].next_offset
        assert await broker.cleaner.clean_dirtiest()
        assert cleaned_offset(files) == f"0\n1\na 0 {end}\n"
        await broker.stop()

    run(main())


def test_removed_partitions_are_dropped_from_the_checkpoint(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        for partition in (A, B):
            broker.fill(broker.make(partition))
            assert await broker.cleaner.clean_dirtiest()
        assert len(cleaned_offset(files).splitlines()) == 4
        broker.logs.delete(A)
        broker.fill(broker.make(B), rounds=60)
        assert await broker.cleaner.clean_dirtiest()
        assert "a 0" not in cleaned_offset(files)
        await broker.stop()

    run(main())


def test_a_dead_worker_is_counted_and_the_pass_tried_again_later(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        before = log.size_bytes
        broker.workers.dying = 2
        broker.cleaner.start()
        await asyncio.sleep(0.1)
        assert (broker.cleaner.worker_deaths, broker.cleaner.dead_threads, broker.workers.calls) == (1, 1, 1)
        await asyncio.sleep(1.1)
        assert broker.workers.calls == 2
        # The second wait is twice the first.
        await asyncio.sleep(1.0)
        assert broker.workers.calls == 2
        await asyncio.sleep(1.5)
        assert (broker.cleaner.worker_deaths, broker.cleaner.dead_threads, broker.workers.calls) == (2, 0, 3)
        assert log.size_bytes < before / 2
        await broker.stop()

    run(main())


def test_threads_come_and_go_with_their_setting(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        for number in range(3):
            broker.fill(broker.make(TopicPartition(f"of {number}", 0)))
        broker.workers.dying = 3
        two = replace(broker.config, log_cleaner_threads=2)
        broker.cleaner.update_config(two)
        assert broker.workers.calls == 0, "not started yet"
        broker.cleaner.start()
        await asyncio.sleep(0.1)
        assert broker.cleaner.dead_threads == 2
        broker.cleaner.update_config(replace(two, log_cleaner_threads=3))
        await asyncio.sleep(0.1)
        assert broker.cleaner.dead_threads == 3
        broker.cleaner.update_config(replace(two, log_cleaner_threads=1))
        await asyncio.sleep(5)
        assert broker.cleaner.dead_threads == 0
        assert len([task for task in asyncio.all_tasks() if task.get_name().startswith("log-cleaner-")]) == 1
        await broker.stop()
        broker.cleaner.update_config(two)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("log-cleaner-")]

    run(main())


def test_a_corrupt_log_is_skipped_and_counted(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log, other = broker.make(A), broker.make(B)
        broker.fill(log)
        files.open(log.segments[0].path()).pwritev((b"\xff",), 100)
        before = files.list(log.directory)
        assert not await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.uncleanable["/disk1"] == Uncleanable(1, sum(each.size for each in log.cleanable()))
        assert files.list(log.directory) == before
        assert not await broker.cleaner.clean_dirtiest()
        assert broker.workers.calls == 1
        broker.fill(other)
        assert await broker.cleaner.clean_dirtiest()
        broker.logs.delete(A)
        assert not await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.uncleanable["/disk1"] == Uncleanable(0, 0)
        assert broker.failures == []
        await broker.stop()

    run(main())


def test_a_full_disk_ends_the_pass_and_nothing_else(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        before = files.list(log.directory)

        def full(operation: str, path: str, node: object = None) -> None:
            if operation == "write" and path.endswith(".log.cleaned"):
                raise StorageError("no space is left", path=path, full=True)

        files.step, step = full, files.step  # type: ignore[method-assign]
        assert not await broker.cleaner.clean_dirtiest()
        files.step = step  # type: ignore[method-assign]
        assert files.list(log.directory) == before
        assert broker.failures == []
        await asyncio.sleep(1.5)
        assert await broker.cleaner.clean_dirtiest()
        await broker.stop()

    run(main())


def test_a_failing_disk_takes_its_directory_offline(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        broker.fill(broker.make())

        def failing(operation: str, path: str, node: object = None) -> None:
            if path.endswith(".cleaned"):
                raise StorageError(f"{operation}: {errno.errorcode[errno.EIO]}", path=path)

        files.step, step = failing, files.step  # type: ignore[method-assign]
        assert not await broker.cleaner.clean_dirtiest()
        files.step = step  # type: ignore[method-assign]
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert broker.failures == ["/disk1"]
        assert broker.logs.get(A) is None
        await broker.stop()

    run(main())


# Pauses


async def begin_held(broker: Broker) -> tuple[LogCleaner, HeldWorkers, asyncio.Task[bool]]:
    workers = HeldWorkers()
    cleaner = broker.cleaner_with(workers)
    task = asyncio.create_task(cleaner.clean_dirtiest())
    await workers.begun.wait()
    return cleaner, workers, task


def test_a_pass_is_aborted_and_paused_and_resumed(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        before = files.list(log.directory)
        cleaner, workers, task = await begin_held(broker)
        pause = asyncio.create_task(cleaner.abort_and_pause(A))
        await asyncio.sleep(0.01)
        assert not pause.done()
        workers.may_run.set()
        await pause
        assert await task is False
        assert files.list(log.directory) == before
        await cleaner.abort_and_pause(A)
        assert not await cleaner.clean_dirtiest()
        cleaner.resume(A)
        assert not await cleaner.clean_dirtiest()
        cleaner.resume(A)
        with pytest.raises(ValueError, match="not paused"):
            cleaner.resume(A)
        assert await cleaner.clean_dirtiest()
        await broker.stop()

    run(main())


def test_two_cleaners_never_take_one_log(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        broker.fill(broker.make())
        cleaner, workers, task = await begin_held(broker)
        assert not await cleaner.clean_dirtiest(1)
        workers.may_run.set()
        assert await task
        await broker.stop()

    run(main())


def test_a_log_that_was_truncated_meanwhile_is_not_touched(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make()
        broker.fill(log)
        _, workers, task = await begin_held(broker)
        log.truncate_to(log.log_end_offset - 3)
        await asyncio.sleep(1.1)
        assert files.exists(f"{log.directory}/{ABORT_FILE}")
        before = log.size_bytes
        workers.may_run.set()
        assert await task is False
        assert log.size_bytes == before
        assert not [name for name in files.list(log.directory) if name.endswith((".cleaned", ABORT_FILE))]
        settle(log)
        assert await broker.cleaner.clean_dirtiest()
        await broker.stop()

    run(main())


def test_records_after_a_truncation_are_dirty(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make(A, replace(COMPACT, min_cleanable_dirty_ratio=0.0))
        broker.fill(log, keys=1)
        assert await broker.cleaner.clean_dirtiest()
        clean = log.active_segment.base_offset
        log.truncate_to(clean - 8)
        begin = log.log_end_offset
        broker.fill(log, keys=2, rounds=3, leader_epoch=1)
        assert begin < log.log_end_offset <= clean
        broker.fill(log, keys=1, rounds=30, leader_epoch=1)
        assert await broker.cleaner.clean_dirtiest()
        end = log.active_segment.base_offset
        kept = [(record.offset, record.key) for record in records_of(log) if record.offset < end]
        assert kept == [(begin + 5, b"key 1"), (end - 1, b"key 0")]
        await broker.stop()

    run(main())


def test_a_log_that_was_deleted_meanwhile_ends_the_pass(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        broker.fill(broker.make())
        cleaner, workers, task = await begin_held(broker)
        broker.logs.delete(A)
        await asyncio.sleep(2)
        workers.may_run.set()
        assert await task is False
        assert cleaner.uncleanable["/disk1"] == Uncleanable(0, 0)
        assert broker.failures == []
        await broker.stop()

    run(main())


def test_retention_that_removed_a_segment_meanwhile_leaves_the_log_sound(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make(A, replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=2500))
        broker.fill(log, keys=1, rounds=40)
        cleaner, workers, task = await begin_held(broker)
        assert log.delete_expired(broker.clock.wall_ms()) > 0
        workers.may_run.set()
        assert await task is False
        assert [record.offset for record in records_of(log)][-1] == 39
        assert log.log_start_offset > 0
        assert await cleaner.clean_dirtiest()
        assert [record.offset for record in records_of(log) if record.offset < log.active_segment.base_offset] == [
            log.active_segment.base_offset - 1
        ]
        await broker.stop()

    run(main())


def test_max_compaction_lag_makes_a_log_due_below_its_ratio(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        log = broker.make(A, replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000))
        broker.fill(log)
        assert not await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.max_compaction_delay_seconds == 0
        await asyncio.sleep(100)
        assert await broker.cleaner.clean_dirtiest()
        assert broker.cleaner.max_compaction_delay_seconds == 40
        await broker.stop()

    run(main())


def test_numbers_of_the_last_pass(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        await broker.start()
        broker.fill(broker.make(), rounds=100)
        assert (broker.cleaner.recopy_percent, broker.cleaner.max_buffer_utilization_percent) == (0, 0)
        assert await broker.cleaner.clean_dirtiest()
        assert 0 < broker.cleaner.recopy_percent < 20
        assert broker.cleaner.max_clean_time_seconds >= 0
        assert broker.cleaner.since_last_run_ms == 0
        await asyncio.sleep(3)
        assert broker.cleaner.since_last_run_ms == 3000
        await broker.stop()

    run(main())
