"""A mirror from Apache Kafka to Odradek: topics and groups follow, and MirrorMaker 2's client reads the checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.admin_kinds import ConfigSource
from odradek.client.cluster_client import Cluster
from odradek.client.models import ConfigResource, NewTopic, OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.topic_follower import TopicFollower
from odradek_testkit.clients.mirrored_pair import MirroredPair, mirror_config
from odradek_testkit.interop.apache import QUICK_START, KraftBroker, jars, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

RECORDS = 10


@pytest.fixture
def apache(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker of Apache Kafka."""
    folder = jars("3.9.1", Path(request.config.rootpath) / ".interop")
    broker = KraftBroker(folder, tmp_path / "apache", properties={"log.retention.ms": "77000000"}, heap="384m")
    broker.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        broker.stop()


async def copy(pair: MirroredPair, partitions: frozenset[CopiedPartition]) -> None:
    """Put records into the copies as the copier does, and report the offsets."""
    target = pair.config.target.settings()
    async with OffsetSyncs(pair.config, pair.source, pair.target_client) as syncs, Producer(target) as producer:
        for each in sorted(partitions, key=lambda found: found.partition):
            for number in range(RECORDS):
                place = await producer.send_and_wait(each.target_topic, b"%d" % number, partition=each.partition)
                if not number:
                    syncs.copied(each, 0, place.offset)
            syncs.copied(each, RECORDS, place.offset + 1)


async def prepare_source(admin: Admin, source: str) -> None:
    """Create a topic with records in the source, and a group that has read a part of them."""
    configs = (("retention.bytes", "12345"), ("compression.type", "gzip"), ("min.insync.replicas", "1"))
    await admin.create_topics([NewTopic(name="orders", partitions=2, replication_factor=1, configs=configs)])
    async with Producer(source) as producer:
        for number in range(2 * RECORDS):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
    positions = {
        TopicPartition("orders", 0): OffsetAndMetadata(4, "half"),
        TopicPartition("orders", 1): OffsetAndMetadata(RECORDS, "all"),
    }
    await admin.alter_group_offsets("billing", positions)


async def test_mirrormakers_client_reads_what_the_mirror_writes(
    apache: str, target: str, mirrormaker: Path, programs: Path
) -> None:
    found: list[frozenset[CopiedPartition]] = []
    async with Cluster(apache) as source_client, Cluster(target) as target_client:
        pair = MirroredPair(mirror_config(apache, target), source_client, target_client)
        await prepare_source(pair.in_source, apache)
        topics = TopicFollower(pair.config, pair.source, source_client, target_client, found.append)
        groups = GroupFollower(pair.config, pair.source, source_client, target_client)
        try:
            await topics.refresh()
            assert not topics.problems and len(found[-1]) == 2
            assert all(each.topic_id.int for each in found[-1])
            resource = ConfigResource.topic("east.orders")
            entries = (await pair.in_target.describe_configs([resource]))[resource]
            own = {name: entry.value for name, entry in entries.items() if entry.source is ConfigSource.TOPIC_CONFIG}
            assert own == {"retention.bytes": "12345", "compression.type": "gzip"}
            await copy(pair, found[-1])
            await groups.start()
            await groups.send_heartbeat()
            await groups.follow()
        finally:
            await topics.close()
            await groups.close()
        committed = await pair.in_target.group_offsets("billing")
    assert {place.partition: (each.offset, each.metadata) for place, each in committed.items()} == {
        0: (4, "half"),
        1: (RECORDS, "all"),
    }
    lines = run_tool(
        mirrormaker, "MirrorReader", [target, "east", "billing"], options=QUICK_START, classes=programs
    ).splitlines()
    assert lines == [
        "east.orders-0 4 half",
        f"east.orders-1 {RECORDS} all",
        "checkpoints [east.checkpoints.internal]",
        "heartbeats [heartbeats]",
        "copies [east.orders]",
    ]
