"""The replicas of a few brokers in one process: real logs and replica managers; connections and controller in memory.

For tests of replication only: there are no sockets and no ZooKeeper. Fetches between brokers are encoded and decoded,
and use the leader's fetch sessions, so followers receive what a server would send. `MemoryCluster` replaces the
controller: it elects leaders on request, and commits ISR changes if the epochs match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    FencedLeaderEpochError,
    InvalidUpdateVersionError,
    NetworkError,
    ProtocolError,
    StorageError,
    error_for,
)
from odradek.base.ports import Clock, DiskThreadsMaker, FileRegion, Files
from odradek.base.system_ports import SystemFiles
from odradek.base.types import EARLIEST_TIMESTAMP, TopicPartition
from odradek.cluster import MetadataCache
from odradek.compression import Codec
from odradek.log.log_manager import LogManager
from odradek.protocol.codec import decode_header
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    decode_fetch,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from odradek.records.v2.batch import BatchBuilder
from odradek.replication.follower.fetch_loop import LeaderChannel
from odradek.replication.partition import EpochEnd, LeaderAndIsrState
from odradek.replication.partition_table import HostedPartition
from odradek.replication.replica_manager import ReplicaManager, ReplicaPorts
from odradek.replication.replica_requests import AppendRequest, AppendResult, CommittedIsr, FetchParams, FetchResult
from odradek.replication.sessions.fetch_session import FetchAnswer, FetchSessions
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.logs import is_flush

T = TypeVar("T")

TOPIC_ID = UUID(int=0x0D12ADE4)


def record_set(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> memoryview:
    """Return a writable batch with a record for each value."""
    builder = BatchBuilder(codec=Codec.NONE, limit_bytes=1 << 30)
    for value in values:
        builder.append(None, value, timestamp_ms=timestamp_ms)
    return memoryview(bytearray(builder.build()))


class SlowFlushes:
    """`RunBlocking` in which a flush takes virtual time, or waits while `gate` is closed; other calls run at once."""

    def __init__(self, delay_ms: float = 0.0) -> None:
        """`delay_ms`: duration of a flush."""
        self.delay_ms = delay_ms
        self.begun = 0
        """Number of flushes so far."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: StorageError | None = None
        """Raised by every flush."""

    async def __call__(self, function: Callable[[], T], /) -> T:
        """Run a function."""
        if not is_flush(function):
            return function()
        self.begun += 1
        await asyncio.sleep(self.delay_ms / 1000)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return function()


