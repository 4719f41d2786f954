"""What the pages of topics and groups show. Each function asks the cluster as one user; see `console/cluster_reads`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from odradek.base.types import NO_BROKER, TopicPartition
from odradek.client.admin import Admin
from odradek.client.admin_kinds import ConsumerGroupState
from odradek.client.models import ConfigResource, GroupDescription, GroupLag, ListedOffset, TopicDescription
from odradek.console.cluster_reads import (
    Notes,
    all_topics,
    config_rows,
    is_out_of_sync,
    log_dirs,
    replica_sizes,
)

_T = TypeVar("_T")
TOPICS_PER_PAGE: Final = 100
GROUPS_PER_PAGE: Final = 50
"""Each group costs two requests to its coordinator."""


def page_of(rows: Sequence[_T], number: int, size: int) -> Sequence[_T]:
    """Return one page of rows. The first page has the number 1."""
    return rows[(number - 1) * size : number * size]


def pages_in(count: int, size: int) -> int:
    """Return the number of pages, which is at least 1."""
    return max(1, -(-count // size))


async def read_topics(admin: Admin, text: str, page: int) -> dict[str, Any]:
    """Return one page of the topics whose name contains `text`."""
    notes = Notes()
    topics, cluster = await asyncio.gather(all_topics(admin), admin.describe_cluster())
    sizes = replica_sizes(await notes.optional("Sizes", log_dirs(admin, cluster)))
    found = sorted(
        (topic for topic in topics.values() if text.lower() in topic.name.lower()),
        key=lambda topic: (topic.internal, topic.name),
    )
    by_topic: dict[str, int] = {}
    for (_, partition), size in sizes.items():
        by_topic[partition.topic] = by_topic.get(partition.topic, 0) + size
    return {
        "topics": [_topic_row(topic, by_topic) for topic in page_of(found, page, TOPICS_PER_PAGE)],
        "count": len(found),
        "page": page,
        "pages": pages_in(len(found), TOPICS_PER_PAGE),
        "notes": notes.lines,
    }


def _topic_row(topic: TopicDescription, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "is_internal": topic.internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
        "offline_partitions": sum(each.leader == NO_BROKER for each in topic.partitions),
        "out_of_sync_partitions": sum(is_out_of_sync(each) for each in topic.partitions),
        "size_bytes": sizes.get(topic.name),
    }


async def describe_one(admin: Admin, topic: str) -> TopicDescription:
    """Return a topic. Raises `UnknownTopicOrPartitionError`."""
    return (await admin.describe_topics([topic]))[topic]


async def read_topic(admin: Admin, name: str) -> dict[str, Any]:
    """Return a topic with its partitions and its configuration."""
    notes = Notes()
    topic, cluster = await asyncio.gather(describe_one(admin, name), admin.describe_cluster())
    resource = ConfigResource.topic(name)
    served = [TopicPartition(name, each.partition) for each in topic.partitions if each.leader != NO_BROKER]
    first, last, found, configs = await asyncio.gather(
        notes.optional("First offsets", admin.list_offsets(dict.fromkeys(served, "earliest"))),
        notes.optional("End offsets", admin.list_offsets(dict.fromkeys(served, "latest"))),
        notes.optional("Sizes", log_dirs(admin, cluster)),
        notes.optional("Configuration", admin.describe_configs([resource])),
    )
    sizes = replica_sizes(found)
    rows = []
    for each in topic.partitions:
        place = TopicPartition(name, each.partition)
        start, end = _offset(first, place), _offset(last, place)
        rows.append(
            {
                "partition": each.partition,
                "leader": None if each.leader == NO_BROKER else each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline_replicas": list(each.offline_replicas),
                "first_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
                "size_bytes": sizes.get((each.leader, place)),
            }
        )
    return {
        "name": name,
        "topic_id": str(topic.topic_id),
        "is_internal": topic.internal,
        "partitions": rows,
        "configs": None if configs is None else config_rows(configs[resource].values()),
        "notes": notes.lines,
    }


def _offset(found: Mapping[TopicPartition, ListedOffset] | None, place: TopicPartition) -> int | None:
    return None if found is None or place not in found else found[place].offset


async def read_groups(admin: Admin, text: str, page: int) -> dict[str, Any]:
    """Return one page of the groups whose id contains `text`, with their members and lag."""
    notes = Notes()
    groups = await admin.list_groups()
    found = [group for group in groups if text.lower() in group.group_id.lower()]
    shown = page_of(found, page, GROUPS_PER_PAGE)
    ids = [group.group_id for group in shown]
    described = await asyncio.gather(
        *(notes.optional(f"Members of {each}", admin.describe_groups([each])) for each in ids)
    )
    lags = await asyncio.gather(
        *(notes.optional(f"Lag of {each}", admin.group_lag(each, with_time=False)) for each in ids)
    )
    rows = []
    for group, description, lag in zip(shown, described, lags, strict=True):
        members = None if description is None else len(description[group.group_id].members)
        rows.append(
            {
                "id": group.group_id,
                "type": group.group_type,
                "protocol_type": group.protocol_type,
                "state": group.state.value,
                "members": members,
                "lag": _total(lag),
            }
        )
    return {
        "groups": rows,
        "count": len(found),
        "page": page,
        "pages": pages_in(len(found), GROUPS_PER_PAGE),
        "notes": notes.lines,
    }


def _total(lags: Mapping[TopicPartition, GroupLag] | None) -> int | None:
    if not lags or all(lag.records is None for lag in lags.values()):
        return None
    return sum(lag.records or 0 for lag in lags.values())


async def read_group(admin: Admin, group_id: str) -> dict[str, Any] | None:
    """Return a group with its members and its lag in each partition; None if it does not exist."""
    notes = Notes()
    group = (await admin.describe_groups([group_id]))[group_id]
    lags = await notes.optional("Lag", admin.group_lag(group_id))
    if group.state is ConsumerGroupState.DEAD and not lags:
        return None
    return {
        "id": group_id,
        "type": group.group_type,
        "state": group.state.value,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [
            {
                "id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": [str(place) for place in sorted(member.assignment)],
            }
            for member in group.members
        ],
        "lag": _total(lags),
        "partitions": None if lags is None else _lag_rows(group, lags),
        "notes": notes.lines,
    }


def _lag_rows(group: GroupDescription, lags: Mapping[TopicPartition, GroupLag]) -> list[dict[str, Any]]:
    owners = {place: member.client_id for member in group.members for place in member.assignment}
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "committed": lag.committed.offset if lag.committed else None,
            "end_offset": lag.end_offset,
            "lag": lag.records,
            "lag_ms": lag.time_ms,
            "owner": owners.get(place),
        }
        for place in sorted({*lags, *owners})
        for lag in [lags.get(place, GroupLag(None, None))]
    ]
