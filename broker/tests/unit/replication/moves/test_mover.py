"""Moves of replicas between directories during appends, truncations, role changes and restarts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.batch import stamp
from odradek.replication.moves.mover import MoveThrottle
from odradek.replication.partition import LeaderAndIsrState
from odradek.replication.replica_requests import FetchParams
from odradek.replication.roles import StopReplica
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.loop import ManualClock, VirtualClock, run_virtual
from odradek_testkit.replicas import TOPIC_ID, MemoryBroker, MemoryCluster, record_set

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
STATE = LeaderAndIsrState(
    controller_epoch=3, leader=1, leader_epoch=5, isr=(1,), replicas=(1,), partition_epoch=2, is_new=True
)
FOLLOWING = replace(STATE, leader=2, isr=(1, 2), replicas=(1, 2))
STEP_BYTES = 1000

Scenario = Callable[[MemoryBroker, VirtualClock], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on broker 1, which has two directories and copies a few batches per millisecond."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = MemoryCluster(
                tmp_path,
                clock,
                settings={
                    "replica.fetch.max.bytes": str(STEP_BYTES),
                    "replica.alter.log.dirs.io.max.bytes.per.second": str(STEP_BYTES * 1000),
                    "log.segment.delete.delay.ms": "1000",
                },
                topic_settings={"segment.bytes": "3000", "index.interval.bytes": "0"},
                disks=2,
            )
            try:
                await scenario(await cluster.start_broker(1), clock)
            finally:
                await cluster.close()

        run_virtual(main())

    return run


def assume(broker: MemoryBroker, state: LeaderAndIsrState = STATE, *tps: TopicPartition) -> list[int]:
    codes = broker.replicas.roles.apply([(tp, TOPIC_ID, state) for tp in tps or (TP,)])
    return list(codes.values())


def disk(broker: MemoryBroker, number: int) -> str:
    return broker.config.log_dirs[number]


def elsewhere(broker: MemoryBroker, tp: TopicPartition = TP) -> str:
    """Return the directory in which the replica is not."""
    (path,) = set(broker.config.log_dirs) - {broker.logs.directory_of(tp)}
    return path


def append(broker: MemoryBroker, count: int, tp: TopicPartition = TP) -> None:
    for number in range(count):
        broker.append(tp, b"record %d" % number, acks=1)


def content(log: PartitionLog) -> bytes:
    def slices() -> Iterator[bytes]:
        for segment in log.segments:
            yield segment.file.pread(segment.size, 0)

    return b"".join(slices())


async def moved(broker: MemoryBroker, tp: TopicPartition = TP) -> PartitionLog:
    """Return the partition's log after its move."""
    await until(lambda: broker.logs.future(tp) is None)
    return broker.partition(tp).log


async def copied(future: PartitionLog, offset: int) -> None:
    """Wait until a future log has reached an offset."""
    await until(lambda: future.log_end_offset >= offset)


async def until(is_so: Callable[[], bool]) -> None:
    """Advance the time in intervals that are shorter than a step."""
    for _ in range(100_000):
        if is_so():
            return
        await asyncio.sleep(0.00025)
    raise AssertionError("it never comes")


def test_a_move_under_load_loses_nothing_and_keeps_the_order(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 100)
        old = broker.partition(TP).log
        target = elsewhere(broker)
        assert broker.replicas.log_dirs.alter({TP: target}) == {TP: 0}
        assert broker.replicas.mover.moving == 1
        assert broker.replicas.mover.max_lag() == 100
        written = 100
        while broker.logs.future(TP) is not None:
            append(broker, 1)
            written += 1
            await asyncio.sleep(0.001)
        log = broker.partition(TP).log
        assert log is not old
        assert broker.logs.get(TP) is log
        assert broker.logs.directory_of(TP) == target
        assert (log.log_end_offset, log.high_watermark) == (written, written)
        append(broker, 3)
        await clock.sleep_ms(2000)
        offsets = [segment.base_offset for segment in log.segments]
        assert offsets == sorted(offsets)
        assert log.log_end_offset == written + 3
        assert broker.replicas.mover.moving == 0

    play(scenario)


def test_bytes_are_equal_after_a_move(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 60)
        before = content(broker.partition(TP).log)
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        assert content(await moved(broker)) == before

    play(scenario)


