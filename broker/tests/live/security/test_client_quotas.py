"""Quotas of a real broker process with real ZooKeeper and librdkafka, which reports throttle times."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request
from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.stored_quotas import set_quotas

pytestmark = pytest.mark.java

SECONDS: Final = 60
RECORD_BYTES: Final = 20_000
RECORDS: Final = 40


class Limited:
    """A broker, its ZooKeeper, and clients whose throttle times are collected."""

    def __init__(self, broker: OdradekBroker, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self.broker = broker
        self.address = f"127.0.0.1:{broker.port}"
        self.throttled: dict[str, list[float]] = {}
        """Throttle times in seconds by client id."""

    def settings(self, client_id: str, **more: object) -> dict[str, Any]:
        times = self.throttled.setdefault(client_id, [])
        return {
            "bootstrap.servers": self.address,
            "client.id": client_id,
            "throttle_cb": lambda event: times.append(event.throttle_time),
            **more,
        }

    def limit(self, kind: QuotaKind, value: float) -> None:
        set_quotas(self.zookeeper, QuotaEntity(client_id="limited"), {kind: value})

    def create(self) -> str:
        topic = f"t-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
        return topic

    def write(self, client_id: str, topic: str) -> None:
        """Write records, one per request."""
        producer = confluent_kafka.Producer(self.settings(client_id, **{"batch.num.messages": 1, "linger.ms": 0}))
        for _ in range(RECORDS):
            producer.produce(topic, bytes(RECORD_BYTES))
        assert producer.flush(SECONDS) == 0

    def filled(self) -> str:
        """Create a topic with records."""
        topic = self.create()
        self.write("writer", topic)
        return topic

    def read(self, client_id: str, topic: str) -> int:
        """Read all records of a topic. Return their number."""
        consumer = confluent_kafka.Consumer(
            self.settings(client_id, **{"group.id": uuid4().hex, "fetch.wait.max.ms": 10})
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = 0
        while found < RECORDS:
            found += len(consumer.consume(RECORDS, timeout=SECONDS))
        # Throttle times of responses that arrived after the last record are in the queue of events.
        consumer.poll(0)
        consumer.close()
        return found


@pytest.fixture(scope="module")
def limited(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    zookeeper = f"{odradek_zookeeper}/{uuid4().hex}"
    properties = {
        "quota.window.num": "2",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
    }
    broker = OdradekBroker(tmp_path_factory.mktemp("limited"), zookeeper=zookeeper, properties=properties)
    broker.start()
    yield Limited(broker, zookeeper)
    broker.stop()
    assert broker.errors() == []


def test_a_producer_with_a_quota_is_throttled_and_others_are_not(limited: Limited) -> None:
    topic = limited.create()
    limited.limit(QuotaKind.PRODUCER_BYTE_RATE, 100_000)

    def is_throttled() -> bool:
        limited.write("limited", topic)
        return any(limited.throttled["limited"])

    wait_until(is_throttled, what="the quota of the producer")
    limited.write("free", topic)
    assert limited.throttled["free"] == []


def test_a_consumer_with_a_quota_is_throttled_and_gets_every_record(limited: Limited) -> None:
    topic = limited.filled()
    limited.limit(QuotaKind.CONSUMER_BYTE_RATE, 400_000)
    limited.throttled.clear()

    def is_throttled() -> bool:
        assert limited.read("limited", topic) == RECORDS
        return any(limited.throttled["limited"])

    wait_until(is_throttled, what="the quota of the consumer")
    assert limited.read("free", topic) == RECORDS
    assert limited.throttled["free"] == []


def test_a_removed_quota_has_no_effect(limited: Limited) -> None:
    topic = limited.create()
    limited.limit(QuotaKind.REQUEST_PERCENTAGE, 0.001)

    def is_throttled() -> bool:
        limited.throttled.clear()
        limited.write("limited", topic)
        return any(limited.throttled["limited"])

    wait_until(is_throttled, what="the quota of request time")
    set_quotas(limited.zookeeper, QuotaEntity(client_id="limited"), {})
    wait_until(lambda: not is_throttled(), what="the removal of the quota")


def test_an_address_that_opens_too_many_connections_is_slowed_down(limited: Limited) -> None:
    set_quotas(limited.zookeeper, QuotaEntity(ip="127.0.0.1"), {QuotaKind.CONNECTION_CREATION_RATE: 2})

    def is_held() -> bool:
        """Open a connection. Return whether the broker closes it without an answer."""
        with socket.create_connection(("127.0.0.1", limited.broker.port), timeout=SECONDS) as client:
            client.sendall(encode_request(ApiKey.API_VERSIONS, 0, 1, "me", {}))
            return client.recv(4) == b""

    wait_until(is_held, what="the rate of the address")
    set_quotas(limited.zookeeper, QuotaEntity(ip="127.0.0.1"), {})
    wait_until(lambda: not is_held(), what="the removal of the rate")
    assert limited.read("free", limited.filled()) == RECORDS
