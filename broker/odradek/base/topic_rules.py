"""Rules for topic names, the assignment of replicas to brokers, and the partition that coordinates an id.

Pure: the controller and the operator both use it, so they always agree. Replicas are assigned as in Kafka: leaders
round-robin over the brokers, the other replicas shifted so that the followers of a broker are spread over the other
brokers, and over racks if all brokers have one. If several brokers run on one machine, replicas are also spread over
machines (docs/design/0023).
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from sys import byteorder
from typing import Final

from odradek.base.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from odradek.base.types import TopicPartition

MAX_NAME_LENGTH: Final = 249
"""The log directory adds a dash and up to ten digits to the name; many file systems allow 255 bytes."""

_LOWEST_HASH: Final = -(1 << 31)
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicError` if `name` is not a valid topic name."""
    if not name:
        raise InvalidTopicError("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic's name must not be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(f"a topic's name may have at most {MAX_NAME_LENGTH} characters, not {len(name)}")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicError(
            f"a topic's name may have only ASCII letters and digits, '.', '_' and '-', not {name!r}"
        )


def colliding_topic(name: str, existing: Sequence[str]) -> str | None:
    """Return a topic whose metrics would have the same name, because '.' becomes '_' there, or None."""
    folded = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == folded), None)


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Sequence[int] | None = None) -> None:
    """Raise `InvalidReplicaAssignmentError` if a manual assignment is invalid.

    Partitions must be numbered from 0 without gaps, all must have the same number of replicas, at least one, no broker
    may occur twice in a partition, and every broker must be one of `brokers` if these are given.
    """
    if not assignment:
        raise InvalidReplicaAssignmentError("the assignment has no partitions")
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignmentError(
            f"partitions must be numbered from 0 without gaps, not {sorted(assignment)}"
        )
    check_replicas(assignment, brokers)
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        raise InvalidReplicaAssignmentError("all partitions must have the same number of replicas")


def check_replicas(assignment: Mapping[int, Sequence[int]], brokers: Sequence[int] | None = None) -> None:
    """The checks of `check_assignment` that concern each partition separately."""
    for partition, replicas in assignment.items():
        if not replicas:
            raise InvalidReplicaAssignmentError(f"partition {partition} has no replicas")
        if len(set(replicas)) != len(replicas) or min(replicas) < 0:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} has a duplicate or negative broker id: {list(replicas)}"
            )
        strangers = [] if brokers is None else sorted(set(replicas) - set(brokers))
        if strangers:
            raise InvalidReplicaAssignmentError(f"partition {partition} is assigned to unknown brokers {strangers}")


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    existing: Mapping[int, Sequence[int]] | None = None,
    machines: Mapping[int, str] | None = None,
) -> dict[int, list[int]]:
    """Return the replicas of `partitions` new partitions, by partition number.

    `brokers` maps live broker ids to their racks; racks count only if every broker has one. `start_index` and `shift`
    (at least 0) are the position of the first broker and the distance of the second replica from the first: random
    numbers for a new topic. With `existing`, numbering continues after the highest existing partition.

    `machines` maps broker ids to the machines on which they run; a broker without an entry has a machine to itself. As
    far as racks allow, a partition has two replicas on one machine only if it has a replica on every machine. If no
    two brokers share a machine, the result is that without `machines`.

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
    spread = _Spread(brokers, machines or {})
    first = max(existing, default=-1) + 1 if existing else 0
    assignment = {}
    for number in range(first, first + partitions):
        if number > 0 and number % len(brokers) == 0:
            shift += 1
        assignment[number] = spread.replicas((number + start_index) % len(brokers), shift, replication_factor)
    return assignment


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Order brokers so that racks alternate: racks a: 0 1 and b: 2 3 give 0 2 1 3.

    The brokers of a rack keep the order of `racks`.
    """
    members: defaultdict[str, list[int]] = defaultdict(list)
    for broker, rack in racks.items():
        members[rack].append(broker)
    turns = zip_longest(*(members[rack] for rack in sorted(members)))
    return [broker for turn in turns for broker in turn if broker is not None]


