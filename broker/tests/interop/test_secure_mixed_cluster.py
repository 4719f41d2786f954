"""A broker of Apache Kafka and one of ours with SASL_SSL between them: each as the controller, each as the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import BrokerNotAvailableError
from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import ApacheBroker, jars
from odradek_testkit.security.secured_cluster import BROKER_PASSWORD, SecuredCluster

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

VERSION = "3.9.1"
JAVA = 9


@pytest.fixture
def cluster(odradek_zookeeper: str, tmp_path: Path) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path, odradek_zookeeper)
    yield cluster
    cluster.stop()


async def create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=4, replication_factor=2)])


async def produce(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(4):
            await producer.send_and_wait("t", b"value", partition=number)


async def in_sync(bootstrap: str) -> tuple[set[int], int]:
    """Return the brokers that are in sync for all partitions, and the controller."""
    async with Admin(bootstrap) as admin:
        try:
            topic = (await admin.describe_topics(["t"]))["t"]
            controller = (await admin.describe_cluster()).controller_id
        except BrokerNotAvailableError:
            # Kafka's broker answers requests for metadata before it has any.
            return set(), -1
        return set.intersection(*({*each.isr} for each in topic.partitions)), controller


def test_brokers_of_both_kinds_follow_each_other(
    cluster: SecuredCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kafka = jars(VERSION, Path(request.config.rootpath) / ".interop")
    port, between = free_ports(2)
    java = ApacheBroker(
        kafka,
        tmp_path / "java",
        broker_id=JAVA,
        zookeeper=cluster.root,
        properties=cluster.properties(port, between, replicas=2),
        heap="384m",
        port=port,
    )
    try:
        java.start()
        ours = cluster.add(replicas=2)
        ours.start()
        bootstrap = cluster.bootstrap
        asyncio.run(create(bootstrap))
        asyncio.run(produce(bootstrap))
        wait_until(
            lambda: asyncio.run(in_sync(bootstrap)) == ({1, JAVA}, JAVA), what="replicas with Kafka's controller"
        )
        java.stop()
        wait_until(lambda: asyncio.run(in_sync(bootstrap)) == ({1}, 1), what="the failover")
        asyncio.run(produce(bootstrap))
        java.start()
        wait_until(lambda: asyncio.run(in_sync(bootstrap)) == ({1, JAVA}, 1), what="replicas under ours")
        asyncio.run(produce(bootstrap))
    finally:
        java.stop()
    assert BROKER_PASSWORD not in ours.log()
