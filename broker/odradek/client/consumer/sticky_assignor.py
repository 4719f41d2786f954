"""The assignors sticky and cooperative-sticky: balanced, and with few changes of owners (KIP-54, KIP-429).

`assignors` registers them. Invariants: the numbers of partitions of two members differ by at most one, or the member
with fewer has subscribed to none of the other's topics; each partition of a subscribed topic has one owner; the result
does not depend on the order of the members. A cooperative result lacks the partitions that another member must give up
first.

If several members claim a partition, the one with the newest generation had it. If they claim it in the same
generation, none of them keeps it, as in the Java client. If all members have the same topics, each keeps partitions up
to its share, and the rest is distributed like in the Java client, so that a new group gets the same result from either.
Otherwise each member keeps what it had, the rest goes to the members with the fewest partitions, and then partitions
move until the result is balanced.

The formats of the user data are those of the Java client: of sticky, the partitions and the generation; of
cooperative-sticky, only the generation, because the subscription itself has the partitions.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import NO_GENERATION, Assignment, Member, Previous, Racks
from odradek.client.consumer.group_protocol import Subscription

_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")

_FORESEEN_REBALANCES: Final = 8
"""Limits the calculation of a cooperative assignment. One or two are almost always enough."""

_Owners = dict[TopicPartition, str]


def assign_sticky(
    members: Sequence[Member], partition_counts: Mapping[str, int], _racks: Racks | None = None
) -> Assignment:
    """Assign all partitions, those that members had to the same members if that is balanced."""
    members = sorted(members, key=lambda member: member.member_id)
    wanted = sorted({topic for member in members for topic in member.topics})
    partitions = [TopicPartition(topic, number) for topic in wanted for number in range(partition_counts.get(topic, 0))]
    owners = _owners(members, set(partitions))
    if len({frozenset(member.topics) for member in members}) == 1:
        return _assign_equal_shares([member.member_id for member in members], partitions, owners)
    return _Balancer(members, partitions, owners).assignment()


def assign_cooperative_sticky(
    members: Sequence[Member], partition_counts: Mapping[str, int], _racks: Racks | None = None
) -> Assignment:
    """Assign like `assign_sticky`, but leave out partitions that move until their owners have revoked them."""
    complete = assign_sticky(members, partition_counts)
    for _ in range(_FORESEEN_REBALANCES):
        assignment = _without_moves(complete, members)
        # With different topics, the next rebalance could give the revoked partitions to other members, and then have to
        # move more. Assign now what it will arrive at.
        kept = [member._replace(owned=assignment[member.member_id], generation_id=0) for member in members]
        following = assign_sticky(kept, partition_counts)
        if all(set(following[member_id]) == set(complete[member_id]) for member_id in complete):
            break
        complete = following
    return assignment


def _without_moves(complete: Assignment, members: Sequence[Member]) -> Assignment:
    """Leave out the partitions that other members must revoke first."""
    revoked = {each for member in members for each in set(member.owned).difference(complete[member.member_id])}
    assignment: Assignment = {}
    for member in members:
        moving = revoked.difference(member.owned)
        assignment[member.member_id] = [each for each in complete[member.member_id] if each not in moving]
    return assignment


def _owners(members: Sequence[Member], existing: set[TopicPartition]) -> _Owners:
    """Return which member had each partition and can keep it."""
    claims: dict[TopicPartition, list[Member]] = {}
    for member in members:
        topics = set(member.topics)
        for partition in set(member.owned):
            if partition in existing and partition.topic in topics:
                claims.setdefault(partition, []).append(member)
    owners = {}
    for partition, claimants in claims.items():
        newest = max(member.generation_id for member in claimants)
        holders = [member.member_id for member in claimants if member.generation_id == newest]
        if len(holders) == 1:
            owners[partition] = holders[0]
    return owners


def _partitions_of(owners: _Owners, member_ids: Iterable[str]) -> Assignment:
    found: Assignment = {member_id: [] for member_id in member_ids}
    # The order in which the Java client keeps partitions if a member has too many.
    for partition in sorted(owners, key=lambda each: (each.partition, each.topic)):
        found[owners[partition]].append(partition)
    return found


def _assign_equal_shares(member_ids: list[str], partitions: list[TopicPartition], owners: _Owners) -> Assignment:
    """Assign partitions to members that all have the same topics."""
    share, larger_shares = divmod(len(partitions), len(member_ids))
    assignment = _partitions_of(owners, member_ids)
    below: deque[str] = deque()
    complete: deque[str] = deque()
    for member_id in member_ids:
        mine = assignment[member_id]
        if len(mine) > share and larger_shares:
            larger_shares -= 1
            del mine[share + 1 :]
        else:
            del mine[share:]
            (below if len(mine) < share else complete).append(member_id)
    kept = {partition for mine in assignment.values() for partition in mine}
    for partition in partitions:
        if partition in kept:
            continue
        # Members below their share take turns. Then the first members get one more.
        member_id = (below or complete).popleft()
        assignment[member_id].append(partition)
        size = len(assignment[member_id])
        if size < share:
            below.append(member_id)
        elif size == share:
            complete.append(member_id)
    return assignment


class _Balancer:
    """Assigns partitions to members with different topics."""

    def __init__(self, members: Sequence[Member], partitions: Sequence[TopicPartition], owners: _Owners) -> None:
        self._owners: Final = owners
        self._topics: Final = {member.member_id: sorted(set(member.topics)) for member in members}
        self._held: Final[dict[str, dict[str, set[TopicPartition]]]] = {
            member.member_id: {topic: set() for topic in member.topics} for member in members
        }
        """Partitions by member and topic."""
        self._sizes: Final = dict.fromkeys(self._topics, 0)
        self._subscribers: Final[dict[str, list[str]]] = {}
        for member_id, topics in self._topics.items():
            for topic in topics:
                self._subscribers.setdefault(topic, []).append(member_id)
        for partition, member_id in owners.items():
            self._give(member_id, partition)
        # Partitions with the fewest possible owners first, because the others can still even out the numbers.
        free = [partition for partition in partitions if partition not in owners]
        for partition in sorted(free, key=lambda each: (len(self._subscribers[each.topic]), each)):
            self._give(min(self._subscribers[partition.topic], key=self._by_size), partition)

    def assignment(self) -> Assignment:
        """Move partitions until the numbers are balanced, and return the result."""
        # Each move brings two sizes closer to each other, so this ends.
        while any(self._fill(member_id) for member_id in sorted(self._topics, key=self._by_size)):
            pass
        return {
            member_id: sorted(partition for partitions in held.values() for partition in partitions)
            for member_id, held in self._held.items()
        }

    def _by_size(self, member_id: str) -> tuple[int, str]:
        return self._sizes[member_id], member_id

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        self._held[member_id][partition.topic].add(partition)
        self._sizes[member_id] += 1

    def _fill(self, taker: str) -> bool:
        """Move partitions to a member from members with at least two more. Return whether any was moved."""
        has_moved = False
        while True:
            givers = {
                giver
                for topic in self._topics[taker]
                for giver in self._subscribers[topic]
                if self._held[giver][topic] and self._sizes[giver] > self._sizes[taker] + 1
            }
            if not givers:
                return has_moved
            giver = max(givers, key=self._by_size)
            candidates = [each for topic in self._topics[taker] for each in self._held[giver].get(topic, ())]
            partition = min(candidates, key=lambda each: (self._cost(each, giver, taker), each))
            self._held[giver][partition.topic].discard(partition)
            self._sizes[giver] -= 1
            self._give(taker, partition)
            has_moved = True

    def _cost(self, partition: TopicPartition, giver: str, taker: str) -> int:
        """Prefer a partition that returns to its owner, then one that has moved or is new, to one that stays now."""
        owner = self._owners.get(partition)
        return 0 if owner == taker else 2 if owner == giver else 1


# The user data


def sticky_user_data(previous: Previous) -> bytes | None:
    """Return the user data of sticky: the last assignment and its generation. None before the first assignment."""
    if previous.partitions is None:
        return None
    topics = [
        (topic.encode(), [number for _, number in partitions])
        for topic, partitions in groupby(sorted(previous.partitions), key=lambda each: each.topic)
    ]
    parts = [_INT32.pack(len(topics))]
    for name, numbers in topics:
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join([*parts, _INT32.pack(previous.generation_id)])


def sticky_previous(subscription: Subscription) -> Previous:
    """Return what the user data of sticky says. Data that cannot be read are ignored, as in the Java client."""
    data = subscription.user_data
    if not data:
        return Previous((), NO_GENERATION)
    try:
        return _read_previous(data)
    except (struct.error, ValueError):
        return Previous((), NO_GENERATION)


def _read_previous(data: bytes) -> Previous:
    found: list[TopicPartition] = []
    (topics,) = _INT32.unpack_from(data)
    position = _INT32.size
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, position)
        if length < 0:
            raise ValueError(f"a topic has the length {length}")
        position += _INT16.size
        topic = data[position : position + length].decode()
        position += length
        (count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        for _ in range(count):
            (number,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            found.append(TopicPartition(topic, number))
    # Version 0 of the format has no generation.
    has_generation = len(data) >= position + _INT32.size
    return Previous(tuple(found), _INT32.unpack_from(data, position)[0] if has_generation else NO_GENERATION)


def cooperative_user_data(previous: Previous) -> bytes:
    """Return the user data of cooperative-sticky: the generation of the previous assignment."""
    return _INT32.pack(previous.generation_id)


def cooperative_previous(subscription: Subscription) -> Previous:
    """Return the owned partitions of the subscription. In version 1, only the user data has the generation."""
    generation_id = subscription.generation_id
    data = subscription.user_data
    if generation_id == NO_GENERATION and data is not None and len(data) >= _INT32.size:
        (generation_id,) = _INT32.unpack_from(data)
    return Previous(subscription.owned, generation_id)