def test_high_watermarks_follow_to_the_other_directory(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 5)
        await clock.sleep_ms(6000)
        target = elsewhere(broker)
        broker.replicas.log_dirs.alter({TP: target})
        await moved(broker)
        await clock.sleep_ms(6000)
        assert (Path(target) / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
        assert broker.logs.read_high_watermarks() == {TP: 5}

    play(scenario)


def test_a_waiting_fetch_is_answered_from_the_new_log(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 2)
        answers: list[Any] = []
        entry = FetchPartition("t", 0, 2, 1 << 20)
        broker.replicas.fetch(FetchParams(60_000, 1, 1 << 20), [entry], answers.append)
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        await moved(broker)
        assert not answers
        append(broker, 1)
        ((result,),) = answers
        assert result.records is not None
        assert result.records.load()

    play(scenario)


def test_truncation_of_the_current_log_truncates_the_future_log(play: Play) -> None:
    """A follower truncates where its new leader's log diverges, and gets other records at the same offsets."""

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, FOLLOWING)
        log = broker.partition(TP).log

        def copy(epoch: int, count: int, value: bytes) -> None:
            for _ in range(count):
                records = record_set(value)
                stamp(records, 0, log.log_end_offset, epoch)
                log.append_as_follower(records)

        copy(5, 20, b"kept")
        copy(6, 20, b"lost")
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        future = broker.logs.future(TP)
        assert future is not None
        await copied(future, 30)
        log.truncate_to(25)
        log.truncate_to(20)
        copy(7, 30, b"other")
        before = content(log)
        assert content(await moved(broker)) == before
        assert future.end_offset_for_epoch(6) == (5, 20)

    play(scenario)


def test_a_restarted_log_is_copied_from_its_start(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 40)
        log = broker.partition(TP).log
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        future = broker.logs.future(TP)
        assert future is not None
        await copied(future, 20)
        log.truncate_fully_and_start_at(1000)
        append(broker, 5)
        after = await moved(broker)
        assert (after.log_start_offset, after.log_end_offset) == (1000, 1005)

    play(scenario)