class MemoryBroker:
    """The logs and replicas of one broker."""

    def __init__(
        self, cluster: MemoryCluster, broker_id: int, directory: Path, clock: Clock, settings: dict[str, str]
    ) -> None:
        """Starts nothing yet."""
        self.broker_id = broker_id
        self.config = BrokerConfig.parse(
            {
                "broker.id": str(broker_id),
                "log.dirs": ",".join(str(directory / f"disk-{number}") for number in range(cluster.disks)),
                "zookeeper.connect": "localhost:2181",
                "listeners": "PLAINTEXT://localhost:9092",
                **settings,
            }
        )[0]
        self.clock = clock
        self.cluster = cluster
        self.logs = LogManager(cluster.files, clock, self.config, disk_threads=cluster.disk_threads)
        self.view = MetadataCache()
        """The broker's metadata image; empty unless a test sets it."""
        self.replicas = ReplicaManager(
            self.logs,
            clock,
            self.config,
            ReplicaPorts(
                isr_writer=cluster,
                cluster=self.view,
                topic_config=lambda _: TopicConfig.of(self.config, cluster.topic_settings),
                connect=self._connect,
            ),
        )
        self.sessions = FetchSessions(clock, slots=10, resting=self.replicas.resting)
        self.logs.on_directory_failure = self.replicas.directory_failed

    async def start(self) -> None:
        """Load the logs and start the periodic work."""
        await self.logs.start("memory", self.broker_id)
        self.replicas.start()

    async def close(self, *, clean: bool = True) -> None:
        """Stop. Without `clean`, the files are left as if the process was killed."""
        if self.cluster.brokers.get(self.broker_id) is self:
            del self.cluster.brokers[self.broker_id]  # no other broker can reach it from now on
        await self.replicas.close()
        await self.logs.close(clean=clean)

    def partition(self, topic_partition: TopicPartition) -> HostedPartition:
        """Return the hosted partition."""
        return self.replicas.partition(topic_partition)

    def append(
        self, topic_partition: TopicPartition, *values: bytes, acks: int = -1, timeout_ms: int = 30_000
    ) -> asyncio.Future[AppendResult]:
        """Append one batch and return the result once the request is answered."""
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.replicas.append(
            AppendRequest(acks, timeout_ms, [(topic_partition, record_set(*values))]),
            lambda results: outcome.set_result(results[0]),
        )
        return outcome

    def content(self, topic_partition: TopicPartition) -> bytes:
        """Return all bytes of the partition's log."""
        log = self.partition(topic_partition).log
        return log.read(log.log_start_offset, max_bytes=1 << 30, min_one_batch=True).load()

    async def serve_fetch(self, version: int, frame: bytes) -> bytes:
        """Handle a Fetch frame like a server, and return the response frame."""
        header, position = decode_header(memoryview(frame))
        request = decode_fetch(version, memoryview(frame), position)
        context = self.sessions.open(request, self.cluster.topic_name, uses_topic_ids=version >= 13)
        outcome: asyncio.Future[FetchAnswer] = asyncio.get_running_loop().create_future()
        params = FetchParams(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.replica_id,
            leader_only=version < 11,
            rack_id=request.rack_id,
            replica_epoch=request.replica_epoch,
        )

        def respond(results: Sequence[FetchResult]) -> None:
            if not outcome.done():  # The follower may have closed its connection.
                outcome.set_result(context.finish(results))

        self.replicas.fetch(params, context.entries, respond, session=context.session)
        answer = await outcome
        for entry, result in answer.partitions:
            if result.records is not None and request.replica_id >= 0:
                self.replicas.quotas.leader.note(entry.topic_partition, result.records.length)
        rows = [
            FetchedPartition(
                entry.topic_partition.topic if version < 13 else None,
                entry.topic_id if version >= 13 else None,
                entry.topic_partition.partition,
                result.error_code,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
                b"" if result.records is None else result.records.load(),
                preferred_read_replica=result.preferred_read_replica,
                diverging_epoch=result.diverging_epoch,
            )
            for entry, result in answer.partitions
        ]
        parts = encode_fetch_response(
            version, header.correlation_id, rows, error_code=answer.error_code, session_id=answer.session_id
        )
        return b"".join([part.load() if isinstance(part, FileRegion) else part for part in parts])[4:]

    async def _connect(self, leader_id: int, client_id: str) -> LeaderChannel:
        self.cluster.check_link(self.broker_id, leader_id)
        self.cluster.connections.append((client_id, leader_id))
        return _MemoryChannel(self.cluster, self.broker_id, leader_id)


