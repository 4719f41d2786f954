"""Rules for topic names, and where the replicas of new partitions go.

Pure: brokers and racks enter, an assignment leaves. The controller's creation of topics and the operator both call it,
so the two never differ. Replicas are spread as Kafka spreads them: leaders round-robin over brokers, the other
replicas shifted so that a broker's followers do not all sit on one neighbour, and over racks where brokers name them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final

from odradek.base.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)

MAX_NAME_LENGTH: Final = 249
"""A log directory is the name, a dash and a number of ten digits at most; many file systems end at 255."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicError` unless `name` may name a topic."""
    if not name:
        raise InvalidTopicError("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic's name must not be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(f"a topic's name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicError(f"{name!r} has characters other than ASCII letters and digits, '.', '_' and '-'")


def colliding_topic(name: str, existing: Sequence[str]) -> str | None:
    """A topic whose metrics would bear the same name, since '.' and '_' become one there; None when there is none."""
    folded = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == folded), None)


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Sequence[int] | None = None) -> None:
    """Raise `InvalidReplicaAssignmentError` unless a manual assignment is whole.

    Partitions count from 0 without gaps, each has at least one replica and no broker twice, all have equally many, and
    every broker is one of `brokers` when these are given.
    """
    if not assignment:
        raise InvalidReplicaAssignmentError("the assignment has no partitions")
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignmentError(f"partitions must count from 0 without gaps, found {sorted(assignment)}")
    check_replicas(assignment, brokers)
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        raise InvalidReplicaAssignmentError("all partitions must have the same number of replicas")


def check_replicas(assignment: Mapping[int, Sequence[int]], brokers: Sequence[int] | None = None) -> None:
    """The part of `check_assignment` that looks at each partition alone."""
    for partition, replicas in assignment.items():
        if not replicas:
            raise InvalidReplicaAssignmentError(f"partition {partition} has no replicas")
        if len(set(replicas)) != len(replicas) or min(replicas) < 0:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} has a broker twice or below 0: {list(replicas)}"
            )
        strangers = [] if brokers is None else sorted(set(replicas) - set(brokers))
        if strangers:
            raise InvalidReplicaAssignmentError(f"partition {partition} names unknown brokers {strangers}")


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    existing: Mapping[int, Sequence[int]] | None = None,
) -> dict[int, list[int]]:
    """Replicas of `partitions` new partitions, by partition number.

    `brokers` maps live broker ids to their racks; racks count only when every broker has one. `start_index` and
    `shift` (at least 0) say with which broker to begin and how far the second replica is from the first: random
    numbers for a new topic. With `existing` the numbers go on after the highest existing partition.

    Raises `InvalidPartitionsError` and `InvalidReplicationFactorError`.
    """
    if partitions < 1:
        raise InvalidPartitionsError(f"the number of partitions must be at least 1, not {partitions}")
    if replication_factor < 1:
        raise InvalidReplicationFactorError(f"the replication factor must be at least 1, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the {len(brokers)} brokers that are alive"
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    aware = len(racks) == len(brokers)
    order = rack_alternated(racks) if aware else sorted(brokers)
    spread = _Spread(order, racks if aware else dict.fromkeys(order, ""))
    first = max(existing, default=-1) + 1 if existing else 0
    assignment = {}
    for number in range(first, first + partitions):
        if number > 0 and number % len(order) == 0:
            shift += 1
        assignment[number] = spread.replicas((number + start_index) % len(order), shift, replication_factor)
    return assignment


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers in turns of racks: of racks a: 0 1, b: 2 3 comes 0 2 1 3."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        members[racks[broker]].append(broker)
    turns = zip_longest(*(members[rack] for rack in sorted(members)))
    return [broker for turn in turns for broker in turn if broker is not None]


class _Spread:
    """Brokers in order, with their racks; chooses the replicas of one partition at a time."""

    __slots__ = ("_order", "_rack_count", "_racks")

    def __init__(self, order: list[int], racks: Mapping[int, str]) -> None:
        self._order = order
        self._racks = racks
        self._rack_count = len(set(racks.values()))

    def replicas(self, first: int, shift: int, count: int) -> list[int]:
        """The broker at `first`, then others from a shifted start, one per rack while a rack is still without."""
        order, racks = self._order, self._racks
        # With one rack the shift counts brokers; with several it counts turns, or it would stay within the racks.
        distance = shift * self._rack_count
        chosen = [order[first]]
        used_racks = {racks[order[first]]}
        step = 0
        while len(chosen) < count:
            offset = 1 + (distance + step) % (len(order) - 1)
            broker = order[(first + offset) % len(order)]
            step += 1
            rack_is_due = racks[broker] not in used_racks or len(used_racks) == self._rack_count
            if rack_is_due and broker not in chosen:
                chosen.append(broker)
                used_racks.add(racks[broker])
        return chosen


def growth_start(brokers: Sequence[int], existing: Mapping[int, Sequence[int]]) -> int:
    """`start_index` and `shift` for more partitions of a topic: where its partition 0 begins, as Kafka does."""
    ordered = sorted(brokers)
    first = existing[0][0] if existing.get(0) else 0
    return next((index for index, broker in enumerate(ordered) if broker >= first), 0)
