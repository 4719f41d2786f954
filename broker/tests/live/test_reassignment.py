"""A topic under load moves to other brokers and back while brokers are killed. No acknowledged record is lost or
reordered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic, TopicDescription
from odradek.client.producer.producer import Producer
from odradek.network.channel import Channel
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
RECORDS_BETWEEN_FAULTS = 100
ELECTION_NOT_NEEDED = 84


class Writer:
    """Sends numbered records, one at a time to each partition, and counts those that were acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.acknowledged = [0] * PARTITIONS
        self._producer = producer
        self._topic = topic
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(self._write(partition))

    async def _write(self, partition: int) -> None:
        while True:
            value = str(self.acknowledged[partition]).encode()
            await self._producer.send_and_wait(self._topic, value, partition=partition)
            self.acknowledged[partition] += 1
            async with self._progress:
                self._progress.notify_all()

    async def more(self) -> None:
        """Return when a hundred more records of each partition are acknowledged."""
        targets = [count + RECORDS_BETWEEN_FAULTS for count in self.acknowledged]
        async with asyncio.timeout(120), self._progress:
            await self._progress.wait_for(
                lambda: all(count >= target for count, target in zip(self.acknowledged, targets, strict=True))
            )


async def ask(cluster: RunningCluster, admin: Admin, api_key: ApiKey, message: Message) -> Any:
    """Send a request to the current controller."""
    host, port = cluster.address((await admin.describe_cluster()).controller_id)
    channel = await Channel.open(host, port)
    try:
        await channel.negotiate()
        return await channel.ask(api_key, channel.pick(api_key), message)
    finally:
        await channel.close()


