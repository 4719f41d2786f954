"""A topic that was created again in the source is copied from the start after a reset."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError, TopicAlreadyExistsError
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek.mirror.following.copy_reset import reset_copy
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.mm2_records import Checkpoint
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.topic_follower import TopicFollower
from odradek_testkit.clients.mirrored_pair import MirroredPair

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
TOPIC = NewTopic(name="orders", partitions=1)


async def follow_topics(pair: MirroredPair) -> dict[str, str]:
    """Follow the topics until the copy is there, and return the problems."""
    reports: list[frozenset[CopiedPartition]] = []
    follower = TopicFollower(pair.config, pair.source, pair.source_client, pair.target_client, reports.append)
    try:
        while not reports or not reports[-1]:
            await follower.refresh()
        return dict(follower.problems)
    finally:
        await follower.close()


async def follow_group(pair: MirroredPair, *pairs: tuple[int, int]) -> Checkpoint | None:
    """Report pairs of offsets, follow the groups, and return the checkpoint of the group."""
    copied = CopiedPartition("east", "orders", 0, ZERO_UUID, "east.orders")
    async with OffsetSyncs(pair.config, pair.source, pair.target_client) as syncs:
        for each in pairs:
            syncs.copied(copied, *each)
    follower = GroupFollower(pair.config, pair.source, pair.source_client, pair.target_client)
    try:
        await follower.start()
        await follower.follow()
        return follower.checkpoints.get("billing", {}).get(COPY)
    finally:
        await follower.close()


async def create_again(admin: Admin) -> None:
    """Delete the topic, and create it as soon as it is gone."""
    await admin.delete_topics(["orders"])
    while True:
        try:
            return await admin.create_topics([TOPIC])
        except TopicAlreadyExistsError:
            continue


async def test_a_topic_is_copied_from_the_start_again(pair: MirroredPair) -> None:
    await pair.in_source.create_topics([TOPIC])
    assert await follow_topics(pair) == {}
    before = (await pair.in_target.describe_topics(["east.orders"]))["east.orders"]
    await pair.in_target.alter_group_offsets(pair.config.group, {COPY: 100})
    await pair.in_source.alter_group_offsets("billing", {ORDERS: 60})
    assert await follow_group(pair, (0, 0), (100, 100)) == Checkpoint("billing", COPY, 60, 60)

    await create_again(pair.in_source)
    assert "would mix two topics" in (await follow_topics(pair))["orders"]
    await reset_copy(pair.config, pair.source, "orders", pair.target_client)
    assert await follow_topics(pair) == {}
    after = (await pair.in_target.describe_topics(["east.orders"]))["east.orders"]
    assert after.topic_id != before.topic_id
    assert await pair.in_target.group_offsets(pair.config.group) == {}

    await pair.in_source.alter_group_offsets("billing", {ORDERS: 70})
    assert await follow_group(pair) == Checkpoint("billing", COPY, 60, 0), "earlier syncs are about the old copy"
    assert await follow_group(pair, (0, 0), (80, 40)) == Checkpoint("billing", COPY, 70, 30)


async def test_only_a_copy_of_a_stopped_mirror_is_reset(pair: MirroredPair, brokers: tuple[str, str]) -> None:
    await pair.in_source.create_topics([TOPIC])
    await pair.in_target.create_topics([NewTopic(name="east.orders", partitions=1)])
    await follow_topics(pair)
    with pytest.raises(ConfigError, match="nothing was changed"):
        await reset_copy(pair.config, pair.source, "orders", pair.target_client)
    async with Consumer(brokers[1], "east.orders", group_id=pair.config.group) as member:
        await member.getmany(timeout_ms=1)
        while not member.assignment():
            await member.getmany(timeout_ms=1)
        with pytest.raises(ConfigError, match="still runs: stop all its processes"):
            await reset_copy(pair.config, pair.source, "orders", pair.target_client)
    assert "east.orders" in await pair.in_target.list_topics()
