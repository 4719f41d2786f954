"""The partitions of a cluster as the lifecycle decisions need them: replicas, ISR, and the effect of a missing broker.

Pure. `partitions_of` takes a `Snapshot` that contains all topics completely.
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
"""Maximum number of partitions that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition of a topic that is not being deleted."""

    name: TopicPartition
    assignment: ReplicaAssignment
    state: PartitionState | None
    """Its state; None if it never had a leader, and therefore has no records."""

    @property
    def target(self) -> tuple[int, ...]:
        """Its replicas after the current reassignment."""
        return self.assignment.target

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The members of the ISR."""
        return () if self.state is None else self.state.isr

    def is_led(self, live: Collection[int]) -> bool:
        """Whether its leader is alive, without which no replica can be added."""
        return self.state is not None and self.state.leader in live


def partitions_of(snapshot: Snapshot) -> list[Partition]:
    """Return all partitions by topic and number, without topics that are being deleted.

    Raises `ValueError` if only the name of a topic is known: its replicas would be ignored.
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
    """Whether a reassignment is in progress or requested, by anyone."""
    asked = snapshot.reassignment_requested or bool(snapshot.reassigning)
    return asked or any(topic.reassigning for topic in snapshot.topics.values())


def unreadable(snapshot: Snapshot) -> str:
    """Describe a topic whose znodes are invalid; empty if there is none.

    Its replicas and ISRs are unknown, so nothing may be done that could cost a replica.
    """
    return next((snapshot.unreadable[topic] for topic in sorted(snapshot.unreadable)), "")


def holders(snapshot: Snapshot) -> frozenset[int]:
    """Return the brokers with replicas, including those of topics that are being deleted, whose logs still exist."""
    return frozenset(
        broker
        for topic in snapshot.topics.values()
        for part in topic.assignment.partitions.values()
        for broker in part.replicas
    )


def minimum_in_sync(cluster: Cluster, snapshot: Snapshot, topic: str) -> int:
    """Return the `min.insync.replicas` in force: of the topic, the dynamic defaults, the static properties, or 1.

    Values that brokers would refuse are ignored.
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
    """The effect on partitions if all brokers of one pod are down."""

    forbids: tuple[TopicPartition, ...]
    """Partitions that would lack in-sync replicas, which waiting can change."""
    costs: tuple[TopicPartition, ...]
    """Partitions that would lack in-sync replicas at any time, because they have too few replicas for their minimum, or
    because the cluster has too few pods for their replicas."""
    crowded: tuple[TopicPartition, ...] = ()
    """Those of `forbids` that have several replicas in the pod."""


def absences(
    groups: Iterable[frozenset[int]], cluster: Cluster, snapshot: Snapshot, *, ours: Collection[int] = ()
) -> Iterator[tuple[frozenset[int], Absence]]:
    """Yield the effect of stopping all brokers of each of these groups now. A group has the brokers of one pod.

    `ours`: the brokers of the cluster, which share pods; every other broker has a pod to itself.

    Without the group, a partition keeps the other live members of its ISR. It needs its minimum. A partition with too
    few replicas for that needs all those that are elsewhere if its replicas are spread over as many pods as possible:
    `needed = min(minimum, replicas - 1)` while it has at most one replica for each pod. If no broker of the group is in
    the ISR, the partition is not affected.
    """
    partitions = partitions_of(snapshot)
    minimums = {topic: minimum_in_sync(cluster, snapshot, topic) for topic in {one.name.topic for one in partitions}}
    pods = _Pods(cluster, frozenset(ours), frozenset(snapshot.brokers))
    for group in groups:
        forbids, costs, crowded = [], [], []
        for partition in partitions:
            if group.isdisjoint(partition.in_sync):
                continue
            minimum = minimums[partition.name.topic]
            others = sum(member not in group and member in snapshot.brokers for member in partition.in_sync)
            if others < min(minimum, len(partition.target) - pods.shared_by(partition.target)):
                forbids.append(partition.name)
                if len(group.intersection(partition.target)) > 1:
                    crowded.append(partition.name)
            elif others < minimum:
                costs.append(partition.name)
        yield group, Absence(forbids=tuple(forbids), costs=tuple(costs), crowded=tuple(crowded))


class _Pods:
    """The pods over which replicas can be spread."""

    __slots__ = ("_cluster", "_known", "_ours", "_pods")

    def __init__(self, cluster: Cluster, ours: frozenset[int], live: frozenset[int]) -> None:
        self._cluster = cluster
        self._ours = ours
        self._known = ours | live
        self._pods = {self._pod(broker) for broker in self._known}

    def _pod(self, broker: int) -> int:
        """Return a number for the pod of a broker. A broker of others has a pod to itself."""
        return self._cluster.brokers.pod_of(broker) if broker in self._ours else -1 - broker

    def shared_by(self, replicas: Collection[int]) -> int:
        """Return how many of the replicas one pod has if they are spread as far as possible, at least 1."""
        pods = len(self._pods) + sum(broker not in self._known for broker in replicas)
        return max(1, -(-len(replicas) // max(1, pods)))


def refilling(snapshot: Snapshot) -> list[int]:
    """Return live brokers that are in sync with less than half of their replicas: just started, or with a new disk.

    Replicas that are being added do not count; otherwise every target of a reassignment would be included.
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
    """Return the first names, such as `orders-0, orders-1 and 12 more`."""
    shown = [f"{one.topic}-{one.partition}" for one in sorted(partitions)[:_NAMED]]
    rest = len(partitions) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def listed(brokers: Iterable[int]) -> str:
    """Return `broker 3`, or `brokers 3, 4 and 5`."""
    ids = [str(broker) for broker in sorted(brokers)]
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(ids[:-1])} and {ids[-1]}"
