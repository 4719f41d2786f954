"""The arguments and results of the assignors, and what each of them reads from subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import Subscription

NO_GENERATION = -1

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""


Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks of the replicas of each partition, without those that have none."""


class Member(NamedTuple):
    """A member, as the leader of the group knows it."""

    member_id: str
    topics: Sequence[str]
    group_instance_id: str | None = None
    owned: Sequence[TopicPartition] = ()
    """The partitions that it had, for sticky assignors."""
    generation_id: int = NO_GENERATION
    """The generation in which it had them; -1 if unknown."""
    rack_id: str | None = None


def in_order(member: Member) -> tuple[bool, str]:
    """Sort key: static members first, by instance id, so that they keep their place after a restart (KIP-345)."""
    instance = member.group_instance_id
    return (instance is None, member.member_id if instance is None else instance)


class Previous(NamedTuple):
    """The last assignment of a member. None and -1 before the first."""

    partitions: tuple[TopicPartition, ...] | None = None
    generation_id: int = NO_GENERATION


class Assignor(NamedTuple):
    """An assignor, which a group chooses by its name."""

    assign: Callable[[Sequence[Member], Mapping[str, int], Racks], Assignment]
    """Called in the leader with the members, the number of partitions of each topic, and the racks of the replicas."""
    cooperative: bool = False
    """Whether it supports the cooperative protocol: a partition that moves is first revoked, and assigned in the next
    rebalance (KIP-429). Every assignor supports the eager one."""
    user_data: Callable[[Previous], bytes | None] = lambda _previous: None
    """Returns the user data of a member's subscription."""
    previous: Callable[[Subscription], Previous] = lambda _subscription: Previous()
    """Returns what a member had according to its subscription."""
