"""Flushes of a directory's logs: several at a time, one of each log, in the order of the first requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import DiskThreads
from odradek.base.types import TopicPartition
from odradek.log.directories.directory_worker import SYNC_THREADS
from odradek.log.directories.flush_queue import FlushQueue
from odradek.log.flush import NO_LIMIT
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import threads_that
from odradek_testkit.logs import RecordingHost, batch, is_flush, open_log
from odradek_testkit.loop import ManualClock, VirtualClock, run_virtual

T = TypeVar("T")

DATA = "/data/1"
EACH = TopicConfig(flush_messages=1)


class Bench:
    """The logs of a broker whose flushes end when the test says so."""

    def __init__(self, files: MemoryFiles, config: TopicConfig = EACH) -> None:
        self.files = files
        self.clock = VirtualClock()
        self.config = config
        self.running: dict[str, asyncio.Future[None]] = {}
        """The flushes that threads run, by the name of the log's directory."""
        self.begun: list[str] = []
        """The names of all logs whose flushes began, in order."""
        self.is_late = False
        """Whether a flush takes effect at its end instead of its start."""
        self.refuses_threads = False
        settings = BrokerConfig(log_dirs=(DATA,), log_dir_check_interval_ms=0, log_dir_slow_ms=0)
        self.logs = LogManager(files, self.clock, settings, disk_threads=self._threads)

    def _threads(self, directory: str, count: int) -> DiskThreads:
        return threads_that(self._run)(directory, count)

    def _run(self, function: Callable[[], T], /) -> Awaitable[T]:
        if self.refuses_threads and is_flush(function):
            raise RuntimeError("can't start new thread")
        return self._end_later(function) if is_flush(function) else _at_once(function)

    async def _end_later(self, function: Callable[[], T]) -> T:
        work: Any = function
        (name,) = {file.path.split("/")[-2] for file in work.func.__self__.data}
        assert name not in self.running, "a log has one flush at a time"
        self.begun.append(name)
        self.running[name] = asyncio.get_running_loop().create_future()
        try:
            if self.is_late:
                await self.running[name]
                return function()
            result = function()
            await self.running[name]
            return result
        finally:
            del self.running[name]

    def make(self, number: int) -> PartitionLog:
        """Return the log of a partition, whose files are durable."""
        log = self.logs.get_or_create(TopicPartition("t", number), UUID(int=7), self.config, is_new=True)
        log.flush()
        return log

    async def end(self, name: str, error: StorageError | None = None) -> None:
        """End a flush, and let its result take effect."""
        if error is None:
            self.running[name].set_result(None)
        else:
            self.running[name].set_exception(error)
        await self.turns()

    async def turns(self) -> None:
        """Let everything run that does not wait for a flush."""
        await self.clock.sleep_ms(1)

    async def end_all(self) -> None:
        while self.running:
            await self.end(next(iter(self.running)))


async def _at_once(function: Callable[[], T]) -> T:
    return function()


def run(main: Callable[[Bench], Awaitable[None]], files: MemoryFiles) -> None:
    async def whole() -> None:
        bench = Bench(files)
        await bench.logs.start("cluster", 1)
        try:
            await main(bench)
        finally:
            await bench.logs.close(clean=False)

    files.make_directories(DATA)
    run_virtual(whole())


def append(log: PartitionLog, *values: bytes) -> None:
    log.append_as_leader(batch(*(values or (b"a",))), leader_epoch=0)


