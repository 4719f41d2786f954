"""The consumer with an in-memory cluster, in virtual time: faults, waiting and cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.base.errors import (
    ConfigError,
    CorruptMessageError,
    NetworkError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", auto_offset_reset="earliest", max_partition_fetch_bytes=300)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER, STORAGE, NO_SESSION = 6, 56, 70


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def fill(cluster: Any, partition: TopicPartition, count: int, *, of_batch: int = 3) -> list[bytes]:
    values = [b"%d:%d" % (partition.partition, number) for number in range(count)]
    for start in range(0, count, of_batch):
        builder = BatchBuilder(limit_bytes=1 << 20)
        for value in values[start : start + of_batch]:
            builder.append(None, value, timestamp_ms=start)
        cluster.logs[partition].append(memoryview(builder.build()))
    return values


async def read(consumer: Consumer, count: int, **options: Any) -> dict[TopicPartition, list[bytes]]:
    found: dict[TopicPartition, list[bytes]] = {}
    while sum(map(len, found.values())) < count:
        for partition, records in (await consumer.getmany(timeout_ms=60_000, **options)).items():
            found.setdefault(partition, []).extend(record.value or b"" for record in records)
    return found


@pytest.mark.parametrize("max_records", [1, 2, 100])
def test_everything_is_read_once_and_in_order(fakes: Any, max_records: int) -> None:
    cluster = fakes.cluster({"t": 2})
    expected = {FIRST: fill(cluster, FIRST, 50), SECOND: fill(cluster, SECOND, 20)}

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            assert await read(consumer, 70, max_records=max_records) == expected
            assert await consumer.getmany(timeout_ms=500) == {}
            assert [await consumer.position(FIRST), await consumer.position(SECOND)] == [50, 20]

    run_virtual(main())
    assert cluster.open_links == 0


@pytest.mark.parametrize(
    "fault", [{"lose_request": True}, {"lose_answer": True}, {"code": NOT_LEADER}, {"code": STORAGE}]
)
def test_no_record_is_lost_when_fetches_fail(fakes: Any, fault: dict[str, Any]) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 60)
    cluster.faults[ApiKey.FETCH].extend([fakes.fault(), fakes.fault(**fault), fakes.fault(), fakes.fault(**fault)])
    cluster.faults[ApiKey.LIST_OFFSETS].append(fakes.fault(code=NOT_LEADER))

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            assert await read(consumer, 60) == {FIRST: expected}

    run_virtual(main())
    assert not cluster.faults[ApiKey.FETCH]


def test_reading_continues_from_a_new_leader(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 60)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            found = await read(consumer, 10)
            cluster.logs[FIRST].leader, cluster.logs[FIRST].epoch = 2, 1
            rest = await read(consumer, 60 - len(found[FIRST]))
            assert found[FIRST] + rest[FIRST] == expected

    run_virtual(main())


def test_a_late_response_of_a_former_leader_is_ignored(fakes: Any) -> None:
    """The former leader holds its response back until the consumer has read from the next leader."""
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 20)
    awake = cluster.held_fetches[1] = asyncio.Event()

    async def main() -> None:
        async with consumer_of(cluster, "t", metadata_max_age_ms=100) as consumer:
            assert await consumer.getmany(timeout_ms=50) == {}
            assert (ApiKey.FETCH, 1) in cluster.asked
            cluster.logs[FIRST].leader, cluster.logs[FIRST].epoch = 2, 1
            assert await read(consumer, 20) == {FIRST: expected}
            awake.set()
            assert await consumer.getmany(timeout_ms=500) == {}
            assert await consumer.position(FIRST) == 20

    run_virtual(main())


def test_records_fetched_before_a_seek_are_dropped(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 60)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await read(consumer, 1, max_records=1)
            for start in (30, 7, 58):
                consumer.seek(FIRST, start)
                assert (await read(consumer, 2, max_records=2))[FIRST] == expected[start : start + 2]

    run_virtual(main())


def test_pause_affects_only_its_partition(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    expected = {FIRST: fill(cluster, FIRST, 10), SECOND: fill(cluster, SECOND, 10)}

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            consumer.pause(FIRST)
            assert consumer.paused() == {FIRST}
            assert await read(consumer, 10) == {SECOND: expected[SECOND]}
            consumer.resume(FIRST)
            assert await read(consumer, 10) == {FIRST: expected[FIRST]}

    run_virtual(main())


def test_a_raw_fetch_starts_at_the_position(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, FIRST, 30)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await read(consumer, 1, max_records=1)
            (fetch,) = await consumer.getmany_raw(timeout_ms=1_000)
            assert fetch.fetch_offset == 1
            assert fetch.next_offset == await consumer.position(FIRST)
            (following,) = await consumer.getmany_raw(timeout_ms=1_000)
            assert following.fetch_offset == fetch.next_offset

    run_virtual(main())


@pytest.mark.parametrize(("policy", "position"), [("earliest", 0), ("latest", 10)])
def test_out_of_range_follows_the_policy(fakes: Any, policy: str, position: int) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, FIRST, 10)

    async def main() -> None:
        async with consumer_of(cluster, auto_offset_reset=policy) as consumer:
            consumer.assign([FIRST])
            consumer.seek(FIRST, 99)
            consumer.pause()
            await consumer.getmany(timeout_ms=1_000, max_records=0)
            assert await consumer.position(FIRST) == position

    run_virtual(main())


def test_each_error_is_raised_once_and_reading_continues(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 10)
    cluster.faults[ApiKey.FETCH].append(fakes.fault(code=TopicAuthorizationFailedError.code))

    async def main() -> None:
        async with consumer_of(cluster, auto_offset_reset="none") as consumer:
            consumer.assign([FIRST])
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getmany(timeout_ms=1_000)
            consumer.seek(FIRST, 0)
            with pytest.raises(TopicAuthorizationFailedError):
                await consumer.getmany(timeout_ms=1_000)
            assert (await read(consumer, 10))[FIRST] == expected

    run_virtual(main())


def test_a_corrupt_batch_raises_until_the_application_seeks(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    expected = fill(cluster, FIRST, 12)
    other = fill(cluster, SECOND, 3)
    damaged = bytearray(cluster.logs[FIRST].batches[1])
    damaged[-1] ^= 1
    cluster.logs[FIRST].batches[1] = bytes(damaged)

    async def main() -> None:
        async with consumer_of(cluster, "t", max_partition_fetch_bytes=10_000) as consumer:
            assert await read(consumer, 6) == {FIRST: expected[:3], SECOND: other}
            for _ in range(2):
                with pytest.raises(CorruptMessageError):
                    await consumer.getmany(timeout_ms=1_000)
                assert await consumer.position(FIRST) == 3
            consumer.seek(FIRST, 6)
            assert (await read(consumer, 6))[FIRST] == expected[6:]

    run_virtual(main())


def test_iteration_ends_when_the_consumer_is_closed(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 5)

    async def main() -> None:
        consumer = consumer_of(cluster, "t")
        await consumer.start()
        found = []
        async for record in consumer:
            found.append((record.topic, record.partition, record.offset, record.value))
            if len(found) == 5:
                await consumer.close()
        assert found == [("t", 0, offset, value) for offset, value in enumerate(expected)]
        with pytest.raises(NetworkError):
            await consumer.getmany()

    run_virtual(main())


def test_invalid_calls_raise(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            with pytest.raises(ConfigError):
                consumer.subscribe(["t"])
            with pytest.raises(ConfigError):
                await consumer.commit()
            with pytest.raises(UnknownTopicOrPartitionError):
                consumer.seek(FIRST, 0)
            consumer.assign([FIRST])
            with pytest.raises(OffsetOutOfRangeError):
                consumer.seek(FIRST, -1)
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.end_offsets([TopicPartition("t", 5)])

    run_virtual(main())


@pytest.mark.parametrize("turns", range(25))
def test_no_record_is_lost_when_getmany_is_cancelled(fakes: Any, turns: int) -> None:
    cluster = fakes.cluster({"t": 1})
    expected = fill(cluster, FIRST, 30)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            task = asyncio.ensure_future(consumer.getmany(timeout_ms=1_000))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            before = [] if isinstance(result, BaseException) else [r.value for r in result.get(FIRST, [])]
            assert before + (await read(consumer, 30 - len(before)))[FIRST] == expected

    run_virtual(main())
    assert cluster.open_links == 0


@pytest.mark.parametrize("turns", range(8))
def test_a_cancelled_close_leaves_no_connection_open(fakes: Any, turns: int) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, FIRST, 30)

    async def main() -> None:
        consumer = consumer_of(cluster, "t")
        await consumer.start()
        await consumer.getmany(timeout_ms=1_000, max_records=1)
        task = asyncio.ensure_future(consumer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.close()

    run_virtual(main())
    assert cluster.open_links == 0
