"""A broker compacts a topic in its worker process, with the core that the tests ask for: compiled or interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "compacted"
KEYS = 10
RECORDS = 2_000
SEGMENT_BYTES = 16 << 10
SECONDS = 60


@pytest.fixture
def cluster(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    """One broker that looks for topics to compact several times a second."""
    return odradek_cluster_factory(brokers=1, config={"log.cleaner.backoff.ms": 200})


def values_by_key(bootstrap: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Read the partition from its beginning to its end."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    try:
        while (message := reader.poll(SECONDS)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return
            yield message.key(), message.value()
    finally:
        reader.close()
    raise AssertionError(f"no record and no end of the partition within {SECONDS} s")


def test_old_values_are_removed_and_the_last_value_of_each_key_stays(cluster: RunningCluster) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(SECONDS)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": SEGMENT_BYTES // 4})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%0100d" % number, key=b"%d" % (number % KEYS), partition=0)
    assert producer.flush(SECONDS) == 0

    # The records of the active segment and those that were written since the last pass stay.
    wait_until(lambda: sum(1 for _ in values_by_key(cluster.bootstrap)) < RECORDS // 4, what="compaction of the topic")
    expected = {b"%d" % key: b"%0100d" % (RECORDS - KEYS + key) for key in range(KEYS)}
    assert dict(values_by_key(cluster.bootstrap)) == expected
