"""How a group's leader deals partitions out to members: range and roundrobin, with the Java client's results.

In: for each member the topics that it wants, and the number of partitions of each topic. Out: for each member its
partitions. Called by `membership` in the member that leads. Invariant: each partition of a topic that somebody wants
has exactly one owner, and the result depends on nothing but the arguments.

Members are ordered by `group_instance_id` when they have one, and those come first, then by member id, as in KIP-345: a
static member keeps its place through restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.base.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member as its group's leader sees it."""

    member_id: str
    topics: Sequence[str]
    group_instance_id: str | None = None


def _order(member: Member) -> tuple[bool, str]:
    instance = member.group_instance_id
    return (instance is None, member.member_id if instance is None else instance)


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Each topic by itself: neighbouring partitions in equal shares, the first members take one more."""
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
    """All partitions in order of topic and number, one by one to the next member that wants the topic."""
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
"""Assignor of each protocol name."""
