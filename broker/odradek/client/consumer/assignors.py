"""The assignors of a group's leader, range and roundrobin, with the results of the Java client.

`group_member` calls one in the member that leads the group, with the topics of each member and the number of partitions
of each topic. Invariant: each partition of a subscribed topic has exactly one owner, and the result depends only on the
arguments.

Members with a `group_instance_id` come first, ordered by it, then the others by member id, as in KIP-345: a static
member keeps its position after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.base.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member, as the leader of the group knows it."""

    member_id: str
    topics: Sequence[str]
    group_instance_id: str | None = None


def _order(member: Member) -> tuple[bool, str]:
    instance = member.group_instance_id
    return (instance is None, member.member_id if instance is None else instance)


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign each topic separately: consecutive partitions in equal shares; the first members get one more."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=_order)
    for topic in sorted({topic for member in members for topic in member.topics}):
        wanting = [member for member in ordered if topic in member.topics]
        share, remainder = divmod(partition_counts.get(topic, 0), len(wanting))
        start = 0
        for position, member in enumerate(wanting):
            end = start + share + (position < remainder)
            assignment[member.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignment


def assign_roundrobin(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign all partitions, ordered by topic and number, one by one to the next subscribed member."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=_order)
    position = 0
    for topic in sorted({topic for member in members for topic in member.topics}):
        for number in range(partition_counts.get(topic, 0)):
            while topic not in ordered[position % len(ordered)].topics:
                position += 1
            assignment[ordered[position % len(ordered)].member_id].append(TopicPartition(topic, number))
            position += 1
    return assignment


ASSIGNORS: Final[Mapping[str, Callable[[Sequence[Member], Mapping[str, int]], Assignment]]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
}
"""Assignors by protocol name."""
