"""The uniform assignment of a group whose members subscribe to different topics.

Members keep their partitions. Each other partition goes to the member of its topic with the fewest partitions, first
those of topics with many partitions and few members. Then, topic by topic, partitions move from the members with most
to those with fewest, until no move within a topic makes the group more even. With overlapping subscriptions, this is
not always the best balance, as it may take moves in two topics to improve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import PartitionSet

MOST_ROUNDS: Final = 16
"""Maximum number of times that all topics are balanced, as in Kafka. Most subscriptions need two: the second one finds
nothing to move. An overlap of many topics can need more, and each makes the group more even."""

_NOBODY: Final = -1


class MixedAssignment:
    """Computes one assignment. Members are represented by their position, from 0 on."""

    def __init__(
        self,
        subscribers: Mapping[UUID, Sequence[int]],
        partition_counts: Mapping[UUID, int],
        current: Sequence[PartitionSet],
    ) -> None:
        """`subscribers` has the members of each topic. `current` has the partitions that each member has and may keep.
        Those that do not exist are ignored."""
        self._subscribers = subscribers
        self._number_of_members = len(current)
        self._ranks = list(range(len(current)))
        """For each member, its number of partitions times the number of members, plus its position. So members are in
        the order of their numbers of partitions, and two are never equal."""
        self._owners = {topic_id: [_NOBODY] * count for topic_id, count in partition_counts.items()}
        for member, partitions in enumerate(current):
            self._keep(member, partitions)

    def result(self) -> list[PartitionSet]:
        """Return the partitions of each member."""
        topic_ids = sorted(self._subscribers, key=self._topic_order)
        for topic_id in topic_ids:
            self._assign_rest(topic_id)
        self._balance([topic_id for topic_id in topic_ids if len(self._subscribers[topic_id]) > 1])
        assigned: list[dict[UUID, frozenset[int]]] = [{} for _ in self._ranks]
        for topic_id, owners in self._owners.items():
            for member, numbers in _by_owner(owners).items():
                assigned[member][topic_id] = frozenset(numbers)
        return list(assigned)

    def _topic_order(self, topic_id: UUID) -> tuple[float, int, UUID]:
        count, members = len(self._owners[topic_id]), len(self._subscribers[topic_id])
        return -count / members, members, topic_id

    def _keep(self, member: int, partitions: PartitionSet) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, [])
            for number in numbers:
                if number < len(owners) and owners[number] == _NOBODY:
                    owners[number] = member
                    self._ranks[member] += self._number_of_members

    def _assign_rest(self, topic_id: UUID) -> None:
        owners = self._owners[topic_id]
        if _NOBODY not in owners:
            return
        least = [self._ranks[member] for member in self._subscribers[topic_id]]
        heapify(least)
        for number, owner in enumerate(owners):
            if owner == _NOBODY:
                member = least[0] % self._number_of_members
                owners[number] = member
                self._ranks[member] += self._number_of_members
                heapreplace(least, self._ranks[member])

    def _balance(self, topic_ids: Sequence[UUID]) -> None:
        for _ in range(MOST_ROUNDS):
            moved = [self._balance_topic(topic_id) for topic_id in topic_ids]
            if not any(moved):
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move partitions of a topic until no move between two of its members improves the balance.

        Ranks in the heap of receivers are too high for members that have given up a partition. That does not matter:
        such a member had the most partitions then, so the others that could give it one have at most one more.
        """
        ranks, count = self._ranks, self._number_of_members
        receivers = [ranks[member] for member in self._subscribers[topic_id]]
        if max(receivers) // count - min(receivers) // count <= 1:
            return False
        owners = self._owners[topic_id]
        numbers = _by_owner(owners)
        givers = [-ranks[member] for member in numbers]
        heapify(givers)
        heapify(receivers)
        has_moved = False
        while givers and -givers[0] // count - receivers[0] // count > 1:
            giver, receiver = -givers[0] % count, receivers[0] % count
            owners[numbers[giver].pop()] = receiver
            ranks[giver] -= count
            ranks[receiver] += count
            heapreplace(receivers, ranks[receiver])
            if numbers[giver]:
                heapreplace(givers, -ranks[giver])
            else:
                heappop(givers)
            has_moved = True
        return has_moved


def _by_owner(owners: Sequence[int]) -> dict[int, list[int]]:
    """Return the partitions of each owner in ascending order."""
    numbers: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        numbers.setdefault(owner, []).append(number)
    return numbers
