"""Random reassignments while brokers die, and while controllers die between any two writes.

Real controllers run in virtual time on ZooKeeper in memory; brokers are models that store records. A record counts as
acknowledged when every member of its leader's ISR has it, including proposed members. The invariants are checked with
every request to a broker and with every write of an assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig
from odradek.base.errors import NetworkError, NotControllerError
from odradek.base.types import Endpoint, TopicPartition
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.controller.elections.candidates import ElectionKind
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    Message,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.protocol.messages.internal import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.port import ConnectionLost, Operation, Result, SetData, ZkError
from odradek.zk.registration import BrokerRegistrar, prepare
from odradek_testkit.loop import VirtualClock, run_virtual

_T = TypeVar("_T")

BROKERS = (1, 2, 3, 4, 5)
CONTROLLERS = (8, 9)
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
FIRST = {PARTITIONS[0]: (1, 2, 3), PARTITIONS[1]: (2, 3), PARTITIONS[2]: (3,)}
PAUSE_MS = 400
"""Time in which all consequences of an event happen, with some retries."""


class MortalZk(MemoryZk):
    """A session that ends with its controller, before or after one of its operations was carried out."""

    def __init__(self, tree: MemoryTree, cluster: Cluster) -> None:
        super().__init__(tree)
        self._cluster = cluster
        self.left: int | None = None
        self.is_carried_out = False
        self.is_dead = False

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        return [await self._answer("", lambda ops=ops: self._outcome(ops)) for ops in transactions]  # type: ignore[misc]

    async def _answer(self, path: str, operation: Callable[[], _T]) -> _T:
        if self.left == 0:
            if self.is_carried_out:
                operation()
                self.is_carried_out = False
            self.is_dead = True
            raise ConnectionLost("the controller is dead", path)
        if self.left is not None:
            self.left -= 1
        return await super()._answer(path, operation)

    def _transaction(self, operations: Sequence[Operation]) -> list[Result]:
        before = {partition: self._cluster.assignment(partition) for partition in PARTITIONS}
        result = super()._transaction(operations)
        if any(isinstance(operation, SetData) and operation.path.startswith(layout.TOPICS) for operation in operations):
            for partition in PARTITIONS:
                self._cluster.check_assignment(partition, before[partition])
        return result


@dataclass(slots=True)
class Copy:
    """One replica: its records, and its role by the last LeaderAndIsr."""

    records: list[int] = field(default_factory=list)
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    replicas: set[int] = field(default_factory=set)
    isr: set[int] = field(default_factory=set)
    maximal_isr: set[int] = field(default_factory=set)
    """The ISR with proposed members: the replicas for which an acknowledgement waits."""


class Broker:
    """A broker that keeps its records over restarts."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.copies: dict[TopicPartition, Copy] = {}
        self.epoch = -1
        self.zk: MemoryZk | None = None

    async def up(self) -> None:
        if self.zk is None:
            self.zk = MemoryZk(self.cluster.tree)
            registration = BrokerRegistration(
                broker_id=self.broker_id, endpoints=(Endpoint("PLAINTEXT", "localhost", self.broker_id),)
            )
            self.epoch = await BrokerRegistrar(self.zk, self.cluster.clock, wait_ms=0).register(registration)

    async def down(self) -> None:
        if self.zk is not None:
            zk, self.zk = self.zk, None
            for copy in self.copies.values():
                copy.leader = copy.leader_epoch = -1
            await zk.close()

    def answer(self, frame: bytes) -> bytes:
        """Handle one request of a controller."""
        header, position = decode_header(frame)
        request = decode_request(header, frame, position)
        if request.broker_epoch < self.epoch:
            return encode_response(header.api_key, header.api_version, header.correlation_id, {"error_code": 77})[4:]
        message: Message = {"error_code": 0}
        if header.api_key == ApiKey.LEADER_AND_ISR:
            message = {"error_code": 0, "topics": [self._roles(topic) for topic in request.topic_states]}
        elif header.api_key == ApiKey.STOP_REPLICA:
            message = {"error_code": 0, "partition_errors": [*self._stops(request)]}
        self.cluster.check()
        return encode_response(header.api_key, header.api_version, header.correlation_id, message)[4:]

    def _roles(self, topic: Any) -> Message:
        errors = []
        for state in topic.partition_states:
            code = self._role(TopicPartition(topic.topic_name, state.partition_index), state)
            errors.append({"partition_index": state.partition_index, "error_code": code})
        return {"topic_id": topic.topic_id, "partition_errors": errors}

    def _role(self, partition: TopicPartition, state: Any) -> int:
        assert self.broker_id in state.replicas, (
            f"broker {self.broker_id} received a request for {partition}, of which it has no replica"
        )
        copy = self.copies.setdefault(partition, Copy())
        if state.leader_epoch <= copy.leader_epoch:
            return 11
        copy.leader, copy.leader_epoch, copy.partition_epoch = state.leader, state.leader_epoch, state.partition_epoch
        copy.replicas = set(state.replicas)
        copy.isr = set(state.isr)
        copy.maximal_isr = set(state.isr)
        return 0

    def _stops(self, request: Any) -> Iterable[Message]:
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                copy = self.copies.get(partition)
                code = 74 if copy is not None and 0 <= state.leader_epoch < copy.leader_epoch else 0
                if copy is not None and not code:
                    copy.leader = -1
                    if state.delete_partition:
                        del self.copies[partition]
                yield {"topic_name": topic.topic_name, "partition_index": state.partition_index, "error_code": code}


