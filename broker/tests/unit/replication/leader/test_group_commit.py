"""Acknowledgements that wait for a required flush: one flush for many requests, and every way in which a wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.app.coordinator_log import CoordinatorLog
from odradek.base.errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.log.flush import NO_LIMIT
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.replication.replica_requests import AppendRequest, AppendResult, FetchParams, FetchResult
from odradek.replication.roles import StopReplica
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.inline_ports import threads_that
from odradek_testkit.logs import batch
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster, SlowFlushes

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SYNC_MS = 5


class Stage:
    """Two brokers; every record of every topic has to be synced, which takes `SYNC_MS`."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock, flushes: SlowFlushes) -> None:
        self.cluster = cluster
        self.clock = clock
        self.flushes = flushes

    def broker(self, broker_id: int) -> MemoryBroker:
        return self.cluster.brokers[broker_id]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.sleep_ms(1)

    async def settled(self, tp: TopicPartition = TP) -> None:
        """Wait until no flush of a new log is left."""
        brokers = self.cluster.brokers.values()
        await self.until(
            lambda: all(
                tp not in broker.replicas.table.online
                or broker.partition(tp).log.recovery_point == broker.partition(tp).log.log_end_offset
                for broker in brokers
            )
        )
        await self.clock.sleep_ms(2 * SYNC_MS)


Play = Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            clock, flushes = VirtualClock(), SlowFlushes(SYNC_MS)
            cluster = MemoryCluster(
                tmp_path, clock, topic_settings={"flush.messages": "1"}, disk_threads=threads_that(flushes), disks=2
            )
            try:
                for broker_id in (1, 2):
                    await cluster.start_broker(broker_id)
                await scenario(Stage(cluster, clock, flushes))
            finally:
                flushes.gate.set()
                await cluster.close()

        run_virtual(main())

    return run


def consumed(broker: MemoryBroker, offset: int) -> FetchResult:
    """Return what a consumer reads now."""
    answers: list[list[FetchResult]] = []
    broker.replicas.fetch(
        FetchParams(0, 1, 1 << 20), [FetchPartition(TP.topic, TP.partition, offset, 1 << 20)], answers.append
    )
    return answers[0][0]


