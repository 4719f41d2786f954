"""Log directories whose disks do not answer, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import KafkaStorageError, RequestTimedOutError, StorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.moves import MARKER_FILE
from odradek.log.directories.stall_watch import CHECK_FILE
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek_testkit.disk import Fate, MemoryFiles
from odradek_testkit.inline_ports import StallingThreads
from odradek_testkit.logs import batch, small_segments
from odradek_testkit.loop import VirtualClock, VirtualLoop, run_virtual

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ONE, TWO = "/disk1", "/disk2"
CONFIG = replace(BrokerConfig(), log_dirs=(ONE, TWO), broker_id=1)
"""Stall timeout 30 s, checks every 5 s."""
UNCHECKED = replace(CONFIG, log_dir_check_interval_ms=0)


class Bench:
    """A log manager with a log on each of two disks, which stall on command."""

    def __init__(self, files: MemoryFiles, config: BrokerConfig) -> None:
        self.files = files
        self.clock = VirtualClock()
        self.disks = StallingThreads()
        self.failed: list[tuple[str, frozenset[TopicPartition]]] = []
        self.fatal: list[str] = []
        self.logs = LogManager(
            files,
            self.clock,
            config,
            disk_threads=self.disks,
            on_directory_failure=lambda path, gone: self.failed.append((path, gone)),
            on_fatal=self.fatal.append,
        )

    async def start(self, settings: TopicConfig | None = None) -> tuple[PartitionLog, PartitionLog]:
        """Return a log on disk 1 and one on disk 2."""
        await self.logs.start("cluster", 1)
        made = []
        for partition, path in ((A0, ONE), (A1, TWO)):
            self.logs.prefer(partition, path)
            made.append(self.logs.get_or_create(partition, UUID(int=7), settings or small_segments(), is_new=True))
        await self.clock.sleep_ms(100)
        return made[0], made[1]

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition; return how many milliseconds that took."""
        began_ms = self.clock.monotonic_ms()
        async with asyncio.timeout(3600):
            while not condition():
                await self.clock.sleep_ms(50)
        return self.clock.monotonic_ms() - began_ms

    def reason(self, path: str) -> str | None:
        """Why a directory is offline."""
        return next(report.failure for report in self.logs.directories() if report.path == path)


def run(main: Callable[[Bench], Coroutine[Any, Any, None]], files: MemoryFiles, config: BrokerConfig = CONFIG) -> None:
    async def with_bench() -> None:
        bench = Bench(files, config)
        try:
            await main(bench)
        finally:
            await bench.logs.close()

    run_virtual(with_bench())


def fill(log: PartitionLog) -> None:
    """Append until a segment rolls, which requests a flush."""
    segments = len(log.segments)
    while len(log.segments) == segments:
        log.append_as_leader(batch(b"v" * 100), leader_epoch=0)


def test_a_stalled_directory_goes_offline_and_the_other_one_works_on(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        stuck, healthy = await bench.start()
        bench.disks.stall(ONE)
        fill(stuck)
        fill(healthy)
        await bench.until(lambda: healthy.recovery_point > 0)
        assert not bench.failed, "the other flush is complete long before the timeout"
        point = stuck.recovery_point

        waited_ms = await bench.until(lambda: bool(bench.failed))
        assert bench.failed == [(ONE, frozenset({A0}))]
        assert 28_000 <= waited_ms <= 33_000
        reason = bench.reason(ONE)
        assert reason is not None
        assert reason.startswith("log directory /disk1 does not answer: the sync of /disk1/a-0 has been running for 3")
        assert "log.dir.stall.timeout.ms=30000" in reason
        assert "restart the broker" in reason
        assert bench.logs.is_offline(A0)
        with pytest.raises(KafkaStorageError, match="does not answer"):
            stuck.append_as_leader(batch(b"v"), leader_epoch=0)

        bench.disks.resume(ONE)
        await asyncio.sleep(0)
        touched = watch(files, ONE)
        fill(healthy)
        await bench.logs.write_checkpoints()
        await bench.logs.checkpoint_high_watermarks({A0: 1, A1: 1})
        await bench.clock.sleep_ms(120_000)
        assert stuck.recovery_point == point, "the late end of the sync changes nothing"
        assert not touched, "an offline directory is not used again"
        assert bench.logs.get(A1) is healthy
        assert not bench.fatal

    run(main, files)


def watch(files: MemoryFiles, directory: str) -> list[tuple[str, str]]:
    """Return a list that receives the operations in a directory from now on."""
    seen: list[tuple[str, str]] = []

    def note(operation: str, path: str) -> None:
        if path.startswith(directory):
            seen.append((operation, path))

    files.fail = note
    return seen


def test_retention_does_not_use_a_disk_that_does_not_answer(files: MemoryFiles) -> None:
    """It renames files on the event loop, which would wait for the disk."""

    async def main(bench: Bench) -> None:
        stuck, healthy = await bench.start(small_segments(retention_ms=1))
        fill(stuck)
        fill(healthy)
        stuck.high_watermark, healthy.high_watermark = stuck.log_end_offset, healthy.log_end_offset
        bench.disks.stall(ONE)
        await bench.clock.sleep_ms(20_000)
        assert not bench.failed
        touched = watch(files, ONE)
        assert await bench.logs.apply_retention() > 0
        assert healthy.log_start_offset > 0
        assert not touched
        bench.disks.resume(ONE)
        await asyncio.sleep(0)
        assert await bench.logs.apply_retention() > 0

    run(main, files)


def test_an_idle_directory_that_stalls_is_noticed(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await bench.clock.sleep_ms(60_000)
        bench.disks.stall(TWO)
        waited_ms = await bench.until(lambda: bool(bench.failed))
        assert waited_ms <= 30_000 + 5_000 + 2_000
        assert bench.failed == [(TWO, frozenset({A1}))]
        reason = bench.reason(TWO)
        assert reason is not None
        assert f"the write and sync of /disk2/{CHECK_FILE} has been running for 3" in reason
        bench.disks.resume(TWO)

    run(main, files, replace(CONFIG, log_dir_free_check_interval_ms=3_600_000))


def test_a_slow_disk_that_still_completes_its_checks_stays_online(files: MemoryFiles) -> None:
    """A sync of a large segment takes longer than the stall timeout."""

    async def main(bench: Bench) -> None:
        slow, _ = await bench.start()
        bench.disks.stall(ONE)
        fill(slow)
        await bench.until(lambda: bench.disks.waiting(ONE) > 0)
        bench.disks.accept(ONE)
        await bench.clock.sleep_ms(120_000)
        assert not bench.failed
        assert slow.recovery_point == 0
        bench.disks.resume(ONE)
        await bench.until(lambda: slow.recovery_point > 0)

    run(main, files)


def test_a_directory_whose_disk_answered_while_the_process_was_paused_stays_online(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        slow, _ = await bench.start()
        bench.disks.stall(ONE)
        fill(slow)
        await bench.until(lambda: bench.disks.waiting(ONE) > 0)
        await bench.clock.sleep_ms(CONFIG.log_dir_stall_timeout_ms - 700)
        assert not bench.failed
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.pause(60_000)
        # The watch looks before the loop sees the results of the threads.
        loop.call_later(0.01, bench.disks.resume, ONE)
        await bench.clock.sleep_ms(120_000)
        assert not bench.failed
        assert slow.recovery_point > 0

    run(main, files)


def test_a_directory_whose_check_fails_goes_offline(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        files.fail = lambda operation, path: (
            StorageError("cannot sync: input/output error", path=path) if path == f"{ONE}/{CHECK_FILE}" else None
        )
        await bench.until(lambda: bool(bench.failed))
        assert bench.failed == [(ONE, frozenset({A0}))]
        assert bench.reason(ONE) == "cannot sync: input/output error"

    run(main, files)


def test_a_full_disk_answers(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        files.fail = lambda operation, path: (
            StorageError("no space left", path=path, full=True) if path == f"{ONE}/{CHECK_FILE}" else None
        )
        await bench.clock.sleep_ms(300_000)
        assert not bench.failed

    run(main, files)


def test_checks_can_be_disabled(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await bench.clock.sleep_ms(60_000)
        assert not files.exists(f"{ONE}/{CHECK_FILE}")

    run(main, files, UNCHECKED)


def test_without_a_timeout_a_stalled_directory_stays_online(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        stuck, _ = await bench.start()
        bench.disks.stall(ONE)
        fill(stuck)
        await bench.clock.sleep_ms(3_600_000)
        assert not bench.failed
        bench.disks.resume(ONE)
        await bench.until(lambda: stuck.recovery_point > 0)

    run(main, files, replace(CONFIG, log_dir_stall_timeout_ms=0))


def test_the_lock_of_a_stalled_directory_is_held_while_a_job_runs(files: MemoryFiles) -> None:
    """The late job may still write, so no other broker may use the directory."""

    async def main(bench: Bench) -> None:
        stuck, _ = await bench.start()
        bench.disks.stall(ONE)
        fill(stuck)
        await bench.until(lambda: bool(bench.failed))
        with pytest.raises(StorageError) as held:
            files.lock(f"{ONE}/.lock")
        assert held.value.held
        bench.disks.resume(ONE)
        await asyncio.sleep(0)
        files.lock(f"{ONE}/.lock")()

    run(main, files)


def test_a_shutdown_waits_for_a_stalled_directory_no_longer_than_the_timeout(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        stuck, healthy = await bench.start()
        fill(stuck)
        bench.disks.stall(ONE)
        began_ms = bench.clock.monotonic_ms()
        await bench.logs.close()
        assert bench.clock.monotonic_ms() - began_ms <= 33_000
        assert bench.logs.offline_directories == (ONE,)
        assert healthy.recovery_point == healthy.log_end_offset
        assert files.exists(f"{TWO}/.kafka_cleanshutdown")
        bench.disks.resume(ONE)
        await asyncio.sleep(0)
        assert not files.exists(f"{ONE}/.kafka_cleanshutdown"), "the next start recovers it"

    run(main, files)


def test_a_directory_that_stalls_while_the_broker_starts_is_offline(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        bench.disks.stall(ONE)
        await bench.logs.start("cluster", 1)
        assert bench.logs.offline_directories == (ONE,)
        assert bench.logs.online_directories == (TWO,)
        reason = bench.reason(ONE)
        assert reason is not None
        assert "the opening of /disk1 has been running for 300" in reason
        bench.disks.resume(ONE)
        await asyncio.sleep(0)
        files.lock(f"{ONE}/.lock")()

    run(main, files)


async def interrupt_move(bench: Bench) -> None:
    """Move a log from disk 1 to disk 2, as if the broker were killed before the old log's directory was renamed."""
    await bench.start()
    future = bench.logs.create_future(A0, TWO)
    bench.logs.mark_future(future)
    await bench.logs.close()
    bench.files.rename(future.directory, f"{TWO}/{A0}")


def stall_at(bench: Bench, operation: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let disk 1 stall when the operation is done on a path."""
    wrapped = getattr(bench.files, operation)

    def run_operation(at: str) -> object:
        if at == path:
            bench.disks.stall(ONE)
        return wrapped(at)

    monkeypatch.setattr(bench.files, operation, run_operation)


@pytest.mark.parametrize(
    ("operation", "path", "reason"),
    [
        ("list", TWO, "the search for interrupted moves in /disk1 has been running for 30"),
        ("exists", f"{TWO}/{A0}/{MARKER_FILE}", "the completion of moves in /disk1 has been running for 30"),
    ],
)
def test_a_disk_that_stalls_while_moves_are_completed_does_not_stop_the_start_with_the_others(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, operation: str, path: str, reason: str
) -> None:
    """Without checks the job itself shows the stall."""

    async def main(bench: Bench) -> None:
        await interrupt_move(bench)
        again = Bench(files, UNCHECKED)
        stall_at(again, operation, path, monkeypatch)
        await again.logs.start("cluster", 1)
        monkeypatch.undo()
        assert again.logs.online_directories == (TWO,)
        found = again.reason(ONE)
        assert found is not None
        assert reason in found
        assert {str(log.topic_partition): log.directory for log in again.logs.logs()} == {
            "a-0": f"{TWO}/{A0}",
            "a-1": f"{TWO}/{A1}",
        }
        assert files.exists(f"{TWO}/{A0}/{MARKER_FILE}"), "the old log still exists, so the marker is kept"
        assert files.exists(f"{ONE}/{A0}")
        await again.logs.close()
        again.disks.resume(ONE)

        last = Bench(files, CONFIG)
        await last.logs.start("cluster", 1)
        assert last.logs.online_directories == (ONE, TWO)
        assert last.logs.directory_of(A0) == TWO
        assert not files.exists(f"{TWO}/{A0}/{MARKER_FILE}")
        assert not files.exists(f"{ONE}/{A0}")
        await last.logs.close()

    run(main, files)


def test_the_broker_stops_when_all_directories_stall(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        bench.disks.stall(ONE)
        bench.disks.stall(TWO)
        await bench.until(lambda: bool(bench.fatal))
        assert bench.fatal == ["all log directories are offline; /disk2 failed last"]
        bench.disks.resume(ONE)
        bench.disks.resume(TWO)

    run(main, files)


def test_a_deletion_waits_at_most_a_second_for_a_stalled_disk(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        stuck, _ = await bench.start()
        bench.disks.stall(ONE)
        began_ms = bench.clock.monotonic_ms()
        bench.logs.delete(A0)
        assert isinstance((await bench.logs.undurable_deletions([A0, A1]))[A0], RequestTimedOutError)
        assert 900 <= bench.clock.monotonic_ms() - began_ms <= 1_100
        bench.disks.resume(ONE)
        assert not await bench.logs.undurable_deletions([A0])
        left = files.fork()
        left.crash(Random(0), (Fate.LOST,))
        assert not left.exists(stuck.directory)

    run(main, files)


def test_a_deletion_during_a_sync_of_an_earlier_one_waits_for_the_next_sync(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        bench.disks.stall(ONE)
        bench.logs.delete(A0)
        await bench.until(lambda: bench.disks.waiting(ONE) > 0)
        bench.logs.prefer(A0, ONE)
        bench.logs.get_or_create(A0, UUID(int=8), small_segments(), is_new=True)
        bench.logs.delete(A0)
        # The first sync ends, and the second one waits.
        bench.disks.resume(ONE)
        bench.disks.stall(ONE)
        await bench.clock.sleep_ms(10)
        assert (await bench.logs.undurable_deletions([A0], waits=False)).keys() == {A0}
        bench.disks.resume(ONE)
        assert not await bench.logs.undurable_deletions([A0])

    run(main, files)


def test_a_deletion_whose_directory_failed_before_it_was_durable_is_an_error(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        bench.disks.stall(ONE)
        bench.logs.delete(A0)
        bench.logs.delete(A1)
        await bench.until(lambda: bool(bench.failed))
        assert bench.failed == [(ONE, frozenset())]
        errors = await bench.logs.undurable_deletions([A0, A1])
        assert errors.keys() == {A0}
        assert isinstance(errors[A0], KafkaStorageError)
        assert "/disk1 failed before the deletion of a-0 was durable" in str(errors[A0])
        bench.disks.resume(ONE)

    run(main, files)


def test_a_stalled_directory_delays_no_checkpoint_of_another_one(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        stuck, healthy = await bench.start()
        bench.disks.stall(ONE)
        await bench.logs.checkpoint_high_watermarks({A0: 3, A1: 4})
        assert b"a 1 4" in files.read(f"{TWO}/replication-offset-checkpoint")
        await bench.logs.checkpoint_high_watermarks({A0: 5, A1: 6})
        assert b"a 1 6" in files.read(f"{TWO}/replication-offset-checkpoint")

        for _ in range(5):
            bench.logs.checkpoint_soon(stuck)
            bench.logs.checkpoint_soon(healthy)
            await asyncio.sleep(0.1)
        assert files.exists(f"{TWO}/recovery-point-offset-checkpoint")
        assert bench.disks.waiting(ONE) == 2, "one write of each checkpoint waits, however often it is requested"
        bench.disks.resume(ONE)
        await bench.until(lambda: b"a 0 5" in files.read(f"{ONE}/replication-offset-checkpoint"))
        assert not bench.failed

    run(main, files, UNCHECKED)
