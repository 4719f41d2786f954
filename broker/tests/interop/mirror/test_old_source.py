"""Topics and groups of Apache Kafka 0.10, which has neither topic ids nor a request for properties."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.models import NewTopic
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.topic_follower import TopicFollower
from odradek_testkit.clients.mirrored_pair import MirroredPair, mirror_config
from odradek_testkit.interop.apache import QUICK_START, ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def old_kafka(odradek_zookeeper: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker of Apache Kafka 0.10.2."""
    root = f"/old-{uuid4().hex[:8]}"
    client = KazooClient(hosts=odradek_zookeeper)
    client.start()
    # Without it, the broker makes an id with a class that Java 17 does not have.
    client.create(f"{root}/cluster/id", json.dumps({"version": "1", "id": root[1:]}).encode(), makepath=True)
    client.stop()
    client.close()
    broker = ApacheBroker(
        jars("0.10.2.2", Path(request.config.rootpath) / ".interop"),
        tmp_path / "old",
        broker_id=1,
        zookeeper=odradek_zookeeper + root,
        properties={"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"},
        heap="384m",
        options=QUICK_START,
    )
    broker.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        broker.stop()


async def test_topics_and_groups_of_an_old_cluster_follow(old_kafka: str, target: str) -> None:
    found: list[frozenset[CopiedPartition]] = []
    async with Cluster(old_kafka) as source_client, Cluster(target) as target_client:
        pair = MirroredPair(mirror_config(old_kafka, target, name="old", prefix="old."), source_client, target_client)
        await pair.in_source.create_topics([NewTopic(name="orders", partitions=2, replication_factor=1)])
        topics = TopicFollower(pair.config, pair.source, source_client, target_client, found.append)
        groups = GroupFollower(pair.config, pair.source, source_client, target_client)
        try:
            while not found or len(found[-1]) < 2:
                await topics.refresh()
            assert {each.topic_id for each in found[-1]} == {ZERO_UUID}
            # The second round follows access rules and properties, as far as the brokers have them.
            await topics.refresh()
            assert not topics.problems
            async with OffsetSyncs(pair.config, pair.source, target_client) as syncs:
                for each in found[-1]:
                    syncs.copied(each, 0, 100)
                    syncs.copied(each, 10, 110)
            await pair.in_source.alter_group_offsets("billing", {TopicPartition("orders", 1): 7})
            await groups.start()
            await groups.follow()
            committed = await pair.in_target.group_offsets("billing")
            assert committed[TopicPartition("old.orders", 1)].offset == 107
        finally:
            await topics.close()
            await groups.close()
