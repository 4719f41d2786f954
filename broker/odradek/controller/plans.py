"""What must be written to ZooKeeper before partitions change: planned here, written by `store`, then applied.

Pure: the image enters; a plan of conditional writes leaves, with the reason of each and the obstacle of each partition
that nothing can be planned for. Nothing is changed until a write succeeded: `apply_write` then takes it over.
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
    """A partition's next state, to be written if its znode has `expected_epoch`; None: if it has no znode."""

    partition: TopicPartition
    state: PartitionState
    expected_epoch: int | None
    reason: str
    unclean: bool = False


@dataclass(slots=True)
class Plan:
    """Writes, and why other partitions have none."""

    writes: list[StateWrite] = field(default_factory=list)
    obstacles: dict[TopicPartition, Obstacle] = field(default_factory=dict)


def first_leaders(context: ControllerContext, partitions: Iterable[TopicPartition], controller_epoch: int) -> Plan:
    """Leaders for partitions that never had one."""
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
    """New leaders for partitions that have been led. `unclean_topics` may be led by replicas that are not in sync."""
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
    """Take replicas that go offline out of the in-sync sets.

    When every member goes at once the set stays as it is: nobody led afterwards, so each of them has all that was
    acknowledged, and the first to return may lead. A leader that goes leaves the partition without one.
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
    """Take over a state that was written."""
    context.leaderships[write.partition] = Leadership(write.state, partition_epoch)
