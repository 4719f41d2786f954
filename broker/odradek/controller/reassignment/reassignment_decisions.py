"""Decisions about partition reassignment (KIP-455): the next assignment, its validation, and completion.

    ORS  original replicas: `ReplicaAssignment.origin`      TRS  target replicas: `.target`
    RS   both, targets first: `.replicas`                   AR   RS - ORS: `.adding`      RR   RS - TRS: `.removing`

New replicas are added and catch up before old ones are dropped. docs/design/0007 describes the steps. Pure: takes the
context and returns assignments, plans of conditional writes, and errors. `reassigner` carries them out. Invariant:
after a plan that drops replicas, the partition has a live leader that is in sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek.base.errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext
from odradek.controller.elections.election_rules import Elected, Obstacle, elect_reassigned
from odradek.controller.plans import Plan, StateWrite
from odradek.zk.layout import PartitionState, ReplicaAssignment


def reassigned(current: ReplicaAssignment, target: Iterable[int]) -> ReplicaAssignment:
    """Return the assignment during a reassignment from the original replicas to `target`.

    The target replicas come first, so a cancelled reassignment may leave the old replicas in another order.
    """
    origin, wanted = current.origin, tuple(target)
    replicas = tuple(dict.fromkeys([*wanted, *origin]))
    return ReplicaAssignment(
        replicas=replicas,
        adding=tuple(replica for replica in replicas if replica not in origin),
        removing=tuple(replica for replica in replicas if replica not in wanted),
    )


def requested_assignment(
    context: ControllerContext, partition: TopicPartition, target: Sequence[int] | None, *, must_live: bool
) -> ReplicaAssignment:
    """Validate a request and return the next assignment. If `target` is None, the reassignment is cancelled.

    With `must_live`, brokers that get a new replica must be alive. Raises `UnknownTopicOrPartitionError`,
    `InvalidReplicaAssignmentError`, `NoReassignmentInProgressError`.
    """
    current = context.assignment(partition)
    if not current.replicas or context.is_being_deleted(partition.topic):
        raise UnknownTopicOrPartitionError("The partition does not exist.")
    if target is None:
        if not current.is_being_reassigned:
            raise NoReassignmentInProgressError("The partition is not being reassigned.")
        target = current.origin
    elif context.is_marked_for_deletion(partition.topic):
        raise UnknownTopicOrPartitionError("The topic is being deleted.")
    _check_target(target)
    assignment = reassigned(current, target)
    dead = [replica for replica in assignment.adding if replica not in context.eligible_brokers]
    if must_live and dead:
        raise InvalidReplicaAssignmentError(
            f"Brokers {dead} are not alive, and replicas can only be added on live brokers."
        )
    _check_copies(context, partition, assignment)
    return assignment


def _check_target(target: Sequence[int]) -> None:
    if not target:
        raise InvalidReplicaAssignmentError("A partition must have a replica.")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignmentError(f"The replicas {list(target)} contain a broker twice.")
    if min(target) < 0:
        raise InvalidReplicaAssignmentError(f"The replicas {list(target)} contain a negative broker id.")


def _check_copies(context: ControllerContext, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
    """Raise an error if all in-sync replicas would be dropped at once, because records would be lost."""
    gone = dropped(context, partition, assignment)
    leadership = context.leaderships.get(partition)
    if not gone or leadership is None or not set(gone) & set(leadership.state.isr):
        return
    if not any(
        member in assignment.replicas and context.is_online(member, partition) for member in leadership.state.isr
    ):
        raise InvalidReplicaAssignmentError(
            f"Keep one of the brokers {list(leadership.state.isr)}: no other replica has all records."
        )


def dropped(context: ControllerContext, partition: TopicPartition, assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas that are dropped immediately when a reassignment is replaced or cancelled."""
    return tuple(replica for replica in context.assignment(partition).replicas if replica not in assignment.replicas)


def is_complete(context: ControllerContext, partition: TopicPartition) -> bool:
    """Return whether the old replicas can be dropped: all target replicas are in sync, and at least one is alive."""
    assignment = context.assignment(partition)
    if not assignment.is_being_reassigned:
        return True
    leadership = context.leaderships.get(partition)
    if leadership is None:
        return False
    target = assignment.target
    return set(target) <= set(leadership.state.isr) and any(context.is_online(member, partition) for member in target)


def epoch_bumps(context: ControllerContext, partitions: Iterable[TopicPartition], controller_epoch: int) -> Plan:
    """Plan a new leader epoch for partitions that have a state, so that brokers apply the new assignment."""
    plan = Plan()
    for partition in partitions:
        current = context.leaderships.get(partition)
        if current is None:
            plan.obstacles[partition] = Obstacle.NO_LIVE_REPLICA
            continue
        state = current.state
        plan.writes.append(
            StateWrite(
                partition=partition,
                state=PartitionState(
                    leader=state.leader,
                    leader_epoch=state.leader_epoch + 1,
                    isr=state.isr,
                    controller_epoch=controller_epoch,
                    recovering=state.recovering,
                ),
                expected_epoch=current.partition_epoch,
                reason="replicas are added",
            )
        )
    return plan


def restricted(context: ControllerContext, kept: Mapping[TopicPartition, Sequence[int]], controller_epoch: int) -> Plan:
    """Plan a leader and an ISR among the replicas that are kept, in a new leader epoch.

    The leader does not change if it is kept and alive. Otherwise the first kept replica that is alive and in sync
    becomes the leader. If there is none, the partition has an obstacle.
    """
    plan = Plan()
    for partition, replicas in kept.items():
        current = context.leaderships.get(partition)
        if current is None:
            plan.obstacles[partition] = Obstacle.NO_LIVE_REPLICA
            continue
        outcome = _leader_within(context, partition, replicas, current.state)
        if isinstance(outcome, Obstacle):
            plan.obstacles[partition] = outcome
            continue
        plan.writes.append(
            StateWrite(
                partition=partition,
                state=outcome.next_state(current.state, controller_epoch),
                expected_epoch=current.partition_epoch,
                reason=outcome.reason,
            )
        )
    return plan


def _leader_within(
    context: ControllerContext, partition: TopicPartition, replicas: Sequence[int], state: PartitionState
) -> Elected | Obstacle:
    isr = tuple(member for member in state.isr if member in replicas)
    if state.leader in isr and context.is_online(state.leader, partition, or_shutting_down=True):
        return Elected(leader=state.leader, isr=isr, reason="replicas are dropped")
    live = [replica for replica in replicas if context.is_online(replica, partition)]
    return elect_reassigned(replicas, isr, live)