class Channel:
    """A connection to a model."""

    client_id = None

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def pick(self, api_key: ApiKey) -> int:
        return API_TABLE[api_key].max_version

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        frame = await self.call(
            lambda correlation_id: [encode_request(api_key, version, correlation_id, None, message)]
        )
        return decode_response(api_key, version, frame)

    async def call(self, encode: Callable[[int], Sequence[Any]]) -> memoryview:
        if self._broker.zk is None:
            raise NetworkError("the broker is dead")
        return memoryview(self._broker.answer(b"".join(encode(1))[4:]))

    async def close(self) -> None:
        return None


class Cluster:
    """The models of the brokers, and the current controller."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.clock = VirtualClock()
        self.zk = MemoryZk(self.tree)
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
        self.acknowledged: dict[TopicPartition, list[int]] = {partition: [] for partition in PARTITIONS}
        self.runtime: ControllerRuntime
        self.session: MortalZk
        self._reigns = 0
        self._record = 0

    async def start(self) -> None:
        await prepare(self.zk)
        for broker in self.brokers.values():
            await broker.up()
        for number, topic in enumerate(("t", "u")):
            partitions = {
                part.partition: ReplicaAssignment(replicas=FIRST[part]) for part in PARTITIONS if part.topic == topic
            }
            made = TopicAssignment(topic=topic, topic_id=UUID(int=number + 1), partitions=partitions)
            await self.zk.create(made.path, made.encode())
        await self.reign()

    async def reign(self) -> None:
        """Start a controller and wait until it is active."""
        broker_id = CONTROLLERS[self._reigns % len(CONTROLLERS)]
        self._reigns += 1
        properties = {
            "zookeeper.connect": "memory",
            "broker.id": str(broker_id),
            "listeners": "PLAINTEXT://localhost:9092",
            "auto.leader.rebalance.enable": "false",
        }

        async def connect(endpoint: Endpoint) -> Channel:
            return Channel(self.brokers[endpoint.port])

        self.session = MortalZk(self.tree, self)
        config = BrokerConfig.parse(properties)[0]
        self.runtime = ControllerRuntime(self.session, self.clock, config, connect=connect)
        await self.runtime.start()
        await self.clock.sleep_ms(PAUSE_MS)

    async def succeed(self) -> None:
        """Kill the controller if it is alive, and start another one."""
        self.session.left = 0
        self.session.is_carried_out = False
        await self.runtime.close()
        await self.session.close()
        await self.reign()

    async def pause(self) -> None:
        await self.clock.sleep_ms(PAUSE_MS)
        if self.session.is_dead:
            await self.succeed()
        self.check()

    async def close(self) -> None:
        await self.runtime.close()
        for broker in self.brokers.values():
            await broker.down()

    # What ZooKeeper has

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        data = self.tree.node(layout.topic_path(partition.topic)).data
        return TopicAssignment.decode(partition.topic, data).partitions[partition.partition]

    def state(self, partition: TopicPartition) -> PartitionState:
        return PartitionState.decode(partition, self.tree.node(layout.partition_state_path(partition)).data)

    # What must hold

    def check(self) -> None:
        for partition in PARTITIONS:
            if layout.partition_state_path(partition) not in self.tree.nodes:
                continue
            state = self.state(partition)
            assert state.isr and (state.leader == -1 or state.leader in state.isr), state
            assert set(state.isr) <= set(self.assignment(partition).replicas)
            for member in state.isr:
                copy = self.brokers[member].copies.get(partition, Copy())
                lost = set(self.acknowledged[partition]) - set(copy.records)
                assert not lost, f"{partition}: {member} is in sync without the records {sorted(lost)}"

    def check_assignment(self, partition: TopicPartition, before: ReplicaAssignment) -> None:
        """Check that old replicas are removed only when all target replicas are in sync."""
        after = self.assignment(partition)
        dropped = set(before.origin) - set(after.replicas)
        if dropped:
            assert before.is_being_reassigned or not after.is_being_reassigned
            assert set(after.replicas) == set(before.target) == set(self.state(partition).isr)

    # What happens

    def leader(self, partition: TopicPartition) -> tuple[Broker, Copy] | None:
        """Return a live broker that believes that it is the leader; of several, the one with the last epoch."""
        found = [
            (copy.leader_epoch, broker.broker_id)
            for broker in self.brokers.values()
            if broker.zk is not None
            and (copy := broker.copies.get(partition)) is not None
            and copy.leader == broker.broker_id
        ]
        if not found:
            return None
        broker = self.brokers[max(found)[1]]
        return broker, broker.copies[partition]

    def followers(self, partition: TopicPartition) -> list[tuple[int, Copy]]:
        """Return the live followers in the leader's epoch."""
        led = self.leader(partition)
        if led is None:
            return []
        leader, mine = led
        return [
            (broker.broker_id, copy)
            for broker in self.brokers.values()
            if broker is not leader
            and broker.zk is not None
            and (copy := broker.copies.get(partition)) is not None
            and (copy.leader, copy.leader_epoch) == (leader.broker_id, mine.leader_epoch)
        ]

    async def produce(self, partition: TopicPartition) -> None:
        """Append a record, let followers fetch, and acknowledge the record when the whole ISR has it."""
        led = self.leader(partition)
        if led is None:
            return
        leader, copy = led
        self._record += 1
        copy.records.append(self._record)
        having = {leader.broker_id}
        for follower, theirs in self.followers(partition):
            if follower in copy.maximal_isr:
                theirs.records = list(copy.records)
                having.add(follower)
        if copy.maximal_isr <= having:
            self.acknowledged[partition] = list(copy.records)

    async def catch_up(self, partition: TopicPartition, only: Sequence[int] = BROKERS) -> None:
        """Let followers fetch everything, and propose those that are not in the ISR."""
        led = self.leader(partition)
        if led is None:
            return
        leader, copy = led
        for follower, theirs in self.followers(partition):
            if follower not in only or follower not in copy.replicas:
                continue
            theirs.records = list(copy.records)
            if follower not in copy.isr:
                await self._propose(partition, leader, copy, {*copy.isr, follower})

    async def shrink(self, partition: TopicPartition) -> None:
        """Propose to remove dead members from the ISR."""
        led = self.leader(partition)
        if led is None:
            return
        leader, copy = led
        alive = {member for member in copy.isr if self.brokers[member].zk is not None}
        if alive != copy.isr:
            await self._propose(partition, leader, copy, alive)

    async def _propose(self, partition: TopicPartition, leader: Broker, copy: Copy, isr: set[int]) -> None:
        copy.maximal_isr |= isr
        epoch = copy.leader_epoch
        part = AlterPartitionRequestPartitionData(
            partition_index=partition.partition,
            leader_epoch=epoch,
            new_isr_with_epochs=tuple(AlterPartitionRequestBrokerState(broker_id=member) for member in sorted(isr)),
            leader_recovery_state=0,
            partition_epoch=copy.partition_epoch,
        )
        topic_id = UUID(int=1 + ("t", "u").index(partition.topic))
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=(AlterPartitionRequestTopicData(topic_id=topic_id, partitions=(part,)),),
        )
        response: Any = await self.runtime.alter_partition(request)
        if response["error_code"] or copy.leader_epoch != epoch:
            return
        answer = response["topics"][0]["partitions"][0]
        if not answer["error_code"] and answer["partition_epoch"] >= copy.partition_epoch:
            copy.isr = set(answer["isr"])
            copy.maximal_isr = set(answer["isr"])
            copy.partition_epoch = answer["partition_epoch"]

    async def request_moves(self, requested: dict[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, Any]:
        try:
            return await self.runtime.alter_reassignments(requested)
        except NotControllerError:
            return {}

    async def request_moves_by_znode(self, requested: dict[TopicPartition, tuple[int, ...]]) -> None:
        data = layout.encode_reassignment(requested)
        if await self.zk.exists(layout.REASSIGN_PARTITIONS) is None:
            await self.zk.create(layout.REASSIGN_PARTITIONS, data)

    async def prefer(self) -> None:
        try:
            await self.runtime.elect_leaders(None, ElectionKind.PREFERRED)
        except NotControllerError:
            return


partitions = st.sampled_from(PARTITIONS)
targets = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=3).map(tuple)
brokers = st.sampled_from(BROKERS)
steps = st.one_of(
    st.tuples(st.just("produce"), partitions),
    st.tuples(st.just("catch_up"), partitions, st.lists(brokers, min_size=1, max_size=2)),
    st.tuples(st.just("catch_up"), partitions),
    st.tuples(st.just("shrink"), partitions),
    st.tuples(
        st.just("request_moves"), st.dictionaries(partitions, st.one_of(targets, targets, st.none()), min_size=1)
    ),
    st.tuples(st.just("request_moves_by_znode"), st.dictionaries(partitions, targets, min_size=1)),
    st.tuples(st.just("down"), brokers),
    st.tuples(st.just("up"), brokers),
    st.tuples(st.just("die"), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("succeed")),
    st.tuples(st.just("prefer")),
)