async def alter(cluster: RunningCluster, admin: Admin, topic: str, targets: list[list[int] | None]) -> list[int]:
    """Request a reassignment. Return the error code of each partition."""
    parts = [{"partition_index": number, "replicas": target} for number, target in enumerate(targets)]
    message: Message = {"timeout_ms": 30_000, "topics": [{"name": topic, "partitions": parts}]}
    response = await ask(cluster, admin, ApiKey.ALTER_PARTITION_REASSIGNMENTS, message)
    assert response.error_code == 0
    return [int(part.error_code) for each in response.responses for part in each.partitions]


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Repeat until the condition holds. A request may fail while the controller changes. At the timeout, fail with
    `what`."""
    try:
        async with asyncio.timeout(180):
            while True:
                with suppress(OdradekError):
                    if await condition():
                        return
    except TimeoutError:
        raise AssertionError(f"timeout while waiting for {what}") from None


async def described(admin: Admin, topic: str) -> TopicDescription:
    return (await admin.describe_topics([topic]))[topic]


async def read_all(bootstrap: str, topic: str) -> list[list[bytes]]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: list[list[bytes]] = [[] for _ in partitions]
    async with Consumer(bootstrap) as consumer, asyncio.timeout(120):
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(part) < ends[part] for part in partitions]):
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                found[partition.partition] += [record.value or b"" for record in records]
    return found


class Move:
    """The steps of the test, in order."""

    def __init__(self, cluster: RunningCluster, admin: Admin, topic: str, writer: Writer) -> None:
        self._cluster = cluster
        self._admin = admin
        self._topic = topic
        self._writer = writer

    async def _is_still(self) -> bool:
        listed = await ask(
            self._cluster, self._admin, ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 30_000, "topics": None}
        )
        return int(listed.error_code) == 0 and not listed.topics

    async def there(self) -> None:
        """Move from brokers 0 and 1 to 2 and 3. No directory of the old replicas remains."""
        assert await alter(self._cluster, self._admin, self._topic, [[2, 3], [3, 2], [2, 3]]) == [0, 0, 0]
        await until(self._is_still, "the end of the reassignment")
        await self._writer.more()
        # The broker that responds to the metadata request may learn of the end later than the controller.
        await until(self._is_there, "the requested leaders and replicas")
        await until(self._is_gone_from_the_old_brokers, "the end of the old replicas")

    async def _is_there(self) -> bool:
        parts = (await described(self._admin, self._topic)).partitions
        placed = [(part.leader, list(part.replicas)) for part in parts]
        return placed == [(2, [2, 3]), (3, [3, 2]), (2, [2, 3])] and all(set(part.isr) == {2, 3} for part in parts)

    async def _is_gone_from_the_old_brokers(self) -> bool:
        found = [path for path in self._cluster.directory.rglob(f"{self._topic}-?") if path.is_dir()]
        return not {"broker-0", "broker-1"} & {part for path in found for part in path.parts}

    async def back(self) -> None:
        """A reassignment to a dead broker is refused. One in progress continues after the controller died."""
        await asyncio.to_thread(self._cluster.kill, 1)
        await until(self._has_lost_broker_1, "the end of broker 1")
        assert await self._wish_back() == [39] * PARTITIONS
        await asyncio.to_thread(self._cluster.start_broker, 1)
        await until(self._has_broker_1, "broker 1")
        assert await self._wish_back() == [0] * PARTITIONS
        controller = (await self._admin.describe_cluster()).controller_id
        await asyncio.to_thread(self._cluster.kill, controller)
        await asyncio.to_thread(self._cluster.start_broker, controller)
        await until(self._is_still, "the end of the reassignment")
        await until(self._is_in_sync, "both replicas in sync")
        await self._writer.more()

    async def _wish_back(self) -> list[int]:
        """Return the response of the controller. If it was broker 1, metadata may still name it for a short time."""
        answers: list[list[int]] = []

        async def is_answered() -> bool:
            answers.append(await alter(self._cluster, self._admin, self._topic, [[0, 1]] * PARTITIONS))
            return True

        await until(is_answered, "a controller")
        return answers[-1]

    async def _has_broker_1(self) -> bool:
        return 1 in {broker.node_id for broker in (await self._admin.describe_cluster()).brokers}

    async def _has_lost_broker_1(self) -> bool:
        return not await self._has_broker_1()

    async def _is_in_sync(self) -> bool:
        return all(set(part.isr) == {0, 1} for part in (await described(self._admin, self._topic)).partitions)

    async def prefer(self) -> None:
        """The preferred leaders are elected. A second request has nothing to do."""
        assert {part.leader for part in (await described(self._admin, self._topic)).partitions} <= {0, 1}
        assert set(await self._elected()) <= {0, ELECTION_NOT_NEEDED}
        await until(self._is_led_by_0, "the first replica as the leader of each partition")
        assert await self._elected() == [ELECTION_NOT_NEEDED] * PARTITIONS
        await self._writer.more()

    async def _is_led_by_0(self) -> bool:
        return all(part.leader == 0 for part in (await described(self._admin, self._topic)).partitions)

    async def _elected(self) -> list[int]:
        named = [{"topic": self._topic, "partitions": list(range(PARTITIONS))}]
        message: Message = {"election_type": 0, "topic_partitions": named, "timeout_ms": 30_000}
        response = await ask(self._cluster, self._admin, ApiKey.ELECT_LEADERS, message)
        return [int(part.error_code) for each in response.replica_election_results for part in each.partition_result]


async def test_a_topic_under_load_moves_to_other_brokers_and_back(odradek_cluster_factory: ClusterFactory) -> None:
    quiet = {"auto.leader.rebalance.enable": "false"}
    cluster = await asyncio.to_thread(lambda: odradek_cluster_factory(brokers=4, config=quiet))
    topic = f"moving-{uuid4().hex[:8]}"
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topics([NewTopic(name=topic, assignments=((0, 1), (1, 0), (0, 1)))])
        writer = Writer(producer, topic)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            move = Move(cluster, admin, topic, writer)
            await writer.more()
            await move.there()
            await move.back()
            await move.prefer()
            writing.cancel()
        found = await read_all(cluster.bootstrap, topic)
    for number, count in enumerate(writer.acknowledged):
        # One record may have been in flight when the writer was stopped.
        assert found[number][:count] == [str(each).encode() for each in range(count)]
        assert len(found[number]) <= count + 1
