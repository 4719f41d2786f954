"""Converts topics to tables and to plain values for JSON. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from odradek.base.types import NO_BROKER, ZERO_UUID, TopicPartition
from odradek.cli.tables import Column, Table, size_text
from odradek.client.models import ConfigEntry, LogDirDescription, PartitionDescription, TopicDescription

TOPIC_CONFIG: Final = 1
"""The config source in DescribeConfigs of a property that the topic overrides."""
IN_SYNC: Final = "in sync"
"""The state of a partition that has a leader and all replicas in sync."""


class PartitionExtent(NamedTuple):
    """The offsets and the sizes of a partition, which its leader and the brokers of its replicas know."""

    start_offset: int | None
    """The first offset; None if it is unknown, as that of a partition without a leader."""
    end_offset: int | None
    """The high watermark, which is the offset after the last replicated record."""
    sizes: Mapping[int, int]
    """Size in bytes of each replica whose broker returned it, by broker id."""


def extents(
    topics: Iterable[TopicDescription],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    directories: Mapping[int, Iterable[LogDirDescription]],
) -> dict[TopicPartition, PartitionExtent]:
    """Return the extent of each partition of the topics. Copies that move between directories do not count."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for broker, described in sorted(directories.items()):
        for directory in described:
            for partition, size in directory.replicas.items():
                if not size.future:
                    sizes.setdefault(partition, {})[broker] = size.size_bytes
    names = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
    return {name: PartitionExtent(starts.get(name), ends.get(name), sizes.get(name, {})) for name in names}


def partition_state(partition: PartitionDescription) -> str:
    """Return `in sync`, the number of replicas behind, or `offline`."""
    if partition.leader == NO_BROKER:
        return "offline"
    behind = len(set(partition.replicas) - set(partition.isr))
    return IN_SYNC if behind == 0 else f"{behind} behind"


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def topic_list(topics: Iterable[TopicDescription]) -> Table:
    """Return a table with a row for each topic."""
    rows, marked = [], set()
    for index, topic in enumerate(topics):
        if only_troubled(topic).partitions:
            marked.add(index)
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        rows.append((topic.name, str(len(topic.partitions)), str(factor), topic_health(topic)))
    columns = (Column("TOPIC"), Column("PARTITIONS", True), Column("REPLICAS", True), Column("STATE"))
    return Table("", columns, tuple(rows), frozenset(marked), empty="There are no topics.")


def topic_health(topic: TopicDescription) -> str:
    """Return `in sync`, or how many partitions are not."""
    troubled = len(only_troubled(topic).partitions)
    return f"{troubled} of {len(topic.partitions)} not in sync" if troubled else IN_SYNC


def overrides(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return the properties that the topic overrides."""
    return {entry.name: entry.value or "" for entry in entries if entry.source == TOPIC_CONFIG}


def topic_detail(
    topic: TopicDescription,
    config: Mapping[str, str],
    measured: Mapping[TopicPartition, PartitionExtent] | None = None,
) -> Table:
    """Return a table with a row for each partition. The title has the other properties.

    Without `measured`, the table has no offsets and sizes.
    """
    rows = tuple(_detail_row(topic.name, part, measured) for part in topic.partitions)
    title = [f"Topic {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        title.append(f"id {_topic_id(topic)}")
    title.append(f"{len(topic.partitions)} partition{'' if len(topic.partitions) == 1 else 's'}")
    if measured is not None:
        title.append(size_text(_leader_bytes(topic, measured)))
    title += [f"{key}={value}" for key, value in sorted(config.items())]
    columns: Sequence[Column] = (
        Column("PARTITION", True),
        Column("LEADER", True),
        Column("EPOCH", True),
        Column("REPLICAS"),
        Column("IN SYNC"),
        *(() if measured is None else (Column("START", True), Column("END", True), Column("SIZE", True))),
        Column("STATE"),
    )
    marked = frozenset(index for index, part in enumerate(topic.partitions) if partition_state(part) != IN_SYNC)
    return Table(", ".join(title), tuple(columns), rows, marked, empty="The topic has no partitions.")


def _detail_row(
    topic: str, part: PartitionDescription, measured: Mapping[TopicPartition, PartitionExtent] | None
) -> tuple[str, ...]:
    cells = [
        str(part.partition),
        "none" if part.leader == NO_BROKER else str(part.leader),
        str(part.leader_epoch),
        _numbers(part.replicas),
        _numbers(part.isr),
    ]
    if measured is not None:
        extent = measured[TopicPartition(topic, part.partition)]
        cells += ["unknown" if each is None else str(each) for each in (extent.start_offset, extent.end_offset)]
        cells.append(size_text(extent.sizes.get(part.leader)))
    return (*cells, partition_state(part))


def _leader_bytes(topic: TopicDescription, measured: Mapping[TopicPartition, PartitionExtent]) -> int | None:
    """Return the size of all partitions without further replicas; None if that of a partition is unknown."""
    sizes = [measured[TopicPartition(topic.name, part.partition)].sizes.get(part.leader) for part in topic.partitions]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def only_troubled(topic: TopicDescription) -> TopicDescription:
    """Return the topic with only the partitions that are not in sync."""
    troubled = tuple(part for part in topic.partitions if partition_state(part) != IN_SYNC)
    return replace(topic, partitions=troubled)


def _topic_id(topic: TopicDescription) -> str | None:
    """Return the topic id as Kafka's tools show it; None if the brokers are too old to have one."""
    if topic.topic_id == ZERO_UUID:
        return None
    return base64.urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode("ascii")


def topic_value(
    topic: TopicDescription,
    config: Mapping[str, str] | None = None,
    measured: Mapping[TopicPartition, PartitionExtent] | None = None,
) -> dict[str, object]:
    """Return a topic for JSON, with its overrides if `config` is given, and with offsets and sizes if `measured` is."""
    value: dict[str, object] = {
        "name": topic.name,
        "id": _topic_id(topic),
        "internal": topic.internal,
        "partitions": [_partition_value(topic.name, part, measured) for part in topic.partitions],
    }
    if measured is not None:
        value["size_bytes"] = _leader_bytes(topic, measured)
    return value if config is None else {**value, "config": dict(config)}


def _partition_value(
    topic: str, part: PartitionDescription, measured: Mapping[TopicPartition, PartitionExtent] | None
) -> dict[str, object]:
    value: dict[str, object] = {
        "partition": part.partition,
        "leader": part.leader,
        "leader_epoch": part.leader_epoch,
        "replicas": list(part.replicas),
        "isr": list(part.isr),
        "offline_replicas": list(part.offline_replicas),
    }
    if measured is not None:
        extent = measured[TopicPartition(topic, part.partition)]
        value["start_offset"] = extent.start_offset
        value["end_offset"] = extent.end_offset
        value["size_bytes"] = extent.sizes.get(part.leader)
        value["replica_sizes"] = {str(broker): size for broker, size in sorted(extent.sizes.items())}
    return value
