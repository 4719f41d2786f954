"""Transactions in a cluster of Apache Kafka 3.9.1 and our brokers: coordinators and leaders of both kinds.

A coordinator of either kind writes its markers to leaders of the other, each kind takes over the transactions that the
other has begun, and offsets in transactions go to coordinators of either kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as StockProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from odradek.base.errors import InvalidTransactionStateError, UnsupportedVersionError
from odradek.base.topic_rules import partition_for
from odradek.client.admin import Admin
from odradek.client.models import PreparedTransaction
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars
from odradek_testkit.interop.transactional import read, stable_offsets, transactional

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "3.9.1"
JAVA: Final = 1
OURS: Final = 2
SIDES: Final = (JAVA, OURS)
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
TOPIC: Final = "orders"
PROPERTIES: Final = {
    "zookeeper.session.timeout.ms": "30000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class MixedPair:
    """One broker of each kind. Partition 0 of each topic is led by Kafka's broker, partition 1 by ours."""

    def __init__(self, kafka: Path, directory: Path, ensemble: str) -> None:
        java: dict[str, Any] = {"properties": PROPERTIES, "heap": "384m"}
        self.brokers: Final[dict[int, Any]] = {
            JAVA: ApacheBroker(kafka, directory / "java", broker_id=JAVA, zookeeper=ensemble, **java),
            OURS: OdradekBroker(directory / "ours", zookeeper=ensemble, properties=PROPERTIES, broker_id=OURS),
        }
        self.bootstrap: Final = ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self) -> None:
        """Start both brokers and create the topics."""
        for broker in self.brokers.values():
            broker.start()
        wait_until(lambda: len(self._admin.list_topics(timeout=30).brokers) == 2, what="both brokers")
        new = [NewTopic(name, replica_assignment=[[1, 2], [2, 1]], num_partitions=2) for name in (*INTERNAL, TOPIC)]
        for created in self._admin.create_topics(new).values():
            created.result(60)
        self.wait_for_leaders([JAVA, OURS])

    def stop(self) -> None:
        """Kill both brokers."""
        for broker in self.brokers.values():
            broker.stop(kill=True)

    def wait_for_leaders(self, leaders: list[int]) -> None:
        """Wait until partitions 0 and 1 of each topic have these leaders, with all replicas in sync."""
        in_sync = len({*leaders}) if len({*leaders}) == 2 else 1

        def are_there() -> bool:
            topics = self._admin.list_topics(timeout=30).topics
            return all(
                name in topics
                and [topics[name].partitions[number].leader for number in (0, 1)] == leaders
                and all(len(topics[name].partitions[number].isrs) >= in_sync for number in (0, 1))
                for name in (*INTERNAL, TOPIC)
            )

        wait_until(are_there, what=f"the leaders {leaders}", seconds=120)

    def leave_to(self, side: int) -> None:
        """Stop the broker of the other side in order, so that this side leads everything."""
        [other] = {*SIDES} - {side}
        self.brokers[other].stop()
        self.wait_for_leaders([side, side])

    def return_of(self, side: int) -> None:
        """Start the broker of a side again, and wait until it follows everything."""
        [other] = {*SIDES} - {side}
        self.brokers[side].start()

        def is_in_sync() -> bool:
            topics = self._admin.list_topics(timeout=30).topics
            return all(
                len(topics[name].partitions[number].isrs) == 2 for name in (*INTERNAL, TOPIC) for number in (0, 1)
            )

        wait_until(is_in_sync, what=f"replicas in sync with broker {side}, led by {other}", seconds=120)


@pytest.fixture
def pair(request: pytest.FixtureRequest, odradek_zookeeper: str, tmp_path: Path) -> Iterator[MixedPair]:
    place = f"transactions-{uuid4().hex[:8]}"
    client = KazooClient(hosts=odradek_zookeeper)
    client.start()
    client.create(f"/{place}")
    client.stop()
    client.close()
    kafka = jars(VERSION, Path(request.config.rootpath) / ".interop")
    running = MixedPair(kafka, tmp_path, f"{odradek_zookeeper}/{place}")
    try:
        running.start()
        yield running
        assert running.brokers[OURS].errors() == []
    finally:
        running.stop()


def name_of(side: int, kind: str) -> str:
    """Return a transactional id or a group whose coordinator is the broker of a side."""
    number = SIDES.index(side)
    return next(name for count in range(100) if partition_for(name := f"{kind}-{count}", 2) == number)


