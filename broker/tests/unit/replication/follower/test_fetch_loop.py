"""The fetch loop with a scripted leader: requests, appended records, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import NetworkError, StorageError
from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.log.log_manager import LogManager
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.hotpath import FetchedPartition, FetchRequest, FetchResponse
from odradek.records.v2.batch import read_header, stamp
from odradek.replication.follower.fetch_loop import ReplicaFetcher
from odradek.replication.partition import EpochEnd, LeaderAndIsrState, Partition
from odradek.replication.partition_table import HostedPartition
from odradek.replication.sessions import follower_session as leader_session
from odradek.replication.sessions.follower_session import Followed
from odradek_testkit.disk_threads import inline_threads
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import record_set

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)
BACKOFF_MS = 1000


def batch(offset: int, *values: bytes, epoch: int = 1) -> bytes:
    """Return a batch as a leader stores it."""
    records = record_set(*values)
    stamp(records, 0, offset, epoch)
    return bytes(records)


class ScriptedLeader:
    """Serves fixed batches by offset; errors and gates can be set. Counts open connections."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {TP0: [], TP1: []}
        self.errors: dict[TopicPartition, int] = {}
        self.diverging: dict[TopicPartition, tuple[int, int]] = {}
        self.session_errors: list[int] = []
        self.starts: dict[TopicPartition, int] = {}
        self.refuse_connections = False
        self.fail_fetches = 0
        self.requests: list[FetchRequest] = []
        self.open = 0
        self.connects = 0
        self.fetch_version = 12
        self.gate = asyncio.Event()
        self.gate.set()
        self._wanted: dict[TopicPartition, Any] = {}

    async def connect(self, leader_id: int, client_id: str) -> ScriptedLeader:
        await asyncio.sleep(0.001)
        if self.refuse_connections:
            raise NetworkError("refused")
        self.connects += 1
        self.open += 1
        return self

    async def close(self) -> None:
        await asyncio.sleep(0.001)
        self.open -= 1

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        self.requests.append(request)
        if request.session_epoch == 0:
            self._wanted.clear()
        for entry in request.entries:
            self._wanted[TopicPartition(entry.topic or "", entry.partition)] = entry
        for gone in request.forgotten:
            self._wanted.pop(TopicPartition(gone.topic or "", gone.partition), None)
        wanted = dict(self._wanted)
        await asyncio.sleep(0.1)
        await self.gate.wait()
        if self.fail_fetches:
            self.fail_fetches -= 1
            raise NetworkError("cut")
        if self.session_errors:
            return FetchResponse([], error_code=self.session_errors.pop(0))
        return FetchResponse([self._serve(tp, entry) for tp, entry in wanted.items()], session_id=9)

    def _serve(self, tp: TopicPartition, entry: Any) -> FetchedPartition:
        if tp in self.errors:
            return FetchedPartition(tp.topic, None, tp.partition, self.errors[tp])
        if tp in self.diverging:
            return FetchedPartition(tp.topic, None, tp.partition, diverging_epoch=self.diverging.pop(tp))
        stored = self.batches[tp]
        end = read_header(stored[-1]).next_offset if stored else 0
        data = b"".join(one for one in stored if read_header(one).base_offset >= entry.fetch_offset)
        return FetchedPartition(tp.topic, None, tp.partition, 0, end, end, self.starts.get(tp, 0), memoryview(data))

    async def list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        await asyncio.sleep(0.001)
        stored = self.batches[topic_partition]
        return self.starts.get(topic_partition, 0) if timestamp == -2 else read_header(stored[-1]).next_offset

    async def epoch_end(self, topic_partition: TopicPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        raise AssertionError("not requested from a leader that returns the diverging epoch")


class Bench:
    """A fetcher, its leader and two partitions with real logs."""

    def __init__(self, logs: LogManager, clock: VirtualClock, config: BrokerConfig) -> None:
        self.leader = ScriptedLeader()
        self.clock = clock
        self.logs = logs
        self.config = config
        self.changes: list[TopicPartition] = []
        self.offline: list[TopicPartition] = []
        self.stats = BrokerTopicStats()
        self.fetcher = ReplicaFetcher(
            1,
            "broker-2-fetcher-0",
            clock,
            config,
            connect=self.leader.connect,
            on_change=self.changes.append,
            on_storage_failure=self.offline.append,
            stats=self.stats,
        )
        self.partitions = {tp: self._partition(tp) for tp in (TP0, TP1)}

    def _partition(self, tp: TopicPartition) -> HostedPartition:
        log = self.logs.get_or_create(tp, UUID(int=4), TopicConfig.of(self.config, {}), is_new=True)
        partition = Partition(tp, log, local_id=2, lag_max_ms=30_000)
        self.reign(partition, 1)
        return partition

    @staticmethod
    def reign(partition: HostedPartition, epoch: int) -> None:
        partition.become_follower(
            LeaderAndIsrState(
                controller_epoch=1, leader=1, leader_epoch=epoch, isr=(1, 2), replicas=(1, 2), partition_epoch=epoch
            )
        )

    def follow(self, *tps: TopicPartition) -> None:
        for tp in tps:
            self.fetcher.follow(Followed(self.partitions[tp]))

    def end(self, tp: TopicPartition) -> int:
        return self.partitions[tp].log.log_end_offset


Play = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            clock = VirtualClock()
            config, _ = BrokerConfig.parse(
                {
                    "broker.id": "2",
                    "log.dirs": str(tmp_path / "logs"),
                    "zookeeper.connect": "localhost:2181",
                    "replica.fetch.backoff.ms": str(BACKOFF_MS),
                }
            )
            logs = LogManager(SystemFiles(), clock, config, disk_threads=inline_threads)
            await logs.start("c", 2)
            try:
                await scenario(Bench(logs, clock, config))
            finally:
                await logs.close()

        run_virtual(main())

    return run


def running(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[Bench], Coroutine[Any, Any, None]]:
    """Run the scenario during the loop, which afterwards must end and close its connection."""

    async def wrapped(bench: Bench) -> None:
        task = asyncio.ensure_future(bench.fetcher.run())
        await scenario(bench)
        bench.leader.gate.set()
        for tp in list(bench.fetcher.followed):
            bench.fetcher.unfollow(tp)
        await task
        assert bench.fetcher.is_ended
        assert bench.leader.open == 0

    return wrapped


def test_copies_batches_unchanged_and_adopts_the_leaders_offsets(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a", b"b"), batch(2, b"c", epoch=2)]
        await bench.clock.sleep_ms(150)
        log = bench.partitions[TP0].log
        assert log.read(0, max_bytes=1 << 20).load() == b"".join(bench.leader.batches[TP0])
        assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (3, 3, 2)
        assert bench.changes == [TP0]
        assert bench.stats.replication_bytes_in == sum(map(len, bench.leader.batches[TP0]))
        bench.leader.starts[TP0] = 2
        await bench.clock.sleep_ms(250)
        assert log.log_start_offset == 2

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_batch_with_a_wrong_crc_is_counted(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")[:-1] + b"?"]
        await bench.clock.sleep_ms(150)
        assert bench.stats.of(TP0.topic).invalid_crc == 1
        assert bench.end(TP0) == 0

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_sends_only_changes(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(350)
        first, second, third = bench.leader.requests[:3]
        assert (first.session_epoch, len(first.entries), first.replica_id) == (0, 2, 2)
        assert (second.session_id, second.session_epoch) == (9, 1)
        assert [(one.partition, one.fetch_offset, one.last_fetched_epoch) for one in second.entries] == [(0, 1, 1)]
        assert (third.session_epoch, third.entries) == (2, [])

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_what_one_request_cannot_add_is_added_at_once_by_the_next(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_session, "MOST_ADDED", 1)

    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(350)
        first, second, third = bench.leader.requests[:3]
        assert [(one.partition, one.fetch_offset) for one in first.entries] == [(0, 0)]
        assert [(one.partition, one.fetch_offset) for one in second.entries] == [(0, 1), (1, 0)]
        assert (first.max_wait_ms, second.max_wait_ms, third.max_wait_ms) == (0, 500, 500)
        assert (bench.end(TP0), bench.end(TP1)) == (1, 1)

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_partitions_come_and_go_while_it_runs(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.clock.sleep_ms(150)
        bench.follow(TP1)
        bench.fetcher.unfollow(TP0)
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(250)
        assert [one.partition for one in bench.leader.requests[2].forgotten] == [0]
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_partition_that_waits_for_a_flush_leaves_the_fetches_and_returns(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        log.update_config(replace(log.config, flush_messages=1))
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(250)
        first, second, third = bench.leader.requests[:3]
        assert (len(first.entries), first.max_wait_ms) == (2, 500)
        assert ([gone.partition for gone in second.forgotten], second.max_wait_ms) == ([0], 10)
        assert (third.entries, third.forgotten, third.max_wait_ms) == ([], [], 10)
        bench.fetcher.flushed(TP0)
        await bench.clock.sleep_ms(100)
        assert [(one.partition, one.fetch_offset) for one in bench.leader.requests[3].entries] == [(0, 1)]
        assert bench.leader.requests[3].max_wait_ms == 500

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_if_all_partitions_wait_for_a_flush_the_loop_waits_for_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        log.update_config(replace(log.config, flush_messages=1))
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(5000)
        assert len(bench.leader.requests) == 1
        bench.fetcher.flushed(TP0)
        await bench.clock.sleep_ms(50)
        assert [(one.partition, one.fetch_offset) for one in bench.leader.requests[1].entries] == [(0, 1)]

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_what_comes_after_a_change_of_the_reign_is_dropped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.gate.clear()
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(200)
        bench.reign(bench.partitions[TP0], 2)  # not yet followed again
        bench.leader.gate.set()
        await bench.clock.sleep_ms(10)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        bench.leader.gate.clear()
        await bench.clock.sleep_ms(200)
        bench.follow(TP0)
        bench.leader.gate.set()
        await bench.clock.sleep_ms(10)
        assert bench.end(TP0) == 0  # requested in the old leader epoch
        await bench.clock.sleep_ms(250)
        assert bench.end(TP0) == 1
        forgets = next(one for one in bench.leader.requests if one.forgotten)
        assert ([gone.partition for gone in forgets.forgotten], forgets.max_wait_ms) == ([0], 0)
        assert bench.leader.requests[-1].session_epoch > 0

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_diverging_epoch_truncates_the_log(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        for offset in range(4):
            log.append_as_follower(memoryview(batch(offset, b"old", epoch=1)))
        bench.leader.batches[TP0] = [batch(offset, b"old", epoch=1) for offset in range(2)] + [
            batch(2, b"new", epoch=3)
        ]
        bench.leader.diverging[TP0] = (1, 2)
        await bench.clock.sleep_ms(150)
        assert log.log_end_offset == 2
        await bench.clock.sleep_ms(100)
        assert log.read(0, max_bytes=1 << 20).load() == b"".join(bench.leader.batches[TP0])

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize("code", [3, 6, 75, 100])
def test_a_leader_without_its_role_is_retried_soon_and_then_less_often(play: Play, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = code
        await bench.clock.sleep_ms(10 * BACKOFF_MS)
        asked = len(bench.leader.requests)
        assert 10 < asked < 17, "delays of 20, 40, ... 640 ms, then of a second, and 100 ms for each answer"
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        bench.leader.errors[TP0] = code
        before = len(bench.leader.requests)
        await bench.clock.sleep_ms(400)
        assert len(bench.leader.requests) >= before + 2, "it was leader in between: the delays are short again"

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_what_rests_for_a_moment_does_not_wait_for_news_of_the_others(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = 6
        await bench.clock.sleep_ms(150)
        waits = [request.max_wait_ms for request in bench.leader.requests]
        assert waits == [500, 20]

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_refusal_is_logged_once_and_when_it_ends(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[object]:
        lines = [one for one in caplog.records if one.name == "odradek.replication.follower.fetch_loop"]
        return [one.args for one in lines if one.levelno >= logging.INFO]

    async def scenario(bench: Bench) -> None:
        bench.leader.errors = {TP0: 75, TP1: 75}
        await bench.clock.sleep_ms(5 * BACKOFF_MS)
        assert len(bench.leader.requests) > 5
        assert told() == [(1, 75, 2)]
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert told() == [(1, 75, 2), (1, 75)]
        bench.leader.errors[TP0] = 75
        await bench.clock.sleep_ms(150)
        bench.fetcher.unfollow(TP0)
        await bench.clock.sleep_ms(200)
        assert told()[2:] == [(1, 75, 1), (1, 75)]

    async def start(bench: Bench) -> None:
        caplog.set_level(logging.DEBUG)
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize("code", [9, 56, 103])
def test_an_error_delays_that_partition_alone(play: Play, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = code
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(150)
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS - 200)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        await bench.clock.sleep_ms(400)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_fenced_epoch_waits_for_the_next_leader_epoch(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = 74
        await bench.clock.sleep_ms(10 * BACKOFF_MS)
        assert len(bench.leader.requests) == 1
        bench.leader.errors.clear()
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.reign(bench.partitions[TP0], 2)
        bench.follow(TP0)
        await bench.clock.sleep_ms(150)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_corrupt_batch_delays_only_its_partition_and_is_fetched_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        broken = bytearray(batch(0, b"value"))
        broken[-1] ^= 1
        bench.leader.batches[TP0], bench.leader.batches[TP1] = [bytes(broken)], [batch(0, b"a")]
        await bench.clock.sleep_ms(150)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        bench.leader.batches[TP0] = [batch(0, b"value")]
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_failed_log_goes_offline_and_other_logs_continue(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        bench.partitions[TP0].log.take_offline(StorageError("disk gone"))
        await bench.clock.sleep_ms(150)
        assert bench.offline == [TP0]
        assert bench.end(TP1) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize(("start_offset", "length", "expected"), [(5, 1, (5, 6)), (0, 1, (0, 1))])
def test_out_of_range_finds_the_leaders_offsets(
    play: Play, start_offset: int, length: int, expected: tuple[int, int]
) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        for offset in range(3):
            log.append_as_follower(memoryview(batch(offset, b"old", epoch=1)))
        bench.leader.batches[TP0] = [batch(start_offset, *[b"x"] * length)]
        bench.leader.starts[TP0] = start_offset
        bench.leader.errors[TP0] = 1
        await bench.clock.sleep_ms(150)
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(200)
        assert (log.log_start_offset, log.log_end_offset) == expected

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_an_inexplicable_out_of_range_does_not_spin(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.partitions[TP0].log.append_as_follower(memoryview(batch(0, b"a")))
        bench.leader.errors[TP0] = 1
        await bench.clock.sleep_ms(5 * BACKOFF_MS)
        assert len(bench.leader.requests) <= 6

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 9), (106, 9)])
def test_a_lost_session_is_begun_anew(play: Play, code: int, session_id: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.clock.sleep_ms(150)
        bench.leader.session_errors.append(code)
        await bench.clock.sleep_ms(200)
        full = bench.leader.requests[2]
        assert (full.session_id, full.session_epoch, len(full.entries)) == (session_id, 0, 2)
        assert bench.leader.connects == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_lost_connection_is_opened_again_after_a_delay(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.fail_fetches = 1
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(BACKOFF_MS)
        assert bench.leader.connects == 1
        await bench.clock.sleep_ms(300)
        assert bench.leader.connects == 2
        assert bench.leader.requests[1].session_epoch == 0
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_an_unreachable_leader_is_tried_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.refuse_connections = True
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(3 * BACKOFF_MS)
        bench.leader.refuse_connections = False
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize("after_ms", [0, 0.5, 1.5, 50, 101.5, 150, 202, 210, 700, 1215])
def test_cancelled_anywhere_it_closes_its_connection(play: Play, after_ms: float) -> None:
    """While connecting, fetching, finding offsets, waiting with all partitions delayed, and waiting after a failure."""

    async def scenario(bench: Bench) -> None:
        bench.follow(TP0)
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.partitions[TP0].log.append_as_follower(memoryview(batch(0, b"a")))
        bench.leader.errors[TP0] = 1
        task = asyncio.ensure_future(bench.fetcher.run())
        await bench.clock.sleep_ms(after_ms)
        bench.leader.fail_fetches = 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.leader.open == 0
        assert bench.fetcher.is_ended

    play(scenario)