U0 = PARTITIONS[2]
ONLY_THE_ADDED_ONE_IN_SYNC: list[tuple[Any, ...]] = [
    ("request_moves", {U0: (4, 5)}),
    ("catch_up", U0, [4]),
    ("down", 3),
    ("produce", U0),
    ("up", 3),
    ("request_moves", {U0: None}),
]
"""Request a cancellation that must be refused."""
REPLACED_WITH_ONE_IN_SYNC: list[tuple[Any, ...]] = [
    ("request_moves", {U0: (4, 5)}),
    ("catch_up", U0, [4]),
    ("request_moves", {U0: (2, 1)}),
]
"""A replica that an earlier reassignment added is in sync, and must be removed."""
IN_SYNC_WHEN_THE_CONTROLLER_DIES: list[tuple[Any, ...]] = [
    ("request_moves", {U0: (4, 5)}),
    ("catch_up", U0, [4]),
    ("die", 0, True),
    ("catch_up", U0, [5]),
]
"""No event makes a controller check the partition any more: the next one must do so at its start."""


async def take(cluster: Cluster, step: tuple[Any, ...]) -> None:
    """Do one step; its consequences may continue during the next one."""
    kind, *arguments = step
    if kind in ("up", "down"):
        broker = cluster.brokers[arguments[0]]
        await (broker.up() if kind == "up" else broker.down())
    elif kind == "die":
        if cluster.session.left is None:
            cluster.session.left, cluster.session.is_carried_out = arguments
    else:
        await getattr(cluster, kind)(*arguments)
    await cluster.pause()


