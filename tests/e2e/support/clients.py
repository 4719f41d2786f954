"""A client on this machine whose library, librdkafka, shares no code with Odradek.

Produces values to a topic and consumes them from an address that this machine can reach.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from support.waiting import scaled

_SECONDS: Final = 120.0
_CALL_SECONDS: Final = 30.0


def produce_all(bootstrap: str, topic: str, values: Sequence[str], login: Mapping[str, str] | None = None) -> None:
    """Send every value with its number as the key and acks=all. `login`: librdkafka's properties for TLS and login.

    Raises `AssertionError` that names the values that were not acknowledged.
    """
    failed: list[str] = []

    def outcome(error: object, message: Message) -> None:
        if error is not None:
            failed.append(f"{message.value()!r}: {error}")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.ms": 20,
            **(login or {}),
        }
    )
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), key=str(number).encode(), on_delivery=outcome)
        producer.poll(0)
    left = producer.flush(scaled(_SECONDS))
    assert not left, f"{left} of {len(values)} records have no outcome"
    assert not failed, f"{len(failed)} of {len(values)} records failed, the first: {failed[0]}"


def consume_all(bootstrap: str, topic: str, count: int, login: Mapping[str, str] | None = None) -> list[str]:
    """Return all records from the start to the current end of each partition. Wait until there are `count`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",  # librdkafka requires a group; no offset is committed for it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **(login or {}),
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=_CALL_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_CALL_SECONDS)[1]
            for partition in partitions
        }
        assert sum(ends.values()) == count, f"the partitions' ends are {ends}: not {count} records"
        return _read(consumer, count)
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + scaled(_SECONDS)
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records were read in time"
        message = consumer.poll(1.0)
        if message is None:
            continue
        value = message.value()
        assert message.error() is None, str(message.error())
        assert value is not None
        found.append(value.decode())
    return found
