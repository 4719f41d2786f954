"""The assignor range, with the results of the Java client, also for members and replicas in racks (KIP-881).

`assignors` registers it. Each topic is shared separately: members get consecutive partitions in equal shares, and the
first ones get one more. If members have racks and some replicas are not in all of them, each member first gets
partitions with a replica in its rack, up to its share. Topics with the same members and the same number of partitions
keep equal partition numbers together, so only numbers that match in all of these topics count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import Assignment, Member, Racks, in_order

_NO_RACKS: Final[Racks] = {}


def assign_range(
    members: Sequence[Member], partition_counts: Mapping[str, int], racks: Racks = _NO_RACKS
) -> Assignment:
    """Assign each topic separately. `racks` are those of the replicas of each partition."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=in_order)
    topics = [
        _Topic(name, partition_counts[name], [member for member in ordered if name in member.topics], racks)
        for name in sorted({topic for member in members for topic in member.topics})
        if partition_counts.get(name, 0)
    ]
    if any(topic.has_different_racks for topic in topics):
        groups: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
        for topic in topics:
            groups.setdefault((tuple(topic.rack_of), topic.size), []).append(topic)
        for group in groups.values():
            _match_racks(group, assignment)
    for topic in topics:
        topic.assign_ranges(assignment, lambda _member, _partition: True)
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


def _match_racks(group: Sequence[_Topic], assignment: Assignment) -> None:
    """Assign what can be read within a rack, of topics with the same members and number of partitions."""
    first = group[0]
    if len(group) == 1:
        if first.has_different_racks:
            first.assign_ranges(assignment, first.matches)
        return
    for number in range(first.size):
        for member_id in first.rack_of:
            if all(topic.room_of(member_id) and topic.matches(member_id, number) for topic in group):
                for topic in group:
                    topic.give(member_id, [number], assignment)
                break


class _Topic:
    """A topic that is being assigned."""

    def __init__(self, name: str, size: int, members: Sequence[Member], racks: Racks) -> None:
        """`members` are those with a subscription, in order."""
        self.name: Final = name
        self.size: Final = size
        self.rack_of: Final = {member.member_id: member.rack_id or "" for member in members}
        wanted = {rack for rack in self.rack_of.values() if rack}
        self._racks: Final = [racks.get(TopicPartition(name, number), frozenset()) for number in range(size)]
        everywhere = frozenset().union(*self._racks)
        self.has_different_racks: Final = not wanted.isdisjoint(everywhere) and set(self._racks) != {everywhere}
        """Whether the choice of the member makes a difference."""
        self._free = list(range(size))
        self._share, self._extra = divmod(size, len(members))
        self._counts = dict.fromkeys(self.rack_of, 0)

    def matches(self, member_id: str, number: int) -> bool:
        """Whether a replica is in the member's rack. A member without one matches everything."""
        rack = self.rack_of[member_id]
        return not rack or rack in self._racks[number]

    def room_of(self, member_id: str) -> int:
        """Return how many more partitions the member can get."""
        return max(0, self._share + (self._extra > 0) - self._counts[member_id])

    def give(self, member_id: str, numbers: Sequence[int], assignment: Assignment) -> None:
        """Assign partitions to a member."""
        assignment[member_id] += [TopicPartition(self.name, number) for number in numbers]
        self._free = [number for number in self._free if number not in numbers]
        self._counts[member_id] += len(numbers)
        if self._counts[member_id] > self._share:
            self._extra -= 1

    def assign_ranges(self, assignment: Assignment, may_have: Callable[[str, int], bool]) -> None:
        """Assign free partitions to each member in turn, as many as it may have."""
        for member_id in self.rack_of:
            numbers = [number for number in self._free if may_have(member_id, number)][: self.room_of(member_id)]
            if numbers:
                self.give(member_id, numbers, assignment)
