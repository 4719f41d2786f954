"""What the pages of the cluster, its brokers and its activity show. Each function asks the cluster as one user.

A user may be allowed to see only a part. Such a part is None, with a note that says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    NetworkError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.client.admin import Admin
from odradek.client.admin_kinds import ConfigSource
from odradek.client.models import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    LogDirDescription,
    PartitionDescription,
    PartitionReassignment,
    TopicDescription,
)

_T = TypeVar("_T")
LogDirs = dict[int, list[LogDirDescription] | None]
"""Log directories of each live broker; None if the broker does not answer."""

NOT_ALLOWED: Final = (ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError)
_UNKNOWN: Final = (NetworkError, RequestTimedOutError, UnsupportedVersionError)
_BROKER_SECONDS: Final = 5.0
"""How long the page waits for the log directories of one broker, which may be restarting."""
MAX_ROWS: Final = 200
"""Partitions in the lists of the activity page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityLine:
    """Something that happened to the cluster, as its operator reports it."""

    time_ms: int
    subject: str
    message: str
    good: bool = True
    """False if a person should look at it."""


@dataclass(slots=True)
class Notes:
    """Why parts of a page are missing."""

    lines: list[str] = field(default_factory=list)

    async def optional(self, what: str, reading: Awaitable[_T]) -> _T | None:
        """Await a part of a page. Returns None, with a note, if the user may not see it or no broker answers."""
        try:
            return await reading
        except NOT_ALLOWED:
            self.lines.append(f"{what}: this user is not allowed to see this.")
        except _UNKNOWN as error:
            self.lines.append(f"{what}: unknown. {error}")
        return None


async def all_topics(admin: Admin) -> dict[str, TopicDescription]:
    """Return all topics that the user may see."""
    return await admin.describe_topics(await admin.list_topics(internal=True))


async def log_dirs(admin: Admin, cluster: ClusterDescription) -> LogDirs:
    """Return the log directories of all live brokers. Raises `ClusterAuthorizationFailedError`."""

    async def of(broker: int) -> list[LogDirDescription] | None:
        try:
            async with asyncio.timeout(_BROKER_SECONDS):
                return (await admin.describe_log_dirs([broker]))[broker]
        except (TimeoutError, NetworkError, RequestTimedOutError):
            return None

    ids = [broker.node_id for broker in cluster.brokers]
    return dict(zip(ids, await asyncio.gather(*map(of, ids)), strict=True))


def replica_sizes(found: LogDirs | None) -> dict[tuple[int, TopicPartition], int]:
    """Return the size in bytes of each replica, by broker and partition."""
    return {
        (broker, partition): replica.size_bytes
        for broker, directories in (found or {}).items()
        for directory in directories or ()
        for partition, replica in directory.replicas.items()
        if not replica.future
    }


def partitions_of(topics: Iterable[TopicDescription]) -> list[tuple[TopicPartition, PartitionDescription]]:
    """Return all partitions of topics."""
    return [(TopicPartition(topic.name, each.partition), each) for topic in topics for each in topic.partitions]


