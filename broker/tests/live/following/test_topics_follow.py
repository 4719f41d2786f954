"""Topics, partitions, properties and access rules of a real cluster appear in another one, and follow changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest

from odradek.base.errors import TopicAlreadyExistsError
from odradek.client.admin import Admin
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import ClusterView
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.mirror.following.acl_rules import exact_filter, topic_binding
from odradek.mirror.following.mirrored_topics import MIRRORED_TOPICS
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.topic_follower import TopicFollower
from odradek.security.acls.model import AclOperation, AclPermission, AclRule
from odradek.security.principals import Principal
from odradek_testkit.clients.mirrored_pair import MirroredPair, mirror_config

ALICE = Principal("User", "alice")
READ = AclRule(ALICE, AclPermission.ALLOW, AclOperation.READ)
ALL = AclRule(ALICE, AclPermission.ALLOW, AclOperation.ALL)


@asynccontextmanager
async def following(
    pair: MirroredPair, *, leads: bool = True
) -> AsyncIterator[tuple[TopicFollower, list[Collection[str]]]]:
    """Return a follower, and the lists of partitions that it has reported."""
    reports: list[Collection[str]] = []

    def note(copied: frozenset[CopiedPartition]) -> None:
        reports.append(sorted(f"{each.topic}-{each.partition}>{each.target_topic}" for each in copied))

    follower = TopicFollower(
        pair.config, pair.source, pair.source_client, pair.target_client, note, leads=lambda: leads
    )
    try:
        yield follower, reports
    finally:
        await follower.close()


async def own_configs(admin: Admin, topic: str) -> dict[str, str | None]:
    """Return the properties that are set for a topic."""
    found = (await admin.describe_configs([ConfigResource.topic(topic)]))[ConfigResource.topic(topic)]
    return {name: entry.value for name, entry in found.items() if entry.source is ConfigSource.TOPIC_CONFIG}


async def repeat_until(follower: TopicFollower, reached: Callable[[], Awaitable[bool]]) -> None:
    """Refresh until the brokers' metadata shows a change. The timeout of the test limits the time."""
    while not await reached():
        await follower.refresh()


async def create_again(admin: Admin, topic: NewTopic) -> None:
    """Create a topic as soon as the one with its name is gone."""
    while True:
        try:
            return await admin.create_topics([topic])
        except TopicAlreadyExistsError:
            continue


async def test_topics_are_created_and_follow_changes(pair: MirroredPair) -> None:
    source, target = pair.in_source, pair.in_target
    configs = (("retention.ms", "60000"), ("min.insync.replicas", "1"))
    await source.create_topics([NewTopic(name="orders", partitions=2, configs=configs)])
    await source.create_topics([NewTopic(name="odradek-mirror-x", partitions=1)])
    async with following(pair) as (follower, reports):
        await follower.refresh()
        assert reports == [["orders-0>east.orders", "orders-1>east.orders"]]
        assert await own_configs(target, "east.orders") == {"retention.ms": "60000"}

        await source.create_partitions({"orders": 3})
        await source.incremental_alter_configs(
            {
                ConfigResource.topic("orders"): [
                    ConfigChange(name="retention.ms", value=None, operation=ConfigOperation.DELETE),
                    ConfigChange(name="cleanup.policy", value="compact"),
                ]
            }
        )

        async def has_followed() -> bool:
            return await own_configs(target, "east.orders") == {"cleanup.policy": "compact"} and len(reports) == 2

        await repeat_until(follower, has_followed)
        assert reports[-1] == ["orders-0>east.orders", "orders-1>east.orders", "orders-2>east.orders"]
        assert len((await target.describe_topics(["east.orders"]))["east.orders"].partitions) == 3
        assert not follower.problems

        await source.create_topics([NewTopic(name="late", partitions=1)])
        await source.delete_topics(["orders"])

        async def has_changed() -> bool:
            return reports[-1] == ["late-0>east.late"]

        await repeat_until(follower, has_changed)
        assert "east.orders" in await target.list_topics(), "copies of deleted topics stay"


async def test_a_topic_that_another_process_creates_meanwhile_is_not_missing(
    pair: MirroredPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    read_topics, views = pair.target_client.fresh_view, count()
    async with following(pair) as (leader, _), following(pair, leads=False) as (follower, reports):
        await leader.refresh()
        await pair.in_source.create_topics([NewTopic(name="late", partitions=1)])

        async def read_before_the_creation(names: Collection[str] | None) -> ClusterView:
            view = await read_topics(names)
            if not next(views):
                await leader.refresh()
            return view

        monkeypatch.setattr(pair.target_client, "fresh_view", read_before_the_creation)
        await follower.refresh()
        assert not leader.problems and not follower.problems
        assert reports == [["late-0>east.late", "orders-0>east.orders"]]


async def test_a_topic_of_somebody_else_is_not_changed(pair: MirroredPair) -> None:
    await pair.in_target.create_topics([NewTopic(name="east.orders", partitions=1)])
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=2, configs=(("retention.ms", "60000"),))])
    await pair.in_source.create_acls([topic_binding("orders", READ)])
    async with following(pair) as (follower, reports):
        await follower.refresh()
        assert reports == [["orders-0>east.orders"]]
        assert "Add partitions to topic east.orders" in follower.problems["orders"]
    assert await own_configs(pair.in_target, "east.orders") == {}
    assert await pair.in_target.describe_acls() == []


