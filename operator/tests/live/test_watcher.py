"""The loop that watches manifests, with a real ZooKeeper and without brokers. The test simulates the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.layout import BrokerRegistration, ControllerRegistration, PartitionState
from odradek.zk.port import ZkSettings
from odradek_operator.embedded.broker_processes import BrokerProcesses
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
from odradek_operator.errors import EmbeddedError
from odradek_operator.topics.zookeeper_state import Snapshot

pytestmark = pytest.mark.java

CLUSTER = "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {brokers: {replicas: 1}}}\n"
DEADLINE_SECONDS = 60.0


def topic(name: str, partitions: int = 1, deletion: str = "Protect") -> str:
    spec = f"{{cluster: demo, partitions: {partitions}, deletion: {deletion}}}"
    return f"---\n{{apiVersion: odradek.dev/v1, kind: Topic, metadata: {{name: {name}}}, spec: {spec}}}\n"


class PretendedBrokers(BrokerProcesses):
    """Reports one broker that is always ready, without a process."""

    @property
    def ids(self) -> list[int]:
        return [0]

    async def observe(self, snapshot: Snapshot) -> list[ObservedBroker]:
        return [ObservedBroker(broker=0, process=1, ready=True)]


class Stage:
    """A cluster of one broker in ZooKeeper, its manifest, and all reported events."""

    def __init__(self, zk: KazooZkClient, folder: Path) -> None:
        self.zk = zk
        self.manifest = folder / "all.yaml"
        self.ledger_path = folder / "resources.json"
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def watcher(self, text: str) -> Watcher:
        self.manifest.write_text(text)
        manifests = Manifests([self.manifest])
        resources = manifests.load()
        ports = Ports.in_rows(1, zookeeper=2181, base=9092, metrics_base=9404)
        brokers = PretendedBrokers(
            Site(data=self.ledger_path.parent, ports=ports, zookeeper="zk"), self.note, grace_seconds=1.0
        )
        record = SizeRecord(self.ledger_path.parent)
        secrets = SecretFiles(self.ledger_path.parent / "secrets")
        reconciler = ClusterReconciler(brokers, ports, record, self.note, secrets=secrets, changed=lambda: None)
        return Watcher(
            self.zk,
            manifests,
            resources,
            ledger=Ledger(self.ledger_path),
            reconciler=reconciler,
            users=EmbeddedUsers(secrets),
            report=self.note,
        )

    def note(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def reported(self, wanted: Callable[[Event], bool]) -> Event:
        """Return the first event that is wanted. Waits for it if it has not been reported yet."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (found := [event for event in self.events if wanted(event)]):
                self._news.clear()
                await self._news.wait()
        return found[0]

    async def elect(self, name: str, partitions: int = 1) -> None:
        """Write the partition states of a new topic, as a controller does."""
        state = PartitionState(leader=0, leader_epoch=0, isr=(0,), controller_epoch=1)
        for number in range(partitions):
            path = layout.partition_state_path(TopicPartition(name, number))
            await self.zk.create(path, state.encode(), make_parents=True)


@pytest.fixture
async def stage(odradek_zookeeper: str, tmp_path: Path) -> AsyncIterator[Stage]:
    client = KazooZkClient(ZkSettings(connect=f"{odradek_zookeeper}/watcher-{uuid4().hex}"))
    await client.start()
    for path in layout.PERSISTENT_PATHS:
        await client.ensure_path(path)
    await client.create(layout.CONTROLLER_EPOCH, b"1")
    await client.create(layout.CONTROLLER, ControllerRegistration(broker_id=0).encode(), ephemeral=True)
    broker = BrokerRegistration(broker_id=0, endpoints=(Endpoint("PLAINTEXT", "host", 9092),))
    await client.create(broker.path, broker.encode(), ephemeral=True)
    yield Stage(client, tmp_path)
    await client.close()


