"""Jobs of a slow directory take time, those of a stalled one do not end, and late changes of newer logs are noted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.log.directories.directory_worker import READ_THREADS
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.loop import run_virtual
from odradek_testkit.simulation.disk_jobs import LONG_READ_MS, READ_MS, DirectoryDisks

Scene = Callable[["Machine"], Coroutine[Any, Any, None]]


class Machine:
    """A machine with two directories and one log in each of them."""

    def __init__(self, seed: int = 0) -> None:
        self.files = MemoryFiles()
        for path in ("/one/t-0", "/two/t-1"):
            self.files.make_directories(path)
        self.logs: dict[str, object] = {"/one/t-0": object(), "/two/t-1": object()}
        self.process = object()
        self.disks = DirectoryDisks(
            ("/one", "/two"),
            flush_chance=None,
            read_chance=random.Random(seed),
            fault_chance=random.Random(seed),
            process=lambda: self.process,
            files=lambda: self.files,
            logs=lambda: dict(self.logs),
        )
        self.done: list[str] = []

    def submit(self, directory: str, name: str = "job", *, threads: int = 1) -> asyncio.Future[str]:
        def job() -> str:
            self.done.append(name)
            return name

        return asyncio.ensure_future(self.disks.threads(directory, threads)(job))


def play(scene: Scene, seed: int = 0) -> Machine:
    async def main() -> Machine:
        machine = Machine(seed)
        await scene(machine)
        return machine

    return run_virtual(main())


def now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def test_a_job_of_a_healthy_directory_runs_at_once() -> None:
    async def scene(machine: Machine) -> None:
        began_ms = now_ms()
        machine.disks.by_path["/two"].stall()
        machine.disks.by_path["/two"].slow(500)
        assert await machine.submit("/one") == "job"
        assert await machine.submit("all log directories") == "job"
        assert now_ms() == began_ms

    play(scene)


@pytest.mark.parametrize("is_long", [False, True])
def test_reads_of_a_healthy_directory_take_time(is_long: bool) -> None:
    async def scene(machine: Machine) -> None:
        if is_long:
            machine.disks.read_ms = LONG_READ_MS
        began_ms = now_ms()
        times_ms = []
        early = 0
        for number in range(60):
            job = machine.submit("/one", str(number), threads=READ_THREADS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            early += len(machine.done) > number
            await job
            times_ms.append(now_ms() - began_ms)
            began_ms = now_ms()
        assert 0 < early < 60, "some read at once, others at the end of their time"
        assert 0.5 * max(LONG_READ_MS if is_long else READ_MS) < max(times_ms) <= 1.5 * max(machine.disks.read_ms)

    play(scene)


def test_a_job_of_a_slow_directory_takes_time() -> None:
    async def scene(machine: Machine) -> None:
        disk = machine.disks.by_path["/one"]
        disk.slow(100)
        disk.slow(1_000)
        began_ms = now_ms()
        await machine.submit("/one")
        assert 500 <= now_ms() - began_ms <= 1_500
        disk.quicken(1_000)
        assert not disk.is_healthy
        began_ms = now_ms()
        await machine.submit("/one")
        assert 50 <= now_ms() - began_ms <= 150
        disk.quicken(100)
        assert disk.is_healthy

    play(scene)


def test_a_job_of_a_stalled_directory_ends_when_the_last_stall_has_ended() -> None:
    async def scene(machine: Machine) -> None:
        disk = machine.disks.by_path["/one"]
        disk.stall()
        disk.stall()
        jobs = [machine.submit("/one", str(number)) for number in range(20)]
        await asyncio.sleep(100)
        assert not any(job.done() for job in jobs)
        assert 0 < len(machine.done) < 20, "a job takes effect at the start or at the end of a stall"
        disk.resume()
        await asyncio.sleep(1)
        assert not any(job.done() for job in jobs)
        disk.resume()
        assert await asyncio.gather(*jobs) == [str(number) for number in range(20)]
        assert len(machine.done) == 20

    play(scene)


def test_a_slow_job_ends_after_a_stall_that_began_meanwhile() -> None:
    async def scene(machine: Machine) -> None:
        disk = machine.disks.by_path["/one"]
        disk.slow(1_000)
        job = machine.submit("/one")
        await asyncio.sleep(0.1)
        disk.stall()
        disk.quicken(1_000)
        await asyncio.sleep(10)
        assert not job.done()
        disk.resume()
        assert await job == "job"

    play(scene)


@pytest.mark.parametrize("seed", range(4))
def test_a_job_does_not_outlive_its_process(seed: int) -> None:
    async def scene(machine: Machine) -> None:
        disk = machine.disks.by_path["/one"]
        disk.stall()
        job = machine.submit("/one")
        await asyncio.sleep(1)
        done_before = list(machine.done)
        machine.process = object()
        disk.resume()
        await asyncio.sleep(1)
        assert not job.done()
        assert machine.done == done_before
        job.cancel()
        await asyncio.wait([job])

    play(scene, seed)


async def late_write(machine: Machine, path: str, meanwhile: Callable[[], None]) -> list[str]:
    """Let jobs write to a file at the end of a stall, and return what was noted."""
    disk = machine.disks.by_path["/one"]
    disk.stall()
    run = machine.disks.threads("/one", 1)
    jobs = [asyncio.ensure_future(run(lambda: machine.files.write_atomically(path, b"content"))) for _ in range(20)]
    await asyncio.sleep(1)
    meanwhile()
    disk.resume()
    await asyncio.gather(*jobs)
    return machine.disks.late_changes


def test_a_late_change_of_a_newer_log_is_noted() -> None:
    async def scene(machine: Machine) -> None:
        changes = await late_write(machine, "/one/t-0/file", lambda: machine.logs.update({"/one/t-0": object()}))
        assert changes[0] == "create /one/t-0/file.tmp, whose log is newer than the job"
        assert machine.files.on_change is None

    play(scene)


def test_a_late_change_of_an_old_log_or_of_no_log_is_harmless() -> None:
    async def scene(machine: Machine) -> None:
        assert await late_write(machine, "/one/t-0/file", lambda: None) == []
        assert await late_write(machine, "/one/checkpoint", lambda: machine.logs.clear()) == []
        assert await late_write(machine, "/one/t-0/file", lambda: machine.logs.clear()) == []

    play(scene)


def test_a_file_that_was_moved_away_does_not_belong_to_the_newer_log() -> None:
    async def scene(machine: Machine) -> None:
        files = machine.files
        file = files.open("/one/t-0/file", create=True)
        disk = machine.disks.by_path["/one"]
        disk.stall()
        run = machine.disks.threads("/one", 1)
        jobs = [asyncio.ensure_future(run(lambda: file.pwritev((b"x",), 0))) for _ in range(20)]
        files.rename("/one/t-0", "/one/t-0.deleted")
        files.make_directories("/one/t-0")
        machine.logs["/one/t-0"] = object()
        disk.resume()
        await asyncio.gather(*jobs)
        assert files.content("/one") == {
            "/one/t-0": None,
            "/one/t-0.deleted": None,
            "/one/t-0.deleted/file": b"x",
        }
        assert machine.disks.late_changes == []

    play(scene)
