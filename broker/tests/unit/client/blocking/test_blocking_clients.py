"""The blocking clients against one broker in the test process: futures, iteration and context managers."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator

import pytest

from odradek import (
    BlockingAdmin,
    BlockingClient,
    BlockingConsumer,
    BlockingProducer,
    ClientSettings,
    NewTopic,
    TopicPartition,
)
from odradek.base.errors import MessageTooLargeError, NetworkError, UnknownTopicOrPartitionError
from odradek.testing.in_process import InProcessBroker


@pytest.fixture
def client(odradek_broker: InProcessBroker) -> Iterator[BlockingClient]:
    settings = ClientSettings.of(odradek_broker.bootstrap, auto_offset_reset="earliest", max_request_size=10_000)
    with BlockingClient(settings) as client:
        yield client


@pytest.fixture
def topic(client: BlockingClient, request: pytest.FixtureRequest) -> str:
    """A topic with one partition. The tests share the broker, so each has its topic."""
    name = str(request.node.name)
    with client.admin as admin:
        admin.create_topics([NewTopic(name=name, partitions=1)])
    return name


def test_the_connections_stay_open_when_an_admin_client_is_closed(client: BlockingClient, topic: str) -> None:
    admin = client.admin
    admin.close()
    assert topic in admin.list_topics()
    assert admin.list_topics() == client.topics()


def test_send_returns_a_future_for_threads(client: BlockingClient, topic: str) -> None:
    with client.producer() as producer:
        sent = [producer.send(topic, b"0"), producer.send(topic, b"1")]
        assert isinstance(sent[0], concurrent.futures.Future)
        assert [future.result().offset for future in sent] == [0, 1]
        assert producer.send_many(topic, [(None, b"2", 1)]).result().records == 1
        assert producer.send_and_wait(topic, b"3").offset == 3
        with pytest.raises(MessageTooLargeError):
            producer.send(topic, bytes(20_000))
    with pytest.raises(NetworkError, match="closed"):
        producer.send(topic, b"4")


def test_iteration_returns_records_and_ends_when_the_consumer_is_closed(client: BlockingClient, topic: str) -> None:
    with client.producer() as producer:
        producer.send_many(topic, [(None, b"%d" % number, 1) for number in range(3)]).result()
    values = []
    with client.consumer(topic) as consumer:
        assert consumer.assignment() == {TopicPartition(topic, 0)}
        assert consumer.membership.member_id == ""
        for record in consumer:
            values.append(record.value)
            if len(values) == 3:
                consumer.close()
    assert values == [b"0", b"1", b"2"]


def test_threads_share_a_producer(client: BlockingClient, topic: str) -> None:
    with client.producer() as producer:
        threads = [threading.Thread(target=producer.send_and_wait, args=(topic, b"x")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    partition = TopicPartition(topic, 0)
    assert client.latest_offsets([partition]) == {partition: 4}


def test_a_blocking_client_needs_no_other_one(odradek_broker: InProcessBroker, topic: str) -> None:
    with BlockingProducer(odradek_broker.bootstrap, linger_ms=1) as producer:
        assert producer.send_and_wait(topic, b"1").offset == 0
    with BlockingConsumer(odradek_broker.bootstrap, topic, auto_offset_reset="earliest") as consumer:
        assert consumer.getone().value == b"1"
    with BlockingAdmin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        assert topic in admin.list_topics()
    with pytest.raises(NetworkError, match="closed"):
        admin.list_topics()


def test_a_client_that_cannot_start_is_closed(odradek_broker: InProcessBroker) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        BlockingConsumer(odradek_broker.bootstrap, "missing", default_api_timeout_ms=100)


def test_producers_of_a_client_can_have_other_settings(client: BlockingClient, topic: str) -> None:
    with client.producer(acks=0) as producer:
        assert producer.send_and_wait(topic, b"1").offset == -1


def test_topics_are_described_with_their_ids(client: BlockingClient, topic: str) -> None:
    everything = client.describe_topics()
    assert [each.partition for each in everything[topic].partitions] == [0]
    assert everything[topic].topic_id.int
    assert client.describe_topics([topic, topic]) == {topic: everything[topic]}
    assert client.describe_topics([]) == {}
    with pytest.raises(UnknownTopicOrPartitionError):
        client.describe_topics([topic, "nothing"])
