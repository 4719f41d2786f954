"""Brokers are killed and paused while a producer with acks=all writes. No acknowledged record is lost."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
from click.testing import CliRunner

from odradek.base.types import TopicPartition
from odradek.cli.main import cli
from odradek.client.admin import Admin, NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS_BETWEEN_FAULTS = 200


class Writer:
    """Sends numbered records, one at a time, and stores those that were acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self._producer = producer
        self._topic = topic
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        number = 0
        while True:
            value = str(number).encode()
            await self._producer.send_and_wait(self._topic, value, partition=0)
            self.acknowledged.append(value)
            number += 1
            async with self._progress:
                self._progress.notify_all()

    async def more(self) -> None:
        """Return when this many more records are acknowledged."""
        target = len(self.acknowledged) + RECORDS_BETWEEN_FAULTS
        async with asyncio.timeout(120), self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) >= target)


async def leader_of(admin: Admin, topic: str) -> int:
    return (await admin.describe_topics([topic]))[topic].partitions[0].leader


async def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    found: list[bytes] = []
    async with Consumer(bootstrap) as consumer, asyncio.timeout(120):
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [record.value or b"" for record in records]
    assert len(found) >= count
    return found


def described(cluster: RunningCluster, topic: str) -> list[list[int]]:
    """Return the ISRs that `odradek topic describe` shows."""
    arguments = ["topic", "describe", topic, "--bootstrap-server", cluster.bootstrap, "--output", "json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return [partition["isr"] for partition in json.loads(result.stdout)[0]["partitions"]]


async def until_in_sync(cluster: RunningCluster, topic: str) -> None:
    async with asyncio.timeout(180):
        while any(len(isr) < 3 for isr in await asyncio.to_thread(described, cluster, topic)):
            continue


async def test_killed_leader_and_controller(odradek_cluster_factory: ClusterFactory) -> None:
    cluster = await asyncio.to_thread(lambda: odradek_cluster_factory(brokers=3))
    topic = f"failover-{uuid4().hex[:8]}"
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topics(
            [NewTopic(name=topic, partitions=1, replication_factor=3, configs=(("min.insync.replicas", "2"),))]
        )
        writer = Writer(producer, topic)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            await writer.more()
            leader = await leader_of(admin, topic)
            await asyncio.to_thread(cluster.kill, leader)
            await writer.more()
            await asyncio.to_thread(cluster.start_broker, leader)
            await until_in_sync(cluster, topic)
            controller = (await admin.describe_cluster()).controller_id
            await asyncio.to_thread(cluster.kill, controller)
            await writer.more()
            await asyncio.to_thread(cluster.start_broker, controller)
            await until_in_sync(cluster, topic)
            writing.cancel()
        acknowledged = writer.acknowledged
        found = await read_all(cluster.bootstrap, topic, len(acknowledged))
    # One record may have been in flight when the writer was stopped.
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


async def test_broker_that_outsleeps_its_session(odradek_cluster_factory: ClusterFactory) -> None:
    """A paused leader is replaced. When it continues, its session has expired: it registers again and catches up as a
    follower."""
    cluster = await asyncio.to_thread(lambda: odradek_cluster_factory(brokers=3))
    topic = f"paused-{uuid4().hex[:8]}"
    # Clients notice a paused leader by the timeout of a request.
    settings = ClientSettings.of(cluster.bootstrap, request_timeout_ms=3_000)
    async with Admin(settings) as admin, Producer(settings) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=3)])
        writer = Writer(producer, topic)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            await writer.more()
            leader = await leader_of(admin, topic)
            await asyncio.to_thread(cluster.pause, leader)
            await writer.more()
            assert await leader_of(admin, topic) != leader
            await asyncio.to_thread(cluster.resume, leader)
            await until_in_sync(cluster, topic)
            await writer.more()
            writing.cancel()
        acknowledged = writer.acknowledged
        found = await read_all(cluster.bootstrap, topic, len(acknowledged))
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


async def test_the_session_of_a_dead_broker_is_ended_by_its_parent(odradek_cluster_factory: ClusterFactory) -> None:
    """A broker process dies. Its parent ends its session, and the others continue long before the session would
    expire."""
    session_seconds = 60
    cluster = await asyncio.to_thread(
        lambda: odradek_cluster_factory(brokers=3, config={"zookeeper.session.timeout.ms": session_seconds * 1000})
    )
    topic = f"crashed-{uuid4().hex[:8]}"
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=3)])
        writer = Writer(producer, topic)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            await writer.more()
            leader = await leader_of(admin, topic)
            await asyncio.to_thread(cluster.crash, leader)
            async with asyncio.timeout(0.8 * session_seconds):
                await writer.more()
            assert await leader_of(admin, topic) != leader
            await asyncio.to_thread(cluster.kill, leader)
            await asyncio.to_thread(cluster.start_broker, leader)
            await until_in_sync(cluster, topic)
            writing.cancel()
        found = await read_all(cluster.bootstrap, topic, len(writer.acknowledged))
    assert found[: len(writer.acknowledged)] == writer.acknowledged
