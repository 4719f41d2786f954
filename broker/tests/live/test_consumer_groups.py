"""Consumers of librdkafka in consumer groups (KIP-848, `group.protocol=consumer`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 6
SHORT = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "offsets.topic.replication.factor": 1,
}
"""Short times, so that the end of a killed member is noticed soon."""
IDLE_MEMBER = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
consumer.subscribe([topic])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@pytest.fixture
def cluster(odradek_cluster_factory: Callable[..., RunningCluster]) -> RunningCluster:
    return odradek_cluster_factory(brokers=1, config=SHORT)


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    return created(cluster, f"events-{uuid4().hex[:8]}")


def created(cluster: RunningCluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


@pytest.fixture
def members() -> Iterator[list[confluent_kafka.Consumer]]:
    """The members of the group that a test has opened."""
    opened: list[confluent_kafka.Consumer] = []
    yield opened
    for consumer in opened:
        consumer.close()


def member(cluster: RunningCluster, group: str, *topics: str, **options: object) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
            **options,
        }
    )
    consumer.subscribe([*topics])
    return consumer


def settle(members: Iterable[confluent_kafka.Consumer], *shares: int) -> None:
    """Poll until the members have these numbers of partitions, in any order, and every partition once."""

    def is_shared() -> bool:
        owned = []
        for each in members:
            each.poll(0.05)
            owned.append({(part.topic, part.partition) for part in each.assignment()})
        return sorted(map(len, owned)) == sorted(shares) and len(set().union(*owned)) == sum(shares)

    wait_until(is_shared, what=f"the shares {shares}")


def produce(cluster: RunningCluster, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_members_share_the_partitions_and_commits_survive(
    cluster: RunningCluster, topic: str, members: list[confluent_kafka.Consumer]
) -> None:
    members.append(member(cluster, "shared", topic))
    settle(members, 6)
    members.append(member(cluster, "shared", topic))
    settle(members, 3, 3)
    members.append(member(cluster, "shared", topic))
    settle(members, 2, 2, 2)
    members.pop().close()
    settle(members, 3, 3)

    produce(cluster, topic, 60)
    read: list[bytes] = []

    def has_read_everything() -> bool:
        for each in members:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                read.append(message.value())
        return len({*read}) == 60

    wait_until(has_read_everything, what="all records")
    for each in members:
        each.commit(asynchronous=False)
    while members:
        members.pop().close()
    members.append(member(cluster, "shared", topic))
    settle(members, 6)
    committed = members[0].committed([confluent_kafka.TopicPartition(topic, number) for number in range(6)], 60)
    assert [part.offset for part in committed] == [10] * PARTITIONS


def test_the_partitions_of_a_killed_member_move(
    cluster: RunningCluster, topic: str, members: list[confluent_kafka.Consumer]
) -> None:
    members.append(member(cluster, "killed", topic))
    command = [sys.executable, "-c", IDLE_MEMBER, cluster.bootstrap, "killed", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            settle(members, 3)
        finally:
            other.kill()
    settle(members, 6)


def test_a_static_member_comes_back_to_its_partitions(
    cluster: RunningCluster, topic: str, members: list[confluent_kafka.Consumer]
) -> None:
    members.append(member(cluster, "static", topic, **{"group.instance.id": "one"}))
    members.append(member(cluster, "static", topic, **{"group.instance.id": "two"}))
    settle(members, 3, 3)
    before = {(part.topic, part.partition) for part in members[1].assignment()}
    members.pop().close()
    members.append(member(cluster, "static", topic, **{"group.instance.id": "two"}))
    settle(members, 3, 3)
    assert {(part.topic, part.partition) for part in members[1].assignment()} == before


def test_a_regular_expression_finds_a_new_topic(
    cluster: RunningCluster, topic: str, members: list[confluent_kafka.Consumer]
) -> None:
    members.append(member(cluster, "pattern", f"^{topic}.*"))
    settle(members, 6)
    created(cluster, f"{topic}-later")
    settle(members, 12)


def test_an_empty_group_changes_its_protocol(
    cluster: RunningCluster, topic: str, members: list[confluent_kafka.Consumer]
) -> None:
    produce(cluster, topic, 6)
    classic = {"group.protocol": "classic"}
    members.append(member(cluster, "both", topic, **classic))
    settle(members, 6)
    members[0].commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
    members.pop().close()
    for options in ({}, classic, {}):
        members.append(member(cluster, "both", topic, **options))
        settle(members, 6)
        (committed,) = members[0].committed([confluent_kafka.TopicPartition(topic, 0)], 60)
        assert committed.offset == 1
        members.pop().close()
