"""A fetch loop with a scripted leader and two partitions with real logs, for tests of the loop.

`play_fetching` runs a scenario in virtual time; `running` lets the loop run during a scenario and checks its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import NetworkError
from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.log.log_manager import LogManager
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.hotpath import FetchedPartition, FetchRequest, FetchResponse
from odradek.records.v2.batch import read_header, stamp
from odradek.replication.follower.fetch_loop import ReplicaFetcher
from odradek.replication.partition import EpochEnd, LeaderAndIsrState, Partition
from odradek.replication.partition_table import HostedPartition
from odradek.replication.sessions.follower_session import Followed
from odradek_testkit.inline_ports import inline_threads
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
        """Create a leader without batches, whose gate is open."""
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
        """Open a connection, after a moment."""
        await asyncio.sleep(0.001)
        if self.refuse_connections:
            raise NetworkError("refused")
        self.connects += 1
        self.open += 1
        return self

    async def close(self) -> None:
        """Close a connection."""
        await asyncio.sleep(0.001)
        self.open -= 1

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        """Answer a fetch after 100 ms and when the gate is open."""
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
        """Return the log start for timestamp -2, otherwise the log end."""
        await asyncio.sleep(0.001)
        stored = self.batches[topic_partition]
        return self.starts.get(topic_partition, 0) if timestamp == -2 else read_header(stored[-1]).next_offset

    async def epoch_end(self, topic_partition: TopicPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        """Fail: this leader returns the diverging epoch in its fetch responses."""
        raise AssertionError("not requested from a leader that returns the diverging epoch")


class Bench:
    """A fetcher, its leader and two partitions with real logs."""

    def __init__(self, logs: LogManager, clock: VirtualClock, config: BrokerConfig) -> None:
        """Create the loop, which follows nothing yet, and both partitions as followers in leader epoch 1."""
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
        """Follow broker 1 in a leader epoch."""
        partition.become_follower(
            LeaderAndIsrState(
                controller_epoch=1, leader=1, leader_epoch=epoch, isr=(1, 2), replicas=(1, 2), partition_epoch=epoch
            )
        )

    def follow(self, *tps: TopicPartition) -> None:
        """Let the loop follow partitions."""
        for tp in tps:
            self.fetcher.follow(Followed(self.partitions[tp]))

    def end(self, tp: TopicPartition) -> int:
        """Return the log end offset of a partition."""
        return self.partitions[tp].log.log_end_offset


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


def play_fetching(folder: Path, scenario: Scenario) -> None:
    """Run a scenario with a new bench in virtual time; the logs are in `folder`."""

    async def main() -> None:
        clock = VirtualClock()
        config, _ = BrokerConfig.parse(
            {
                "broker.id": "2",
                "log.dirs": str(folder / "logs"),
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


def running(scenario: Scenario) -> Scenario:
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