def test_the_log_start_is_adopted_even_within_a_batch(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        broker.append(TP, b"a", b"b", b"c", acks=1)
        append(broker, 30)
        log = broker.partition(TP).log
        log.delete_records_before(1)
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        future = broker.logs.future(TP)
        assert future is not None
        await copied(future, 25)
        assert (future.log_start_offset, broker.logs.future(TP)) == (1, future)
        log.delete_records_before(20)
        after = await moved(broker)
        assert (after.log_start_offset, after.log_end_offset) == (20, 33)
        assert after.segments[0].base_offset == 0

    play(scenario)


def test_a_future_log_that_retention_overtakes_starts_where_the_current_one_does(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 100)
        log = broker.partition(TP).log
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        log.delete_records_before(90)
        log.delete_expired(clock.wall_ms())
        after = await moved(broker)
        assert (after.log_start_offset, after.log_end_offset) == (90, 100)
        assert after.read(90, max_bytes=1).length

    play(scenario)


# Answers


@pytest.mark.parametrize(
    ("tp", "path", "code"),
    [
        (TP, "/elsewhere", 57),
        (TP, "relative", 57),
        (OTHER, "{disk}", 3),
        (TopicPartition("x" * 240, 0), "{disk}", 17),
        (TP, "{disk}", 0),
    ],
)
def test_what_is_refused(play: Play, tp: TopicPartition, path: str, code: int) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        assert broker.replicas.log_dirs.alter({tp: path.format(disk=elsewhere(broker))}) == {tp: code}

    play(scenario)


def test_the_directory_of_a_replica_that_is_not_hosted_yet_is_remembered(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        for number, tp in enumerate((TP, OTHER)):
            broker.replicas.log_dirs.alter({tp: disk(broker, 1)})
            assume(broker, STATE, tp)
            assert broker.logs.directory_of(tp) == disk(broker, 1), number

    play(scenario)


def test_the_directory_that_it_lies_in_and_the_one_it_moves_to_change_nothing(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 50)
        here, there = broker.logs.directory_of(TP), elsewhere(broker)
        assert here is not None
        assert broker.replicas.log_dirs.alter({TP: here}) == {TP: 0}
        assert broker.logs.future(TP) is None
        broker.replicas.log_dirs.alter({TP: there})
        future = broker.logs.future(TP)
        assert broker.replicas.log_dirs.alter({TP: there + "/"}) == {TP: 0}
        assert broker.logs.future(TP) is future
        # Back to the current directory: the move is cancelled.
        assert broker.replicas.log_dirs.alter({TP: here}) == {TP: 0}
        assert broker.logs.future(TP) is None
        await clock.sleep_ms(5000)
        assert broker.logs.directory_of(TP) == here
        assert broker.replicas.mover.moving == 0
        assert broker.partition(TP).log.log_end_offset == 50

    play(scenario)


def test_a_deleted_replica_ends_its_move(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 50)
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        await asyncio.sleep(0)
        codes = broker.replicas.roles.stop([StopReplica(TP, leader_epoch=-2, delete=True)])
        assert codes == {TP: 0}
        await clock.sleep_ms(5000)
        assert broker.replicas.mover.moving == 0
        assert [name for path in broker.config.log_dirs for name in os.listdir(path) if name.startswith("t-")] == []

    play(scenario)


def test_an_offline_replica_does_not_move(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        target = elsewhere(broker)
        log = broker.partition(TP).log
        broker.logs.directory_failed(log, StorageError("dead", path=log.directory))
        await clock.sleep_ms(1)
        assert broker.replicas.log_dirs.alter({TP: target}) == {TP: 56}
        assert broker.replicas.log_dirs.alter({TP: log.directory.rpartition("/")[0]}) == {TP: 56}

    play(scenario)


# Restarts, retries, full disks


def test_a_move_continues_after_a_restart(play: Play, tmp_path: Path) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 200)
        target = elsewhere(broker)
        broker.replicas.log_dirs.alter({TP: target})
        future = broker.logs.future(TP)
        assert future is not None
        await copied(future, 50)
        await broker.close()
        end = future.log_end_offset
        assert 50 <= end < 200

        broker = await broker.cluster.start_broker(1)
        future = broker.logs.future(TP)
        assert future is not None
        assert future.log_end_offset == end
        assert broker.replicas.mover.moving == 0
        assume(broker)
        assert broker.replicas.mover.moving == 1
        log = await moved(broker)
        assert log is future
        assert log.log_end_offset == 200
        assert broker.logs.directory_of(TP) == target

    play(scenario)


def test_a_full_target_directory_is_retried(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker, 50)
        target = elsewhere(broker)
        broker.logs.space.refusals[target] = "no room"
        broker.replicas.log_dirs.alter({TP: target})
        await clock.sleep_ms(100)
        append(broker, 1)
        future = broker.logs.future(TP)
        assert future is not None
        assert future.log_end_offset == 0
        del broker.logs.space.refusals[target]
        await clock.sleep_ms(6000)
        assert broker.logs.directory_of(TP) == target
        assert broker.partition(TP).log.log_end_offset == 51

    play(scenario)


class Cleaning:
    """Counts the pauses of each log."""

    def __init__(self) -> None:
        self.paused: dict[TopicPartition, int] = {}

    async def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        self.paused[topic_partition] = self.paused.get(topic_partition, 0) + 1
        await asyncio.sleep(0.01)

    def resume(self, topic_partition: TopicPartition) -> None:
        self.paused[topic_partition] -= 1


@pytest.mark.parametrize("end", ["swap", "cancel", "close"])
def test_compaction_is_paused_while_a_log_moves(play: Play, end: str) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        cleaning = Cleaning()
        broker.replicas.mover.cleaning = cleaning
        assume(broker)
        append(broker, 50)
        here = broker.logs.directory_of(TP)
        assert here is not None
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        await asyncio.sleep(0.001)
        assert cleaning.paused == {TP: 1}
        if end == "swap":
            await moved(broker)
        elif end == "cancel":
            broker.replicas.log_dirs.alter({TP: here})
        else:
            await broker.replicas.mover.close()
        await clock.sleep_ms(100)
        assert cleaning.paused == {TP: 0}

    play(scenario)


def test_as_many_moves_at_once_as_there_are_directories(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        partitions = [TopicPartition("t", number) for number in range(6)]
        assume(broker, STATE, *partitions)
        for tp in partitions:
            append(broker, 50, tp)
        broker.replicas.log_dirs.alter({tp: elsewhere(broker, tp) for tp in partitions})
        await asyncio.sleep(0.001)
        begun = [tp for tp in partitions if (future := broker.logs.future(tp)) is not None and future.log_end_offset]
        assert len(begun) == 2
        for tp in partitions:
            assert (await moved(broker, tp)).log_end_offset == 50

    play(scenario)


def test_the_throttle_spreads_bytes_over_time() -> None:
    clock = ManualClock()
    throttle = MoveThrottle(clock)
    assert throttle.use(500, 1000) == 500
    assert throttle.use(500, 1000) == 1000
    clock.advance(700)
    assert throttle.use(100, 1000) == pytest.approx(400)
    clock.advance(10_000)
    assert throttle.use(1000, 1000) == 1000


def test_a_throttled_move_takes_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        settings = {"replica.fetch.max.bytes": "1000", "replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
        cluster = MemoryCluster(tmp_path, clock, settings=settings, disks=2)
        broker = await cluster.start_broker(1)
        assume(broker)
        append(broker, 150)
        size = broker.partition(TP).log.size_bytes
        started_ms = clock.monotonic_ms()
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        await moved(broker)
        assert clock.monotonic_ms() - started_ms >= size - 3000
        await cluster.close()

    run_virtual(main())


def test_a_changed_rate_applies_to_a_running_move(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        settings = {"replica.fetch.max.bytes": "1000", "replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
        cluster = MemoryCluster(tmp_path, clock, settings=settings, disks=2)
        broker = await cluster.start_broker(1)
        assume(broker)
        append(broker, 150)
        size = broker.partition(TP).log.size_bytes
        started_ms = clock.monotonic_ms()
        broker.replicas.log_dirs.alter({TP: elsewhere(broker)})
        await clock.sleep_ms(1)
        rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000000"}
        broker.replicas.mover.reconfigure(broker.config.with_dynamic(rate))
        await moved(broker)
        assert clock.monotonic_ms() - started_ms < size / 2
        await cluster.close()

    run_virtual(main())
