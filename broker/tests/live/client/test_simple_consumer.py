"""The low-level consumer of the documents with a real broker: fetches, multifetches and offsets before a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.base.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.classic import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.plugin import ClusterFactory

pytestmark = [pytest.mark.java, pytest.mark.slow]

COUNT = 300
SMALL = 200


@pytest.fixture
def broker(odradek_cluster_factory: ClusterFactory) -> Iterator[tuple[str, int]]:
    cluster = odradek_cluster_factory(brokers=1)
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    with BlockingClient(cluster.bootstrap) as client:
        # Segments of about 100 messages.
        topic = NewTopic(name="t", partitions=2, replication_factor=1, configs=(("segment.bytes", "16384"),))
        client.admin.create_topics([topic])
        with client.producer(linger_ms=0, batch_size=2_000) as producer:
            for number in range(COUNT):
                producer.send_and_wait("t", b"%d" % number + b"." * 100, key=b"k", partition=0, timestamp_ms=number)
            producer.send_and_wait("t", b"x" * 10_000, partition=1)
    yield host, int(port)


def test_the_interface_of_the_documents(broker: tuple[str, int]) -> None:
    host, port = broker
    with SimpleConsumer(host, port, client_id="simple") as consumer:
        offset, values = 0, []
        while offset < COUNT:
            messages = consumer.fetch(FetchRequest("t", 0, offset, 1_000))
            values += [(each.offset, each.message.key, (each.message.payload or b"").rstrip(b".")) for each in messages]
            offset = messages.next_offset
        assert values == [(number, b"k", b"%d" % number) for number in range(COUNT)]
        assert len(consumer.fetch(FetchRequest("t", 0, COUNT, 1_000))) == 0

        # A message that is larger than the size is returned all the same.
        first, second = consumer.multifetch([FetchRequest("t", 0, COUNT - 1, SMALL), FetchRequest("t", 1, 0, SMALL)])
        assert [each.offset for each in first] == [COUNT - 1]
        assert [each.message.payload for each in second] == [b"x" * 10_000]
        assert consumer.multifetch([]) == []

        offsets = consumer.get_offsets_before("t", 0, LATEST_TIME, 100)
        assert offsets[0] == COUNT
        assert offsets == sorted(offsets, reverse=True)
        assert offsets[-1] == 0
        assert len(offsets) > 2
        assert consumer.get_offsets_before("t", 0, LATEST_TIME, 1) == [COUNT]
        assert consumer.get_offsets_before("t", 0, EARLIEST_TIME, 5) == [0]

        # A consumer continues from an earlier offset whenever it wants to.
        assert next(iter(consumer.fetch(FetchRequest("t", 0, 7, 1_000)))).offset == 7

        with pytest.raises(OffsetOutOfRangeError, match=f"offset {COUNT + 1} of t-0"):
            consumer.fetch(FetchRequest("t", 0, COUNT + 1, 1_000))
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.fetch(FetchRequest("missing", 0, 0, 1_000))
        with pytest.raises(ValueError, match="occurs twice"):
            consumer.multifetch([FetchRequest("t", 0, 0, 1), FetchRequest("t", 0, 5, 1)])
        consumer.close()
        assert len(consumer.fetch(FetchRequest("t", 0, 0, 1_000))) > 0
