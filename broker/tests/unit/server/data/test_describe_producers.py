"""DescribeProducers with real logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.base.errors import (
    NONE,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]


def batch(
    producer_id: int, *timestamps: int, epoch: int = 0, sequence: int = 0, is_transactional: bool = False
) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for timestamp in timestamps:
        builder.append(None, b"value", timestamp_ms=timestamp)
    return builder.build(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
    )


async def produce(server: MemoryServer, records: bytes) -> None:
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    message = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
    answer = await server.ask(ApiKey.PRODUCE, 9, message)
    assert answer.responses[0].partition_responses[0].error_code == NONE


async def describe(server: MemoryServer, topic: str, number: int = 0) -> Any:
    message = {"topics": [{"name": topic, "partition_indexes": [number]}]}
    answer = await server.ask(ApiKey.DESCRIBE_PRODUCERS, 0, message)
    (partition,) = answer.topics[0].partitions
    assert (answer.topics[0].name, partition.partition_index) == (topic, number)
    return partition


def rows(partition: Any) -> list[tuple[int, ...]]:
    """Producer id, epoch, last sequence, last timestamp, coordinator epoch, start of the open transaction."""
    return [
        (
            row.producer_id,
            row.producer_epoch,
            row.last_sequence,
            row.last_timestamp,
            row.coordinator_epoch,
            row.current_txn_start_offset,
        )
        for row in partition.active_producers
    ]


def test_producers_of_a_leader(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert rows(await describe(server, "t")) == []
        await produce(server, batch(8, 50, 60))
        await produce(server, batch(7, 70))
        await produce(server, batch(7, 75, epoch=3))
        await produce(server, batch(8, 80, sequence=2))
        described = await describe(server, "t")
        assert (described.error_code, described.error_message) == (NONE, None)
        assert rows(described) == [(7, 3, 0, 75, -1, -1), (8, 0, 2, 80, -1, -1)]

    play(scenario)


def test_an_open_transaction_on_a_follower(play: Play) -> None:
    """Transactional records can only come from a leader that runs Apache Kafka: this broker rejects them from
    producers."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [2, 1]})
        log = server.replicas.partition(TopicPartition("t", 0)).log
        log.append_as_follower(memoryview(batch(7, 70, is_transactional=True)))
        assert rows(await describe(server, "t")) == [(7, 0, 0, 70, -1, 0)]

    play(scenario)


def test_errors_of_partitions(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [2]})
        await server.announce("broken", {0: [1]})
        server.replicas.take_offline(TopicPartition("broken", 0))
        for topic, number, error in (
            ("t", 1, NotLeaderOrFollowerError),
            ("t", 2, UnknownTopicOrPartitionError),
            ("missing", 0, UnknownTopicOrPartitionError),
            ("no/name", 0, InvalidTopicError),
            ("broken", 0, KafkaStorageError),
        ):
            described = await describe(server, topic, number)
            assert (described.error_code, rows(described)) == (error.code, [])
            assert described.error_message

    play(scenario)
