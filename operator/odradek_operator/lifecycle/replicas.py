"""Every partition of a cluster as decisions over time look at it: who holds it, who is in sync, who may leave. Pure.

Enters: a `Snapshot` whose topics were all read in depth. Leaves: `Partition`s in a fixed order, and what a broker's
absence would do to them. Called by all deciders of this room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.base.config import BROKER_SETTINGS
from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.zk.layout import DEFAULT_ENTITY, PartitionState, ReplicaAssignment
from odradek_operator.crds import Cluster
from odradek_operator.topics.zookeeper_state import Snapshot

MIN_INSYNC: Final = "min.insync.replicas"
_NAMED: Final = 3
"""Partitions that a sentence names; of the others it says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition of a topic that is not being deleted."""

    name: TopicPartition
    assignment: ReplicaAssignment
    state: PartitionState | None
    """None where it has never had a leader, and so no record."""

    @property
    def target(self) -> tuple[int, ...]:
        """Its replicas once what moves has moved."""
        return self.assignment.target

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The brokers that have every record."""
        return () if self.state is None else self.state.isr

    def is_led(self, live: Collection[int]) -> bool:
        """Whether its leader is there, without which no replica could be added."""
        return self.state is not None and self.state.leader in live


def partitions_of(snapshot: Snapshot) -> list[Partition]:
    """All partitions by topic and number, without topics that are being deleted.

    Raises `ValueError` where a topic is only known by name: who decided from that would take records for nothing.
    """
    found = []
    for topic, observed in sorted(snapshot.topics.items()):
        if observed.version < 0:
            raise ValueError(f"topic {topic} was not read in depth, so nothing can be decided")
        if topic in snapshot.deleting:
            continue
        for number, assignment in sorted(observed.assignment.partitions.items()):
            found.append(
                Partition(name=TopicPartition(topic, number), assignment=assignment, state=observed.states.get(number))
            )
    return found


def is_moving(snapshot: Snapshot) -> bool:
    """Whether a reassignment is under way or asked for, by whomever."""
    asked = snapshot.reassignment_requested or bool(snapshot.reassigning)
    return asked or any(topic.reassigning for topic in snapshot.topics.values())


def unreadable(snapshot: Snapshot) -> str:
    """A sentence about a topic whose znodes cannot be understood; empty where there is none.

    Who holds its records, and who is in sync, is not known: nothing that could cost a replica may be done.
    """
    return next((snapshot.unreadable[topic] for topic in sorted(snapshot.unreadable)), "")


def holds_nothing(snapshot: Snapshot, broker: int) -> bool:
    """Whether no replica is on the broker, topics that are being deleted included: their logs are still there."""
    return not any(
        broker in part.replicas for topic in snapshot.topics.values() for part in topic.assignment.partitions.values()
    )


def minimum_in_sync(cluster: Cluster, snapshot: Snapshot, topic: str) -> int:
    """`min.insync.replicas` in force: of the topic, of the dynamic defaults, of the static properties, or 1.

    A value that brokers would refuse counts as not given.
    """
    defaults = snapshot.broker_configs.get(DEFAULT_ENTITY)
    levels: Iterable[Mapping[str, str]] = (
        snapshot.configs[topic].values if topic in snapshot.configs else {},
        {} if defaults is None else defaults.values,
        cluster.brokers.config,
    )
    for level in levels:
        if MIN_INSYNC in level:
            try:
                value = BROKER_SETTINGS[MIN_INSYNC].parse(level[MIN_INSYNC])
            except ConfigError:
                continue
            assert isinstance(value, int), "the setting is a whole number"
            return value
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """What becomes of partitions while one broker is away."""

    forbids: tuple[TopicPartition, ...]
    """They would lack in-sync replicas, and waiting can help."""
    costs: tuple[TopicPartition, ...]
    """They would lack in-sync replicas whenever the broker goes: they have too few replicas for their minimum."""


def absences(brokers: Iterable[int], cluster: Cluster, snapshot: Snapshot) -> Iterator[tuple[int, Absence]]:
    """What taking each of these brokers away now would do, in their order.

    A partition keeps `others` in sync, the live members of its in-sync set without the broker. It needs its minimum;
    one with so few replicas that it never could have the minimum without the broker needs all the others instead:
    `needed = min(minimum, replicas - 1)`. A partition in whose in-sync set the broker is not loses nothing by it.
    """
    partitions = partitions_of(snapshot)
    minimums = {topic: minimum_in_sync(cluster, snapshot, topic) for topic in {one.name.topic for one in partitions}}
    for broker in brokers:
        forbids, costs = [], []
        for partition in partitions:
            if broker not in partition.in_sync:
                continue
            minimum = minimums[partition.name.topic]
            others = sum(member != broker and member in snapshot.brokers for member in partition.in_sync)
            if others < min(minimum, len(partition.target) - 1):
                forbids.append(partition.name)
            elif others < minimum:
                costs.append(partition.name)
        yield broker, Absence(forbids=tuple(forbids), costs=tuple(costs))


def refilling(snapshot: Snapshot) -> list[int]:
    """Live brokers that are in sync with less than half of their replicas, by id: just back, or with a new disk.

    Replicas that are only being added do not count, or every broker that others move to would be one.
    """
    held: dict[int, int] = dict.fromkeys(snapshot.brokers, 0)
    in_sync: dict[int, int] = dict.fromkeys(snapshot.brokers, 0)
    for partition in partitions_of(snapshot):
        if partition.state is None:
            continue
        for broker in partition.assignment.origin:
            if broker in held:
                held[broker] += 1
                in_sync[broker] += broker in partition.in_sync
    return sorted(broker for broker, count in held.items() if in_sync[broker] * 2 < count)


def named(partitions: Collection[TopicPartition]) -> str:
    """The first few, as `orders-0, orders-1 and 12 more`."""
    shown = [f"{one.topic}-{one.partition}" for one in sorted(partitions)[:_NAMED]]
    rest = len(partitions) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def listed(brokers: Iterable[int]) -> str:
    """`broker 3`, or `brokers 3, 4 and 5`."""
    ids = [str(broker) for broker in sorted(brokers)]
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(ids[:-1])} and {ids[-1]}"
