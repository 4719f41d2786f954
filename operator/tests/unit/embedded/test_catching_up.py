"""Topics that are out of sync after a roll: reported if their replicas stop to catch up, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from odradek.base.types import Endpoint, TopicPartition
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    ControllerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from odradek_operator.crds import Brokers, Cluster
from odradek_operator.embedded.broker_processes import BrokerProcesses
from odradek_operator.embedded.catching_up import CatchingUp, Replica, limit_seconds, outside
from odradek_operator.embedded.cluster_reconciler import ClusterReconciler
from odradek_operator.embedded.embedded_users import EmbeddedUsers
from odradek_operator.embedded.layout import Ports, Site
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.embedded.manifests import Manifests
from odradek_operator.embedded.observed_processes import ObservedBroker
from odradek_operator.embedded.progress import Event, ProgressKind
from odradek_operator.embedded.secret_files import SecretFiles
from odradek_operator.embedded.size_record import SizeRecord
from odradek_operator.embedded.watcher import Watcher
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot
from odradek_testkit.loop import run_virtual

LIMIT = 10.0
IDS = [0, 1, 1000, 1001]
MANIFEST = """
{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {brokers: {replicas: 2, perPod: 2,
 config: {replica.lag.time.max.ms: 10000}}}}
---
{apiVersion: odradek.dev/v1, kind: Topic, metadata: {name: orders}, spec: {cluster: demo, partitions: 1, replicas: 3}}
"""
SLACK_SECONDS = 5.0
"""More than the time between two rounds."""


def behind(*brokers: int) -> frozenset[Replica]:
    return frozenset((0, broker) for broker in brokers)


class Roll:
    """A topic that catches up after a roll, with the limit of these tests."""

    def __init__(self) -> None:
        self.topics = CatchingUp()

    def excused(self, *brokers: int, at: float, rolling: bool = False) -> bool:
        return self.topics.excuses("orders", behind(*brokers), rolling=rolling, now=at, limit=LIMIT)


def test_without_a_roll_nothing_is_excused() -> None:
    roll = Roll()
    assert not roll.excused(1, at=0.0)
    assert not roll.excused(1, at=1.0)


def test_a_replica_has_the_limit_after_the_end_of_the_roll() -> None:
    roll = Roll()
    assert roll.excused(1, at=0.0, rolling=True)
    assert roll.excused(1, at=100.0, rolling=True), "the roll reports itself what it waits for"
    assert roll.excused(1, at=109.9)
    assert not roll.excused(1, at=110.0)
    assert not roll.excused(1, at=110.1), "it stays reported"


def test_each_replica_that_catches_up_starts_the_time_again() -> None:
    roll = Roll()
    assert roll.excused(1, 2, 3, at=0.0, rolling=True)
    assert roll.excused(2, 3, at=9.0)
    assert roll.excused(3, at=18.0)
    assert roll.excused(3, at=27.9)
    assert not roll.excused(3, at=28.0)


def test_a_replica_that_falls_behind_is_no_progress() -> None:
    roll = Roll()
    assert roll.excused(1, at=0.0, rolling=True)
    assert roll.excused(1, 2, at=9.0)
    assert not roll.excused(1, 2, at=10.0)


def test_a_topic_that_was_in_sync_is_not_excused_again() -> None:
    roll = Roll()
    assert roll.excused(1, at=0.0, rolling=True)
    roll.topics.forget("orders")
    assert not roll.excused(1, at=1.0)


def test_the_limit_is_the_time_after_which_a_leader_removes_a_follower() -> None:
    assert limit_seconds(Cluster(name="demo")) == 30.0
    config = {"replica.lag.time.max.ms": "1500"}
    assert limit_seconds(Cluster(name="demo", brokers=Brokers(config=config))) == 1.5


def test_a_partition_without_a_state_has_no_replica_in_sync() -> None:
    partitions = {0: ReplicaAssignment(replicas=(0, 1)), 1: ReplicaAssignment(replicas=(1, 2))}
    topic = ObservedTopic(
        assignment=TopicAssignment(topic="orders", partitions=partitions),
        version=0,
        states={0: PartitionState(leader=0, leader_epoch=0, isr=(0,), controller_epoch=1)},
    )
    assert outside(topic) == {(0, 1), (1, 1), (1, 2)}


class PretendedBrokers(BrokerProcesses):
    """Four brokers in two groups, without processes."""

    outdated = frozenset[int]()
    """Brokers with properties that take a restart."""
    on_restart: Callable[[int], Awaitable[None]]

    @property
    def ids(self) -> list[int]:
        return IDS

    def kept_volumes(self, number: int) -> list[int]:
        return []

    async def observe(self, snapshot: Snapshot) -> list[ObservedBroker]:
        changed = {broker: ("num.io.threads",) if broker in self.outdated else () for broker in IDS}
        return [ObservedBroker(broker=broker, process=1, ready=True, changed=changed[broker]) for broker in IDS]

    async def restart(self, number: int, before_start: Callable[[], Awaitable[None]]) -> None:
        self.outdated -= {number}
        await self.on_restart(number)


class Stage:
    """`odradek up` with a ZooKeeper in memory, and all events that it reports."""

    def __init__(self, folder: Path) -> None:
        self.zk = MemoryZk()
        self.events: list[Event] = []
        ports = Ports.in_rows(2, zookeeper=2181, base=9092, metrics_base=9404)
        self.brokers = PretendedBrokers(
            Site(data=folder, ports=ports, zookeeper="zk"), self.events.append, grace_seconds=1.0
        )
        self.brokers.on_restart = self.falls_behind
        manifest = folder / "all.yaml"
        manifest.write_text(MANIFEST)
        manifests, secrets = Manifests([manifest]), SecretFiles(folder / "secrets")
        self.watcher = Watcher(
            self.zk,
            manifests,
            manifests.load(),
            ledger=Ledger(folder / "resources.json"),
            reconciler=ClusterReconciler(
                self.brokers, ports, SizeRecord(folder), self.events.append, secrets=secrets, changed=lambda: None
            ),
            users=EmbeddedUsers(secrets),
            report=self.events.append,
        )

    async def prepare(self) -> None:
        for path in layout.PERSISTENT_PATHS:
            await self.zk.ensure_path(path)
        await self.zk.create(layout.CONTROLLER_EPOCH, b"1")
        await self.zk.create(layout.CONTROLLER, ControllerRegistration(broker_id=0).encode())
        for broker in IDS:
            found = BrokerRegistration(
                broker_id=broker,
                endpoints=(Endpoint("PLAINTEXT", "host", 9092 + broker),),
                machine=f"machine-{broker % 1000}",
            )
            await self.zk.create(found.path, found.encode())
        topic = TopicAssignment(topic="orders", partitions={0: ReplicaAssignment(replicas=(0, 1, 1001))})
        await self.zk.create(topic.path, topic.encode())
        path = layout.partition_state_path(TopicPartition("orders", 0))
        await self.zk.create(path, self.state(0, 1, 1001), make_parents=True)

    @staticmethod
    def state(*isr: int) -> bytes:
        return PartitionState(leader=0, leader_epoch=0, isr=isr, controller_epoch=1).encode()

    async def isr(self, *brokers: int) -> None:
        await self.zk.set(layout.partition_state_path(TopicPartition("orders", 0)), self.state(*brokers))

    async def falls_behind(self, number: int) -> None:
        await self.isr(0)

    def reported(self, reason: str) -> list[Event]:
        return [event for event in self.events if event.details.get("reason") == reason]


def play(folder: Path, steps: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage(folder)
        await stage.prepare()
        await stage.watcher.wait_until_ready(60.0)
        task = asyncio.create_task(stage.watcher.run())
        await steps(stage)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(run())


def test_a_replica_that_never_catches_up_after_a_roll_is_reported(tmp_path: Path) -> None:
    async def steps(stage: Stage) -> None:
        stage.brokers.outdated = frozenset({1, 1001})
        await asyncio.sleep(SLACK_SECONDS)
        assert len(stage.reported("RolledOut")) == 1
        assert stage.reported("UnderReplicated") == []
        await stage.isr(0, 1)
        await asyncio.sleep(LIMIT - SLACK_SECONDS)
        assert stage.reported("UnderReplicated") == [], "a replica has just caught up"
        await asyncio.sleep(2 * SLACK_SECONDS)
        (event,) = stage.reported("UnderReplicated")
        assert (event.subject, event.message) == ("topic orders", "1 of 1 partitions are under-replicated.")
        assert not event.good
        await stage.isr(0, 1, 1001)
        await asyncio.sleep(SLACK_SECONDS)
        assert [one.good for one in stage.events if one.subject == "topic orders"][-1]

    play(tmp_path, steps)


def test_replicas_that_catch_up_after_a_roll_are_not_reported(tmp_path: Path) -> None:
    async def steps(stage: Stage) -> None:
        stage.brokers.outdated = frozenset({1, 1001})
        await asyncio.sleep(SLACK_SECONDS)
        assert len(stage.reported("RolledOut")) == 1
        await stage.isr(0, 1, 1001)
        await asyncio.sleep(2 * LIMIT)
        assert stage.reported("UnderReplicated") == []

    play(tmp_path, steps)


def test_more_replicas_than_groups_are_noticed_once(tmp_path: Path) -> None:
    async def steps(stage: Stage) -> None:
        await asyncio.sleep(10 * SLACK_SECONDS)
        notices = [event for event in stage.events if event.kind is ProgressKind.NOTICE]
        (event,) = [event for event in notices if "more replicas" in event.message or "3 replicas" in event.message]
        assert event.message.startswith("Topic orders has 3 replicas, and spec.brokers.replicas is 2: several replicas")

    play(tmp_path, steps)
