"""Appends of a slow log directory wait for a thread: order, visibility, and every way in which the wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import (
    InvalidTransactionStateError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.verification import VerificationGuard
from odradek.log.write_group import WriteGroup
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek.replication.replica_requests import AppendRequest, AppendResult, FetchParams, FetchResult
from odradek.replication.roles import StopReplica
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.inline_ports import StallingThreads
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster, record_set

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    """Three brokers with two directories each, which stall on command; a directory is slow 200 ms later."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock, disks: StallingThreads) -> None:
        self.cluster = cluster
        self.clock = clock
        self.disks = disks

    def broker(self, broker_id: int) -> MemoryBroker:
        return self.cluster.brokers[broker_id]

    def log(self, broker_id: int = 1, tp: TopicPartition = TP) -> PartitionLog:
        return self.broker(broker_id).partition(tp).log

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.sleep_ms(1)

    def path(self, broker_id: int = 1, tp: TopicPartition = TP) -> str:
        path = self.broker(broker_id).logs.directory_of(tp)
        assert path is not None
        return path

    async def slow(self, broker_id: int = 1, tp: TopicPartition = TP) -> str:
        """Stall the disk of a partition, and wait until it counts as slow. Return its directory."""
        path = self.path(broker_id, tp)
        await self.clock.sleep_ms(100)
        self.disks.stall(path)
        await self.until(lambda: self.log(broker_id, tp).write_queue is not None)
        return path

    async def healthy(self, path: str, broker_id: int = 1) -> None:
        """Let a disk answer, and wait until its logs are written on the event loop again."""
        self.disks.resume(path)
        logs = self.broker(broker_id).logs
        await self.until(lambda: all(log.write_queue is None for log in logs.logs()))


Play = Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[Stage], Coroutine[Any, Any, None]], **settings: str) -> None:
        async def main() -> None:
            clock, disks = VirtualClock(), StallingThreads()
            cluster = MemoryCluster(
                tmp_path,
                clock,
                settings={"log.dir.free.check.interval.ms": "3600000"},
                topic_settings=settings,
                disk_threads=disks,
                disks=2,
            )
            try:
                for broker_id in (1, 2, 3):
                    await cluster.start_broker(broker_id)
                await scenario(Stage(cluster, clock, disks))
            finally:
                for broker in cluster.brokers.values():
                    for path in broker.logs.online_directories:
                        disks.resume(path)
                await cluster.close()

        run_virtual(main())

    return run


def consumed(broker: MemoryBroker, offset: int = 0) -> FetchResult:
    """Return what a consumer reads now."""
    answers: list[list[FetchResult]] = []
    broker.replicas.fetch(
        FetchParams(0, 1, 1 << 20), [FetchPartition(TP.topic, TP.partition, offset, 1 << 20)], answers.append
    )
    return answers[0][0]


def values(broker: MemoryBroker) -> list[bytes]:
    """Return the values in a log, which are digits, in order."""
    content = broker.content(TP)
    return [content[at : at + 3] for at in range(len(content) - 2) if content[at : at + 3].isdigit()]


