"""Random runs of two replicas whose directories become slow again and again, and planted faults that the runs find."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.base.errors import KafkaStorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.write_queue import DirectoryQueue
from odradek.log.partition_log import PartitionLog
from odradek.log.write_group import WriteGroup
from odradek.replication.leader.queued_produce import QueuedProduce
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import StallingThreads
from odradek_testkit.logs import batch, open_log
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster, record_set

TP = TopicPartition("t", 0)
STEPS = 80


class BrokenOrderError(AssertionError):
    """A run found records that are missing, early, or in the wrong order."""


def _demand(holds: bool, *what: object) -> None:
    if not holds:
        raise BrokenOrderError(" ".join(map(str, what)))


class Run:
    """The run of one seed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = Random(seed)
        self.clock = VirtualClock()
        self.disks = StallingThreads()
        settings = {"log.dir.free.check.interval.ms": "3600000", "replica.lag.time.max.ms": "100000"}
        topic = {"segment.bytes": "2000"}
        self.cluster = MemoryCluster(
            directory, self.clock, settings=settings, topic_settings=topic, disk_threads=self.disks
        )
        self.leader = 1
        self.sent = 0
        self.waiting = 0
        self.stalled: set[str] = set()
        self.early: list[int] = []
        """Records acknowledged before they were in the log."""
        self.acknowledged: dict[int, int] = {}
        """Offset of each record of acks=all, by its number."""

    def broker(self, broker_id: int) -> MemoryBroker:
        return self.cluster.brokers[broker_id]

    async def play(self) -> None:
        """Play the run. Raises `BrokenOrderError`."""
        for broker_id in (1, 2):
            await self.cluster.start_broker(broker_id)
        try:
            self.cluster.create(TP, (1, 2))
            actions = [self._append, self._sleep, self._stall, self._resume, self._elect]
            for _ in range(STEPS):
                await self.chance.choices(actions, (50, 14, 6, 6, 3))[0]()
            await self._settle()
            self._check_end()
        finally:
            for path in list(self.stalled):
                self.disks.resume(path)
            await self.cluster.close()

    async def _append(self) -> None:
        leader = self.broker(self.leader)
        for _ in range(self.chance.randrange(1, 4)):
            number, acks = self.sent, self.chance.choice((1, -1, -1))
            self.sent += 1
            self.waiting += 1

            def respond(results: list[AppendResult], number: int = number, acks: int = acks) -> None:
                self.waiting -= 1
                if not results[0].error_code:
                    self._check_answer(leader, number, acks, results[0])

            request = AppendRequest(acks, 600_000, [(TP, record_set(_value(number) * self.chance.choice((1, 30))))])
            leader.replicas.append(request, respond)
        await asyncio.sleep(0)

    def _check_answer(self, leader: MemoryBroker, number: int, acks: int, result: AppendResult) -> None:
        log = leader.logs.get(TP)
        assert log is not None
        found = log.read(result.first_offset, max_bytes=1).load() if result.first_offset < log.log_end_offset else b""
        if _value(number) not in found:
            self.early.append(number)
        if acks == -1:
            self.acknowledged[number] = result.first_offset

    async def _sleep(self) -> None:
        await self.clock.sleep_ms(self.chance.choice((1, 20, 300, 1500)))

    async def _stall(self) -> None:
        path = self.broker(self.chance.choice((1, 2))).logs.online_directories[0]
        self.stalled.add(path)
        self.disks.stall(path)
        await self.clock.sleep_ms(self.chance.choice((1, 1500)))

    async def _resume(self) -> None:
        for path in sorted(self.stalled):
            self.disks.resume(path)
        self.stalled.clear()
        await self._append()

    async def _elect(self) -> None:
        if self.cluster.isr(TP) == (1, 2):
            self.leader = self.chance.choice((1, 2))
            self.cluster.elect(TP, self.leader, (1, 2), (self.leader, 3 - self.leader))

    async def _settle(self) -> None:
        await self._resume()
        logs = [self.broker(broker_id).partition(TP).log for broker_id in (1, 2)]
        for _ in range(60):
            await self.clock.sleep_ms(500)
            if not self.waiting and all(log.write_queue is None for log in logs):
                break
        _demand(not self.waiting, f"{self.waiting} requests have no answer")

    def _check_end(self) -> None:
        one, two = (_content(self.broker(broker_id).partition(TP).log) for broker_id in (1, 2))
        _demand(not self.early, f"{self.early} are acknowledged, but were not there")
        _demand(one == two, "the replicas differ")
        places = {number: one.find(_value(number)) for number in self.acknowledged}
        _demand(-1 not in places.values(), "an acknowledged record is lost")
        numbers = sorted(self.acknowledged)
        _demand(numbers == sorted(numbers, key=self.acknowledged.__getitem__), "records are in the wrong order")
        for broker_id in (1, 2):
            segment = self.broker(broker_id).partition(TP).log.active_segment
            size = Path(segment.path()).stat().st_size
            _demand(size == segment.size, f"{segment} has a file of {size} bytes")


def _content(log: PartitionLog) -> bytes:
    """Return all bytes of a log."""
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


def _value(number: int) -> bytes:
    return b"<%d>" % number


def play(seed: int) -> None:
    async def main(directory: str) -> None:
        await Run(seed, Path(directory)).play()

    with tempfile.TemporaryDirectory() as directory:
        run_virtual(main(directory))


@pytest.mark.parametrize("seed", range(6))
def test_records_are_neither_lost_nor_reordered(seed: int) -> None:
    play(seed)


# Planted faults


def overtake(patch: pytest.MonkeyPatch) -> None:
    """An append goes before those that wait."""
    right = DirectoryQueue.submit

    def submit(self: DirectoryQueue, log: PartitionLog, append: Any) -> None:
        right(self, log, append)
        self._waiting[log].rotate(1)

    patch.setattr(DirectoryQueue, "submit", submit)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """A record is acknowledged when it is staged."""
    right = QueuedProduce.stage

    def stage(self: QueuedProduce, group: WriteGroup) -> bool:
        staged = right(self, group)
        self._answer()
        return staged

    patch.setattr(QueuedProduce, "stage", stage)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a write overtakes another one": overtake,
    "an acknowledgement before the write": acknowledge_early,
}
SEEDS = range(8)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for seed in SEEDS:
        try:
            play(seed)
        except BrokenOrderError:
            return
    pytest.fail(f"no seed finds that {name}")


def test_a_log_is_not_truncated_while_a_thread_writes_to_it() -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        check_truncation(open_log(MemoryFiles(), VirtualClock()))

    run_virtual(main())


def check_truncation(log: PartitionLog) -> None:
    log.append_as_leader(batch(b"v"), leader_epoch=0)
    group = log.open_group()
    log.append_as_leader(batch(b"v"), leader_epoch=0, group=group)
    log.begin_write(group)
    with pytest.raises(KafkaStorageError, match="cannot be truncated while a thread writes to it"):
        log.truncate_to(0)
    group.run()
    log.end_write(group)
    log.truncate_to(1)
    assert log.log_end_offset == 1