def is_out_of_sync(partition: PartitionDescription) -> bool:
    """Whether a replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)


async def read_overview(admin: Admin) -> dict[str, Any]:
    """Return the cluster, and what needs attention."""
    notes = Notes()
    cluster, topics, groups, moves = await asyncio.gather(
        admin.describe_cluster(),
        all_topics(admin),
        notes.optional("Groups", admin.list_groups()),
        notes.optional("Reassignments", admin.list_partition_reassignments()),
    )
    partitions = partitions_of(topics.values())
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [_broker(cluster, each.node_id, partitions) for each in cluster.brokers],
        "missing_brokers": missing_brokers(cluster, partitions),
        "topics": sum(not topic.internal for topic in topics.values()),
        "internal_topics": sum(topic.internal for topic in topics.values()),
        "partitions": len(partitions),
        "offline_partitions": sum(each.leader == NO_BROKER for _, each in partitions),
        "out_of_sync_partitions": sum(is_out_of_sync(each) for _, each in partitions),
        "groups": None if groups is None else len(groups),
        "group_states": None if groups is None else dict(Counter(group.state.value for group in groups)),
        "reassignments": None if moves is None else len(moves),
        "notes": notes.lines,
    }


def missing_brokers(
    cluster: ClusterDescription, partitions: Iterable[tuple[TopicPartition, PartitionDescription]]
) -> list[int]:
    """Return the brokers that have replicas, but are not running."""
    live = {broker.node_id for broker in cluster.brokers}
    return sorted({replica for _, each in partitions for replica in each.replicas} - live)


def _broker(
    cluster: ClusterDescription, node_id: int, partitions: Sequence[tuple[TopicPartition, PartitionDescription]]
) -> dict[str, Any]:
    broker = next(each for each in cluster.brokers if each.node_id == node_id)
    return {
        "id": node_id,
        "address": f"{broker.host}:{broker.port}",
        "rack": broker.rack,
        "is_controller": node_id == cluster.controller_id,
        "leaders": sum(each.leader == node_id for _, each in partitions),
        "replicas": sum(node_id in each.replicas for _, each in partitions),
        "out_of_sync_replicas": sum(node_id in each.replicas and node_id not in each.isr for _, each in partitions),
    }


async def read_brokers(admin: Admin) -> dict[str, Any]:
    """Return all brokers with their log directories."""
    notes = Notes()
    cluster, topics = await asyncio.gather(admin.describe_cluster(), all_topics(admin))
    found = await notes.optional("Log directories", log_dirs(admin, cluster))
    partitions = partitions_of(topics.values())
    return {
        "brokers": [
            _broker(cluster, each.node_id, partitions) | {"log_dirs": _directories(found, each.node_id)}
            for each in cluster.brokers
        ],
        "missing_brokers": missing_brokers(cluster, partitions),
        "notes": notes.lines,
    }


def _directories(found: LogDirs | None, broker: int) -> list[dict[str, Any]] | None:
    directories = None if found is None else found[broker]
    if directories is None:
        return None
    return [
        {
            "path": each.path,
            "error_code": each.error_code,
            "replicas": len(each.replicas),
            "size_bytes": sum(replica.size_bytes for replica in each.replicas.values()),
            "total_bytes": None if each.total_bytes < 0 else each.total_bytes,
            "usable_bytes": None if each.usable_bytes < 0 else each.usable_bytes,
        }
        for each in directories
    ]


async def read_broker(admin: Admin, broker: int) -> dict[str, Any] | None:
    """Return one broker with its configuration; None if it is not running."""
    everything = await read_brokers(admin)
    row = next((each for each in everything["brokers"] if each["id"] == broker), None)
    if row is None:
        return None
    notes = Notes(everything["notes"])
    resource = ConfigResource.broker(broker)
    configs = await notes.optional("Configuration", admin.describe_configs([resource]))
    return {
        "broker": row,
        "configs": None if configs is None else config_rows(configs[resource].values()),
        "notes": notes.lines,
    }


def config_rows(entries: Iterable[ConfigEntry]) -> list[dict[str, Any]]:
    """Return properties, those that somebody has set first. Sensitive ones have no value."""
    rows = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source.name,
            "is_default": entry.source is ConfigSource.DEFAULT_CONFIG,
            "is_sensitive": entry.sensitive,
            "is_read_only": entry.read_only,
        }
        for entry in entries
    ]
    return sorted(rows, key=lambda row: (row["is_default"], row["name"]))


async def read_activity(admin: Admin, lines: Callable[[], Sequence[ActivityLine]]) -> dict[str, Any]:
    """Return what is changing: brokers that are down, partitions out of sync, reassignments with their progress."""
    notes = Notes()
    cluster, topics, moves = await asyncio.gather(
        admin.describe_cluster(),
        all_topics(admin),
        notes.optional("Reassignments", admin.list_partition_reassignments()),
    )
    partitions = dict(partitions_of(topics.values()))
    sizes = None
    if moves:
        sizes = replica_sizes(await notes.optional("Progress", log_dirs(admin, cluster)))
    behind = [(partition, each) for partition, each in sorted(partitions.items()) if is_out_of_sync(each)]
    return {
        "missing_brokers": missing_brokers(cluster, partitions.items()),
        "out_of_sync_count": len(behind),
        "out_of_sync": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "leader": each.leader,
                "missing": sorted(set(each.replicas) - set(each.isr)),
            }
            for partition, each in behind[:MAX_ROWS]
        ],
        "reassignment_count": None if moves is None else len(moves),
        "reassignments": None if moves is None else _moves(moves, partitions, sizes or {}),
        "events": [
            {"time_ms": line.time_ms, "subject": line.subject, "message": line.message, "good": line.good}
            for line in lines()
        ],
        "notes": notes.lines,
    }


def _moves(
    moves: dict[TopicPartition, PartitionReassignment],
    partitions: dict[TopicPartition, PartitionDescription],
    sizes: dict[tuple[int, TopicPartition], int],
) -> list[dict[str, Any]]:
    rows = []
    for partition, move in sorted(moves.items())[:MAX_ROWS]:
        now = partitions.get(partition)
        whole = sizes.get((now.leader, partition)) if now else None
        copied = [sizes.get((broker, partition), 0) for broker in move.adding]
        percent = None
        if whole and copied:
            percent = min(100, 100 * sum(min(size, whole) for size in copied) // (whole * len(copied)))
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "in_sync": sorted(now.isr) if now else [],
                "percent": percent,
            }
        )
    return rows