def has_no_debris(log: PartitionLog) -> bool:
    """Whether the last file of a log ends with its last record."""
    return Path(log.active_segment.path()).stat().st_size == log.active_segment.size


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_an_append_waits_for_the_thread_and_is_seen_by_nobody_before(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader, log = stage.broker(1), stage.log()
        await leader.append(TP, b"000")
        path = await stage.slow()
        answers = [leader.append(TP, b"%03d" % number, acks=acks) for number in range(1, 30)]
        await stage.clock.sleep_ms(500)
        assert not any(answer.done() for answer in answers)
        assert (log.log_end_offset, log.high_watermark) == (1, 1)
        assert consumed(leader, 1).records is None
        assert consumed(leader).high_watermark == 1

        await stage.healthy(path)
        results = await asyncio.gather(*answers)
        assert [result.first_offset for result in results] == list(range(1, 30))
        assert not any(result.error_code for result in results)
        assert values(leader) == [b"%03d" % number for number in range(30)]
        assert leader.logs.writes.at(path).size_bytes == 0
        assert (await leader.append(TP, b"030", acks=acks)).first_offset == 30

    play(scenario)


def test_the_other_directory_goes_on(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        stage.cluster.create(OTHER, (1,))
        leader = stage.broker(1)
        assert stage.path() != stage.path(tp=OTHER)
        path = await stage.slow()
        waiting = leader.append(TP, b"v", acks=1)
        assert not (await leader.append(OTHER, b"v", acks=1)).error_code
        both: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
        entries = [(TP, record_set(b"v")), (OTHER, record_set(b"v"))]
        leader.replicas.append(AppendRequest(1, 30_000, entries), both.set_result)
        await stage.clock.sleep_ms(10)
        assert stage.log(tp=OTHER).log_end_offset == 2
        assert not waiting.done()
        assert not both.done()
        await stage.healthy(path)
        assert [result.first_offset for result in await both] == [1, 1]

    play(scenario)


def test_appends_that_arrive_while_the_queue_is_emptied_do_not_overtake(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader, log = stage.broker(1), stage.log()
        path = await stage.slow()
        answers = [leader.append(TP, b"%03d" % number, acks=1) for number in range(5)]
        await stage.clock.sleep_ms(10)
        answers += [leader.append(TP, b"%03d" % number, acks=1) for number in range(5, 10)]
        stage.disks.resume(path)
        number = 10
        while log.write_queue is not None:
            answers.append(leader.append(TP, b"%03d" % number, acks=1))
            number += 1
            await asyncio.sleep(0)
        answers.append(leader.append(TP, b"%03d" % number, acks=1))
        results = await asyncio.gather(*answers)
        assert [result.first_offset for result in results] == list(range(number + 1))
        assert values(leader) == [b"%03d" % each for each in range(number + 1)]

    play(scenario)


def test_the_appends_of_a_producer_keep_their_order_and_a_repeat_is_a_duplicate(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        answers: list[asyncio.Future[AppendResult]] = []
        for sequence in [*range(6), 3]:
            answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            answers.append(answer)
            records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
            leader.replicas.append(
                AppendRequest(-1, 30_000, [(TP, records)]), lambda results, answer=answer: answer.set_result(results[0])
            )
        await stage.healthy(path)
        results = await asyncio.gather(*answers)
        assert [(result.error_code, result.first_offset) for result in results] == [
            *((0, offset) for offset in range(6)),
            (0, 3),
        ]
        assert stage.log().log_end_offset == 6

    play(scenario)


def test_a_segment_rolls_on_the_thread(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        answers = [leader.append(TP, b"v" * 300, acks=1) for _ in range(20)]
        await stage.clock.sleep_ms(10)
        assert len(stage.log().segments) == 1
        await stage.healthy(path)
        results = await asyncio.gather(*answers)
        assert [(result.error_message, result.first_offset) for result in results] == [(None, n) for n in range(20)]
        log = stage.log()
        assert len(log.segments) > 3
        assert [segment.base_offset for segment in log.segments] == sorted({s.base_offset for s in log.segments})
        await leader.close()
        log = (await stage.cluster.start_broker(1)).logs.get(TP)
        assert log is not None
        assert log.log_end_offset == 20

    play(scenario, **{"segment.bytes": "1024"})


def test_a_follower_reports_records_when_they_are_written(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        stage.cluster.create(OTHER, (1, 2))
        leader = stage.broker(1)
        await leader.append(TP, b"000")
        path = await stage.slow(2)
        answer = leader.append(TP, b"001")
        await stage.clock.sleep_ms(600)
        assert not answer.done()
        assert stage.log().high_watermark == 1
        assert stage.log(2).log_end_offset == 1
        assert not (await leader.append(OTHER, b"v")).error_code, "the follower fetches the other partition"
        await stage.healthy(path, 2)
        assert not (await answer).error_code
        await stage.until(lambda: stage.log(2).high_watermark == 2)
        assert values(stage.broker(2)) == values(leader) == [b"000", b"001"]

    play(scenario)


def test_a_slow_leader_serves_its_followers_what_is_written(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        leader = stage.broker(1)
        path = await stage.slow()
        answers = [leader.append(TP, b"%03d" % number) for number in range(3)]
        await stage.clock.sleep_ms(600)
        assert stage.log(2).log_end_offset == 0
        assert stage.cluster.isr(TP) == (1, 2)
        await stage.healthy(path)
        assert [(await answer).first_offset for answer in answers] == [0, 1, 2]
        assert values(stage.broker(2)) == values(leader)

    play(scenario)


@pytest.mark.parametrize("begun", [True, False])
def test_loss_of_leadership_ends_the_wait_at_once(play: Play, begun: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        leader = stage.broker(1)
        await leader.append(TP, b"000")
        path = await stage.slow()
        answers = [leader.append(TP, b"%03d" % number, acks=1) for number in range(1, 4)]
        if begun:
            await stage.clock.sleep_ms(5)
            assert stage.log().writing is not None
            answers += [leader.append(TP, b"%03d" % number, acks=1) for number in range(4, 6)]
        stage.cluster.elect(TP, 2, (1, 2), (2, 1))
        assert {(await answer).error_code for answer in answers} == {NotLeaderOrFollowerError.code}
        assert not (await stage.broker(2).append(TP, b"777", acks=1)).error_code
        await stage.clock.sleep_ms(700)
        assert stage.log().log_end_offset == 1
        await stage.healthy(path)
        await stage.until(lambda: stage.log().log_end_offset == 2)
        assert values(leader) == values(stage.broker(2)) == [b"000", b"777"]
        assert has_no_debris(stage.log()), "nothing of the old epoch is left"

    play(scenario)


def test_a_new_epoch_of_the_leader_refuses_what_is_being_written_and_nothing_else(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        first = leader.append(TP, b"001", acks=1)
        await stage.clock.sleep_ms(5)
        second = leader.append(TP, b"002", acks=1)
        stage.cluster.elect(TP, 1, (1,), (1,))
        await stage.healthy(path)
        assert (await first).error_code == NotLeaderOrFollowerError.code
        assert not (await second).error_code
        assert values(leader) == [b"002"]
        assert stage.log().latest_epoch == 1
        assert has_no_debris(stage.log())

    play(scenario)


def test_a_follower_that_gets_another_leader_drops_what_it_fetched(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2, 3))
        leader = stage.broker(1)
        await leader.append(TP, b"000")
        path = await stage.slow(2)
        stage.cluster.cut(3)
        answer = leader.append(TP, b"001", acks=1)
        assert not (await answer).error_code
        await stage.until(lambda: stage.log(2).writing is not None)
        stage.cluster.heal()
        stage.cluster.cut(1)
        stage.cluster.elect(TP, 3, (2, 3), (3, 2))
        assert not (await stage.broker(3).append(TP, b"333", acks=1)).error_code
        await stage.clock.sleep_ms(700)
        assert stage.log(2).log_end_offset == 1
        await stage.healthy(path, 2)
        await stage.until(lambda: stage.log(2).log_end_offset == 2)
        assert values(stage.broker(2)) == values(stage.broker(3)) == [b"000", b"333"]

    play(scenario)


def test_deletion_ends_the_wait_at_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        answers = [leader.append(TP, b"001", acks=1)]
        await stage.clock.sleep_ms(5)
        answers.append(leader.append(TP, b"002", acks=1))
        leader.replicas.roles.stop([StopReplica(TP, delete=True)])
        assert {(await answer).error_code for answer in answers} == {UnknownTopicOrPartitionError.code}
        stage.disks.resume(path)
        queue = leader.logs.writes.at(path)
        await stage.until(lambda: not queue.is_slow and not queue.size_bytes)
        assert leader.logs.get(TP) is None

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_times_out_and_what_has_not_begun_is_not_written(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        first = leader.append(TP, b"001", acks=acks, timeout_ms=1000)
        await stage.clock.sleep_ms(5)
        second = leader.append(TP, b"002", acks=acks, timeout_ms=1000)
        third = leader.append(TP, b"003", acks=acks)
        assert (await first).error_code == (await second).error_code == RequestTimedOutError.code
        await stage.healthy(path)
        assert (await third).first_offset == 1
        assert values(leader) == [b"001", b"003"]

    play(scenario)


def test_a_full_queue_refuses_appends_with_a_message(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        first = leader.append(TP, b"v" * 300_000_000, acks=1)
        refused = await leader.append(TP, b"v", acks=1)
        assert refused.error_code == KafkaStorageError.code
        assert refused.error_message is not None
        assert f"log directory {path} is slow" in refused.error_message
        assert "log.dir.queue.max.bytes=268435456" in refused.error_message
        await stage.healthy(path)
        assert (await first).error_code, "it is larger than message.max.bytes, which is checked when it is staged"
        assert not (await leader.append(TP, b"v", acks=1)).error_code

    play(scenario)


def test_a_directory_that_goes_offline_fails_what_waits(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        answers = [leader.append(TP, b"001", acks=1, timeout_ms=120_000)]
        await stage.clock.sleep_ms(5)
        answers.append(leader.append(TP, b"002", acks=1, timeout_ms=120_000))
        results = await asyncio.gather(*answers)
        assert {result.error_code for result in results} == {KafkaStorageError.code}
        assert leader.logs.offline_directories == (path,)
        assert leader.logs.writes.at(path).size_bytes == 0
        stage.disks.resume(path)
        await stage.clock.sleep_ms(100)

    play(scenario)


def test_a_full_disk_fails_the_appends_that_wait_and_the_log_works_on(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        await leader.append(TP, b"000")
        path = await stage.slow()
        answers = [leader.append(TP, b"001", acks=1)]
        await stage.clock.sleep_ms(5)
        answers.append(leader.append(TP, b"002", acks=1))
        right = WriteGroup.run

        def full(group: WriteGroup) -> None:
            right(group)
            group.error = StorageError("no space is left", path=path, full=True)

        with monkeypatch.context() as patch:
            patch.setattr(WriteGroup, "run", full)
            stage.disks.resume(path)
            results = await asyncio.gather(*answers)
        assert {result.error_code for result in results} == {KafkaStorageError.code}
        await stage.until(lambda: stage.log().write_queue is None)
        log = stage.log()
        assert log.log_end_offset == 1
        assert has_no_debris(log)
        assert (await leader.append(TP, b"003", acks=1)).first_offset == 1
        assert values(leader) == [b"000", b"003"]

    play(scenario)


def test_a_log_moves_away_from_a_slow_directory_with_what_waits(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        await leader.append(TP, b"000")
        path = await stage.slow()
        (target,) = (each for each in leader.logs.online_directories if each != path)
        answers = [leader.append(TP, b"001", acks=1)]
        await stage.clock.sleep_ms(5)
        answers += [leader.append(TP, b"%03d" % number, acks=1) for number in range(2, 5)]
        leader.replicas.log_dirs.alter({TP: target})
        await stage.clock.sleep_ms(100)
        stage.disks.accept(path)  # reads for the move answer; the write still waits
        await stage.clock.sleep_ms(1000)
        assert stage.path() == path
        stage.disks.resume(path)
        await stage.until(lambda: stage.path() == target)
        results = await asyncio.gather(*answers)
        assert [(result.error_code, result.first_offset) for result in results] == [(0, n) for n in range(1, 5)]
        assert values(leader) == [b"%03d" % number for number in range(5)]
        await stage.until(lambda: stage.log().write_queue is None)
        assert (await leader.append(TP, b"005", acks=1)).first_offset == 5

    play(scenario)


def test_a_stop_fails_what_waits_and_keeps_what_was_being_written(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        leader = stage.broker(1)
        path = await stage.slow()
        first = leader.append(TP, b"001", acks=1)
        await stage.clock.sleep_ms(5)
        second = leader.append(TP, b"002", acks=1)
        closing = asyncio.get_running_loop().create_task(leader.close())
        await stage.clock.sleep_ms(10)
        assert (await first).error_code == (await second).error_code == RequestTimedOutError.code
        stage.disks.resume(path)
        await closing
        log = (await stage.cluster.start_broker(1)).logs.get(TP)
        assert log is not None
        assert log.log_end_offset == 1

    play(scenario)


def test_the_guard_of_a_verification_waits_with_its_records(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        replicas, log = stage.broker(1).replicas, stage.log()
        path = await stage.slow()
        codes: list[int] = []

        def append(sequence: int, guard: VerificationGuard | None) -> None:
            records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
            guards = {} if guard is None else {TP: guard}
            replicas.append(
                AppendRequest(1, 60_000, [(TP, records)], guards=guards, needs_guards=True),
                lambda results: codes.append(results[0].error_code),
            )

        def end() -> None:
            replicas.append(
                AppendRequest(1, 60_000, [(TP, marker(ControlType.ABORT, producer_id=7))], AppendOrigin.COORDINATOR),
                lambda results: codes.append(results[0].error_code),
            )

        guard = log.begin_verification(7, 0, 0)
        append(0, guard)
        # The transaction is not open before its first record is in the log.
        assert log.begin_verification(7, 0, 1) is guard
        append(1, guard)
        end()
        append(2, guard)
        await stage.healthy(path)
        await stage.until(lambda: len(codes) == 4)
        assert codes == [0, 0, 0, InvalidTransactionStateError.code]
        assert log.log_end_offset == 3

    play(scenario)
