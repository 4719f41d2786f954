"""Requested pages for sequential readers and for others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.base.ports import File
from odradek.base.system_ports import SystemFiles
from odradek.network import read_ahead
from odradek.network.pages import FileAccess, is_resident
from odradek.network.read_ahead import ReadAhead

MOST = 1000


class Disk:
    """Records requested pages; only pages that the test sets are in memory."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.resident = False

    async def read(self, _path: str, job: Callable[[], Any]) -> Any:
        return job()

    def is_resident(self, _descriptor: int, _position: int, _length: int) -> bool:
        return self.resident

    def will_need(self, _descriptor: int, position: int, length: int) -> None:
        self.asked.append((position, position + length))

    def access(self, **changes: Any) -> FileAccess:
        return FileAccess(
            **{
                "read": self.read,
                "read_ahead_bytes": MOST,
                "is_resident": self.is_resident,
                "will_need": self.will_need,
                **changes,
            }
        )


@pytest.fixture
def disk() -> Disk:
    return Disk()


def opened(tmp_path: Path, name: str = "00.log") -> tuple[File, int]:
    made = SystemFiles().open(f"{tmp_path}/{name}", create=True)
    descriptor = made.fileno()
    assert descriptor is not None
    return made, descriptor


async def read(ahead: ReadAhead, file: tuple[File, int], *pieces: tuple[int, int]) -> None:
    for position, length in pieces:
        ahead.reads(*file, position, length)
    await asyncio.sleep(0)


async def test_a_sequential_reader_gets_read_ahead(tmp_path: Path, disk: Disk) -> None:
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, (0, 100))
    assert disk.asked == [], "one piece does not make a sequential reader"
    await read(ahead, file, (100, 100))
    assert disk.asked == [(200, 1200)]


async def test_more_pages_are_requested_when_half_is_read(tmp_path: Path, disk: Disk) -> None:
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, *((at, 100) for at in range(0, 2000, 100)))

    assert disk.asked[0] == (200, 1200)
    assert all(later[0] == earlier[1] for earlier, later in zip(disk.asked, disk.asked[1:], strict=False)), "no gap"
    assert all(end - start >= MOST // 2 for start, end in disk.asked)
    assert disk.asked[-1][1] >= 2000 + MOST // 2


async def test_a_piece_that_overlaps_the_last_one_is_in_order(tmp_path: Path, disk: Disk) -> None:
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, (0, 150), (100, 150))

    assert disk.asked == [(250, 1250)]


async def test_a_piece_beyond_the_requested_range_leaves_no_gap(tmp_path: Path, disk: Disk) -> None:
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, (0, 100), (100, 5000))

    assert disk.asked == [(5100, 6100)]


@pytest.mark.parametrize("elsewhere", [50_000, 0])
async def test_a_reader_that_seeks_starts_again(tmp_path: Path, disk: Disk, elsewhere: int) -> None:
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, (20_000, 100), (20_100, 100), (elsewhere, 100))
    assert len(disk.asked) == 1
    await read(ahead, file, (elsewhere + 100, 100))
    assert disk.asked[1] == (elsewhere + 200, elsewhere + 1200)


async def test_files_have_their_own_order(tmp_path: Path, disk: Disk) -> None:
    ahead, one, other = ReadAhead(disk.access()), opened(tmp_path, "a"), opened(tmp_path, "b")
    await read(ahead, one, (0, 100))
    await read(ahead, other, (7000, 100))
    await read(ahead, one, (100, 100))
    await read(ahead, other, (7100, 100))

    assert disk.asked == [(200, 1200), (7200, 8200)]


async def test_resident_pages_need_no_thread_of_the_outflow(tmp_path: Path, disk: Disk) -> None:
    disk.resident = True
    ahead, file = ReadAhead(disk.access()), opened(tmp_path)
    await read(ahead, file, *((at, 100) for at in range(0, 5000, 100)))

    assert disk.asked == []


async def test_many_files_are_forgotten(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MOST_FILES", 2)
    ahead, files = ReadAhead(disk.access()), [opened(tmp_path, name) for name in "abc"]
    for file in files:
        await read(ahead, file, (0, 100))
    await read(ahead, files[0], (100, 100))
    assert disk.asked == [], "the third made it forget the first"
    await read(ahead, files[0], (200, 100))
    assert disk.asked == [(300, 1300)]


@pytest.mark.parametrize("error", [OSError("closed"), RuntimeError("cannot schedule new futures after shutdown")])
async def test_failing_read_ahead_is_harmless(
    tmp_path: Path, disk: Disk, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_path: str, _job: Callable[[], Any]) -> None:
        raise error

    caplog.set_level("DEBUG", read_ahead.__name__)
    ahead, file = ReadAhead(disk.access(read=refuse)), opened(tmp_path)
    await read(ahead, file, (0, 100), (100, 100))
    await asyncio.sleep(0)

    assert str(error) in caplog.text
    await read(ahead, file, (200, 100))


async def test_a_cancelled_read_ahead_logs_nothing(tmp_path: Path, disk: Disk) -> None:
    jobs: list[asyncio.Future[Any]] = []

    def wait(_path: str, _job: Callable[[], Any]) -> Awaitable[Any]:
        jobs.append(asyncio.get_running_loop().create_future())
        return jobs[-1]

    ahead, file = ReadAhead(disk.access(read=wait)), opened(tmp_path)
    await read(ahead, file, (0, 100), (100, 100))
    jobs[0].cancel()
    await asyncio.sleep(0)

    assert len(jobs) == 1


async def test_a_real_disk_has_it_in_memory_then(tmp_path: Path) -> None:
    size = 3 << 20
    file, descriptor = opened(tmp_path)
    file.pwritev((bytes(size),), 0)
    file.sync()
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    ahead = ReadAhead(FileAccess(read_ahead_bytes=2 << 20))
    ahead.reads(file, descriptor, 0, 1000)
    ahead.reads(file, descriptor, 1000, 1000)
    async with asyncio.timeout(60):
        while not is_resident(descriptor, 2000, 2 << 20):  # noqa: ASYNC110 -- the disk's to bring about
            await asyncio.sleep(0)