def write(producer: StockProducer, text: str) -> None:
    for number in (0, 1):
        producer.produce(TOPIC, text, partition=number)
    producer.flush(60)


def committed_offset(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def test_coordinators_of_each_kind_write_markers_to_leaders_of_each_kind(pair: MixedPair) -> None:
    expected = []
    for side in SIDES:
        producer = transactional(pair.bootstrap, name_of(side, "tx"))
        for group_side in SIDES:
            group = name_of(group_side, "group")
            consumer = Consumer({"bootstrap.servers": pair.bootstrap, "group.id": group, "log_level": 0})
            metadata = consumer.consumer_group_metadata()
            for offset, is_commit in ((10 * side + group_side, True), (99, False)):
                text = f"of {side} with {group_side}: {is_commit}"
                producer.begin_transaction()
                write(producer, text)
                producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], metadata, 60)
                (producer.commit_transaction if is_commit else producer.abort_transaction)(60)
                if is_commit:
                    expected += [(0, text), (1, text)]
            assert committed_offset(pair.bootstrap, group) == 10 * side + group_side
            consumer.close()
    assert sorted(read(pair.bootstrap, TOPIC, 2)) == sorted(expected)
    assert len(read(pair.bootstrap, TOPIC, 2, "read_uncommitted")) == 2 * len(expected)


@pytest.mark.parametrize("survivor", SIDES)
def test_the_other_kind_takes_over_open_transactions(pair: MixedPair, survivor: int) -> None:
    """The coordinator and the leaders of an open transaction stop. Those of the other kind continue it."""
    [leaving] = {*SIDES} - {survivor}
    producers = {side: transactional(pair.bootstrap, name_of(side, "tx")) for side in SIDES}
    for side, producer in producers.items():
        producer.begin_transaction()
        write(producer, f"before, {side}")
    pair.leave_to(survivor)
    for side, producer in producers.items():
        write(producer, f"after, {side}")
        producer.commit_transaction(60)
    expected = [(number, f"{when}, {side}") for number in (0, 1) for when in ("before", "after") for side in SIDES]
    assert sorted(read(pair.bootstrap, TOPIC, 2)) == sorted(expected)

    for producer in producers.values():
        producer.begin_transaction()
        write(producer, "aborted by the next producer")
    pair.return_of(leaving)
    pair.leave_to(leaving)
    for side in SIDES:
        transactional(pair.bootstrap, name_of(side, "tx"))
    assert sorted(read(pair.bootstrap, TOPIC, 2)) == sorted(expected)
    ends = stable_offsets(pair.bootstrap, TOPIC, 2)
    assert ends == [4 + 2 + 2 + 2] * 2, "records, commits, records, aborts"


async def prepared_by(pair: MixedPair, name: str) -> PreparedTransaction:
    """Prepare a transaction with a record in each partition. Raises as `Producer.prepare_transaction`."""
    settings = ClientSettings.of(pair.bootstrap, transactional_id=name, transaction_timeout_ms=1000)
    async with Producer(settings) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        for number in (0, 1):
            await producer.send(TOPIC, b"prepared", partition=number)
        return await producer.prepare_transaction()


async def until_aborted(pair: MixedPair, admin: Admin, name: str) -> None:
    """Begin a transaction, and return when its coordinator has aborted it because of its timeout."""
    producer = await asyncio.to_thread(transactional, pair.bootstrap, name, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    await asyncio.to_thread(write, producer, "too late")
    async with asyncio.timeout(120):
        while (await admin.describe_transactions([name]))[name].state != "CompleteAbort":
            pass


async def test_a_coordinator_of_kafka_keeps_and_ends_a_prepared_transaction(pair: MixedPair) -> None:
    with pytest.raises(UnsupportedVersionError, match="not a broker of Odradek"):
        await prepared_by(pair, name_of(JAVA, "tx"))
    prepared = await prepared_by(pair, name_of(OURS, "tx"))
    await asyncio.to_thread(pair.leave_to, JAVA)
    async with Admin(pair.bootstrap) as admin:
        await until_aborted(pair, admin, name_of(OURS, "other"))
        assert [each.prepared for each in await admin.list_prepared()] == [prepared]
        await admin.commit_prepared(prepared)
        await admin.commit_prepared(prepared)
        with pytest.raises(InvalidTransactionStateError, match="it was committed"):
            await admin.abort_prepared(prepared)
    async with asyncio.timeout(120):
        while sorted(await asyncio.to_thread(read, pair.bootstrap, TOPIC, 2)) != [(0, "prepared"), (1, "prepared")]:
            pass
