"""Reads reassignments from the cluster, and sets and removes their throttle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import click

from odradek.base.types import TopicPartition
from odradek.cli.reassign.move_progress import MoveProgress, progress_of
from odradek.cli.reassign.throttles import LISTS, RATES, lifted, throttle, throttled_brokers
from odradek.client.admin import Admin
from odradek.client.models import ConfigEntry, ConfigResource, TopicDescription

Replicas = tuple[int, ...]


async def live_brokers(admin: Admin) -> dict[int, str | None]:
    """Return the racks of the brokers that are alive."""
    return {broker.node_id: broker.rack for broker in (await admin.describe_cluster()).brokers}


async def assignments(admin: Admin, topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, Replicas]:
    """Return the replicas of each partition, of a partition in a reassignment those that it has at the end."""
    moving = await admin.list_partition_reassignments()
    found: dict[TopicPartition, Replicas] = {}
    for topic in topics.values():
        for part in topic.partitions:
            name = TopicPartition(topic.name, part.partition)
            removing = moving[name].removing if name in moving else ()
            found[name] = tuple(broker for broker in part.replicas if broker not in removing)
    return found


async def leader_sizes(
    admin: Admin, topics: Mapping[str, TopicDescription], names: Set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the size of the leader's replica of each partition whose leader is alive."""
    live = await live_brokers(admin)
    leaders = {
        name: part.leader
        for topic in topics.values()
        for part in topic.partitions
        if (name := TopicPartition(topic.name, part.partition)) in names and part.leader in live
    }
    directories = await admin.describe_log_dirs(set(leaders.values()), partitions=leaders)
    return {
        name: replica.size_bytes
        for broker, described in directories.items()
        for directory in described
        for name, replica in directory.replicas.items()
        if leaders.get(name) == broker and not replica.future
    }


async def read_moves(admin: Admin) -> list[MoveProgress]:
    """Return the progress of all reassignments."""
    moving = await admin.list_partition_reassignments()
    if not moving:
        return []
    live = await live_brokers(admin)
    # A topic may be deleted meanwhile.
    known = {name.topic for name in moving} & set(await admin.list_topics(internal=True))
    topics = await admin.describe_topics(known) if known else {}
    leaders = {
        TopicPartition(topic.name, part.partition): part.leader
        for topic in topics.values()
        for part in topic.partitions
    }
    holders = {broker for each in moving.values() for broker in each.replicas} & live.keys()
    return progress_of(moving, leaders, await admin.describe_log_dirs(holders, partitions=moving))


async def set_throttle(
    admin: Admin,
    current: Mapping[TopicPartition, Replicas],
    targets: Mapping[TopicPartition, Replicas],
    *,
    rate: int,
) -> None:
    """Limit the copying of a reassignment to `rate` bytes per second and broker. Brokers that are down have no limit
    when they return."""
    configs = await _lists(admin, sorted({name.topic for name in targets}))
    changes = throttle(current, targets, configs, rate=rate)
    live = {ConfigResource.broker(broker) for broker in await live_brokers(admin)}
    topics = {ConfigResource.topic(name.topic) for name in targets}
    await admin.incremental_alter_configs(
        {resource: change for resource, change in changes.items() if resource in live | topics}
    )


async def lift_throttle(admin: Admin) -> bool:
    """Remove the throttle of reassignments that have ended. Returns whether there was one.

    Prints a warning for each broker that is down: its rates cannot be removed.
    """
    lists = await _lists(admin, await admin.list_topics(internal=True))
    live = await live_brokers(admin)
    named = throttled_brokers(lists)
    resources = [ConfigResource.broker(broker) for broker in sorted(named & live.keys())]
    rates = await admin.describe_configs(resources, keys=RATES) if resources else {}
    changes = lifted(lists, rates)
    if changes:
        # Without the lists nobody would know which brokers have rates, so the rates are removed first.
        await admin.incremental_alter_configs({each: changes[each] for each in changes if each in rates})
        await admin.incremental_alter_configs({each: changes[each] for each in changes if each not in rates})
    for broker in sorted(named - live.keys()):
        click.echo(
            f"Warning: broker {broker} is not alive, so its throttle was not removed. When it is back, use "
            f"`odradek config remove --broker {broker} {' '.join(RATES)}`.",
            err=True,
        )
    return bool(changes)


async def _lists(admin: Admin, topics: Sequence[str]) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    if not topics:
        return {}
    return await admin.describe_configs([ConfigResource.topic(topic) for topic in topics], keys=LISTS)
