"""A few brokers' replicas in one process: real logs, real replica managers, channels and controller in memory.

For tests of replication alone: no sockets, no ZooKeeper. A fetch between brokers goes through the wire codec both ways
and through the leader's fetch sessions, so followers see what a server would send. `MemoryCluster` also stands for the
controller: it decides leaders when told to, and commits in-sync sets on condition of the epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
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
    error_for,
)
from odradek.base.ports import Clock, FileRegion
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
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendRequest, AppendResult, CommittedIsr, FetchParams
from odradek.replication.sessions.fetch_session import FetchAnswer, FetchSessions

T = TypeVar("T")

TOPIC_ID = UUID(int=0x0D12ADE4)


def record_set(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> memoryview:
    """One writable batch with a record for each value."""
    builder = BatchBuilder(codec=Codec.NONE, limit_bytes=1 << 30)
    for value in values:
        builder.append(None, value, timestamp_ms=timestamp_ms)
    return memoryview(bytearray(builder.build()))


async def at_once(function: Callable[[], T], /) -> T:
    """`RunBlocking` without threads."""
    return function()


class MemoryBroker:
    """One broker's logs and replicas."""

    def __init__(
        self, cluster: MemoryCluster, broker_id: int, directory: Path, clock: Clock, settings: dict[str, str]
    ) -> None:
        """Not started yet."""
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
        self.logs = LogManager(SystemFiles(), clock, self.config, run_blocking=at_once)
        self.view = MetadataCache()
        """What the broker knows of the others; nothing, unless a test says more."""
        self.replicas = ReplicaManager(
            self.logs,
            clock,
            self.config,
            cluster,
            cluster=self.view,
            topic_config=lambda _: TopicConfig.of(self.config, cluster.topic_settings),
            connect=self._connect,
        )
        self.sessions = FetchSessions(clock, slots=10, resting=self.replicas.resting)
        self.logs.on_directory_failure = self.replicas.directory_failed

    async def start(self) -> None:
        """Load the logs and begin the periodic work."""
        await self.logs.start("memory", self.broker_id)
        self.replicas.start()

    async def close(self, *, clean: bool = True) -> None:
        """Stop; without `clean` as if killed, as far as the files can tell."""
        if self.cluster.brokers.get(self.broker_id) is self:
            del self.cluster.brokers[self.broker_id]  # nobody reaches it from now on
        await self.replicas.close()
        await self.logs.close(clean=clean)

    def partition(self, topic_partition: TopicPartition) -> HostedPartition:
        """The hosted partition."""
        return self.replicas.partition(topic_partition)

    def append(
        self, topic_partition: TopicPartition, *values: bytes, acks: int = -1, timeout_ms: int = 30_000
    ) -> asyncio.Future[AppendResult]:
        """Append one batch; the result comes with the answer."""
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.replicas.append(
            AppendRequest(acks, timeout_ms, [(topic_partition, record_set(*values))]),
            lambda results: outcome.set_result(results[0]),
        )
        return outcome

    def content(self, topic_partition: TopicPartition) -> bytes:
        """All bytes of the partition's log."""
        log = self.partition(topic_partition).log
        return log.read(log.log_start_offset, max_bytes=1 << 30, min_one_batch=True).load()

    async def serve_fetch(self, version: int, frame: bytes) -> bytes:
        """What a server does with a Fetch frame; the response frame."""
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
        self.replicas.fetch(
            params,
            context.entries,
            lambda results: outcome.set_result(context.finish(results)),
            session=context.session,
        )
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
    """`LeaderChannel` straight into the leader's replica manager."""

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
    """Brokers, the links between them, and a controller that does as it is told. Also the brokers' `IsrWriter`."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        settings: dict[str, str] | None = None,
        topic_settings: dict[str, str] | None = None,
        fetch_version: int = 17,
        disks: int = 1,
    ) -> None:
        """`settings` of every broker, `topic_settings` of every topic; brokers up to `fetch_version` of Fetch.

        Each broker has as many log directories as there are `disks`: `broker-1/disk-0` and so on.
        """
        self.fetch_version = fetch_version
        self.disks = disks
        self.topic_settings = topic_settings or {}
        self.brokers: dict[int, MemoryBroker] = {}
        self.connections: list[tuple[str, int]] = []
        self.isr_writes: list[tuple[int, ...]] = []
        self.isr_refusals: list[ProtocolError] = []
        """Answers to the next in-sync set writes, before they are looked at."""
        self._directory = directory
        self._clock = clock
        self._settings = settings or {}
        self._cut: set[int] = set()
        self._states: dict[TopicPartition, _PartitionState] = {}

    async def start_broker(self, broker_id: int) -> MemoryBroker:
        """Start a broker on its directory, for the first time or again."""
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
        """Nothing gets from or to these brokers any more."""
        self._cut |= set(broker_ids)

    def heal(self) -> None:
        """All links work again."""
        self._cut.clear()

    def check_link(self, from_id: int, to_id: int) -> None:
        """Raises `NetworkError` when one of the two is cut off or stopped."""
        if {from_id, to_id} & self._cut or to_id not in self.brokers:
            raise NetworkError(f"no link from broker {from_id} to {to_id}")

    def topic_name(self, topic_id: UUID) -> str | None:
        """All topics here share one id, as there is one topic."""
        names = {tp.topic for tp in self._states}
        return names.pop() if topic_id == TOPIC_ID and len(names) == 1 else None

    def isr(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """The committed in-sync set."""
        return self._states[topic_partition].isr

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch of the last election."""
        return self._states[topic_partition].leader_epoch

    def create(
        self, topic_partition: TopicPartition, replicas: Iterable[int], *, tell: Iterable[int] | None = None
    ) -> None:
        """Make a partition; the first replica leads. `tell`: only these brokers, else all of its replicas."""
        replicas = tuple(replicas)
        self._states[topic_partition] = _PartitionState(
            leader=replicas[0], leader_epoch=0, isr=replicas, replicas=replicas, partition_epoch=0
        )
        self.announce(topic_partition, replicas if tell is None else tell, is_new=True)

    def elect(self, topic_partition: TopicPartition, leader: int, isr: Iterable[int], tell: Iterable[int]) -> None:
        """Make a replica the leader in the next epoch, and tell these brokers of it."""
        state = self._states[topic_partition]
        self._states[topic_partition] = replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            isr=tuple(isr),
            partition_epoch=state.partition_epoch + 1,
        )
        self.announce(topic_partition, tell)

    def announce(self, topic_partition: TopicPartition, tell: Iterable[int], *, is_new: bool = False) -> None:
        """Send LeaderAndIsr to these brokers."""
        state = self._states[topic_partition]
        for broker_id in tell:
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
                    raise error_for(code, f"broker {broker_id} refuses its role")

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """Commit an in-sync set as the controller does."""
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
"""Broker 1 leads, and has the only replica."""
REPLICATED: Final = replace(LED, isr=(1, 2), replicas=(1, 2))
"""Broker 1 leads, broker 2 follows in sync."""


def assume(broker: MemoryBroker, state: LeaderAndIsrState = LED, *partitions: TopicPartition) -> list[int]:
    """Give a broker a role in partitions, t-0 if none is named; the error codes of its answer."""
    wanted = partitions or (TopicPartition("t", 0),)
    told = [(partition, TOPIC_ID, state) for partition in wanted]
    broker.replicas.roles.admit(state.controller_epoch)
    return list(broker.replicas.roles.apply(told).values())
