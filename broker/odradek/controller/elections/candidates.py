"""Selects partitions for elections on request (KIP-460) and for the automatic leader balance.

Pure: takes the context and partitions, and returns the partitions for which a leader is elected and the errors of the
others. `leader_elections` holds the elections.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from odradek.base.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidTopicError,
    PreferredLeaderNotAvailableError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.controller.context import ControllerContext
from odradek.controller.elections.election_rules import Obstacle


class ElectionKind(IntEnum):
    """Type of election in an ElectLeaders request."""

    PREFERRED = 0
    """Elect preferred leaders."""
    UNCLEAN = 1
    """Elect any live replica of partitions without a leader. Records may be lost."""


@dataclass(slots=True)
class Candidates:
    """Partitions for which an election is held, and the errors of the others."""

    electable: list[TopicPartition] = field(default_factory=list)
    errors: dict[TopicPartition, ProtocolError] = field(default_factory=dict)


def candidates(context: ControllerContext, partitions: Iterable[TopicPartition], kind: ElectionKind) -> Candidates:
    """Separate the partitions for which an election is possible from the others."""
    sorted_out = Candidates()
    for partition in partitions:
        error = _refusal(context, partition, kind)
        if error is None:
            sorted_out.electable.append(partition)
        else:
            sorted_out.errors[partition] = error
    return sorted_out


def _refusal(context: ControllerContext, partition: TopicPartition, kind: ElectionKind) -> ProtocolError | None:
    if not context.assignment(partition).replicas:
        return UnknownTopicOrPartitionError("The partition does not exist.")
    if context.is_marked_for_deletion(partition.topic):
        return InvalidTopicError("The topic is being deleted.")
    if partition not in context.leaderships:
        return unavailable(kind, Obstacle.NO_LIVE_REPLICA)
    leader = context.leader(partition)
    if kind is ElectionKind.PREFERRED:
        needed = leader != context.assignment(partition).preferred_leader
    else:
        needed = leader == NO_BROKER or leader not in context.eligible_brokers
    return None if needed else ElectionNotNeededError("The partition already has the requested leader.")


def unavailable(kind: ElectionKind, obstacle: Obstacle) -> ProtocolError:
    """Return the error of a partition whose election found no leader."""
    text = f"No leader was elected: {obstacle.value}."
    if kind is ElectionKind.PREFERRED:
        return PreferredLeaderNotAvailableError(text)
    return EligibleLeadersNotAvailableError(text)


def outcomes(
    context: ControllerContext, asked: Candidates, obstacles: Mapping[TopicPartition, Obstacle], kind: ElectionKind
) -> dict[TopicPartition, int | ProtocolError]:
    """Return the new leader or the error of each partition after the elections."""
    results: dict[TopicPartition, int | ProtocolError] = dict(asked.errors)
    for partition in asked.electable:
        obstacle = obstacles.get(partition)
        leader = context.leader(partition)
        if obstacle is None and leader == NO_BROKER:
            obstacle = Obstacle.CONTENDED
        results[partition] = leader if obstacle is None else unavailable(kind, obstacle)
    return results


def imbalanced_partitions(context: ControllerContext, tolerated_percentage: int) -> list[TopicPartition]:
    """Return the partitions for the automatic leader balance (`auto.leader.rebalance.enable`).

    The imbalance of a broker is the percentage, of the partitions whose preferred leader it is, that it does not lead.
    If it is above `tolerated_percentage`, the result has those that it does not lead and for which it is alive and in
    sync. Partitions that are being deleted or reassigned are not counted.
    """
    preferring: defaultdict[int, int] = defaultdict(int)
    elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in context.partitions():
        if context.is_marked_for_deletion(partition.topic) or partition in context.reassigning:
            continue
        preferred = context.assignment(partition).preferred_leader
        preferring[preferred] += 1
        leadership = context.leaderships.get(partition)
        if leadership is not None and leadership.state.leader != preferred:
            elsewhere[preferred].append(partition)
    chosen = []
    for broker, partitions in sorted(elsewhere.items()):
        if len(partitions) * 100 > tolerated_percentage * preferring[broker]:
            chosen += [partition for partition in partitions if _may_lead(context, broker, partition)]
    return chosen


def _may_lead(context: ControllerContext, broker: int, partition: TopicPartition) -> bool:
    return context.is_online(broker, partition) and broker in context.leaderships[partition].state.isr
