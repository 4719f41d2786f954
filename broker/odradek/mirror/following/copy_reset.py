"""Lets a mirror copy a topic from the start again, after the topic was deleted in one of the clusters.

A command runs it while the mirror is stopped. It deletes the copy, if the mirror has created it, and everything that
the mirror knows about it. When the mirror starts again, it creates the topic and copies it from the start.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from odradek.base.errors import ConfigError, GroupIdNotFoundError, UnknownTopicOrPartitionError
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.producer.producer import Producer
from odradek.mirror.following.group_checkpoints import INACTIVE
from odradek.mirror.following.mirrored_topics import MIRRORED_TOPICS, MirroredTopic
from odradek.mirror.following.state_topics import StateTopic
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig
from odradek.mirror.mm2_records import Checkpoint, OffsetSync, checkpoints_topic, offset_syncs_topic, sync_partition

RESET_HEADER: Final = "odradek-reset"
"""Header of an offset sync that says that earlier syncs of its partition are about another copy. A tombstone would say
the same, but MirrorMaker 2's tools fail at tombstones."""


async def reset_copy(config: MirrorConfig, source: SourceConfig, topic: str, target_client: Cluster) -> None:
    """Delete the copy of a source topic, and what the mirror knows about it. `target_client` is started and closed by
    the caller.

    A call that has failed can be repeated. Raises `ConfigError` if a process of the mirror still runs or if the mirror
    did not create the copy, and the errors of the brokers.
    """
    admin = Admin(cluster=target_client)
    name = source.target_topic(topic)
    mirror = (await admin.describe_groups([config.group]))[config.group]
    if mirror.state not in INACTIVE:
        raise ConfigError(f"mirror {config.name} still runs: stop all its processes before topic {topic} is reset")
    record = await _record(config, target_client, name)
    if record is None or (record.source, record.source_topic) != (source.name, topic):
        raise ConfigError(
            f"topic {name} of the target is not a copy of topic {topic} that mirror {config.name} has created from "
            f"source {source.name}: nothing was changed"
        )
    view = (await target_client.fresh_view([name])).topics.get(name)
    if view is not None and view.partitions:
        if not record.is_copy(view.topic_id):
            raise ConfigError(f"somebody else has created topic {name} of the target again: delete it first")
        with suppress(UnknownTopicOrPartitionError):
            # If an earlier call has deleted it, the metadata can still show it.
            await admin.delete_topics([name])
    await _forget_positions(admin, config.group, name)
    async with Producer(config.target.settings()) as producer:
        await _reset_syncs(config, source, topic, target_client, producer)
        await _reset_checkpoints(config, source, name, target_client, producer)
        # The record comes last: until then, the call can be repeated.
        await producer.send_and_wait(MIRRORED_TOPICS, None, key=record.key(), partition=0)


async def _last_records(config: MirrorConfig, cluster: Cluster, name: str) -> dict[bytes, bytes]:
    """Return the last value of each key of a topic; nothing if there is no such topic."""
    if name not in (await cluster.fresh_view([name])).topics:
        return {}
    topic = StateTopic(cluster, config.target.settings(), name)
    found: dict[bytes, bytes] = {}
    try:
        async for records in topic.read():
            for record in records:
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = record.value
    finally:
        await topic.close()
    return found


async def _record(config: MirrorConfig, cluster: Cluster, name: str) -> MirroredTopic | None:
    key = name.encode()
    value = (await _last_records(config, cluster, MIRRORED_TOPICS)).get(key)
    return None if value is None else MirroredTopic.decode(key, value)


async def _forget_positions(admin: Admin, group: str, name: str) -> None:
    positions = [partition for partition in await admin.group_offsets(group) if partition.topic == name]
    try:
        errors = await admin.delete_group_offsets(group, positions)
    except GroupIdNotFoundError:
        # With the last offset, the group itself is gone.
        return
    for error in errors.values():
        # The brokers delete the offsets of a deleted topic themselves.
        if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
            raise error


async def _reset_syncs(
    config: MirrorConfig, source: SourceConfig, topic: str, cluster: Cluster, producer: Producer
) -> None:
    name = offset_syncs_topic(source.name)
    partitions = [sync_partition(key) for key in await _last_records(config, cluster, name)]
    syncs = [OffsetSync(partition, 0, 0) for partition in partitions if partition.topic == topic]
    headers = ((RESET_HEADER, b""),)
    await asyncio.gather(
        *[
            await producer.send(name, sync.value(), key=sync.key(), partition=0, headers=headers)
            for sync in sorted(syncs)
        ]
    )


async def _reset_checkpoints(
    config: MirrorConfig, source: SourceConfig, copy: str, cluster: Cluster, producer: Producer
) -> None:
    """Let the groups continue at the start of the new copy. A tombstone would stop MirrorMaker 2's client."""
    name = checkpoints_topic(source.name)
    stored = await _last_records(config, cluster, name)
    found = [Checkpoint.decode(key, value) for key, value in stored.items()]
    own = [each._replace(target_offset=0) for each in found if each.partition.topic == copy]
    await asyncio.gather(
        *[
            await producer.send(name, each.value(), key=each.key(), partition=0)
            for each in sorted(own, key=lambda checkpoint: (checkpoint.group, checkpoint.partition))
        ]
    )


def is_reset(headers: tuple[tuple[str, bytes | None], ...]) -> bool:
    """Whether an offset sync says that earlier ones of its partition are about another copy."""
    return any(name == RESET_HEADER for name, _ in headers)
