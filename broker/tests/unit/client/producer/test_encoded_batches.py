"""Batches that are encoded before the producer gets them: order, faults, transactions, memory and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from odradek.base.errors import ConfigError, MessageTooLargeError, NotEnoughReplicasError, UnknownProducerIdError
from odradek.base.types import TopicPartition
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.v2.encode import EncodedRecords, ProducerNumbers, RecordColumns, encode_records
from odradek.records.v2.encode_fields import ByteStrings
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", batch_size=200, delivery_timeout_ms=60_000, request_timeout_ms=1_000)
PARTITION = TopicPartition("t", 0)


def producer_of(cluster: Any, **changes: Any) -> Producer:
    return Producer(SETTINGS.replace(**changes), clock=VirtualClock(), connect=cluster.connect)


def values(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def encoded(count: int, *, limit_bytes: int = 200) -> list[EncodedRecords]:
    buffer = np.frombuffer(b"".join(values(count)), np.uint8)
    starts = np.arange(0, 3 * count, 3, dtype=np.int64)
    texts = ByteStrings(buffer, starts, np.full(count, 3, dtype=np.int64))
    return encode_records(RecordColumns(count=count, timestamp_ms=5, values=texts), limit_bytes=limit_bytes)


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"lose_request": True},
        {"lose_answer": True},
        {"code": NotEnoughReplicasError.code},
        {"code": UnknownProducerIdError.code},
    ],
)
@pytest.mark.parametrize("place", [0, 2])
def test_every_record_arrives_once_and_in_order(fakes: Any, fault: dict[str, Any], place: int) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.faults[ApiKey.PRODUCE].extend([fakes.fault()] * place + [fakes.fault(**fault)])

    async def main() -> None:
        async with producer_of(cluster) as producer:
            batches = encoded(100)
            assert len(batches) > 5
            result = await (await producer.send_encoded({PARTITION: batches}))
            assert result.records == 100
            assert [batch.record_count for batch in result.batches] == [batch.record_count for batch in batches]

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == values(100)


def test_the_order_among_other_records_is_kept(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster, linger_ms=20, batch_size=10_000) as producer:
            await producer.send("t", b"before", partition=0)
            await producer.send_encoded({PARTITION: encoded(3)})
            await producer.send("t", b"after", partition=0)
            await producer.flush()

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == [b"before", *values(3), b"after"]


def test_a_request_carries_a_batch_of_each_partition(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3, "u": 1}, nodes=1)
    # The lengths differ, so the last requests carry fewer batches.
    batches = {partition: encoded(30 * place) for place, partition in enumerate(cluster.logs)}

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=1_000_000) as producer:
            result = await (await producer.send_encoded(batches))
            assert result.records == sum(30 * place for place in range(4))
            assert len(result.batches) == sum(map(len, batches.values()))

    run_virtual(main())
    assert [cluster.logs[partition].values() for partition in batches] == [values(30 * place) for place in range(4)]
    assert cluster.asked.count((ApiKey.PRODUCE, 1)) == max(map(len, batches.values())) > 5


def test_buffer_memory_bounds_what_is_in_flight(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    batches = encoded(200)
    limit = 2 * batches[0].size_bytes

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=limit) as producer:
            sending = asyncio.create_task(producer.send_encoded({PARTITION: batches}))
            while not sending.done():
                assert producer.metrics()["buffer-available-bytes"] >= 0
                await asyncio.sleep(0.001)
            assert (await (await sending)).records == 200

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == values(200)


def test_batches_that_are_too_large_name_topic_and_size(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    (batch,) = encoded(100, limit_bytes=10_000)

    async def main() -> None:
        async with producer_of(cluster, max_request_size=500) as producer:
            size = batch.uncompressed_bytes - 61
            with pytest.raises(MessageTooLargeError, match=rf"a batch for topic t with records of {size} bytes"):
                await producer.send_encoded({PARTITION: [batch]})
        cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
        async with producer_of(cluster) as producer:
            refused = await producer.send_encoded({PARTITION: [batch]})
            with pytest.raises(MessageTooLargeError, match=rf"t-0 rejected a batch of {batch.size_bytes} bytes"):
                await refused

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == []


def test_a_partition_that_does_not_exist_is_an_error(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster) as producer:
            with pytest.raises(ConfigError, match="topic t has no partition 1"):
                await producer.send_encoded({TopicPartition("t", 1): encoded(1)})

    run_virtual(main())


def test_other_numbers_do_not_change_earlier_results() -> None:
    (batch,) = encoded(3)
    first = batch.build(ProducerNumbers(1, 2, 3))
    before = bytes(first)
    second = batch.build(ProducerNumbers(4, 5, 6, is_transactional=True))
    assert bytes(first) == before != bytes(second)