@pytest.mark.parametrize("acks", [1, -1])
def test_many_producers_share_few_syncs(play: Play, acks: int) -> None:
    producers, rounds = 200, 5

    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        leader, before = stage.broker(1), stage.flushes.begun

        async def produce() -> None:
            for _ in range(rounds):
                assert not (await leader.append(TP, b"v", acks=acks)).error_code
                assert leader.partition(TP).log.durable_limit > 0

        async with asyncio.TaskGroup() as group:
            for number in range(producers):
                group.create_task(produce())
                if number % 10 == 0:
                    await stage.clock.sleep_ms(1)
        assert leader.partition(TP).log.log_end_offset == producers * rounds
        assert 1 < stage.flushes.begun - before <= producers * rounds / 5

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_neither_producers_nor_consumers_get_an_undurable_record(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        leader = stage.broker(1)
        stage.flushes.gate.clear()
        answer = leader.append(TP, b"v", acks=acks)
        await stage.clock.sleep_ms(1000)
        assert not answer.done()
        assert leader.partition(TP).high_watermark == 0
        assert consumed(leader, 0).records is None
        stage.flushes.gate.set()
        assert not (await answer).error_code
        assert leader.partition(TP).log.recovery_point == 1
        assert consumed(leader, 0).records is not None

    play(scenario)


def test_without_acks_nothing_waits(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        assert stage.broker(1).append(TP, b"v", acks=0).done()
        assert stage.broker(1).partition(TP).log.durable_limit == 0

    play(scenario)


def test_a_follower_reads_ahead_of_the_leaders_flush(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        await stage.settled()
        stage.flushes.gate.clear()
        answer = stage.broker(1).append(TP, b"v")
        await stage.until(lambda: stage.broker(2).partition(TP).log.log_end_offset == 1)
        assert not answer.done()
        stage.flushes.gate.set()
        assert not (await answer).error_code

    play(scenario)


def test_a_follower_reports_only_durable_records(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        await stage.settled()
        leader = stage.broker(1).partition(TP)
        stage.flushes.gate.clear()
        answer = stage.broker(1).append(TP, b"v")
        await stage.until(lambda: stage.broker(2).partition(TP).log.log_end_offset == 1)
        await stage.clock.sleep_ms(2000)
        replica = leader.remote_replica(2)
        assert replica is not None
        assert replica.log_end_offset == 0
        leader.log.flush()
        stage.broker(1).replicas._flushed(TP)
        assert leader.high_watermark == 0, "the follower's flush is still running"
        stage.flushes.gate.set()
        assert not (await answer).error_code
        assert replica.log_end_offset == 1

    play(scenario)


def test_a_pending_flush_of_a_follower_delays_only_its_own_partition(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        stage.cluster.create(OTHER, (1, 2))
        await stage.settled()
        await stage.settled(OTHER)
        for broker_id in (1, 2):
            log = stage.broker(broker_id).partition(OTHER).log
            log.update_config(replace(log.config, flush_messages=NO_LIMIT))
        stage.flushes.gate.clear()
        waiting = stage.broker(1).append(TP, b"v")
        await stage.until(lambda: stage.broker(2).partition(TP).log.log_end_offset == 1)
        for _ in range(5):
            began_ms = stage.clock.monotonic_ms()
            assert not (await stage.broker(1).append(OTHER, b"v")).error_code
            assert stage.clock.monotonic_ms() - began_ms < 100
        assert not waiting.done()
        stage.flushes.gate.set()
        began_ms = stage.clock.monotonic_ms()
        assert not (await waiting).error_code
        assert stage.clock.monotonic_ms() - began_ms < 100

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_flush_is_answered_at_once(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        leader = stage.broker(1)
        answers = [leader.append(TP, b"v", acks=acks) for _ in range(3)]
        await stage.clock.sleep_ms(SYNC_MS)
        began_ms = stage.clock.monotonic_ms()
        stage.flushes.error = StorageError("no", path=leader.partition(TP).log.directory)
        stage.flushes.gate.set()
        results = await asyncio.gather(*answers)
        assert {result.error_code for result in results} == {KafkaStorageError.code}
        assert stage.clock.monotonic_ms() - began_ms < 10
        assert TP in leader.replicas.table.offline
        stage.flushes.error = None

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_loss_of_leadership_ends_the_wait_and_the_truncation_the_requirement(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1, 2))
        await stage.settled()
        stage.cluster.cut(1)
        stage.flushes.gate.clear()
        answer = stage.broker(1).append(TP, b"lost", acks=acks)
        await stage.clock.sleep_ms(10)
        stage.cluster.elect(TP, 2, (2,), inform=(1, 2))
        assert (await answer).error_code == NotLeaderOrFollowerError.code
        new = stage.broker(2).append(TP, b"new", b"newer", acks=1)
        stage.cluster.heal()
        stage.flushes.gate.set()
        assert not (await new).error_code
        await stage.until(lambda: stage.cluster.isr(TP) == (2, 1))
        assert stage.broker(1).content(TP) == stage.broker(2).content(TP)
        assert stage.broker(1).partition(TP).log.durable_limit == NO_LIMIT

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_new_epoch_of_the_same_leader_does_not_end_the_wait(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        answer = stage.broker(1).append(TP, b"v", acks=acks)
        stage.cluster.elect(TP, 1, (1,), inform=(1,))
        await stage.clock.sleep_ms(100)
        assert not answer.done()
        stage.flushes.gate.set()
        assert not (await answer).error_code

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_deletion_ends_the_wait(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        answer = stage.broker(1).append(TP, b"v", acks=acks)
        await stage.clock.sleep_ms(1)
        stage.broker(1).replicas.roles.stop([StopReplica(TP, -2, delete=True)])
        assert answer.result().error_code in (NotLeaderOrFollowerError.code, UnknownTopicOrPartitionError.code)

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_timeout_and_the_end_of_the_broker_end_the_wait(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        brief = stage.broker(1).append(TP, b"v", acks=acks, timeout_ms=50)
        assert (await brief).error_code == RequestTimedOutError.code
        long = stage.broker(1).append(TP, b"v", acks=acks)
        await stage.broker(1).replicas.close()
        assert long.result().error_code == RequestTimedOutError.code

    play(scenario)


def test_a_repeated_batch_waits_for_the_flush_of_the_first_one(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        answers: list[AppendResult] = []
        for _ in range(2):
            records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
            stage.broker(1).replicas.append(
                AppendRequest(1, 30_000, [(TP, records)]), lambda results: answers.extend(results)
            )
        await stage.clock.sleep_ms(100)
        assert not answers
        stage.flushes.gate.set()
        await stage.until(lambda: len(answers) == 2)
        assert [(answer.error_code, answer.first_offset) for answer in answers] == [(0, 0), (0, 0)]
        assert stage.broker(1).partition(TP).log.log_end_offset == 1

    play(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_move_to_a_disk_that_syncs_ends_the_wait(play: Play, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        broker = stage.broker(1)
        stage.flushes.gate.clear()
        answer = broker.append(TP, b"v", acks=acks)
        await stage.clock.sleep_ms(100)
        assert not answer.done()
        (target,) = set(broker.config.log_dirs) - {broker.logs.directory_of(TP)}
        assert broker.replicas.log_dirs.alter({TP: target}) == {TP: 0}
        assert not (await answer).error_code
        assert broker.logs.directory_of(TP) == target
        log = broker.partition(TP).log
        assert (log.recovery_point, log.log_end_offset, log.durable_limit) == (1, 1, NO_LIMIT)

    play(scenario)


def test_a_coordinator_waits_like_a_producer(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        await stage.settled()
        stage.flushes.gate.clear()
        log = CoordinatorLog(stage.broker(1).replicas, BrokerTopicStats(), commit_timeout_ms=30_000, load_bytes=1 << 20)
        append = asyncio.ensure_future(log.append(TP, bytes(batch(b"offset"))))
        await stage.clock.sleep_ms(1000)
        assert not append.done()
        stage.flushes.gate.set()
        assert await append == 0

    play(scenario)