class _MemoryChannel:
    """A `LeaderChannel` that calls the leader's replica manager directly."""

    def __init__(self, cluster: MemoryCluster, from_id: int, to_id: int) -> None:
        self._cluster = cluster
        self._from_id = from_id
        self._to_id = to_id
        self.fetch_version = cluster.fetch_version

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        frame = encode_fetch_request(version, 7, "follower", request)[4:]
        response = await self._leader().serve_fetch(version, frame)
        self._leader()
        return decode_fetch_response(version, memoryview(response))

    async def list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        await asyncio.sleep(0)
        log = self._leader().replicas.leader(topic_partition, leader_epoch).log
        return log.log_start_offset if timestamp == EARLIEST_TIMESTAMP else log.log_end_offset

    async def epoch_end(self, topic_partition: TopicPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        await asyncio.sleep(0)
        found = self._leader().replicas.leader(topic_partition, leader_epoch).log.end_offset_for_epoch(epoch)
        return EpochEnd(found.leader_epoch, found.end_offset)

    async def close(self) -> None:
        await asyncio.sleep(0)

    def _leader(self) -> MemoryBroker:
        self._cluster.check_link(self._from_id, self._to_id)
        return self._cluster.brokers[self._to_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionState:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


class MemoryCluster:
    """Brokers, the links between them, and a controller that the test directs. Also the `IsrWriter` of the brokers."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        settings: dict[str, str] | None = None,
        topic_settings: dict[str, str] | None = None,
        fetch_version: int = 17,
        disks: int = 1,
        disk_threads: DiskThreadsMaker = inline_threads,
        files: Files | None = None,
    ) -> None:
        """`settings` are for all brokers, `topic_settings` for all topics; `fetch_version` is the newest Fetch version.

        Each broker has `disks` log directories: `broker-1/disk-0` and so on.
        """
        self.fetch_version = fetch_version
        self.disks = disks
        self.disk_threads = disk_threads
        self.files = files or SystemFiles()
        self.topic_settings = topic_settings or {}
        self.brokers: dict[int, MemoryBroker] = {}
        self.connections: list[tuple[str, int]] = []
        self.isr_writes: list[tuple[int, ...]] = []
        self.isr_refusals: list[ProtocolError] = []
        """Errors with which the next ISR changes are answered, without evaluating them."""
        self._directory = directory
        self._clock = clock
        self._settings = settings or {}
        self._cut: set[int] = set()
        self._states: dict[TopicPartition, _PartitionState] = {}

    async def start_broker(self, broker_id: int) -> MemoryBroker:
        """Start or restart a broker on its directory."""
        directory = self._directory / f"broker-{broker_id}"
        broker = MemoryBroker(self, broker_id, directory, self._clock, self._settings)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def close(self) -> None:
        """Stop every broker."""
        for broker in list(self.brokers.values()):
            await broker.close()

    def cut(self, *broker_ids: int) -> None:
        """Break all links from and to these brokers."""
        self._cut |= set(broker_ids)

    def heal(self) -> None:
        """Restore all links."""
        self._cut.clear()

    def check_link(self, from_id: int, to_id: int) -> None:
        """Raise `NetworkError` if one of the two brokers is isolated or stopped."""
        if {from_id, to_id} & self._cut or to_id not in self.brokers:
            raise NetworkError(f"no link from broker {from_id} to {to_id}")

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the topic id, the same for all topics because tests use only one."""
        names = {tp.topic for tp in self._states}
        return names.pop() if topic_id == TOPIC_ID and len(names) == 1 else None

    def isr(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the committed ISR."""
        return self._states[topic_partition].isr

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch of the last election."""
        return self._states[topic_partition].leader_epoch

    def create(
        self, topic_partition: TopicPartition, replicas: Iterable[int], *, inform: Iterable[int] | None = None
    ) -> None:
        """Create a partition led by its first replica, and send it to the brokers `tell` (default: all replicas)."""
        replicas = tuple(replicas)
        self._states[topic_partition] = _PartitionState(
            leader=replicas[0], leader_epoch=0, isr=replicas, replicas=replicas, partition_epoch=0
        )
        self.announce(topic_partition, replicas if inform is None else inform, is_new=True)

    def elect(self, topic_partition: TopicPartition, leader: int, isr: Iterable[int], inform: Iterable[int]) -> None:
        """Make a replica the leader in the next epoch, and inform these brokers."""
        state = self._states[topic_partition]
        self._states[topic_partition] = replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            isr=tuple(isr),
            partition_epoch=state.partition_epoch + 1,
        )
        self.announce(topic_partition, inform)

    def announce(self, topic_partition: TopicPartition, inform: Iterable[int], *, is_new: bool = False) -> None:
        """Send LeaderAndIsr to these brokers."""
        state = self._states[topic_partition]
        for broker_id in inform:
            codes = self.brokers[broker_id].replicas.roles.apply(
                [
                    (
                        topic_partition,
                        TOPIC_ID,
                        LeaderAndIsrState(
                            controller_epoch=1,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=state.isr,
                            replicas=state.replicas,
                            partition_epoch=state.partition_epoch,
                            is_new=is_new,
                        ),
                    )
                ],
            )
            for code in codes.values():
                if code:
                    raise error_for(code, f"broker {broker_id} refused its role")

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """Commit an ISR as the controller does."""
        await asyncio.sleep(0.01)
        self.isr_writes.append(new_isr)
        if self.isr_refusals:
            raise self.isr_refusals.pop(0)
        state = self._states[topic_partition]
        if leader_epoch != state.leader_epoch:
            raise FencedLeaderEpochError(f"epoch {leader_epoch} is not {state.leader_epoch}")
        if partition_epoch != state.partition_epoch:
            raise InvalidUpdateVersionError(f"version {partition_epoch} is not {state.partition_epoch}")
        state = replace(state, isr=new_isr, partition_epoch=partition_epoch + 1)
        self._states[topic_partition] = state
        return CommittedIsr(
            leader=state.leader, leader_epoch=leader_epoch, isr=new_isr, partition_epoch=state.partition_epoch
        )


LED: Final = LeaderAndIsrState(
    controller_epoch=3, leader=1, leader_epoch=5, isr=(1,), replicas=(1,), partition_epoch=2, is_new=True
)
"""Broker 1 is the leader and has the only replica."""
REPLICATED: Final = replace(LED, isr=(1, 2), replicas=(1, 2))
"""Broker 1 is the leader, broker 2 an in-sync follower."""


def assume(broker: MemoryBroker, state: LeaderAndIsrState = LED, *partitions: TopicPartition) -> list[int]:
    """Assign a role in partitions (default: t-0) to a broker. Returns the error codes of its answer."""
    wanted = partitions or (TopicPartition("t", 0),)
    states = [(partition, TOPIC_ID, state) for partition in wanted]
    broker.replicas.roles.admit(state.controller_epoch)
    return list(broker.replicas.roles.apply(states).values())