async def test_a_restarted_mirror_knows_its_topics(pair: MirroredPair) -> None:
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    async with following(pair) as (follower, _):
        await follower.refresh()
    await pair.in_source.create_partitions({"orders": 2})
    async with following(pair) as (follower, reports):

        async def has_followed() -> bool:
            return bool(reports) and len(reports[-1]) == 2

        await repeat_until(follower, has_followed)
    await pair.in_source.delete_topics(["orders"])
    await create_again(pair.in_source, NewTopic(name="orders", partitions=2))
    async with following(pair) as (follower, _):
        await follower.refresh()
        assert "was deleted and created again in source east" in follower.problems["orders"]


async def test_access_rules_follow(pair: MirroredPair) -> None:
    source, target = pair.in_source, pair.in_target
    await source.create_topics([NewTopic(name="orders", partitions=1)])
    own = AclRule(Principal("User", "bob"), AclPermission.DENY, AclOperation.ALL)
    denied = AclRule(ALICE, AclPermission.DENY, AclOperation.WRITE)
    write = AclRule(ALICE, AclPermission.ALLOW, AclOperation.WRITE)
    await target.create_acls([topic_binding("east.orders", own)])
    await source.create_acls(topic_binding("orders", rule) for rule in (ALL, write, denied))
    async with following(pair) as (follower, _):
        await follower.refresh()
        wanted = {topic_binding("east.orders", rule) for rule in (own, READ, denied)}

        async def has_rules() -> bool:
            return set(await target.describe_acls()) == wanted

        await repeat_until(follower, has_rules)
        await source.delete_acls([exact_filter("orders", ALL)])
        wanted = {topic_binding("east.orders", rule) for rule in (own, denied)}
        await repeat_until(follower, has_rules)


async def test_a_process_that_does_not_lead_changes_nothing(pair: MirroredPair) -> None:
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    async with following(pair, leads=False) as (follower, reports):
        await follower.refresh()
        assert reports == [[]]
        assert await pair.in_target.list_topics(internal=True) == []
        async with following(pair) as (leader, _):
            await leader.refresh()

        async def has_partition() -> bool:
            return reports[-1] == ["orders-0>east.orders"]

        await repeat_until(follower, has_partition)


@pytest.mark.parametrize("prefix", ["", "other."])
async def test_two_directions_do_not_copy_in_a_circle(
    pair: MirroredPair, brokers: tuple[str, str], prefix: str
) -> None:
    source, target = brokers
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    await pair.in_target.create_topics([NewTopic(name="stock", partitions=1)])
    forth = replace(pair, config=mirror_config(source, target, prefix=prefix))
    back = MirroredPair(
        mirror_config(target, source, prefix=prefix, name="west"), pair.target_client, pair.source_client
    )
    async with following(forth) as (east, forwards), following(back) as (west, backwards):
        for _ in range(3):
            await east.refresh()
            await west.refresh()
        assert forwards[-1] == [f"orders-0>{prefix}orders"]
        assert backwards[-1] == [f"stock-0>{prefix}stock"]
    names = {"orders", "stock", f"{prefix}orders", f"{prefix}stock", MIRRORED_TOPICS}
    assert set(await pair.in_source.list_topics()) | set(await pair.in_target.list_topics()) == names


async def test_a_topic_that_cannot_be_created_does_not_stop_others(pair: MirroredPair) -> None:
    config = replace(pair.config, replication_factor=3)
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    async with following(replace(pair, config=config)) as (follower, reports):
        await follower.refresh()
        assert follower.problems["orders"].startswith("topic east.orders was not created in the target")
        assert reports == [[]]
    async with following(pair) as (follower, reports):
        await follower.refresh()
        assert reports == [["orders-0>east.orders"]] and not follower.problems


async def test_run_lasts_until_it_is_cancelled(pair: MirroredPair, brokers: tuple[str, str]) -> None:
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1)])
    copied = asyncio.Event()
    async with Cluster(brokers[0]) as source, Cluster(brokers[1]) as target:
        follower = TopicFollower(pair.config, pair.source, source, target, lambda _: copied.set())
        running = asyncio.create_task(follower.run())
        await copied.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
