"""The copying part of a mirror between two real brokers in the test process."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from odradek.base.errors import TopicAlreadyExistsError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.client.producer.producer import Producer
from odradek.mirror.copier_group import CopierGroup
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.owned_partitions import CopyState
from odradek.testing.free_ports import free_ports
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.clients.two_clusters import MirroredClusters, owned_of, until_true


def position(copiers: CopierGroup) -> int:
    """Return the position of the only partition."""
    return next((owned.position.offset for owned in copiers.owned if owned.position is not None), -1)


async def set_config(broker: InProcessBroker, topic: str, name: str, value: str) -> None:
    """Change a property of a topic."""
    async with Admin(broker.bootstrap) as admin:
        await admin.incremental_alter_configs({ConfigResource.topic(topic): [ConfigChange(name=name, value=value)]})


async def create_again(bootstrap: str, topic: str) -> None:
    """Delete a topic, and create it with the same name."""
    async with Admin(bootstrap) as admin:
        await admin.delete_topics([topic])
        async with asyncio.timeout(60):
            while True:
                try:
                    await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
                except TopicAlreadyExistsError:
                    # The deletion goes on.
                    await admin.list_topics()
                else:
                    return


async def fill(
    bootstrap: str, topic: str, count: int, *, first: int = 0, partition: int = 0, **settings: object
) -> None:
    """Write numbered records."""
    async with Producer(bootstrap, **settings) as producer:  # type: ignore[arg-type]
        for number in range(first, first + count):
            await producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % number,
                partition=partition,
                timestamp_ms=1_000_000 + number,
                headers=[("h", b"%d" % number)],
            )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_arrive_once_and_unchanged(two_clusters: MirroredClusters, codec: str) -> None:
    await two_clusters.create("t")
    await fill(two_clusters.source.bootstrap, "t", 500, compression_type=codec, batch_size=2_000)
    async with two_clusters.copying(await two_clusters.plan("t")) as (_, noted):
        records = (await two_clusters.read("t", 500))[0]
        assert [(r.key, r.value, r.timestamp, r.headers) for r in records] == [
            (b"k%d" % n, b"%d" % n, 1_000_000 + n, (("h", b"%d" % n),)) for n in range(500)
        ]
    assert noted.pairs


async def test_only_committed_records_are_copied_and_the_pairs_are_exact(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t")
    bootstrap = two_clusters.source.bootstrap
    async with Producer(bootstrap, transactional_id="x") as producer:
        await producer.init_transactions()
        for round_number in range(6):
            producer.begin_transaction()
            for number in range(10):
                await producer.send("t", b"%d-%d" % (round_number, number), partition=0)
            await producer.flush()
            await (producer.abort_transaction() if round_number % 2 else producer.commit_transaction())
    await fill(bootstrap, "t", 5)
    async with two_clusters.copying(await two_clusters.plan("t")) as (copiers, noted):
        records = (await two_clusters.read("t", 35))[0]
        await until_true(lambda: position(copiers) == 71, "the position at the end")
    expected = [b"%d-%d" % (r, n) for r in (0, 2, 4) for n in range(10)] + [b"%d" % n for n in range(5)]
    assert [record.value for record in records] == expected
    source = {
        record.offset: record.value for record in (await two_clusters.read("t", 35, broker=two_clusters.source))[0]
    }
    for pairs in noted.pairs.values():
        for source_offset, target_offset in pairs:
            before = [value for offset, value in source.items() if offset < source_offset]
            assert before == [record.value for record in records if record.offset < target_offset]


async def test_a_mirror_goes_on_where_the_last_one_ended(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t", 2)
    plan = await two_clusters.plan("t")
    for first, instance in ((0, "a"), (100, "b"), (200, "a")):
        for partition in (0, 1):
            await fill(two_clusters.source.bootstrap, "t", 100, first=first, partition=partition)
        async with two_clusters.copying(plan, instance=instance, is_static=instance == "a"):
            await two_clusters.read("t", 2 * (first + 100), 2)
    for records in (await two_clusters.read("t", 600, 2)).values():
        assert [int(record.value) for record in records] == list(range(300))


async def test_a_mirror_gets_the_offsets_that_the_last_one_has_not_stored(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t")
    plan = await two_clusters.plan("t")
    for first in (0, 100):
        await fill(two_clusters.source.bootstrap, "t", 100, first=first)
        async with two_clusters.copying(plan) as (copiers, noted):
            await until_true(lambda end=first + 100: position(copiers) == end, "the position at the end")  # type: ignore[misc]
        [(_, runs)] = noted.resumed
        assert len(runs) == (1 if first else 0)
    records = (await two_clusters.read("t", 200))[0]
    [run] = runs
    for offset in range(100):
        assert run.translate(offset) <= records[offset].offset
    assert run.translate(0) == records[0].offset
    assert run.translate(100) == records[99].offset + 1


async def test_two_processes_share_the_partitions_and_hand_them_over(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t", 4)
    plan = await two_clusters.plan("t")
    bootstrap = two_clusters.source.bootstrap
    async with two_clusters.copying(plan, instance="a") as (first, _):
        await until_true(lambda: len(list(first.owned)) == 4, "all partitions in one process")
        for partition in range(4):
            await fill(bootstrap, "t", 50, partition=partition)
        async with two_clusters.copying(plan, instance="b") as (second, _):
            await until_true(lambda: len(list(second.owned)) >= 2, "half of the partitions in the other process")
            for partition in range(4):
                await fill(bootstrap, "t", 50, first=50, partition=partition)
            await two_clusters.read("t", 400, 4)
            assert first.rounds.count and second.rounds.count
        await until_true(lambda: len(list(first.owned)) == 4, "the return of the partitions")
        for partition in range(4):
            await fill(bootstrap, "t", 50, first=100, partition=partition)
        for records in (await two_clusters.read("t", 600, 4)).values():
            assert [int(record.value) for record in records] == list(range(150))


async def test_records_that_are_too_large_stop_only_their_partition(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("small")
    await two_clusters.create("large")
    await set_config(two_clusters.target, "large", "max.message.bytes", "2000")
    async with Producer(two_clusters.source.bootstrap) as producer:
        await producer.send_and_wait("large", bytes(5_000))
    await fill(two_clusters.source.bootstrap, "small", 10)
    plan = await two_clusters.plan("small", "large")
    async with two_clusters.copying(plan) as (copiers, _):
        large = await owned_of(copiers, "large")
        await until_true(lambda: large.state is CopyState.FAILED, "the refusal of the large record")
        assert "max.message.bytes" in str(large.error) and "from offset 0 on" in str(large.error)
        assert len((await two_clusters.read("small", 10))[0]) == 10
        await fill(two_clusters.source.bootstrap, "small", 10, first=10)
        assert len((await two_clusters.read("small", 20))[0]) == 20
        await set_config(two_clusters.target, "large", "max.message.bytes", "10000")
        large.retry_at_ms = 0
        assert (await two_clusters.read("large", 1))[0][0].value == bytes(5_000)


@pytest.mark.parametrize("reaction", ["fail", "skip"])
async def test_records_that_were_deleted_before_they_were_copied(two_clusters: MirroredClusters, reaction: str) -> None:
    await two_clusters.create("t")
    plan = await two_clusters.plan("t")
    await fill(two_clusters.source.bootstrap, "t", 10)
    async with two_clusters.copying(plan, onDataLoss=reaction):
        await two_clusters.read("t", 10)
    await fill(two_clusters.source.bootstrap, "t", 20, first=10)
    async with Admin(two_clusters.source.bootstrap) as admin:
        await admin.delete_records({TopicPartition("t", 0): 25})
    async with two_clusters.copying(plan, onDataLoss=reaction) as (copiers, _):
        owned = await owned_of(copiers, "t")
        if reaction == "fail":
            await until_true(lambda: owned.state is CopyState.FAILED, "the failure")
            assert "the offsets 10 to 24" in str(owned.error) and "onDataLoss: skip" in str(owned.error)
        else:
            records = (await two_clusters.read("t", 15))[0]
            assert [int(record.value) for record in records] == [*range(10), *range(25, 30)]


async def test_a_topic_that_was_created_again_is_not_mixed_with_the_old_one(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t")
    await two_clusters.create("other")
    bootstrap = two_clusters.source.bootstrap
    await fill(bootstrap, "t", 10)
    plan = await two_clusters.plan("t", "other")
    async with two_clusters.copying(plan) as (copiers, _):
        await two_clusters.read("t", 10)
        owned = await owned_of(copiers, "t")
        await create_again(bootstrap, "t")
        await fill(bootstrap, "t", 30, first=100)
        await until_true(lambda: owned.state is CopyState.FAILED, "the error about the new topic")
        assert "deleted and created again" in str(owned.error)
        await fill(bootstrap, "other", 5)
        await two_clusters.read("other", 5)
    new_plan = await two_clusters.plan("t", "other")
    async with two_clusters.copying(new_plan) as (copiers, _):
        owned = await owned_of(copiers, "t")
        await until_true(lambda: owned.state is CopyState.FAILED, "the error after a restart")
    assert len((await two_clusters.read("t", 10))[0]) == 10


async def test_a_source_that_cannot_be_reached_delays_only_its_own_partitions(two_clusters: MirroredClusters) -> None:
    await two_clusters.create("t")
    await fill(two_clusters.source.bootstrap, "t", 10)
    west = {"name": "west", "bootstrapServers": f"127.0.0.1:{free_ports(1)[0]}", "topics": {"include": [".*"]}}
    lost = CopiedPartition("west", "gone", 0, uuid4(), "t2")
    async with two_clusters.copying(await two_clusters.plan("t"), others=[west]) as (copiers, _):
        copiers.set_plan("west", frozenset({lost}))
        assert len((await two_clusters.read("t", 10))[0]) == 10
        assert not copiers.readers["west"].is_connected
