"""Converts descriptions of a cluster to tables and to plain values for JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.base.types import NO_BROKER, TopicPartition
from odradek.cli.tables import Column, Table, size_text
from odradek.client.administration.feature_admin import FeatureMetadata, VersionRange
from odradek.client.models import ClusterDescription, LogDirDescription, TopicDescription

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
class BrokerLoad:
    """A broker and what it stores."""

    broker: int
    address: str | None
    """`host:port`; None if the broker is not alive."""
    rack: str | None = None
    is_controller: bool = False
    leaders: int = 0
    """Partitions that it leads."""
    replicas: int = 0
    not_in_sync: int = 0
    """Its replicas that are not in sync."""
    size_bytes: int | None = None
    """Size of its replicas; None if it is unknown."""
    offline_directories: int = 0


def broker_loads(
    found: ClusterDescription,
    topics: Iterable[TopicDescription],
    directories: Mapping[int, Iterable[LogDirDescription]],
) -> list[BrokerLoad]:
    """Return the loads of all brokers that are alive or have replicas."""
    parts = [part for topic in topics for part in topic.partitions]
    leaders = Counter(part.leader for part in parts)
    replicas = Counter(broker for part in parts for broker in part.replicas)
    behind = Counter(broker for part in parts for broker in set(part.replicas) - set(part.isr))
    live = {each.node_id: each for each in found.brokers}
    loads = []
    for number in sorted({*live, *replicas}):
        broker, own = live.get(number), list(directories.get(number, ()))
        sizes = [size.size_bytes for each in own for size in each.replicas.values()]
        loads.append(
            BrokerLoad(
                broker=number,
                address=None if broker is None else f"{broker.host}:{broker.port}",
                rack=None if broker is None else broker.rack,
                is_controller=number == found.controller_id,
                leaders=leaders[number],
                replicas=replicas[number],
                not_in_sync=behind[number],
                size_bytes=sum(sizes) if own else None,
                offline_directories=sum(each.error_code != 0 for each in own),
            )
        )
    return loads


def broker_load_value(load: BrokerLoad) -> dict[str, object]:
    """Return the load of a broker for JSON."""
    return {
        "id": load.broker,
        "address": load.address,
        "rack": load.rack,
        "alive": load.address is not None,
        "controller": load.is_controller,
        "leaders": load.leaders,
        "replicas": load.replicas,
        "replicasNotInSync": load.not_in_sync,
        "sizeBytes": load.size_bytes,
        "offlineDirectories": load.offline_directories,
    }


def broker_load_table(loads: Sequence[BrokerLoad]) -> Table:
    """Return a table with a row for each broker. Those with a problem are marked."""
    rows, marked = [], set()
    for index, load in enumerate(loads):
        if load.address is None or load.not_in_sync or load.offline_directories:
            marked.add(index)
        state = "alive" if load.address is not None else "not alive"
        if load.offline_directories:
            state += f", {load.offline_directories} directories offline"
        rows.append(
            (
                str(load.broker),
                load.address or "",
                load.rack or "",
                "controller" if load.is_controller else "",
                state,
                str(load.leaders),
                str(load.replicas),
                str(load.not_in_sync),
                size_text(load.size_bytes),
            )
        )
    columns = (
        Column("BROKER", True),
        Column("ADDRESS"),
        Column("RACK"),
        Column("ROLE"),
        Column("STATE"),
        Column("LEADERS", True),
        Column("REPLICAS", True),
        Column("NOT IN SYNC", True),
        Column("SIZE", True),
    )
    return Table("", columns, tuple(rows), frozenset(marked), empty="No broker is alive.")


def features_value(found: FeatureMetadata) -> dict[str, object]:
    """Return features for JSON."""

    def ranges(versions: Mapping[str, VersionRange]) -> dict[str, dict[str, int]]:
        return {name: {"min": each.lowest, "max": each.highest} for name, each in sorted(versions.items())}

    return {
        "finalized": ranges(found.finalized),
        "finalizedEpoch": found.finalized_epoch,
        "supported": ranges(found.supported),
    }


def features_table(found: FeatureMetadata) -> Table:
    """Return a table with a row for each feature that is finalized or supported."""

    def text(versions: VersionRange | None) -> str:
        if versions is None:
            return "-"
        return str(versions.highest) if versions.lowest == versions.highest else f"{versions.lowest}-{versions.highest}"

    rows = tuple(
        (name, text(found.finalized.get(name)), text(found.supported.get(name)))
        for name in sorted({*found.finalized, *found.supported})
    )
    epoch = "unknown" if found.finalized_epoch is None else str(found.finalized_epoch)
    columns = (Column("FEATURE"), Column("FINALIZED"), Column("SUPPORTED"))
    return Table(f"Epoch of the finalized features: {epoch}", columns, rows, empty="There are no features.")


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
                    size_text(sum(size.size_bytes for size in each.replicas.values())),
                    size_text(each.usable_bytes),
                    size_text(each.total_bytes),
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
