"""A running embedded cluster follows changes of its Cluster resource, under a small load that must lose no records."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConfigResource
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.free_ports import free_ports
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import CLUSTER_NAME, RunningCluster
from odradek.testing.waiting import wait_until
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkSettings
from odradek_operator.embedded.ports import is_free
from odradek_operator.embedded.progress import Event, ProgressKind
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 6
TOPIC = {"partitions": PARTITIONS, "replicas": 3, "config": {"min.insync.replicas": 2}, "deletion": "Delete"}
PLAIN = {"name": "plain", "port": 9092}


class Followed:
    """A cluster with its manifest, and the events since its last change."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.first_pids = dict(cluster.pids)
        self._begin = 0

    def change(self, **spec: Any) -> None:
        """Write a Cluster of three brokers with this specification. `brokers` overrides fields of its `brokers`."""
        brokers = {"replicas": 3, **spec.pop("brokers", {})}
        documents = [
            _resource("Cluster", CLUSTER_NAME, {**spec, "brokers": brokers}),
            _resource("Topic", "load", {**TOPIC, "cluster": CLUSTER_NAME}),
        ]
        self._begin = len(self.cluster.events)
        (self.cluster.directory / "manifests" / "cluster.yaml").write_text(yaml.safe_dump_all(documents))

    @property
    def events(self) -> list[Event]:
        return self.cluster.events[self._begin :]

    async def until(self, wanted: Callable[[Event], bool], what: str) -> Event:
        await asyncio.to_thread(wait_until, lambda: any(map(wanted, self.events)), what=what)
        return next(event for event in self.events if wanted(event))

    async def until_rolled(self) -> None:
        await self.until(lambda event: event.details.get("reason") == "RolledOut", "the end of the roll")

    def actions(self) -> list[tuple[object, object]]:
        return [
            (event.details["action"], event.details.get("broker"))
            for event in self.events
            if event.kind is ProgressKind.ACTION and not event.subject.startswith("topic")
        ]

    def restarted(self) -> list[int]:
        """Return the ids of restarted brokers in order. Fails if one stopped before the last one was ready again."""
        order: list[int] = []
        away: set[object] = set()
        for event in self.events:
            broker = event.details.get("broker")
            if event.details.get("action") == "RestartBroker":
                assert not away, f"broker {broker} stops while {away} is away"
                away.add(broker)
                order.append(int(str(broker)))
            elif event.kind is ProgressKind.PROCESS and event.message == "ready":
                away.discard(broker)
        assert not away
        return order

    async def snapshot(self) -> Snapshot:
        zk = KazooZkClient(ZkSettings(connect=self.cluster.zookeeper))
        await zk.start()
        try:
            return await read_snapshot(zk, None)
        finally:
            await zk.close()


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "odradek.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