def machine_of_each(brokers: Iterable[int], machines: Mapping[int, str]) -> dict[int, str]:
    """Return the machine of every broker. A broker without an entry in `machines` has a machine to itself."""
    return {broker: machines.get(broker, f"broker {broker}") for broker in brokers}


class _Spread:
    """Brokers in order, with their racks and machines; assigns the replicas of one partition at a time."""

    __slots__ = ("_machines", "_order", "_rack_count", "_racks", "_stride")

    def __init__(self, brokers: Mapping[int, str | None], machines: Mapping[int, str]) -> None:
        """See `assign_replicas`. Without a rack for every broker, all brokers are in the same rack."""
        order = sorted(brokers)
        racks = {broker: rack for broker in order if (rack := brokers[broker]) is not None}
        has_racks = len(racks) == len(order)
        places = machine_of_each(order, machines)
        is_shared = len(set(places.values())) < len(order)
        if is_shared:
            order = rack_alternated(places)
        if has_racks:
            order = rack_alternated({broker: racks[broker] for broker in order})
        self._order = order
        self._racks = racks if has_racks else dict.fromkeys(order, "")
        self._machines = places
        self._rack_count = len(set(self._racks.values()))
        # With one group the shift counts brokers; with several it counts rounds, so that it does not stay within the
        # racks or machines.
        self._stride = len(set(places.values())) if is_shared and not has_racks else self._rack_count

    def replicas(self, first: int, shift: int, count: int) -> list[int]:
        """Return the broker at `first`, then others from a shifted start.

        Racks without a replica come first, and among their brokers those on a machine without a replica.
        """
        chosen = [self._order[first]]
        step = shift * self._stride
        while len(chosen) < count:
            step = self._next_step(first, step, chosen)
            chosen.append(self._other(first, step))
            step += 1
        return chosen

    def _other(self, first: int, step: int) -> int:
        """Return the broker at a step of the endless walk over all brokers except the one at `first`."""
        return self._order[(first + 1 + step % (len(self._order) - 1)) % len(self._order)]

    def _next_step(self, first: int, start: int, chosen: Sequence[int]) -> int:
        """Return the step of the next replica, from `start` on. There is one, because `chosen` lacks a broker."""
        used_racks = {self._racks[broker] for broker in chosen}
        used_machines = {self._machines[broker] for broker in chosen}
        on_used_machine: int | None = None
        for step in range(start, start + len(self._order) - 1):
            broker = self._other(first, step)
            rack_is_due = self._racks[broker] not in used_racks or len(used_racks) == self._rack_count
            if not rack_is_due or broker in chosen:
                continue
            if self._machines[broker] not in used_machines:
                return step
            if on_used_machine is None:
                on_used_machine = step
        assert on_used_machine is not None, "the replication factor is at most the number of brokers"
        return on_used_machine


def growth_start(brokers: Sequence[int], existing: Mapping[int, Sequence[int]]) -> int:
    """Return `start_index` and `shift` for new partitions of a topic, from its partition 0, as Kafka does."""
    ordered = sorted(brokers)
    first = existing[0][0] if existing.get(0) else 0
    return next((index for index, broker in enumerate(ordered) if broker >= first), 0)


def java_string_hash(text: str) -> int:
    """Return the hash of `java.lang.String.hashCode`: of the UTF-16 code units, as a signed 32-bit number."""
    units = array("H", text.encode("utf-16-le" if byteorder == "little" else "utf-16-be"))
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(identifier: str, partitions: int) -> int:
    """Return the partition of a group or transactional id. `partitions` is the number of partitions of the topic.

    `partitions` must be at least 1. The smallest 32-bit number has no absolute value, so Kafka maps it to 0.
    """
    value = java_string_hash(identifier)
    return 0 if value == _LOWEST_HASH else abs(value) % partitions


def grouped_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each topic, by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped
