"""Log directories on remote file systems: threads write and read all records, and the event loop never does."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.base.ports import Buffer, DiskThreads, File, FileRegion
from odradek.base.system_ports import RemoteFile, SystemFiles
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import LOG_SUFFIX
from odradek.log.values import LogSlice
from odradek.records.formats import iterate_entries
from odradek.replication.replica_requests import FetchParams, FetchResult
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.cleaning import settle, write_cleaned
from odradek_testkit.inline_ports import threads_that
from odradek_testkit.logs import batch
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster

T = TypeVar("T")

TP = TopicPartition("t", 0)
JOB_MS = 2.0


class _WatchedFile(RemoteFile):
    """A file that reports reads and writes by the event loop."""

    __slots__ = ("_files",)

    def __init__(self, path: str, descriptor: int, files: RemoteFiles) -> None:
        super().__init__(path, descriptor)
        self._files = files

    def pread(self, length: int, position: int) -> bytes:
        self._files.used("read", self.path)
        return super().pread(length, position)

    def pwritev(self, buffers: Any, position: int) -> int:
        self._files.used("write", self.path)
        return super().pwritev(buffers, position)

    def sync(self) -> None:
        self._files.used("sync", self.path)
        super().sync()


class RemoteFiles(SystemFiles):
    """Files on a remote file system, and the threads that may use them: each job takes `JOB_MS`."""

    def __init__(self) -> None:
        super().__init__()
        self.type: str | None = "fuse.test"
        self.is_on_thread = False
        self.used_by_loop: list[str] = []

    def remote_type(self, path: str) -> str | None:
        return self.type

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        opened = super().open(path, create=create, read_only=read_only)
        descriptor = opened.fileno()
        assert descriptor is not None
        return _WatchedFile(path, os.dup(descriptor), self)

    def used(self, operation: str, path: str) -> None:
        if not self.is_on_thread and path.endswith(LOG_SUFFIX):
            self.used_by_loop.append(f"{operation} {path}")

    @contextmanager
    def on_thread(self) -> Iterator[None]:
        before, self.is_on_thread = self.is_on_thread, True
        try:
            yield
        finally:
            self.is_on_thread = before

    def threads(self, directory: str, count: int) -> DiskThreads:
        async def run(function: Callable[[], T], /) -> T:
            await asyncio.sleep(JOB_MS / 1000)
            with self.on_thread():
                return function()

        return threads_that(run)(directory, count)


class Stage:
    """Three brokers whose disks are remote."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock, files: RemoteFiles) -> None:
        self.cluster = cluster
        self.clock = clock
        self.files = files

    def broker(self, broker_id: int = 1) -> MemoryBroker:
        return self.cluster.brokers[broker_id]

    def log(self, broker_id: int = 1) -> PartitionLog:
        return self.broker(broker_id).partition(TP).log

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.sleep_ms(1)

    def fetch(self, offset: int, *, max_bytes: int = 1 << 20) -> Awaitable[list[FetchResult]]:
        """Fetch as a consumer that waits for records."""
        answer: asyncio.Future[list[FetchResult]] = asyncio.get_running_loop().create_future()
        entries = [FetchPartition(TP.topic, TP.partition, offset, max_bytes)]
        self.broker().replicas.fetch(FetchParams(500, 1, 1 << 20), entries, answer.set_result)
        return answer

    async def consumed(self, first: int, end: int, *, max_bytes: int = 1 << 20) -> list[int]:
        """Return the offsets that a consumer reads, one fetch after the other."""
        found: list[int] = []
        offset = first
        while offset < end:
            (result,) = await self.fetch(offset, max_bytes=max_bytes)
            assert not result.error_code
            if result.records is not None:
                read = [header for _, header in iterate_entries(result.records.load())]
                found += [header.base_offset for header in read]
                offset = read[-1].next_offset
        return found


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    files = RemoteFiles()
    for owner in (LogSlice, FileRegion):
        # What `network/outflow` and `server/data/record_sets` read on threads, the stage reads here.
        monkeypatch.setattr(owner, "load", _loader(owner.load, files))

    def run(
        scenario: Callable[[Stage], Coroutine[Any, Any, None]],
        *,
        settings: dict[str, str] | None = None,
        files: RemoteFiles = files,
        **topic_settings: str,
    ) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = MemoryCluster(
                tmp_path,
                clock,
                settings=settings,
                topic_settings={"segment.bytes": "1024", "index.interval.bytes": "300", **topic_settings},
                disk_threads=files.threads,
                disks=2,
                files=files,
            )
            try:
                for broker_id in (1, 2, 3):
                    await cluster.start_broker(broker_id)
                await scenario(Stage(cluster, clock, files))
            finally:
                await cluster.close()

        run_virtual(main())

    return run


def _loader(load: Callable[..., bytes], files: RemoteFiles) -> Callable[..., Buffer]:
    def loaded(part: Any, *arguments: int) -> bytes:
        with files.on_thread():
            return load(part, *arguments)

    return loaded


@pytest.mark.parametrize("slow_ms", ["200", "0"])
def test_only_threads_write_and_read_the_records(play: Play, slow_ms: str) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        leader = stage.broker()
        one_by_one = [await leader.append(TP, b"%0100d" % number) for number in range(10)]
        together = await asyncio.gather(*(leader.append(TP, b"%0100d" % number) for number in range(30)))
        results = [*one_by_one, *together]
        assert [(result.error_code, result.first_offset) for result in results] == [(0, offset) for offset in range(40)]
        assert len(stage.log().segments) > 3
        assert await stage.consumed(0, 40) == list(range(40))
        assert await stage.consumed(0, 40, max_bytes=1) == list(range(40))
        await stage.until(lambda: stage.log(2).high_watermark == 40)
        assert leader.logs.writes.at(_path(stage)).is_slow is False
        for broker_id in (1, 2):
            assert stage.log(broker_id).write_queue is not None, "the log never leaves the queue"
        assert stage.files.used_by_loop == []

    play(scenario, settings={"log.dir.slow.ms": slow_ms})


def test_a_restarted_broker_continues_in_the_queue(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        for number in range(10):
            await stage.broker().append(TP, b"%0100d" % number)
        await stage.broker().close()
        await stage.cluster.start_broker(1)
        log = stage.broker().logs.get(TP)
        assert log is not None
        assert log.write_queue is not None
        stage.cluster.announce(TP, (1,))
        assert (await stage.broker().append(TP, b"again")).first_offset == 10
        assert await stage.consumed(0, 11) == list(range(11))
        assert stage.files.used_by_loop == []

    play(scenario)


def test_a_consumer_makes_progress_while_the_high_watermark_rises_faster_than_lookups_end(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        stage.cluster.cut(2)
        log = stage.log()
        for number in range(2000):
            log.append_as_leader(batch(b"%010d" % number), leader_epoch=0)
        log.high_watermark = 1000
        stage.files.used_by_loop.clear()

        async def rise() -> None:
            while log.high_watermark < log.log_end_offset:
                await stage.clock.sleep_ms(JOB_MS / 4)
                log.high_watermark += 1
                stage.broker().replicas.recheck(TP)

        rising = asyncio.ensure_future(rise())
        read = await stage.consumed(980, 1100, max_bytes=400)
        assert log.high_watermark < 1900, "the consumer is faster than the high watermark"
        assert read[:120] == list(range(980, 1100))
        log.high_watermark = log.log_end_offset
        await rising
        assert stage.files.used_by_loop == []

    play(scenario, **{"segment.bytes": "1048576", "index.interval.bytes": "1000000"})


def test_a_gap_that_compaction_left_at_the_end_of_a_segment_is_found_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        log = stage.log()
        for number in range(30):
            log.append_as_leader(batch(b"%0100d" % number), leader_epoch=0)
        settle(log)
        gap = log.segments[1].base_offset - 1
        swap = write_cleaned(stage.files, log, stage.clock, 1, keeps=lambda header: header.base_offset != gap)
        assert log.swap_cleaned(swap)
        stage.files.used_by_loop.clear()
        assert (await stage.consumed(gap, gap + 2))[0] == gap + 1
        assert stage.files.used_by_loop == []

    play(scenario)


def test_a_log_that_moves_from_a_local_directory_is_written_by_threads(play: Play, tmp_path: Path) -> None:
    class OneRemote(RemoteFiles):
        def remote_type(self, path: str) -> str | None:
            return "nfs4" if path.endswith("disk-1") else None

    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker()
        await leader.append(TP, b"first")
        source, target = f"{tmp_path}/broker-1/disk-0", f"{tmp_path}/broker-1/disk-1"
        assert _path(stage) == source
        assert stage.log().write_queue is None
        for path, is_queued in ((target, True), (source, False)):
            leader.replicas.log_dirs.alter({TP: path})
            await stage.until(lambda path=path: _path(stage) == path)  # type: ignore[misc]
            assert (stage.log().write_queue is not None) is is_queued
            assert not (await leader.append(TP, b"more")).error_code
        assert await stage.consumed(0, 3) == [0, 1, 2]

    play(scenario, files=OneRemote())


@pytest.mark.parametrize("type_", ["nfs4", None])
def test_the_start_names_the_remote_directories(
    play: Play, caplog: pytest.LogCaptureFixture, type_: str | None
) -> None:
    files = RemoteFiles()
    files.type = type_

    async def scenario(stage: Stage) -> None:
        """Start and stop."""

    # Other tests change the level of this package.
    with caplog.at_level(logging.INFO, logger="odradek.log.directories.write_queue"):
        play(scenario, files=files)
    lines = [record.getMessage() for record in caplog.records if "remote file system" in record.getMessage()]
    assert len(lines) == (0 if type_ is None else 6)
    assert all("(nfs4): threads write and read all its records" in line for line in lines)


def _path(stage: Stage) -> str:
    path = stage.broker().logs.directory_of(TP)
    assert path is not None
    return path
