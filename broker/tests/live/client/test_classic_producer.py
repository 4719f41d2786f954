"""The producer of the documents with real brokers: sync and async, by a list of brokers and by ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from odradek.base.errors import ConfigError, NetworkError
from odradek.base.types import TopicPartition
from odradek.classic import HashPartitioner, Producer, ProducerData
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import NewTopic
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 3
STRINGS = "odradek.classic:StringEncoder"


@pytest.fixture
def client(odradek_cluster: RunningCluster) -> Iterator[BlockingClient]:
    with BlockingClient(odradek_cluster.bootstrap) as made:
        yield made


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = f"classic-{uuid4().hex[:8]}"
    client.admin.create_topics([NewTopic(name=name, partitions=PARTITIONS)])
    return name


def stored(client: BlockingClient, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return partition, key and value of all records."""
    found = []
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for partition, end in client.latest_offsets(partitions).items():
        offset = 0
        while offset < end:
            fetch = client.fetch_raw(partition, offset)
            found += [(partition.partition, r.key, r.value) for records, _ in iterate_records(fetch) for r in records]
            offset = fetch.next_offset
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("found_by", ["broker.list", "zk.connect"])
def test_messages_are_partitioned_by_key(
    odradek_cluster: RunningCluster, client: BlockingClient, topic: str, kind: str, found_by: str
) -> None:
    where = odradek_cluster.bootstrap if found_by == "broker.list" else odradek_cluster.zookeeper
    properties = {found_by: where, "producer.type": kind, "serializer.class": STRINGS, "compression.codec": "1"}
    with Producer(properties) as producer:
        producer.send([ProducerData(topic, f"key{n}", [f"{n}-0", f"{n}-1"]) for n in range(20)])
        producer.send(ProducerData(topic, None, ["without key"]))
        if kind == "sync":
            assert len(stored(client, topic)) == 41
    found = stored(client, topic)
    of_key = HashPartitioner()
    for n in range(20):
        number = of_key.partition(f"key{n}", PARTITIONS)
        assert [row for row in found if row[1] == f"key{n}".encode()] == [
            (number, f"key{n}".encode(), f"{n}-{m}".encode()) for m in range(2)
        ]
    assert [row[2] for row in found if row[1] is None] == [b"without key"]


class LastPartition:
    """A partitioner of a user."""

    def partition(self, key: object, num_partitions: int) -> int:
        return num_partitions - 1 if key is None else num_partitions


def test_a_user_can_choose_the_partition(odradek_cluster: RunningCluster, client: BlockingClient, topic: str) -> None:
    with Producer({"broker.list": odradek_cluster.bootstrap}, partitioner=LastPartition()) as producer:
        producer.send(ProducerData(topic, None, [b"x", None]))
        with pytest.raises(ConfigError, match=f"the partitioner returned {PARTITIONS}"):
            producer.send(ProducerData(topic, b"k", [b"y"]))
    assert stored(client, topic) == [(PARTITIONS - 1, None, b"x"), (PARTITIONS - 1, None, None)]


def test_a_producer_follows_the_brokers_in_zookeeper(odradek_cluster_factory: ClusterFactory) -> None:
    cluster = odradek_cluster_factory(brokers=2)
    first, second = cluster.broker_ids
    cluster.stop_broker(second)
    with BlockingClient(cluster.bootstrap) as client, Producer({"zk.connect": cluster.zookeeper}) as producer:
        client.admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        producer.send(ProducerData("t", None, [b"1"]))
        cluster.start_broker(second)
        client.admin.create_topics([NewTopic(name="u", assignments=((second,),))])
        cluster.stop_broker(first)
        # Nobody is left whom the producer knew when it was created.
        producer.send(ProducerData("u", None, [b"2"]))
        assert client.latest_offsets([TopicPartition("u", 0)]) == {TopicPartition("u", 0): 1}


def test_a_producer_without_brokers_says_so(odradek_cluster: RunningCluster) -> None:
    with pytest.raises(NetworkError, match="no broker with a listener for PLAINTEXT is registered"):
        Producer({"zk.connect": f"{odradek_cluster.zookeeper}/nowhere"})
