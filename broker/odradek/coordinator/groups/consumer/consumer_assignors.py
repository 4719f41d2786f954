"""The assignors of the coordinator (KIP-848): `uniform` and `range`, as in Apache Kafka 4.1.

`uniform` gives all members about the same number of partitions and moves few of them. It prefers balance. `range` gives
each member of a topic a range of its partitions. Members with the same topics get the same ranges of topics with the
same number of partitions, so that these topics can be joined. It does not look at the last assignment.
Static members precede the others in the order of instance ids, so that they keep their ranges when they restart.
Both depend only on their arguments. Racks have no influence, as in Kafka since 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import NO_PARTITIONS, PartitionSet, TopicShape
from odradek.coordinator.groups.consumer.mixed_subscriptions import MixedAssignment


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as the assignors see it."""

    topics: frozenset[UUID]
    """The topics to which it subscribes."""
    instance_id: str | None = None
    rack_id: str | None = None
    current: PartitionSet = field(default_factory=lambda: NO_PARTITIONS)
    """Its part of the last target assignment. A static member that replaces another has the part of the other."""


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, TopicShape]], Mapping[str, PartitionSet]]
"""Computes a target assignment from the members by id and the topics by id.

Each partition is assigned to exactly one of the members that subscribe to its topic. The result has every member, also
those without partitions. Subscribed topics and current partitions that do not exist are ignored.
"""


def assign_ranges(members: Mapping[str, Subscriber], topics: Mapping[UUID, TopicShape]) -> Mapping[str, PartitionSet]:
    """Assign each topic in ranges. The first members get one partition more if the number cannot be divided."""
    ordered = _ordered(members)
    assigned: list[dict[UUID, frozenset[int]]] = [{} for _ in ordered]
    for topic_id, subscribers in _subscribers([members[each].topics for each in ordered], topics).items():
        size, extra = divmod(topics[topic_id].partition_count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + size + (place < extra)
            if start == end:
                break
            assigned[member][topic_id] = frozenset(range(start, end))
            start = end
    return dict(zip(ordered, assigned, strict=True))


def assign_uniformly(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, TopicShape]
) -> Mapping[str, PartitionSet]:
    """Assign about the same number of partitions to all members, and leave partitions where they are if possible."""
    ordered = _ordered(members)
    subscriptions = [members[member_id].topics for member_id in ordered]
    if len(set(subscriptions)) <= 1:
        return _assign_equally(ordered, members, topics)
    subscribers = _subscribers(subscriptions, topics)
    counts = {topic_id: topics[topic_id].partition_count for topic_id in subscribers}
    wanted = [
        {topic_id: numbers for topic_id, numbers in members[member_id].current.items() if topic_id in subscription}
        for member_id, subscription in zip(ordered, subscriptions, strict=True)
    ]
    return dict(zip(ordered, MixedAssignment(subscribers, counts, wanted).result(), strict=True))


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""The assignors by name, as in `group.consumer.assignors`."""


def _ordered(members: Mapping[str, Subscriber]) -> list[str]:
    """Return the ids of static members in the order of their instance ids, then those of the others."""

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=order)


def _subscribers(subscriptions: Sequence[frozenset[UUID]], topics: Mapping[UUID, TopicShape]) -> dict[UUID, list[int]]:
    """Return the positions of the members of each topic that exists and has members."""
    if len(set(subscriptions)) == 1:
        return {topic_id: list(range(len(subscriptions))) for topic_id in subscriptions[0] if topic_id in topics}
    subscribers: dict[UUID, list[int]] = {topic_id: [] for topic_id in topics}
    for member, subscription in enumerate(subscriptions):
        for topic_id in subscription:
            # Most of the time is for hashing topic ids, so there is only one look-up.
            members = subscribers.get(topic_id)
            if members is not None:
                members.append(member)
    return {topic_id: members for topic_id, members in subscribers.items() if members}


def _assign_equally(
    ordered: list[str], members: Mapping[str, Subscriber], topics: Mapping[UUID, TopicShape]
) -> Mapping[str, PartitionSet]:
    """Assign partitions to members with the same topics: their numbers of partitions differ by at most one.

    The members that have most partitions are those that get one more, so no partition moves without need.
    """
    if not ordered:
        return {}
    topic_ids = sorted(topic_id for topic_id in members[ordered[0]].topics if topic_id in topics)
    free = {topic_id: set(range(topics[topic_id].partition_count)) for topic_id in topic_ids}
    size, extra = divmod(sum(map(len, free.values())), len(ordered))
    kept: dict[str, dict[UUID, set[int]]] = {}
    for member_id in ordered:
        kept[member_id] = {}
        for topic_id, numbers in members[member_id].current.items():
            if still := free.get(topic_id, set()) & numbers:
                free[topic_id] -= still
                kept[member_id][topic_id] = still
    room: dict[str, int] = {}
    by_size = sorted(ordered, key=lambda member_id: -sum(map(len, kept[member_id].values())))
    for position, member_id in enumerate(by_size):
        room[member_id] = _fitted(kept[member_id], size + (position < extra), free)
    rest = ((topic_id, number) for topic_id in topic_ids for number in sorted(free[topic_id]))
    for member_id in ordered:
        for topic_id, number in islice(rest, room[member_id]):
            kept[member_id].setdefault(topic_id, set()).add(number)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in kept[member_id].items()}
        for member_id in members
    }


def _fitted(kept: dict[UUID, set[int]], quota: int, free: Mapping[UUID, set[int]]) -> int:
    """Move the last partitions over the quota from `kept` to `free`. Return the number that the member has room for."""
    excess = sum(map(len, kept.values())) - quota
    for topic_id in sorted(kept, reverse=True) if excess > 0 else ():
        given_up = sorted(kept[topic_id])[-excess:]
        free[topic_id].update(given_up)
        kept[topic_id].difference_update(given_up)
        if not kept[topic_id]:
            del kept[topic_id]
        excess -= len(given_up)
        if not excess:
            break
    return -excess