async def recover(cluster: Cluster) -> None:
    """End the faults."""
    await cluster.succeed()
    for broker in cluster.brokers.values():
        await broker.up()
    await cluster.pause()
    # All leaders are alive and connected to the controller: every reassignment must complete within a few rounds.
    for _ in range(4):
        for partition in PARTITIONS:
            await cluster.catch_up(partition)
            await cluster.pause()


async def play(script: list[tuple[Any, ...]], last: dict[TopicPartition, tuple[int, ...]]) -> None:
    cluster = Cluster()
    await cluster.start()
    for step in script:
        await take(cluster, step)
    await recover(cluster)
    assert await cluster.runtime.list_reassignments(None) == {}
    assert layout.REASSIGN_PARTITIONS not in cluster.tree.nodes
    results = await cluster.request_moves(dict(last))
    await cluster.pause()
    for _ in range(2):
        for partition in PARTITIONS:
            await cluster.catch_up(partition)
            await cluster.pause()
    assert results == dict.fromkeys(last)
    for partition, target in last.items():
        assert cluster.assignment(partition) == ReplicaAssignment(replicas=target)
        assert set(cluster.state(partition).isr) == set(target)
        await cluster.produce(partition)
        held = [cluster.brokers[member].copies[partition].records for member in target]
        assert held == [cluster.acknowledged[partition]] * len(target)
    cluster.check()
    if not {"down", "die"} & {step[0] for step in script}:
        # A replica may remain only after the death of a broker or controller, as with Apache Kafka.
        for partition in PARTITIONS:
            hosts = {broker.broker_id for broker in cluster.brokers.values() if partition in broker.copies}
            assert hosts == set(cluster.assignment(partition).replicas)
    await cluster.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=14), st.dictionaries(partitions, targets))
@example(ONLY_THE_ADDED_ONE_IN_SYNC, {U0: (3,)})
@example(REPLACED_WITH_ONE_IN_SYNC, {})
@example(IN_SYNC_WHEN_THE_CONTROLLER_DIES, {})
def test_no_fault_loses_a_record_and_every_reassignment_completes(
    script: list[tuple[Any, ...]], last: dict[TopicPartition, tuple[int, ...]]
) -> None:
    run_virtual(play(script, last))
