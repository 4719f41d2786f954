"""The high-level consumer of the documents with a real ZooKeeper and real brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pytest

from odradek.base.errors import ConfigError, OffsetOutOfRangeError
from odradek.base.types import TopicPartition
from odradek.classic import (
    Consumer,
    ConsumerConnector,
    ConsumerTimeoutError,
    MessageAndMetadata,
    MessageStream,
    Whitelist,
)
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 4
COUNT = 200


@pytest.fixture
def client(odradek_cluster: RunningCluster) -> Iterator[BlockingClient]:
    with BlockingClient(odradek_cluster.bootstrap) as made:
        yield made


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = f"classic-{uuid4().hex[:8]}"
    client.admin.create_topics([NewTopic(name=name, partitions=PARTITIONS)])
    return name


def produce(client: BlockingClient, topic: str, numbers: Iterable[int]) -> None:
    with client.producer() as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, key=b"k%d" % number, partition=number % PARTITIONS)


def create(cluster: RunningCluster, group: str, **settings: str) -> ConsumerConnector:
    defaults = {
        "zookeeper.connect": cluster.zookeeper,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": "200",
        "rebalance.backoff.ms": "500",
    }
    return Consumer.create({**defaults, **{name.replace("_", "."): value for name, value in settings.items()}})


class Reader:
    """Reads a stream in a thread, until the stream ends."""

    def __init__(self, stream: MessageStream) -> None:
        self.messages: list[MessageAndMetadata] = []
        self._stream = stream
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self.messages.extend(self._stream)
            except ConsumerTimeoutError:
                continue
            return

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def numbers(*readers: Reader) -> list[int]:
    return sorted(int(each.message) for reader in readers for each in reader.messages)


def take(stream: MessageStream, count: int) -> list[int]:
    """Return the next messages; the stream times out while a fetch is in progress."""
    found: list[int] = []
    while len(found) < count:
        try:
            found.append(int(next(stream).message))
        except ConsumerTimeoutError:
            continue
    return found


def test_members_share_a_topic_and_continue_after_each_other(
    odradek_cluster: RunningCluster, client: BlockingClient, topic: str
) -> None:
    group = f"g-{topic}"
    produce(client, topic, range(COUNT))
    first = create(odradek_cluster, group)
    readers = [Reader(stream) for stream in first.create_message_streams({topic: 2})[topic]]
    wait_until(lambda: len(numbers(*readers)) == COUNT, what="all messages")
    message = readers[0].messages[0]
    assert (message.topic, message.key) == (topic, b"k%d" % int(message.message))

    second = create(odradek_cluster, group)
    readers += [Reader(stream) for stream in second.create_message_streams({topic: 2})[topic]]
    sent = COUNT
    while not readers[2].messages and not readers[3].messages:
        produce(client, topic, range(sent, sent + PARTITIONS))
        sent += PARTITIONS
        wait_until(lambda: len(set(numbers(*readers))) == sent, what="new messages")  # noqa: B023
    second.shutdown()
    produce(client, topic, range(sent, sent + COUNT))
    wait_until(lambda: len(set(numbers(*readers))) == sent + COUNT, what="messages after a member has left")
    first.shutdown()
    for reader in readers:
        reader.join()
    # A member stores its offset before it gives up a partition, so nothing is consumed twice.
    assert numbers(*readers) == list(range(sent + COUNT))

    with create(odradek_cluster, group) as third, pytest.raises(ConsumerTimeoutError):
        next(third.create_message_streams({topic: 1})[topic][0])


def test_offsets_move_from_zookeeper_to_kafka(
    odradek_cluster: RunningCluster, client: BlockingClient, topic: str
) -> None:
    group, partition = f"g-{topic}", TopicPartition(topic, 0)
    produce(client, topic, range(0, 40, PARTITIONS))
    steps = [
        ({}, 0),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "true"}, 1),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "false"}, 1),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "true"}, 1),
        ({}, 1),
    ]
    taken: list[int] = []
    for settings, has_committed in steps:
        with create(odradek_cluster, group, **settings) as connector:
            stream = connector.create_message_streams({topic: 1})[topic][0]
            taken += take(stream, 2)
            connector.commit_offsets()
        assert len(client.admin.group_offsets(group)) == has_committed
    assert taken == list(range(0, 40, PARTITIONS))
    assert client.admin.group_offsets(group)[partition].offset == 8


def test_a_filter_follows_new_topics(odradek_cluster: RunningCluster, client: BlockingClient, topic: str) -> None:
    with create(odradek_cluster, f"g-{topic}") as connector:
        (stream,) = connector.create_message_streams_by_filter(Whitelist(f"{topic}.*"))
        reader = Reader(stream)
        produce(client, topic, range(4))
        wait_until(lambda: numbers(reader) == [0, 1, 2, 3], what="the first topic")
        client.admin.create_topics([NewTopic(name=f"{topic}-2", partitions=PARTITIONS)])
        produce(client, f"{topic}-2", range(4, 8))
        wait_until(lambda: numbers(reader) == list(range(8)), what="the second topic")
    reader.join()


def test_messages_are_decoded_and_consumed_again(
    odradek_cluster: RunningCluster, client: BlockingClient, topic: str
) -> None:
    produce(client, topic, range(0, 40, PARTITIONS))
    with create(odradek_cluster, f"g-{topic}") as connector:
        streams = connector.create_message_streams({topic: 1}, value_decoder=lambda value: int(value or b"-1"))
        assert take(streams[topic][0], 10) == list(range(0, 40, PARTITIONS))
        connector.rewind({TopicPartition(topic, 0): 8, TopicPartition("other", 0): 0})
        assert take(streams[topic][0], 2) == [32, 36]
        with pytest.raises(ConfigError, match="only once"):
            connector.create_message_streams({topic: 1})
    with pytest.raises(StopIteration):
        next(streams[topic][0])


def test_a_missing_offset_can_be_an_error(odradek_cluster: RunningCluster, topic: str) -> None:
    with create(odradek_cluster, f"g-{topic}", auto_offset_reset="fail", consumer_timeout_ms="-1") as connector:
        stream = connector.create_message_streams({topic: 1})[topic][0]
        with pytest.raises(OffsetOutOfRangeError, match=r"auto\.offset\.reset=fail"):
            next(stream)
