"""The cleaner on a disk that does not answer, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

import pytest

from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import StallingThreads

from .cleaner_bench import CONFIG, A, B, Broker, run


class StallingDisks(NamedTuple):
    """A broker with a cleaner whose processes wait for a disk that does not answer, and the threads of its disks."""

    broker: Broker
    disks: StallingThreads

    async def stall(self) -> asyncio.Task[bool]:
        """Stall the disk of log A during a pass over it. Returns the pass when its directory is offline."""
        self.broker.workers.stalled = True
        task = asyncio.create_task(self.broker.cleaner.clean_dirtiest())
        while not self.broker.workers.waiting:
            await self.broker.clock.sleep_ms(10)
        self.disks.stall("/disk1")
        while not self.broker.failures:
            assert not task.done()
            await self.broker.clock.sleep_ms(100)
        assert self.broker.failures == ["/disk1"]
        self.broker.workers.stalled = False
        return task


async def with_stalling_disks(files: MemoryFiles) -> StallingDisks:
    disks = StallingThreads()
    broker = Broker(files, config=replace(CONFIG, log_dirs=("/disk1", "/disk2")), disk_threads=disks)
    await broker.start()
    for partition, path in ((A, "/disk1"), (B, "/disk2")):
        broker.logs.prefer(partition, path)
    broker.fill(broker.make())
    return StallingDisks(broker, disks)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_pass_on_a_stalled_disk_is_given_up_when_its_directory_goes_offline(
    files: MemoryFiles, is_deleted: bool
) -> None:
    """Also if the log was deleted meanwhile. The cleaner then continues with the logs of other directories."""

    async def main() -> None:
        stalling = await with_stalling_disks(files)
        broker = stalling.broker
        healthy = broker.make(B)
        before = files.list("/disk1/a-0")
        if is_deleted:
            broker.clock.call_later(100, lambda: broker.logs.delete(A))
        task = await stalling.stall()
        async with asyncio.timeout(2):
            assert await task is False
        assert broker.cleaner.worker_deaths == 0
        assert not broker.cleaner.dead_threads
        if not is_deleted:
            assert files.list("/disk1/a-0") == before, "nothing more is written to the stalled disk"
        broker.fill(healthy)
        assert await broker.cleaner.clean_dirtiest()
        stalling.disks.resume("/disk1")
        await asyncio.sleep(60)
        assert broker.logs.get(A) is None
        await broker.stop()

    run(main())
