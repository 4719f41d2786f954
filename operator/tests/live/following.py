"""A running embedded cluster whose Cluster resource a test changes, and a load that must lose no records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import yaml

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.running_cluster import CLUSTER_NAME, RunningCluster
from odradek.testing.waiting import wait_until
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkSettings
from odradek_operator.embedded.progress import Event, ProgressKind
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot

PARTITIONS = 6
TOPIC = {"partitions": PARTITIONS, "replicas": 3, "config": {"min.insync.replicas": 2}, "deletion": "Delete"}


class Followed:
    """A cluster with its manifest, and the events since its last change."""

    def __init__(self, cluster: RunningCluster, *, replicas: int = 3, topic: Mapping[str, Any] = TOPIC) -> None:
        """`replicas`: the number of groups unless a change has another. `topic`: the topic of the load."""
        self.cluster = cluster
        self._replicas = replicas
        self._topic = topic
        self.first_pids = dict(cluster.pids)
        self._begin = 0

    def change(self, **spec: Any) -> None:
        """Write a Cluster with this specification. `brokers` overrides fields of its `brokers`."""
        brokers = {"replicas": self._replicas, **spec.pop("brokers", {})}
        documents = [
            _resource("Cluster", CLUSTER_NAME, {**spec, "brokers": brokers}),
            _resource("Topic", "load", {**self._topic, "cluster": CLUSTER_NAME}),
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


def is_action(name: str) -> Callable[[Event], bool]:
    return lambda event: event.details.get("action") == name
