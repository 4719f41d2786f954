"""The assignors that a group can choose. Roundrobin is here, with the results of the Java client.

`group_member` calls one in the member that leads the group, with the topics of each member and the number of partitions
of each topic. Invariants: each partition of a subscribed topic has exactly one owner, except for those that a
cooperative assignor leaves out until they are revoked; the result depends only on the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import Assignment, Assignor, Member, Racks, in_order
from odradek.client.consumer.range_assignor import assign_range
from odradek.client.consumer.sticky_assignor import (
    assign_cooperative_sticky,
    assign_sticky,
    cooperative_previous,
    cooperative_user_data,
    sticky_previous,
    sticky_user_data,
)


def assign_roundrobin(
    members: Sequence[Member], partition_counts: Mapping[str, int], _racks: Racks | None = None
) -> Assignment:
    """Assign all partitions, ordered by topic and number, one by one to the next subscribed member."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=in_order)
    position = 0
    for topic in sorted({topic for member in members for topic in member.topics}):
        for number in range(partition_counts.get(topic, 0)):
            while topic not in ordered[position % len(ordered)].topics:
                position += 1
            assignment[ordered[position % len(ordered)].member_id].append(TopicPartition(topic, number))
            position += 1
    return assignment


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": Assignor(assign_range),
    "roundrobin": Assignor(assign_roundrobin),
    "sticky": Assignor(assign_sticky, user_data=sticky_user_data, previous=sticky_previous),
    "cooperative-sticky": Assignor(
        assign_cooperative_sticky,
        cooperative=True,
        user_data=cooperative_user_data,
        previous=cooperative_previous,
    ),
}
"""Assignors by protocol name."""


def is_cooperative(names: Iterable[str]) -> bool:
    """Whether members with these assignors use the cooperative protocol: only if each of the assignors supports it.

    To change a group from an eager assignor to `cooperative-sticky`, restart each member with both assignors, which
    keeps the protocol eager, and then once more with the new one only (KIP-429).
    """
    return all(ASSIGNORS[name].cooperative for name in names)
