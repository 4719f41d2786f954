"""Plans of conditional writes of partition states: elections and ISR changes.

Pure: a function takes the context and returns a plan, which has the writes with their reasons, and an obstacle for each
partition that cannot be written. `store` writes the states. `apply_write` changes the context after a write succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from odradek.base.types import NO_BROKER, TopicPartition
from odradek.controller.context import ControllerContext, Leadership, Replica
from odradek.controller.elections.election_rules import (
    Cause,
    Elected,
    Obstacle,
    elect_first,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from odradek.zk.layout import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """The next state of a partition. It is written only if the znode has the version `expected_epoch`; None means that
    the znode must not exist."""

    partition: TopicPartition
    state: PartitionState
    expected_epoch: int | None
    reason: str
    unclean: bool = False


@dataclass(slots=True)
class Plan:
    """The writes, and the obstacles of partitions that have no write."""

    writes: list[StateWrite] = field(default_factory=list)
    obstacles: dict[TopicPartition, Obstacle] = field(default_factory=dict)


def first_leaders(context: ControllerContext, partitions: Iterable[TopicPartition], controller_epoch: int) -> Plan:
    """Plan the first leaders of new partitions."""
    plan = Plan()
    for partition in partitions:
        outcome = elect_first(context.online_replicas(partition), controller_epoch)
        if isinstance(outcome, Obstacle):
            plan.obstacles[partition] = outcome
        else:
            plan.writes.append(
                StateWrite(partition=partition, state=outcome, expected_epoch=None, reason="the partition is new")
            )
    return plan


def elections(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    cause: Cause,
    controller_epoch: int,
    *,
    unclean_topics: Collection[str] = (),
) -> Plan:
    """Plan new leaders. Partitions of `unclean_topics` may get a leader that is not in sync."""
    plan = Plan()
    for partition in partitions:
        current = context.leaderships[partition]
        outcome = _elect(context, partition, current.state, cause, unclean=partition.topic in unclean_topics)
        if isinstance(outcome, Obstacle):
            plan.obstacles[partition] = outcome
            continue
        plan.writes.append(
            StateWrite(
                partition=partition,
                state=outcome.next_state(current.state, controller_epoch),
                expected_epoch=current.partition_epoch,
                reason=outcome.reason,
                unclean=outcome.unclean,
            )
        )
    return plan


def _elect(
    context: ControllerContext, partition: TopicPartition, state: PartitionState, cause: Cause, *, unclean: bool
) -> Elected | Obstacle:
    assignment, live = context.assignment(partition), context.online_replicas(partition)
    match cause:
        case Cause.OFFLINE:
            return elect_offline(assignment.replicas, state.isr, live, unclean=unclean)
        case Cause.PREFERRED:
            return elect_preferred(assignment.replicas, state.isr, live, leader=state.leader)
        case Cause.REASSIGNMENT:
            return elect_reassigned(assignment.target, state.isr, live)
        case Cause.CONTROLLED_SHUTDOWN:
            every = context.online_replicas(partition, or_shutting_down=True)
            return elect_for_shutdown(assignment.replicas, state.isr, every, shutting_down=context.shutting_down)


def isr_removals(context: ControllerContext, replicas: Iterable[Replica], controller_epoch: int) -> Plan:
    """Plan the removal of replicas that go offline from the ISR.

    If all members go offline at once, the ISR does not change: every member has all acknowledged records, so the first
    one that returns can lead. If the leader goes offline, the partition has no leader.
    """
    going: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for replica in replicas:
        leadership = context.leaderships.get(replica.partition)
        if leadership is not None and replica.broker in leadership.state.isr:
            going[replica.partition].add(replica.broker)
    plan = Plan()
    for partition, brokers in going.items():
        current = context.leaderships[partition]
        left = tuple(member for member in current.state.isr if member not in brokers)
        leader = NO_BROKER if current.state.leader in brokers else current.state.leader
        if not left and leader == current.state.leader:
            continue
        plan.writes.append(
            StateWrite(
                partition=partition,
                state=replace(
                    current.state,
                    leader=leader,
                    leader_epoch=current.state.leader_epoch + 1,
                    isr=left or current.state.isr,
                    controller_epoch=controller_epoch,
                ),
                expected_epoch=current.partition_epoch,
                reason="a replica went offline",
            )
        )
    return plan


def apply_write(context: ControllerContext, write: StateWrite, partition_epoch: int) -> None:
    """Update the context with a state that was written."""
    context.leaderships[write.partition] = Leadership(write.state, partition_epoch)
