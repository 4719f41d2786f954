"""Consumers with a rack id read from the follower in their rack (KIP-392), and from the leader after it died."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RECORDS = 300
DEADLINE_SECONDS = 120


@pytest.fixture
def racks(odradek_cluster_factory: ClusterFactory) -> Iterator[RunningCluster]:
    """Brokers 0, 1 and 2 in the racks r0, r1 and r2."""
    cluster = odradek_cluster_factory(brokers=3, config=SELECTOR, racks=("r0", "r1", "r2"))
    yield cluster


def bytes_out(cluster: RunningCluster, broker_id: int, topic: str) -> float:
    """Return the number of bytes that the broker has sent to consumers of the topic."""
    with urllib.request.urlopen(cluster.metrics_urls[broker_id], timeout=60) as response:
        text = response.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kafka_server_brokertopicmetrics_bytesout_total" and sample.labels.get("topic") == topic
    )


@asynccontextmanager
async def librdkafka(cluster: RunningCluster, topic: str, rack: str) -> AsyncIterator[Callable[[], list[bytes]]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"group-{topic}",
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def poll() -> list[bytes]:
        return [message.value() or b"" for message in consumer.consume(500, timeout=1.0) if message.error() is None]

    try:
        yield poll
    finally:
        await asyncio.to_thread(consumer.close)


async def until(poll: Callable[[], list[bytes]], found: list[bytes], count: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while len(found) < count:
            found += await asyncio.to_thread(poll)


async def prepared(cluster: RunningCluster, admin: Admin, producer: Producer) -> tuple[str, int]:
    """Create a topic with records on all brokers. Return it and a broker that does not lead it."""
    topic = f"racks-{uuid4().hex[:8]}"
    await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=3)])
    await send(producer, topic, range(RECORDS))
    leader = (await admin.describe_topics([topic]))[topic].partitions[0].leader
    return topic, next(broker_id for broker_id in cluster.broker_ids if broker_id != leader)


async def send(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        await producer.send_and_wait(topic, b"%06d" % number, partition=0)


async def test_librdkafka_reads_from_its_rack_and_continues_after_a_failure(racks: RunningCluster) -> None:
    async with Admin(racks.bootstrap) as admin, Producer(racks.bootstrap) as producer:
        topic, follower = await prepared(racks, admin, producer)
        async with librdkafka(racks, topic, f"r{follower}") as poll:
            found: list[bytes] = []
            await until(poll, found, RECORDS)
            sent = [bytes_out(racks, broker_id, topic) for broker_id in racks.broker_ids]
            assert sent[follower] > RECORDS * 6
            assert sum(sent) == sent[follower]
            await asyncio.to_thread(racks.kill, follower)
            await send(producer, topic, range(RECORDS, 2 * RECORDS))
            await until(poll, found, 2 * RECORDS)
    assert found == [b"%06d" % number for number in range(2 * RECORDS)]


async def test_our_consumer_reads_from_its_rack_and_continues_after_a_failure(racks: RunningCluster) -> None:
    async with Admin(racks.bootstrap) as admin, Producer(racks.bootstrap) as producer:
        topic, follower = await prepared(racks, admin, producer)
        settings = ClientSettings.of(racks.bootstrap, client_rack=f"r{follower}")
        found: list[bytes] = []
        async with Consumer(settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning(TopicPartition(topic, 0))

            async def read(count: int) -> None:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while len(found) < count:
                        for records in (await consumer.getmany(timeout_ms=1000)).values():
                            found.extend(record.value or b"" for record in records)

            await read(RECORDS)
            sent = [bytes_out(racks, broker_id, topic) for broker_id in racks.broker_ids]
            assert sent[follower] > RECORDS * 6
            assert sum(sent) == sent[follower]
            await asyncio.to_thread(racks.kill, follower)
            await send(producer, topic, range(RECORDS, 2 * RECORDS))
            await read(2 * RECORDS)
    assert found == [b"%06d" % number for number in range(2 * RECORDS)]
