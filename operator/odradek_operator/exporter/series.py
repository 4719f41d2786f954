"""The exporter's series about the cluster, and how each is derived from an `ExporterSnapshot`.

`service` renders the Prometheus text at most once per collection, because it has about a hundred thousand lines for
10,000 partitions. Names and labels are those that existing dashboards of consumer lag expect. All series are gauges. An
unknown value has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from odradek_operator.exporter.snapshot import ExporterSnapshot, GroupReading, PartitionReading, Position

Row = tuple[tuple[object, ...], float | None]
"""Values of the labels, and the value of the sample; None if it is unknown."""


class Series(NamedTuple):
    """The definition of one gauge: its name, labels, help text, and the function that returns its samples."""

    name: str
    labels: tuple[str, ...]
    help: str
    rows: Callable[[ExporterSnapshot], Iterable[Row]]


_PARTITION: Final = ("topic", "partition")
_POSITION: Final = ("consumergroup", "topic", "partition")
_SUM: Final = ("consumergroup", "topic")


def _of_partitions(value: Callable[[PartitionReading], float | None], snapshot: ExporterSnapshot) -> Iterator[Row]:
    for topic in snapshot.topics:
        for each in topic.partitions:
            yield (topic.name, each.number), value(each)


def _of_positions(
    value: Callable[[Position], float | None],
    groups: Callable[[ExporterSnapshot], Iterable[GroupReading]],
    snapshot: ExporterSnapshot,
) -> Iterator[Row]:
    for group in groups(snapshot):
        for each in group.positions:
            yield (group.name, each.topic, each.partition), value(each)


def _sums(value: Callable[[Position], float | None], snapshot: ExporterSnapshot) -> Iterator[Row]:
    for group in snapshot.groups:
        sums: dict[str, float] = {}
        for each in group.positions:
            found = value(each)
            if found is not None and found >= 0:
                sums[each.topic] = sums.get(each.topic, 0) + found
        for topic, total in sums.items():
            yield (group.name, topic), total


def _groups(snapshot: ExporterSnapshot) -> Iterable[GroupReading]:
    return snapshot.groups


def _partition_series(name: str, text: str, value: Callable[[PartitionReading], float | None]) -> Series:
    return Series(f"kafka_topic_partition_{name}", _PARTITION, text, partial(_of_partitions, value))


def _position_series(name: str, text: str, value: Callable[[Position], float | None]) -> Series:
    return Series(name, _POSITION, text, partial(_of_positions, value, _groups))


SERIES: Final = (
    Series(
        "kafka_brokers",
        (),
        "Number of live brokers.",
        lambda snapshot: [((), len(snapshot.brokers) or None)],
    ),
    Series(
        "kafka_broker_info",
        ("id", "address"),
        "1 for each live broker.",
        lambda snapshot: [((each.broker_id, each.address), 1) for each in snapshot.brokers],
    ),
    Series(
        "kafka_topic_partitions",
        ("topic",),
        "Number of partitions of the topic.",
        lambda snapshot: [((topic.name,), len(topic.partitions)) for topic in snapshot.topics],
    ),
    _partition_series("replicas", "Number of assigned replicas.", lambda each: len(each.replicas)),
    _partition_series("in_sync_replica", "Size of the ISR.", lambda each: each.in_sync),
    _partition_series(
        "under_replicated_partition", "1 if a replica is out of sync.", lambda each: int(each.is_under_replicated)
    ),
    _partition_series(
        "leader_is_preferred", "1 if the preferred leader leads.", lambda each: int(each.has_preferred_leader)
    ),
    _partition_series("leader", "Id of the leader, -1 while there is none.", lambda each: each.leader),
    _partition_series("current_offset", "Log end offset for consumers.", lambda each: each.end),
    _partition_series("oldest_offset", "Log start offset.", lambda each: each.start),
    _position_series(
        "kafka_consumergroup_current_offset",
        "Committed offset; -1 if the partition is assigned to a member and has no commit.",
        lambda each: each.committed,
    ),
    _position_series(
        "kafka_consumergroup_lag", "Log end offset minus committed offset; absent without a commit.", lambda e: e.lag
    ),
    _position_series(
        "odradek_consumergroup_lag_seconds",
        "Estimated age of the first record that the group has not committed.",
        lambda each: each.lag_seconds,
    ),
    Series(
        "kafka_consumergroup_current_offset_sum",
        _SUM,
        "Committed offsets, summed over partitions.",
        partial(_sums, lambda each: each.committed),
    ),
    Series("kafka_consumergroup_lag_sum", _SUM, "Lag, summed over partitions.", partial(_sums, lambda each: each.lag)),
    Series(
        "kafka_consumergroup_members",
        ("consumergroup",),
        "Number of members of the group.",
        lambda snapshot: [((group.name,), group.members) for group in snapshot.groups],
    ),
    Series(
        "kafka_consumergroupzookeeper_lag_zookeeper",
        _POSITION,
        "Lag of groups whose offsets are in ZooKeeper.",
        partial(_of_positions, lambda each: each.lag, lambda snapshot: snapshot.zookeeper_groups),
    ),
)
"""All series about the cluster. `service` registers those about the process."""

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def render(snapshot: ExporterSnapshot) -> bytes:
    """Return all series of a snapshot in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for series in SERIES:
        lines += (f"# HELP {series.name} {series.help}", f"# TYPE {series.name} gauge")
        lines += _lines(series, snapshot)
    lines.append("")
    return "\n".join(lines).encode()


def _lines(series: Series, snapshot: ExporterSnapshot) -> Iterator[str]:
    # Doubled braces become braces of the line; the others are placeholders.
    labelled = "{{" + ",".join(f'{label}="{{}}"' for label in series.labels) + "}}" if series.labels else ""
    form = f"{series.name}{labelled} {{}}"
    fill, escaped = form.format, _Escaped()
    for labels, value in series.rows(snapshot):
        if value is not None:
            yield fill(*[escaped[label] for label in labels], value)


class _Escaped(dict[object, str]):
    """A cache of escaped label values."""

    def __missing__(self, value: object) -> str:
        text = self[value] = str(value).translate(_ESCAPES)
        return text
