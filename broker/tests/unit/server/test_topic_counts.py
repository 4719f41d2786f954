"""Counts for each topic: every rate of BrokerTopicMetrics increases after its event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.protocol.apis import ApiKey
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, assemble, read_header
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
TP = TopicPartition("t", 0)
NEWEST, OLD = 9, 2
"""Versions of Produce: one with batches, and one with messages of formats 0 and 1."""
COUNTED = (
    "bytes_rejected",
    "fetch_conversions",
    "invalid_crc",
    "invalid_magic",
    "invalid_offset_or_sequence",
    "no_key",
    "produce_conversions",
)


def batch(*values: bytes, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for value in values:
        builder.append(key, value, timestamp_ms=5)
    return builder.build()


def messages(*values: bytes, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    return encode_set([(number, 5, b"k", value) for number, value in enumerate(values)], magic=magic, codec=codec)


def with_wrong_crc() -> bytes:
    return batch(b"a")[:-1] + b"?"


def with_wrong_count() -> bytes:
    made = batch(b"a", b"b")
    return bytes(assemble(read_header(made)._replace(record_count=1), made[61:]))


def without_sequence() -> bytes:
    made = batch(b"a")
    return bytes(assemble(read_header(made)._replace(producer_id=7, producer_epoch=0, base_sequence=-1), made[61:]))


async def produce(server: MemoryServer, version: int, records: bytes) -> int:
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    message = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
    answer = await server.ask(ApiKey.PRODUCE, version, message)
    return int(answer.responses[0].partition_responses[0].error_code)


async def fetch(server: MemoryServer, version: int, replica_id: int = -1) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    message = {
        "replica_id": replica_id,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
    }
    answer = await server.ask(ApiKey.FETCH, version, message)
    return answer.responses[0].partitions[0].records


def counted(server: MemoryServer) -> dict[str, int]:
    stats = server.topic_stats.of("t")
    return {name: count for name in COUNTED if (count := getattr(stats, name))}


@pytest.mark.parametrize(
    ("config", "version", "records", "expected"),
    [
        ({"max.message.bytes": "100"}, NEWEST, batch(b"v" * 100), {"bytes_rejected": len(batch(b"v" * 100))}),
        ({}, NEWEST, with_wrong_crc(), {"invalid_crc": 1}),
        ({}, OLD, messages(b"a")[:-1] + b"?", {"invalid_crc": 1}),
        ({}, NEWEST, with_wrong_count(), {"invalid_offset_or_sequence": 1}),
        ({}, NEWEST, without_sequence(), {"invalid_offset_or_sequence": 1}),
        ({}, OLD, messages(b"a", magic=1) + messages(b"b", magic=0), {"invalid_magic": 1}),
        ({"cleanup.policy": "compact"}, NEWEST, batch(b"a", b"b", key=None), {"no_key": 2}),
    ],
    ids="too-large wrong-crc wrong-crc-of-message wrong-count without-sequence mixed-formats without-key".split(),
)
def test_refused_records_are_counted_by_their_fault(
    play: Play, config: dict[str, str], version: int, records: bytes, expected: dict[str, int]
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: config)
        await server.announce("t", {0: [1]})
        assert await produce(server, version, records)
        stats = server.topic_stats.of("t")
        assert counted(server) == expected
        assert (stats.total_produce, stats.failed_produce, stats.messages_in, stats.bytes_in) == (1, 1, 0, 0)

    play(scenario)


@pytest.mark.parametrize(
    ("config", "version", "records", "expected"),
    [
        ({}, NEWEST, batch(b"a", b"b"), {}),
        ({"compression.type": "gzip"}, NEWEST, batch(b"a", b"b"), {"produce_conversions": 2}),
        ({"compression.type": "gzip"}, NEWEST, batch(b"a", b"b", codec=Codec.GZIP), {}),
        ({}, OLD, messages(b"a", b"b"), {"produce_conversions": 2}),
        ({}, OLD, messages(b"a", b"b", codec=Codec.GZIP), {"produce_conversions": 2}),
    ],
    ids="as-it-came recompressed same-codec old-format old-format-packed".split(),
)
def test_rewritten_records_are_counted(
    play: Play, config: dict[str, str], version: int, records: bytes, expected: dict[str, int]
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: config)
        await server.announce("t", {0: [1]})
        assert await produce(server, version, records) == 0
        stats = server.topic_stats.of("t")
        assert counted(server) == expected
        assert (stats.messages_in, stats.bytes_in, stats.failed_produce) == (2, len(records), 0)

    play(scenario)


def test_records_that_are_converted_for_an_old_consumer_are_counted(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert await produce(server, NEWEST, batch(b"a", b"b", b"c")) == 0
        assert await fetch(server, 4)
        assert counted(server) == {}
        assert await fetch(server, 3)
        assert counted(server) == {"fetch_conversions": 3}

    play(scenario)


def test_bytes_for_followers_are_replication(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]}, brokers=(1, 2))
        records = batch(b"a", b"b")
        assert await produce(server, NEWEST, records) == 0
        await fetch(server, 11, replica_id=2)
        assert server.topic_stats.replication_bytes_out == len(records)
        assert server.topic_stats.of("t").bytes_out == 0

    play(scenario)
