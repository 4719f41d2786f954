"""The admin client with real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from odradek.base.errors import (
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings

T = TypeVar("T")

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def eventually(ask: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    """Repeat a request until its result is sufficient. The timeout of the test limits the time."""
    while not enough(found := await ask()):
        pass
    return found


async def test_topics_are_created_extended_and_deleted(settings: ClientSettings, topic: str) -> None:
    name = f"{topic}-own"
    async with Admin(settings) as admin, asyncio.timeout(120):
        await admin.create_topics([NewTopic(name=name, partitions=2, configs=(("retention.ms", "60000"),))])
        with pytest.raises(TopicAlreadyExistsError):
            await admin.create_topics([NewTopic(name=name, partitions=2)])
        assert await eventually(admin.list_topics, lambda names: name in names)
        described = (await admin.describe_topics([name]))[name]
        assert [partition.partition for partition in described.partitions] == [0, 1]
        await admin.create_partitions({name: 4})
        described_again = await eventually(
            lambda: admin.describe_topics([name]), lambda found: len(found[name].partitions) == 4
        )
        assert [partition.partition for partition in described_again[name].partitions] == [0, 1, 2, 3]
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: 3})
        await admin.delete_topics([name])
        await eventually(admin.list_topics, lambda names: name not in names)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_topics([name])


async def test_validate_only_changes_nothing(settings: ClientSettings, topic: str) -> None:
    async with Admin(settings) as admin:
        await admin.create_topics([NewTopic(name=f"{topic}-dry", partitions=1)], validate_only=True)
        assert f"{topic}-dry" not in await admin.list_topics()


async def test_configurations(settings: ClientSettings, topic: str) -> None:
    resource = ConfigResource.topic(topic)
    async with Admin(settings) as admin, asyncio.timeout(120):
        await admin.incremental_alter_configs({resource: [ConfigChange(name="retention.ms", value="12345")]})
        await eventually(
            lambda: admin.describe_configs([resource]),
            lambda found: found[resource]["retention.ms"].value == "12345",
        )
        with pytest.raises(InvalidConfigError):
            await admin.incremental_alter_configs({resource: [ConfigChange(name="retention.ms", value="soon")]})
        broker = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
        found = await admin.describe_configs([broker, resource], keys=["log.retention.hours", "cleanup.policy"])
        assert set(found[broker]) == {"log.retention.hours"}
        assert found[resource]["cleanup.policy"].value == "delete"


async def test_descriptions_of_the_cluster_and_its_log_directories(settings: ClientSettings, topic: str) -> None:
    async with Producer(settings) as producer:
        await producer.send_and_wait(topic, b"v" * 1_000, partition=1)
    async with Admin(settings) as admin:
        cluster = await admin.describe_cluster()
        assert cluster.controller_id in {broker.node_id for broker in cluster.brokers}
        directories = await admin.describe_log_dirs()
    assert set(directories) == {broker.node_id for broker in cluster.brokers}
    sizes = [
        replica.size_bytes
        for each in directories.values()
        for directory in each
        for partition, replica in directory.replicas.items()
        if partition == TopicPartition(topic, 1)
    ]
    assert len(sizes) == 1
    assert sizes[0] > 1_000


async def test_groups(settings: ClientSettings, topic: str) -> None:
    name = f"group-{topic}"
    group = settings.replace(group_id=name)
    async with Admin(settings) as admin, asyncio.timeout(120):
        async with Consumer(group, topic) as consumer:
            while len(consumer.assignment()) != 3:
                await consumer.getmany(timeout_ms=50)
            described = (await admin.describe_groups([name]))[name]
            assert (described.state, described.protocol) == ("Stable", "range")
            assert described.members[0].assignment == tuple(TopicPartition(topic, number) for number in range(3))
            assert name in [listed.group_id for listed in await admin.list_groups()]
            with pytest.raises(NonEmptyGroupError):
                await admin.delete_groups([name])
            await consumer.commit({TopicPartition(topic, 1): 7})
        offsets = await admin.group_offsets(name)
        assert offsets[TopicPartition(topic, 1)].offset in (0, 7)
        assert (await admin.group_offsets(name, [TopicPartition(topic, 9)])) == {}
        await admin.delete_groups([name])
        with pytest.raises(GroupIdNotFoundError):
            await admin.delete_groups([name])
        assert (await admin.describe_groups([name]))[name].state == "Dead"


async def test_listed_offsets(settings: ClientSettings, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(settings) as producer:
        for time in (1_000, 3_000, 2_000):
            await producer.send_and_wait(topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 + time)
    async with Admin(settings) as admin:
        assert (await admin.list_offsets({partition: "earliest"}))[partition].offset == 0
        assert (await admin.list_offsets({partition: "latest"}))[partition].offset == 3
        assert (await admin.list_offsets({partition: "max-timestamp"}))[partition][:2] == (1, 1_700_000_003_000)
        assert (await admin.list_offsets({partition: 1_700_000_001_500}))[partition].offset == 1