class Load:
    """A producer with acks=all and a consumer, which run until they are stopped."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self._progress = asyncio.Condition()

    async def produce(self, producer: Producer) -> None:
        number = 0
        while True:
            value = str(number).encode()
            await producer.send_and_wait("load", value, partition=number % PARTITIONS)
            self.acknowledged.add(value)
            number += 1

    async def consume(self, consumer: Consumer) -> None:
        consumer.subscribe(["load"])
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                async with self._progress:
                    self.consumed.update(record.value or b"" for record in records)
                    self._progress.notify_all()

    async def goes_on(self) -> None:
        """Return when one more record is acknowledged, and more records are consumed than are acknowledged now."""
        before = len(self.acknowledged)
        async with asyncio.timeout(120), self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) > before and len(self.consumed) > before)

    async def nothing_is_lost(self) -> None:
        acknowledged = set(self.acknowledged)
        async with asyncio.timeout(120), self._progress:
            await self._progress.wait_for(lambda: acknowledged <= self.consumed)


@asynccontextmanager
async def under_load(bootstrap: str) -> AsyncIterator[Load]:
    """Run a load inside the block, and check at its end that no record is lost."""
    load = Load()
    earliest = ClientSettings.of(bootstrap, group_id="load", auto_offset_reset="earliest")
    async with Producer(bootstrap) as producer, Consumer(earliest) as consumer, asyncio.TaskGroup() as group:
        producing = group.create_task(load.produce(producer))
        consuming = group.create_task(load.consume(consumer))
        await load.goes_on()
        yield load
        await load.goes_on()
        producing.cancel()
        await asyncio.wait([producing])
        await load.nothing_is_lost()
        consuming.cancel()


@pytest.fixture
async def followed(odradek_cluster_factory: ClusterFactory) -> Followed:
    def start() -> RunningCluster:
        return odradek_cluster_factory(brokers=3, topics={"load": TOPIC}, monitoring=True)

    return Followed(await asyncio.to_thread(start))


async def test_a_property_that_needs_a_restart_restarts_each_broker_once(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap), Admin(followed.cluster.bootstrap) as admin:
        controller = (await followed.snapshot()).controller_id
        followed.change(brokers={"config": {"num.partitions": 3}})
        await followed.until_rolled()
        order = followed.restarted()
        assert sorted(order) == [0, 1, 2]
        assert order[-1] == controller
        values = await values_of(admin, "num.partitions")
    assert values == ["3", "3", "3"]
    assert not set(followed.cluster.pids.values()) & set(followed.first_pids.values())
    assert {action for action, _ in followed.actions()} == {"RestartBroker"}
    # A planned restart is not reported as a failure.
    assert [event.message for event in followed.events if not event.good] == []


async def values_of(admin: Admin, key: str) -> list[str | None]:
    """Return the value that each broker reports."""
    brokers = [ConfigResource.broker(number) for number in range(3)]
    described = await admin.describe_configs(brokers, keys=[key])
    return [described[one][key].value for one in brokers]


async def test_a_dynamic_property_changes_without_a_restart(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap) as load, Admin(followed.cluster.bootstrap) as admin:
        followed.change(brokers={"config": {"log.retention.ms": 77_000_000}})
        told = await followed.until(lambda event: "action" in event.details, "the change")
        assert told.message == "log.retention.ms is set to 77000000"
        while await values_of(admin, "log.retention.ms") != ["77000000"] * 3:
            await load.goes_on()
        followed.change()
        told = await followed.until(lambda event: "action" in event.details, "its removal")
        assert told.message == "log.retention.ms is removed (was 77000000)"
        await load.goes_on()
    assert followed.cluster.pids == followed.first_pids
    assert followed.actions() == [("SetBrokerDefaults", None)]


async def test_a_broker_is_added_and_drained_again(followed: Followed) -> None:
    targets = followed.cluster.directory / "data" / "prometheus-targets.json"
    async with under_load(followed.cluster.bootstrap) as load:
        followed.change(brokers={"replicas": 4})
        await followed.until(is_action("LiftThrottle"), "the end of the rebalancing")
        assert followed.actions()[0] == ("AddBroker", 3)
        assert sorted(followed.cluster.pids) == [0, 1, 2, 3]
        grown = await followed.snapshot()
        held = [part.replicas for topic in grown.topics.values() for part in topic.assignment.partitions.values()]
        assert sum(3 in replicas for replicas in held) >= len(held) // 2
        assert "test-kafka-3" in targets.read_text()
        assert len(followed.cluster.metrics_urls) == 4
        process = followed.cluster.pids[3]
        await load.goes_on()

        followed.change()
        changed = await followed.until(lambda event: event.details.get("reason") == "BrokersChanged", "3 brokers")
        assert (changed.details["count"], changed.details["bootstrap"]) == (3, followed.cluster.bootstrap)
        shrunk = await followed.snapshot()
    assert followed.actions()[0][0] == "MoveReplicas"
    assert followed.actions()[-1] == ("RemoveBroker", 3) or followed.actions()[-1][0] == "LiftThrottle"
    assert not any(
        3 in part.replicas for topic in shrunk.topics.values() for part in topic.assignment.partitions.values()
    )
    assert followed.cluster.pids == followed.first_pids
    assert process not in followed.cluster.pids.values()
    assert "test-kafka-3" not in targets.read_text()


def is_action(name: str) -> Callable[[Event], bool]:
    return lambda event: event.details.get("action") == name


def free_row(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        (port,) = free_ports(1)
        if all(is_free(port + number) for number in range(count)):
            return port


def serves(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_listener_is_added_moved_and_removed(followed: Followed) -> None:
    first, second = free_row(3), free_row(3)
    async with under_load(followed.cluster.bootstrap):
        followed.change(listeners=[PLAIN, {"name": "out", "port": first}])
        await listens(followed, first, True)
        await advertises(first, [first, first + 1, first + 2])
        assert followed.cluster.pids == followed.first_pids
        assert sorted(followed.actions(), key=str) == [("SetBrokerListeners", broker) for broker in range(3)]

        # A change of a listener's port needs a restart.
        followed.change(listeners=[PLAIN, {"name": "out", "port": second}])
        await followed.until_rolled()
        assert sorted(followed.restarted()) == [0, 1, 2]
        await listens(followed, second, True)
        await listens(followed, first, False)
        pids = followed.cluster.pids

        followed.change(listeners=[PLAIN])
        await listens(followed, second, False)
        assert followed.cluster.pids == pids


async def advertises(port: int, expected: list[int]) -> None:
    """Return when the metadata on a listener has these ports: it follows a moment after the listeners are open."""
    async with Admin(f"127.0.0.1:{port}") as admin, asyncio.timeout(60):
        while sorted(node.port for node in (await admin.describe_cluster()).brokers) != expected:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def listens(followed: Followed, port: int, expected: bool) -> None:
    """Return when all brokers have opened, or closed, a listener."""
    await asyncio.to_thread(
        wait_until,
        lambda: all(serves(port + broker) is expected for broker in followed.cluster.pids),
        what=f"listener on {port}: {expected}",
    )


async def test_a_port_in_use_is_reported_and_tried_again(followed: Followed) -> None:
    port = free_row(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        followed.change(listeners=[PLAIN, {"name": "out", "port": port}])
        told = await followed.until(lambda event: event.details.get("reason") == "PortInUse", "the report")
        assert f"Broker 0 cannot open listener OUT: port {port} of 127.0.0.1 is in use." in told.message
    await listens(followed, port, True)


async def test_an_invalid_edit_changes_nothing_until_it_is_repaired(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap) as load:
        followed.change(brokers={"replicas": 0, "config": {"log.retention.ms": 5}})
        told = await followed.until(lambda event: event.kind is ProgressKind.NOTICE, "the report")
        assert told.message.startswith("not applied; the last valid ones stay in force:\n")
        assert "spec.brokers.replicas: must be a whole number" in told.message
        await load.goes_on()
        followed_events = list(followed.events)
        followed.change(brokers={"config": {"log.retention.ms": 77_000_000}})
        await followed.until(is_action("SetBrokerDefaults"), "the change")
    assert [event.message for event in followed_events] == [told.message]
    assert [event.message for event in followed.events if event.kind is ProgressKind.NOTICE] == [
        "valid again, and in force"
    ]
    assert followed.cluster.pids == followed.first_pids
