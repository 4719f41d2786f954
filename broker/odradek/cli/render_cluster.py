"""Converts descriptions of a cluster to tables and to plain values for JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.base.types import NO_BROKER, TopicPartition
from odradek.cli.tables import Column, Table
from odradek.client.models import ClusterDescription, LogDirDescription, TopicDescription

_GIB = 1 << 30
_MOST_NAMED = 20
"""Partitions that a table of the health names; JSON has all."""


def cluster_value(found: ClusterDescription) -> dict[str, object]:
    """Return a cluster for JSON."""
    return {
        "clusterId": found.cluster_id,
        "controller": found.controller_id,
        "brokers": [
            {"id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack} for each in found.brokers
        ],
    }


def broker_list(found: ClusterDescription) -> Table:
    """Return a table with a row for each live broker."""
    rows = tuple(
        (
            str(each.node_id),
            f"{each.host}:{each.port}",
            each.rack or "",
            "controller" if each.node_id == found.controller_id else "",
        )
        for each in found.brokers
    )
    columns = (Column("BROKER", True), Column("ADDRESS"), Column("RACK"), Column("ROLE"))
    return Table(f"Cluster {found.cluster_id}", columns, rows, empty="No broker is alive.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """What is wrong with the partitions of a cluster."""

    brokers: int
    controller: int
    topics: int
    partitions: int
    offline: tuple[TopicPartition, ...]
    """Partitions without a leader."""
    behind: tuple[TopicPartition, ...]
    """Partitions with a leader, and with replicas that are not in sync."""
    not_preferred: tuple[TopicPartition, ...]
    """Partitions whose leader is not their first replica. That is normal after a restart."""

    @property
    def is_healthy(self) -> bool:
        """Whether there is a controller, and each partition has a leader and all replicas in sync."""
        return self.controller != NO_BROKER and not self.offline and not self.behind


def health_of(cluster: ClusterDescription, topics: Iterable[TopicDescription]) -> ClusterHealth:
    """Return the health of a cluster with these topics."""
    described = list(topics)
    parts = [(TopicPartition(topic.name, part.partition), part) for topic in described for part in topic.partitions]
    led = [(name, part) for name, part in parts if part.leader != NO_BROKER]
    return ClusterHealth(
        brokers=len(cluster.brokers),
        controller=cluster.controller_id,
        topics=len(described),
        partitions=len(parts),
        offline=tuple(name for name, part in parts if part.leader == NO_BROKER),
        behind=tuple(name for name, part in led if set(part.replicas) - set(part.isr)),
        not_preferred=tuple(name for name, part in led if part.replicas and part.leader != part.replicas[0]),
    )


def health_value(found: ClusterHealth) -> dict[str, object]:
    """Return a health for JSON."""

    def named(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
        return [{"topic": each.topic, "partition": each.partition} for each in partitions]

    return {
        "healthy": found.is_healthy,
        "brokers": found.brokers,
        "controller": found.controller,
        "topics": found.topics,
        "partitions": found.partitions,
        "withoutLeader": named(found.offline),
        "notInSync": named(found.behind),
        "notLedByPreferredReplica": named(found.not_preferred),
    }


def health_table(found: ClusterHealth) -> Table:
    """Return a table of the health. What is wrong is marked."""
    rows = [
        ("live brokers", str(found.brokers), ""),
        ("controller", "none" if found.controller == NO_BROKER else str(found.controller), ""),
        ("topics", str(found.topics), ""),
        ("partitions", str(found.partitions), ""),
        ("without leader", str(len(found.offline)), _names(found.offline)),
        ("not in sync", str(len(found.behind)), _names(found.behind)),
        ("not led by their preferred replica", str(len(found.not_preferred)), _names(found.not_preferred)),
    ]
    marked = {4} if found.offline else set()
    marked |= {5} if found.behind else set()
    marked |= {1} if found.controller == NO_BROKER else set()
    title = "The cluster is healthy." if found.is_healthy else "The cluster is not healthy."
    return Table(title, (Column("WHAT"), Column("NUMBER", True), Column("PARTITIONS")), tuple(rows), frozenset(marked))


def _names(partitions: Sequence[TopicPartition]) -> str:
    named = ", ".join(str(each) for each in partitions[:_MOST_NAMED])
    return f"{named} and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else named


def log_dir_values(found: Mapping[int, Iterable[LogDirDescription]]) -> list[dict[str, object]]:
    """Return log directories for JSON, with all replicas."""
    return [
        {
            "broker": broker,
            "path": each.path,
            "errorCode": each.error_code,
            "totalBytes": each.total_bytes,
            "usableBytes": each.usable_bytes,
            "replicas": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "sizeBytes": size.size_bytes,
                    "offsetLag": size.offset_lag,
                    "future": size.future,
                }
                for partition, size in sorted(each.replicas.items())
            ],
        }
        for broker, directories in sorted(found.items())
        for each in directories
    ]


def log_dir_table(found: Mapping[int, Iterable[LogDirDescription]]) -> Table:
    """Return a table with a row for each log directory. Those that are offline are marked."""
    rows: list[tuple[str, ...]] = []
    marked: set[int] = set()
    for broker, directories in sorted(found.items()):
        for each in directories:
            if each.error_code:
                marked.add(len(rows))
            rows.append(
                (
                    str(broker),
                    each.path,
                    f"offline (error {each.error_code})" if each.error_code else "online",
                    str(len(each.replicas)),
                    _size(sum(size.size_bytes for size in each.replicas.values())),
                    _size(each.usable_bytes),
                    _size(each.total_bytes),
                )
            )
    columns = (
        Column("BROKER", True),
        Column("DIRECTORY"),
        Column("STATE"),
        Column("REPLICAS", True),
        Column("SIZE", True),
        Column("FREE", True),
        Column("DISK", True),
    )
    return Table("", columns, tuple(rows), frozenset(marked), empty="There are no log directories.")


def _size(size_bytes: int) -> str:
    if size_bytes < 0:
        return "unknown"
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / (1 << 20):.1f} MiB"
