"""The producer with real brokers."""

from __future__ import annotations

import asyncio

import pytest

from odradek.base.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.partitioning import partition_of_key
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def read_all(settings: ClientSettings, topic: str, count: int) -> dict[TopicPartition, list[tuple[bytes, bytes]]]:
    """Return key and value of every record of a topic, by partition and in order."""
    found: dict[TopicPartition, list[tuple[bytes, bytes]]] = {}
    async with Consumer(settings, topic) as consumer, asyncio.timeout(120):
        while sum(map(len, found.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                found.setdefault(partition, []).extend((record.key or b"", record.value or b"") for record in records)
        assert await consumer.getmany(timeout_ms=200) == {}
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_arrive_in_order_with_each_codec(settings: ClientSettings, topic: str, codec: str) -> None:
    records = [(b"key-%d" % (n % 17), b"value %d" % n, 1_700_000_000_000 + n) for n in range(5_000)]
    async with Producer(settings.replace(compression_type=codec, linger_ms=5)) as producer:
        delivered = await (await producer.send_many(topic, records))
    assert delivered.records == len(records)
    assert sum(batch.record_count for batch in delivered.batches) == len(records)
    expected: dict[TopicPartition, list[tuple[bytes, bytes]]] = {}
    for key, value, _ in records:
        expected.setdefault(TopicPartition(topic, partition_of_key(key, 3)), []).append((key, value))
    assert await read_all(settings, topic, len(records)) == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_records_arrive_with_each_acks(settings: ClientSettings, topic: str, acks: str) -> None:
    async with Producer(settings.replace(acks=acks)) as producer:
        sent = [await producer.send(topic, b"%d" % n, partition=0) for n in range(20)]
        await producer.flush()
        offsets = [(await each).offset for each in sent]
    assert offsets == ([-1] * 20 if acks == "0" else list(range(20)))
    found = await read_all(settings, topic, 20)
    assert [value for _, value in found[TopicPartition(topic, 0)]] == [b"%d" % n for n in range(20)]


async def test_metadata_has_offset_and_timestamp(settings: ClientSettings, topic: str) -> None:
    async with Producer(settings) as producer:
        first = await producer.send_and_wait(topic, b"v", key=b"k", partition=2, timestamp_ms=123_456)
        second = await producer.send_and_wait(topic, None, key=b"k", partition=2, headers=(("h", b"1"), ("n", None)))
    assert first == (topic, 2, 0, 123_456)
    assert second.offset == 1
    async with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 2)])
        record, tombstone = [await consumer.getone(), await consumer.getone()]
    assert (record.offset, record.timestamp, record.key, record.value) == (0, 123_456, b"k", b"v")
    assert (tombstone.value, tombstone.headers) == (None, (("h", b"1"), ("n", None)))


async def test_errors_reach_the_caller(settings: ClientSettings, topic: str) -> None:
    # The topic may still be created, so the error is raised at the end of max.block.ms, after at least one response.
    async with Producer(settings.replace(max_block_ms=5_000)) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send(f"{topic}-missing", b"v")
    async with Producer(settings.replace(max_request_size=1_000)) as producer:
        with pytest.raises(MessageTooLargeError):
            await producer.send(topic, b"v" * 2_000)


async def test_a_record_that_is_too_large_fails_and_others_are_written(settings: ClientSettings, topic: str) -> None:
    large = settings.replace(max_request_size=8 << 20, batch_size=1)
    async with Producer(large) as producer:
        before = await producer.send_and_wait(topic, b"a", partition=0)
        refused = await producer.send(topic, b"x" * (4 << 20), partition=0)
        after = await producer.send(topic, b"b", partition=0)
        with pytest.raises(MessageTooLargeError):
            await refused
        assert (await after).offset == before.offset + 1
