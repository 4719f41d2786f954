"""Transactional clients of librdkafka, and a reader that shows what a consumer sees."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek.testing.waiting import wait_until

SECONDS: Final = 60


def transactional(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """Return an initialized transactional producer."""
    own = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **settings}
    producer = Producer(own)
    producer.init_transactions(SECONDS)
    return producer


def read(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[tuple[int, str]]:
    """Return partition and value of all records; see `read_keyed`."""
    return [(number, value) for number, _, value in read_keyed(bootstrap, topic, partitions, isolation)]


def read_keyed(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[tuple[int, str, str]]:
    """Return partition, key and value of all records that a consumer sees up to the end of each partition.

    In read_committed, the end of a partition is its last stable offset.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid4().hex[:8]}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[tuple[int, str, str]] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(SECONDS)
        assert message is not None, "no record and no end for a minute"
        partition, error = message.partition(), message.error()
        assert partition is not None
        if error is None:
            found.append((partition, (message.key() or b"").decode(), (message.value() or b"").decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
        else:
            raise KafkaException(error)
    consumer.close()
    return found


def stable_offsets(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Return the last stable offset of each partition. Waits while partitions move to other leaders."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "offsets", "isolation.level": "read_committed"}
    ends: list[int] = []

    def are_known() -> bool:
        # Each attempt has its own consumer: librdkafka keeps the connection to a leader that has died.
        consumer = Consumer({**settings, "log_level": 0})
        with suppress(KafkaException):
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            ends[:] = [consumer.get_watermark_offsets(each, timeout=10)[1] for each in wanted]
        consumer.close()
        return bool(ends)

    wait_until(are_known, what=f"the last stable offsets of {topic}", seconds=SECONDS)
    return ends
