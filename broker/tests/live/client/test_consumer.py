"""The consumer with real brokers: assignment, positions and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from odradek.base.errors import LogTruncationError, OffsetOutOfRangeError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic, OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek_testkit.batches import iterate

pytestmark = [pytest.mark.java, pytest.mark.slow]

START_MS = 1_700_000_000_000


async def fill(settings: ClientSettings, topic: str, count: int, *, partition: int = 0) -> None:
    async with Producer(settings) as producer:
        records = [(b"k", b"%d" % n, START_MS + n) for n in range(count)]
        await (await producer.send_many(topic, records, partition=partition))


async def read(consumer: Consumer, count: int) -> list[int]:
    """Return the numbers in the next `count` records."""
    found: list[int] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=1_000, max_records=count - len(found))).values():
                found += [int(record.value or b"") for record in records]
    return found


async def test_seek_pause_and_positions(settings: ClientSettings, topic: str) -> None:
    await fill(settings, topic, 100)
    partition = TopicPartition(topic, 0)
    async with Consumer(settings) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 0
        assert await read(consumer, 10) == list(range(10))
        assert await consumer.position(partition) == 10
        assert (consumer.lag(partition), consumer.highwater(partition)) == (90, 100)
        consumer.seek(partition, 95)
        assert await read(consumer, 5) == list(range(95, 100))
        await consumer.seek_to_beginning()
        consumer.pause(partition)
        assert await consumer.getmany(timeout_ms=200) == {}
        consumer.resume(partition)
        assert await read(consumer, 3) == [0, 1, 2]
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 100


async def test_offset_lookups(settings: ClientSettings, topic: str) -> None:
    await fill(settings, topic, 50, partition=1)
    empty, full = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(settings) as consumer:
        assert await consumer.beginning_offsets([empty, full]) == {empty: 0, full: 0}
        assert await consumer.end_offsets([empty, full]) == {empty: 0, full: 50}
        found = await consumer.offsets_for_times({empty: START_MS, full: START_MS + 20})
    assert found[empty] is None
    assert found[full] is not None
    assert found[full][:2] == (20, START_MS + 20)


async def test_raw_fetches_are_whole_batches(settings: ClientSettings, topic: str) -> None:
    await fill(settings, topic, 2_000)
    partition = TopicPartition(topic, 0)
    async with Consumer(settings) as consumer, asyncio.timeout(120):
        consumer.assign([partition])
        offset = 0
        while offset < 2_000:
            for fetch in await consumer.getmany_raw(timeout_ms=1_000):
                headers = [header for _, header in iterate(fetch.records)]
                assert sum(header.size for header in headers) == len(fetch.records)
                assert (headers[0].base_offset, headers[-1].next_offset) == (offset, fetch.next_offset)
                offset = fetch.next_offset
        assert await consumer.position(partition) == 2_000


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 10)])
async def test_out_of_range_follows_the_policy(
    settings: ClientSettings, topic: str, policy: str, expected: int
) -> None:
    await fill(settings, topic, 10)
    partition = TopicPartition(topic, 0)
    async with Consumer(settings.replace(auto_offset_reset=policy)) as consumer, asyncio.timeout(120):
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        while await consumer.position(partition) != expected:
            records = await consumer.getmany(timeout_ms=100, max_records=1)
            assert policy == "earliest" or not records
            if records:
                assert records[partition][0].offset == 0
                break


async def test_out_of_range_without_policy_raises_once(settings: ClientSettings, topic: str) -> None:
    await fill(settings, topic, 10)
    partition = TopicPartition(topic, 0)
    async with Consumer(settings.replace(auto_offset_reset="none")) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getmany(timeout_ms=60_000)
        consumer.seek(partition, 5)
        assert await read(consumer, 5) == [5, 6, 7, 8, 9]


async def test_a_position_above_the_end_of_its_leader_epoch_is_a_truncation(
    settings: ClientSettings, topic: str
) -> None:
    await fill(settings, topic, 10)
    partition = TopicPartition(topic, 0)
    behind_the_end = OffsetAndMetadata(15, leader_epoch=0)
    async with Consumer(settings.replace(auto_offset_reset="none")) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, behind_the_end)
        with pytest.raises(LogTruncationError) as raised:
            await consumer.getmany(timeout_ms=60_000)
        assert (raised.value.position, raised.value.divergent_offset) == (15, 10)
        consumer.seek(partition, OffsetAndMetadata(9, leader_epoch=0))
        assert await read(consumer, 1) == [9]
    async with Consumer(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, behind_the_end)
        assert await consumer.getmany(timeout_ms=500) == {}
        assert await consumer.position(partition) == 10
        await fill(settings, topic, 1)
        assert await read(consumer, 1) == [0]


async def test_the_next_consumer_starts_at_the_committed_offset(settings: ClientSettings, topic: str) -> None:
    await fill(settings, topic, 20)
    group = settings.replace(group_id=f"group-{topic}", enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    async with Consumer(group) as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) is None
        assert await read(consumer, 7) == list(range(7))
        await consumer.commit()
        await read(consumer, 5)
    async with Consumer(group) as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) == OffsetAndMetadata(7, leader_epoch=0)
        assert await read(consumer, 13) == list(range(7, 20))
        await consumer.commit({partition: OffsetAndMetadata(3, "note")})
        found = await consumer.committed(partition)
        assert found is not None
        assert found[:2] == (3, "note")


class Listener:
    """A listener that records the calls."""

    def __init__(self) -> None:
        self.events: list[tuple[str, set[int]]] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", {partition.partition for partition in partitions}))

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", {partition.partition for partition in partitions}))


async def poll_until(consumers: Sequence[Consumer], shares: list[int]) -> list[list[int]]:
    """Poll all consumers until they own these numbers of partitions. Return the numbers that each has read."""
    found: list[list[int]] = [[] for _ in consumers]
    async with asyncio.timeout(120):
        while sorted(len(consumer.assignment()) for consumer in consumers) != shares:
            for consumer, values in zip(consumers, found, strict=True):
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    values += [int(record.value or b"") for record in records]
    return found


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
async def test_a_group_shares_partitions_and_reassigns_them(
    settings: ClientSettings, topic: str, assignor: str
) -> None:
    group = settings.replace(group_id=f"group-{topic}", partition_assignment_strategy=(assignor,))
    for partition in range(3):
        await fill(settings, topic, 10, partition=partition)
    listener = Listener()
    async with Consumer(group) as first:
        first.subscribe([topic], listener=listener)
        assert sorted(await read(first, 30)) == sorted(list(range(10)) * 3)
        async with Consumer(group, topic) as second:
            assert await poll_until([first, second], [1, 2]) == [[], []]
            assert first.assignment() | second.assignment() == {TopicPartition(topic, n) for n in range(3)}
        # The remaining consumer gets all partitions and reads no record twice.
        assert await poll_until([first], [3]) == [[]]
        await fill(settings, topic, 5, partition=1)
        assert await read(first, 5) == list(range(5))
    assert listener.events[0] == ("assigned", {0, 1, 2})
    assert listener.events[1] == ("revoked", {0, 1, 2})
    assert listener.events[-1] == ("revoked", {0, 1, 2})


async def test_a_cooperative_group_moves_only_the_partitions_of_the_new_member(
    settings: ClientSettings, topic: str
) -> None:
    group = settings.replace(group_id=f"group-{topic}", partition_assignment_strategy=("cooperative-sticky",))
    for partition in range(3):
        await fill(settings, topic, 10, partition=partition)
    listener = Listener()
    async with Consumer(group) as first:
        first.subscribe([topic], listener=listener)
        assert sorted(await read(first, 30)) == sorted(list(range(10)) * 3)
        async with Consumer(group, topic) as second:
            assert await poll_until([first, second], [1, 2]) == [[], []]
            (moved,) = second.assignment()
            assert first.assignment() == {TopicPartition(topic, n) for n in range(3)} - {moved}
            for partition in range(3):
                await fill(settings, topic, 1, partition=partition)
            assert await read(first, 2) == [0, 0]
            assert await read(second, 1) == [0]
        assert await poll_until([first], [3]) == [[]]
    changes = [event for event in listener.events if event[1]]
    assert changes == [
        ("assigned", {0, 1, 2}),
        ("revoked", {moved.partition}),
        ("assigned", {moved.partition}),
        ("revoked", {0, 1, 2}),
    ]


async def test_a_pattern_follows_new_and_deleted_topics(settings: ClientSettings, topic: str) -> None:
    group = settings.replace(group_id=f"group-{topic}", metadata_max_age_ms=200, exclude_internal_topics=False)
    async with Consumer(group) as consumer, Admin(settings) as admin, asyncio.timeout(120):
        consumer.subscribe(pattern=rf"{topic}(-more)?|__consumer_.*s")
        while consumer.subscription() != {topic, "__consumer_offsets"}:
            await consumer.getmany(timeout_ms=100)
        more = TopicPartition(f"{topic}-more", 0)
        await admin.create_topics([NewTopic(name=more.topic, partitions=1, replication_factor=1)])
        while more not in consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        await admin.delete_topics([more.topic])
        while more in consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        assert consumer.subscription() == {topic, "__consumer_offsets"}


async def test_a_group_reads_new_partitions_of_a_topic(settings: ClientSettings, topic: str) -> None:
    group = settings.replace(group_id=f"group-{topic}", metadata_max_age_ms=200)
    async with Consumer(group, topic) as consumer, Admin(settings) as admin:
        await poll_until([consumer], [3])
        await admin.create_partitions({topic: 5})
        await poll_until([consumer], [5])
