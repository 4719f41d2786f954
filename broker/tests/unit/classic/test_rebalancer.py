"""A group of classic consumers with a simulated ZooKeeper: who fetches what, through deaths and network faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.classic.assignment import ConsumerThread
from odradek.classic.consumer_znodes import WHITELIST, ConsumerRegistration
from odradek.classic.group_registry import GroupRegistry
from odradek.classic.rebalancer import ConsumerRebalanceFailedError, ConsumerRebalancer
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.port import ZkSettings
from odradek_testkit.loop import VirtualClock
from odradek_testkit.net import Host, SimulatedLoop, SimulatedNetwork, as_host
from odradek_testkit.zookeeper import ENSEMBLE, SimulatedEnsemble, SimulatedZk

TIMEOUT_MS = 6_000
SETTINGS = ZkSettings(
    connect="simulated", session_timeout_ms=TIMEOUT_MS, connection_timeout_ms=3_000, suspended_wait_ms=500
)


@dataclass(frozen=True)
class Settings:
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2_000
    partition_assignment_strategy: str = "range"
    exclude_internal_topics: bool = True


@dataclass
class Readers:
    """Who fetches each partition now; a second reader of a partition is the error to find."""

    by_partition: dict[TopicPartition, str] = field(default_factory=dict)

    def begin(self, consumer: str, partitions: Mapping[TopicPartition, ConsumerThread]) -> None:
        for partition, thread in partitions.items():
            assert thread.consumer_id == consumer
            assert partition not in self.by_partition, f"{partition} has two readers"
            self.by_partition[partition] = consumer

    def end(self, consumer: str, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            assert self.by_partition.pop(partition) == consumer


class Consumer:
    """A consumer that only notes what it fetches. Stopping takes a while, as with real fetches."""

    def __init__(self, name: str, readers: Readers, clock: VirtualClock) -> None:
        self.name = name
        self.readers = readers
        self.clock = clock
        self.failures: list[OdradekError] = []

    async def stop(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        if not is_lost:
            await self.clock.sleep_ms(20)
        self.readers.end(self.name, partitions)

    async def start(self, owned: Mapping[TopicPartition, ConsumerThread]) -> None:
        self.readers.begin(self.name, owned)


class Group:
    """Consumers on hosts of their own, and the topics that they read."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.ensemble = SimulatedEnsemble(network)
        self.clock = VirtualClock()
        self.readers = Readers()
        self.hosts: dict[str, Host] = {}
        self.dead: list[Host] = []
        self.consumers: dict[str, Consumer] = {}
        self.rebalancers: dict[str, ConsumerRebalancer] = {}

    async def connect(self, name: str) -> SimulatedZk:
        host = self.hosts[name] = Host(name)
        with as_host(host):
            zk = SimulatedZk(self.ensemble, SETTINGS)
            await asyncio.create_task(zk.start())
        return zk

    async def create(self, zk: SimulatedZk, topic: str, partitions: int) -> None:
        assignment = TopicAssignment(
            topic=topic, partitions={number: ReplicaAssignment(replicas=(1,)) for number in range(partitions)}
        )
        if await zk.exists(assignment.path) is None:
            await zk.create(assignment.path, assignment.encode(), make_parents=True)
        else:
            await zk.set(assignment.path, assignment.encode())

    async def join(
        self, name: str, subscription: Mapping[str, int], *, pattern: str = "static", settings: Settings | None = None
    ) -> ConsumerRebalancer:
        zk = await self.connect(name)
        consumer = self.consumers[name] = Consumer(name, self.readers, self.clock)
        rebalancer = self.rebalancers[name] = ConsumerRebalancer(
            zk,
            GroupRegistry(zk, "g", name),
            ConsumerRegistration(subscription=subscription, pattern=pattern),
            consumer,
            settings or Settings(),
            clock=self.clock,
            session_timeout_ms=TIMEOUT_MS,
            on_failure=consumer.failures.append,
        )
        with as_host(self.hosts[name]):
            await asyncio.create_task(rebalancer.start())
        return rebalancer

    def shares(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for partition, consumer in sorted(self.readers.by_partition.items()):
            found.setdefault(consumer, []).append(partition.partition)
        return found


def play(scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:

        async def main() -> None:
            group = Group(loop.network)
            try:
                await scenario(group)
            finally:
                # The tasks of a dead host do not end, not even when they are cancelled.
                for host in group.dead:
                    host.alive = True

        runner.run(main())


def test_members_share_the_partitions_and_take_over_when_one_leaves() -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t", 4)
        await group.join("a", {"t": 1})
        assert group.shares() == {"a": [0, 1, 2, 3]}
        second = await group.join("b", {"t": 1})
        await asyncio.sleep(5)
        assert group.shares() == {"a": [0, 1], "b": [2, 3]}
        owner, _ = await tool.get("/consumers/g/owners/t/2")
        assert owner == b"b-0"
        await second.close()
        await second.close()
        assert await tool.children("/consumers/g/ids") == ["a"]
        await asyncio.sleep(5)
        assert group.shares() == {"a": [0, 1, 2, 3]}

    play(scenario)


def test_partitions_that_are_added_and_topics_that_match_are_claimed() -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t1", 1)
        await group.create(tool, "__consumer_offsets", 1)
        await group.join("a", {"t.*|__.*": 1}, pattern=WHITELIST)
        assert group.readers.by_partition.keys() == {TopicPartition("t1", 0)}
        await group.create(tool, "t1", 2)
        await group.create(tool, "t2", 1)
        await group.create(tool, "other", 1)
        await asyncio.sleep(5)
        assert group.readers.by_partition.keys() == {
            *(TopicPartition("t1", n) for n in (0, 1)),
            TopicPartition("t2", 0),
        }

    play(scenario)


def test_a_consumer_that_cannot_claim_its_partitions_fails() -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t", 1)
        await tool.create("/consumers/g/owners/t/0", b"somebody-0", ephemeral=True, make_parents=True)
        with pytest.raises(ConsumerRebalanceFailedError, match=r"rebalance\.max\.retries=4 attempts: another consumer"):
            await group.join("a", {"t": 1})
        await group.rebalancers["a"].close()
        assert await tool.children("/consumers/g/ids") == []

    play(scenario)


def test_a_registration_that_nobody_understands_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t", 2)
        await tool.create("/consumers/g/ids/x", b"{", ephemeral=True, make_parents=True)
        await tool.create(
            "/consumers/g/ids/y",
            ConsumerRegistration(subscription={"(": 1}, pattern=WHITELIST).encode(),
            ephemeral=True,
        )
        await group.join("a", {"t": 1})
        assert group.shares() == {"a": [0, 1]}

    play(scenario)
    assert "/consumers/g/ids/x" in caplog.text
    assert "member y of the group reads nothing" in caplog.text


def test_fetches_stop_before_the_session_can_expire() -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t", 2)
        await group.join("a", {"t": 1})
        await group.join("b", {"t": 1})
        await asyncio.sleep(5)
        group.network.partition("a", ENSEMBLE)
        await asyncio.sleep(30)
        assert group.shares() == {"b": [0, 1]}
        group.network.heal()
        await asyncio.sleep(10)
        assert group.shares() == {"a": [0], "b": [1]}
        assert not group.consumers["a"].failures

    play(scenario)


def test_a_short_interruption_changes_no_owner() -> None:
    async def scenario(group: Group) -> None:
        tool = await group.connect("tool")
        await group.create(tool, "t", 2)
        await group.join("a", {"t": 1})
        group.network.partition("a", ENSEMBLE)
        await asyncio.sleep(4.5)
        group.network.heal()
        await asyncio.sleep(5)
        assert group.shares() == {"a": [0, 1]}

    play(scenario)


@pytest.mark.parametrize("seed", range(25))
def test_no_partition_has_two_readers_whatever_happens(seed: int) -> None:
    """Consumers join, leave, die and lose ZooKeeper. `Readers` fails at a second reader; at the end, all is read."""

    async def scenario(group: Group) -> None:
        dice = random.Random(seed)
        tool = await group.connect("tool")
        await group.create(tool, "t", 5)
        await tool.ensure_path(layout.BROKER_IDS)
        patient = Settings(rebalance_max_retries=20)
        for number in range(12):
            alive = [name for name in group.rebalancers if name in group.hosts]
            step = dice.choice(["join", "join", "leave", "die", "cut", "lose", "heal", "wait"])
            if step == "join" or not alive:
                group.network.heal()
                await group.join(f"c{number}", {"t": dice.randint(1, 2)}, settings=patient)
                continue
            name = dice.choice(alive)
            if step == "leave":
                group.network.heal()
                await asyncio.sleep(10)
                del group.hosts[name]
                await group.rebalancers[name].close()
            elif step == "die":
                host = group.hosts.pop(name)
                host.alive = False
                group.dead.append(host)
                group.network.partition(name, ENSEMBLE)
                # A dead consumer fetches nothing.
                dead = [partition for partition, reader in group.readers.by_partition.items() if reader == name]
                for partition in dead:
                    del group.readers.by_partition[partition]
            elif step == "cut":
                group.network.partition(name, ENSEMBLE)
            elif step == "lose":
                group.network.partition(name, ENSEMBLE)
                await asyncio.sleep(dice.uniform(0, 3))
                group.network.heal()
            elif step == "heal":
                group.network.heal()
            await asyncio.sleep(dice.uniform(0, 12))
        group.network.heal()
        await asyncio.sleep(60)
        assert not any(consumer.failures for consumer in group.consumers.values())
        alive = [name for name in group.rebalancers if name in group.hosts]
        if alive:
            assert len(group.readers.by_partition) == 5
            owners = {number: (await tool.get(f"/consumers/g/owners/t/{number}"))[0].decode() for number in range(5)}
            for partition, reader in group.readers.by_partition.items():
                assert owners[partition.partition].rpartition("-")[0] == reader

    play(scenario)
