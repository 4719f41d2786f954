"""The partitions for which an election is held: on request (KIP-460) and by the automatic leader balance.

Pure: takes the context and partitions; returns the partitions to elect for and the errors of the others.
`leader_elections` runs the elections.
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
    """What ElectLeaders asks for, as it is numbered on the wire."""

    PREFERRED = 0
    """Give leadership to first replicas."""
    UNCLEAN = 1
    """Give partitions without a leader to any replica that is alive, whatever that loses."""


@dataclass(slots=True)
class Candidates:
    """Partitions to elect for, and the errors of those that nothing is done for."""

    electable: list[TopicPartition] = field(default_factory=list)
    errors: dict[TopicPartition, ProtocolError] = field(default_factory=dict)


def candidates(context: ControllerContext, partitions: Iterable[TopicPartition], kind: ElectionKind) -> Candidates:
    """Sort partitions by what an election would mean for them."""
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
    return None if needed else ElectionNotNeededError("The partition has the leader that is wanted.")


def unavailable(kind: ElectionKind, obstacle: Obstacle) -> ProtocolError:
    """The error of a partition whose election had no result."""
    text = f"No leader was elected: {obstacle.value}."
    if kind is ElectionKind.PREFERRED:
        return PreferredLeaderNotAvailableError(text)
    return EligibleLeadersNotAvailableError(text)


def outcomes(
    context: ControllerContext, asked: Candidates, obstacles: Mapping[TopicPartition, Obstacle], kind: ElectionKind
) -> dict[TopicPartition, int | ProtocolError]:
    """The elected leader, or the error, of each partition once the elections are over."""
    results: dict[TopicPartition, int | ProtocolError] = dict(asked.errors)
    for partition in asked.electable:
        obstacle = obstacles.get(partition)
        leader = context.leader(partition)
        if obstacle is None and leader == NO_BROKER:
            obstacle = Obstacle.CONTENDED
        results[partition] = leader if obstacle is None else unavailable(kind, obstacle)
    return results


def imbalanced_partitions(context: ControllerContext, tolerated_percentage: int) -> list[TopicPartition]:
    """Partitions to elect preferred leaders for (`auto.leader.rebalance.enable`).

    For each broker: of the partitions that prefer it, the share that it does not lead is its imbalance. Above
    `tolerated_percentage` all of those are chosen whose preferred replica is alive and in sync. Partitions that are
    being deleted or reassigned are left out: these get their leaders when that is done.
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