def test_logs_are_flushed_at_the_same_time_in_the_order_of_their_requests(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        logs = [bench.make(number) for number in range(SYNC_THREADS + 2)]
        for log in logs:
            append(log)
        await bench.turns()
        assert bench.begun == [f"t-{number}" for number in range(SYNC_THREADS)]
        await bench.end("t-3")
        assert bench.begun[-1] == f"t-{SYNC_THREADS}"
        assert [log.durable_limit for log in logs[2:5]] == [0, NO_LIMIT, 0]
        await bench.end_all()
        assert {log.durable_limit for log in logs} == {NO_LIMIT}

    run(main, files)


def test_one_flush_covers_all_appends_during_the_one_before_it(files: MemoryFiles) -> None:
    async def main(bench: Bench) -> None:
        log, other = bench.make(0), bench.make(1)
        append(log)
        await bench.turns()
        for _ in range(5):
            append(log)
        append(other)
        await bench.turns()
        assert bench.begun == ["t-0", "t-1"], "the second flush of the log waits for the first one"
        await bench.end("t-0")
        assert (log.durable_limit, bench.begun) == (1, ["t-0", "t-1", "t-0"])
        await bench.end("t-0")
        assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 6)
        await bench.end_all()
        assert len(bench.begun) == 3

    run(main, files)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_flush_that_fails_acknowledges_nothing_and_takes_the_directory_offline(
    files: MemoryFiles, is_late: bool
) -> None:
    async def main(bench: Bench) -> None:
        bench.is_late = is_late
        logs = [bench.make(number) for number in range(SYNC_THREADS + 1)]
        for log in logs:
            append(log)
        await bench.turns()
        await bench.end("t-0", StorageError("cannot sync: Input/output error", path=f"{DATA}/t-0"))
        assert bench.logs.offline_directories == (DATA,)
        await bench.end_all()
        assert len(bench.begun) == SYNC_THREADS, "no flush begins any more"
        for log in logs:
            assert (log.durable_limit, log.recovery_point) == (0, 0)
            with pytest.raises(KafkaStorageError, match="Input/output error"):
                append(log)

    run(main, files)


def test_a_flush_that_cannot_run_takes_the_directory_offline(files: MemoryFiles) -> None:
    """Otherwise its records would wait for ever."""

    async def main(bench: Bench) -> None:
        log = bench.make(0)
        bench.refuses_threads = True
        append(log)
        await bench.turns()
        assert bench.logs.offline_directories == (DATA,)
        assert log.durable_limit == 0

    run(main, files)


@pytest.mark.parametrize("is_late", [False, True])
def test_the_flush_of_a_new_log_waits_for_the_late_one_of_a_deleted_log_of_its_name(
    files: MemoryFiles, is_late: bool
) -> None:
    async def main(bench: Bench) -> None:
        bench.is_late = is_late
        old = bench.make(0)
        append(old)
        await bench.turns()
        bench.logs.delete(TopicPartition("t", 0))
        bench.is_late = False
        new = bench.logs.get_or_create(TopicPartition("t", 0), UUID(int=8), EACH, is_new=True)
        append(new, b"new")
        await bench.turns()
        assert (bench.begun, new.durable_limit) == (["t-0"], 0)
        await bench.end("t-0")
        assert (bench.begun, new.durable_limit, old.durable_limit) == (["t-0", "t-0"], 0, 0)
        await bench.end("t-0")
        assert (new.durable_limit, new.recovery_point) == (NO_LIMIT, 1)
        assert not bench.logs.offline_directories

    run(main, files)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_flush_during_which_the_log_is_truncated_is_repeated(files: MemoryFiles, is_late: bool) -> None:
    async def main(bench: Bench) -> None:
        log = bench.make(0)
        append(log)
        log.append_as_leader(batch(b"b"), leader_epoch=1)
        bench.is_late = is_late
        await bench.turns()
        log.truncate_to(1)
        await bench.end("t-0")
        assert (bench.begun, log.durable_limit) == (["t-0", "t-0"], 0)
        await bench.end("t-0")
        assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 1)
        assert not bench.logs.offline_directories

    run(main, files)


def test_a_busy_log_does_not_keep_another_one_from_its_flush(files: MemoryFiles, clock: ManualClock) -> None:
    queue = FlushQueue()
    files.make_directories(DATA)
    logs = [
        open_log(files, clock, host=RecordingHost(files), directory=f"{DATA}/t-{number}", config=EACH)
        for number in range(SYNC_THREADS + 1)
    ]
    *busy, patient = logs
    for log in logs:
        queue.request(log)
    assert [queue.take() for _ in busy] == busy
    assert queue.take() is None, "all places are taken"
    for log in busy:
        queue.request(log)
    queue.ended(busy[0].directory)
    assert queue.take() is patient
    assert queue.take() is None
    queue.clear()
    queue.ended(busy[1].directory)
    assert queue.take() is None
