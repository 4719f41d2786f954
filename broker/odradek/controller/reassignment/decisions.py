"""Moving a partition to other brokers (KIP-455): what is wanted, whether it may be, and when it is done.

    ORS  original replicas: `ReplicaAssignment.origin`      TRS  wanted ones: `.target`
    RS   both, the wanted ones first: `.replicas`           AR   RS - ORS: `.adding`      RR   RS - TRS: `.removing`

New replicas are added, catch up, and only then the old ones are dropped; docs/design/0007 has the steps and their
order. Pure: the image enters; assignments, plans of conditional writes and errors leave. `reassigning` carries them
out. Invariant: a plan that lets replicas go leaves a live leader that is in sync.
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
    """The assignment on the way from the original replicas to `target`.

    Wanted replicas come first, in their order; so a cancelled reassignment may leave the old ones in another order.
    """
    origin, wanted = current.origin, tuple(target)
    replicas = tuple(dict.fromkeys([*wanted, *origin]))
    return ReplicaAssignment(
        replicas=replicas,
        adding=tuple(replica for replica in replicas if replica not in origin),
        removing=tuple(replica for replica in replicas if replica not in wanted),
    )


def wished(
    context: ControllerContext, partition: TopicPartition, target: Sequence[int] | None, *, must_live: bool
) -> ReplicaAssignment:
    """The assignment that a wish leads to; None cancels.

    `must_live`: brokers that get a new replica must be alive. Raises `UnknownTopicOrPartitionError`,
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
    wish = reassigned(current, target)
    dead = [replica for replica in wish.adding if replica not in context.eligible_brokers]
    if must_live and dead:
        raise InvalidReplicaAssignmentError(f"Brokers {dead} are not alive; replicas can be added on live ones only.")
    _check_copies(context, partition, wish)
    return wish


def _check_target(target: Sequence[int]) -> None:
    if not target:
        raise InvalidReplicaAssignmentError("A partition must have a replica.")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignmentError(f"A broker is named twice in {list(target)}.")
    if min(target) < 0:
        raise InvalidReplicaAssignmentError(f"There is no broker with a negative number, as in {list(target)}.")


def _check_copies(context: ControllerContext, partition: TopicPartition, wish: ReplicaAssignment) -> None:
    """What is dropped at once must not be all that is in sync: its records would be lost."""
    gone = dropped(context, partition, wish)
    leadership = context.leaderships.get(partition)
    if not gone or leadership is None or not set(gone) & set(leadership.state.isr):
        return
    if not any(member in wish.replicas and context.is_online(member, partition) for member in leadership.state.isr):
        raise InvalidReplicaAssignmentError(
            f"Only {list(leadership.state.isr)} have every record now: one of them must be kept."
        )


def dropped(context: ControllerContext, partition: TopicPartition, wish: ReplicaAssignment) -> tuple[int, ...]:
    """Replicas of a wish that is replaced or cancelled which nobody wants any more."""
    return tuple(replica for replica in context.assignment(partition).replicas if replica not in wish.replicas)


def is_complete(context: ControllerContext, partition: TopicPartition) -> bool:
    """Whether the old replicas may go: every wanted one is in sync and at least one of them is alive."""
    assignment = context.assignment(partition)
    if not assignment.is_being_reassigned:
        return True
    leadership = context.leaderships.get(partition)
    if leadership is None:
        return False
    target = assignment.target
    return set(target) <= set(leadership.state.isr) and any(context.is_online(member, partition) for member in target)


def epoch_bumps(context: ControllerContext, partitions: Iterable[TopicPartition], controller_epoch: int) -> Plan:
    """The next leader epoch for partitions that were led, so that brokers take over what else has changed."""
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


def narrowed(context: ControllerContext, kept: Mapping[TopicPartition, Sequence[int]], controller_epoch: int) -> Plan:
    """Leader and in-sync set within the replicas that are kept, in a new epoch.

    The leader stays if it is kept and alive; else the first kept replica that is alive and in sync leads. A partition
    where there is none has an obstacle.
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