@pytest.fixture
async def running(stage: Stage) -> AsyncIterator[Stage]:
    """Run the watcher of a cluster with one topic that is ready."""
    watcher = stage.watcher(CLUSTER + topic("orders"))
    ready = asyncio.create_task(watcher.wait_until_ready(DEADLINE_SECONDS))
    await stage.reported(lambda event: event.kind is ProgressKind.ACTION)
    await stage.elect("orders")
    await ready
    task = asyncio.create_task(watcher.run())
    yield stage
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def notice(words: str) -> Callable[[Event], bool]:
    return lambda event: event.kind is ProgressKind.NOTICE and words in event.message


async def test_what_is_not_ready_in_time_is_named(stage: Stage) -> None:
    watcher = stage.watcher(CLUSTER + topic("orders", 2))
    with pytest.raises(EmbeddedError, match=r"is not ready: topic orders: 2 of 2 partitions have no leader\."):
        await watcher.wait_until_ready(0.0)


async def test_what_a_person_must_settle_is_told_and_not_waited_for(stage: Stage) -> None:
    first = stage.watcher(CLUSTER + topic("orders", 2))
    with pytest.raises(EmbeddedError):
        await first.wait_until_ready(0.0)
    await stage.elect("orders", 2)
    await stage.watcher(CLUSTER + topic("orders", 1)).wait_until_ready(0.0)
    (refused,) = [event for event in stage.events if event.details.get("reason") == "PartitionsCannotShrink"]
    assert not refused.good
    assert refused.subject == "topic orders"


async def test_a_protected_topic_is_told_once_and_forgotten(running: Stage) -> None:
    running.manifest.write_text(CLUSTER)
    await running.reported(notice("had deletion: Protect"))
    assert await running.zk.children(layout.DELETE_TOPICS) == []
    running.manifest.write_text(CLUSTER + topic("later"))
    await running.reported(lambda event: event.kind is ProgressKind.ACTION and event.subject == "topic later")
    assert len([event for event in running.events if notice("deletion: Protect")(event)]) == 1
    assert sorted(Ledger(running.ledger_path).removed({})) == ["later"]


async def test_wrong_manifests_leave_the_last_good_ones_in_force(running: Stage) -> None:
    running.manifest.write_text(CLUSTER + topic("orders", 0))
    event = await running.reported(notice("not applied"))
    assert "spec.partitions: must be a whole number" in event.message
    running.manifest.write_text(topic("orders").removeprefix("---\n"))
    await running.reported(notice("there is no Cluster demo"))
    running.manifest.write_text(CLUSTER.replace("demo", "other"))
    await running.reported(notice("but the manifests describe other"))
    assert [event.subject for event in running.events if event.kind is ProgressKind.ACTION] == ["topic orders"]


async def test_an_invalid_edit_is_reported_once_and_its_repair_too(running: Stage) -> None:
    running.manifest.write_text(CLUSTER + topic("orders", 0))
    await running.reported(notice("not applied"))
    running.manifest.write_text(CLUSTER + topic("orders"))
    await running.reported(notice("valid again"))
    assert len([event for event in running.events if notice("not applied")(event)]) == 1


async def test_another_ensemble_is_refused_with_what_to_do(running: Stage) -> None:
    moved = CLUSTER.replace("brokers: {replicas: 1}", "zookeeper: {connect: elsewhere}, brokers: {replicas: 1}")
    running.manifest.write_text(moved + topic("orders"))
    event = await running.reported(notice("spec.zookeeper.connect is elsewhere, but the cluster keeps not set"))
    assert "start it with another --data-dir" in event.message
    assert event.subject == "cluster demo"


async def test_a_broker_that_goes_is_told(running: Stage) -> None:
    await running.zk.delete(layout.broker_path(0))
    event = await running.reported(lambda event: event.details.get("reason") == "BrokersMissing")
    assert (event.subject, event.message, event.good) == (
        "cluster demo",
        "Not registered in ZooKeeper: broker 0.",
        False,
    )


async def test_drift_is_undone(running: Stage) -> None:
    path = layout.config_path("topics", "orders")
    await running.zk.set(path, layout.encode_config({"retention.ms": "5"}))
    event = await running.reported(lambda event: event.details.get("action") == "SetConfig")
    assert event.message == "configured: retention.ms is removed (was 5)"
    assert layout.decode_config(path, (await running.zk.get(path))[0]) == {}
