"""Which steps the deletion of topics can take now.

A topic that is to be deleted goes through: partitions offline, brokers told that it is being deleted, each replica
stopped with deletion, and when all of them have confirmed, the znodes go. A replica on a broker that is gone blocks its
topic until the broker is back; a replica whose deletion failed is tried again. Pure: the image enters, steps leave; the
controller carries them out and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.controller.context import ControllerContext, Replica, ReplicaStatus
from odradek.controller.machines import in_status

REASON_DEAD_REPLICA = "a replica is on a broker that is not alive"
REASON_FAILED_REPLICA = "a replica could not be deleted"


@dataclass(slots=True)
class DeletionSteps:
    """What to do, topic by topic."""

    finished: list[str] = field(default_factory=list)
    """Every replica is deleted: the znodes go."""
    retried: list[Replica] = field(default_factory=list)
    """Replicas that failed and may be tried again once nothing blocks their topic."""
    started: list[str] = field(default_factory=list)
    """Topics whose replicas are to be deleted now."""


def next_steps(context: ControllerContext) -> DeletionSteps:
    """The steps that are possible."""
    steps = DeletionSteps()
    for topic in sorted(context.deletions):
        statuses = [context.replica_status.get(replica) for replica in context.replicas_of(topic)]
        if all(status is ReplicaStatus.DELETION_SUCCESSFUL for status in statuses):
            steps.finished.append(topic)
            continue
        if ReplicaStatus.DELETION_STARTED in statuses or topic in context.blocked_deletions:
            continue
        steps.retried += in_status(context, context.replicas_of(topic), ReplicaStatus.DELETION_INELIGIBLE)
        steps.started.append(topic)
    return steps


@dataclass(slots=True)
class ReplicasToDelete:
    """The replicas of a topic that is being deleted, by what can be done with them."""

    alive: list[Replica] = field(default_factory=list)
    dead: list[Replica] = field(default_factory=list)


def replicas_to_delete(context: ControllerContext, topic: str) -> ReplicasToDelete:
    """Replicas that are not yet deleted: those on live brokers, and those that block the topic."""
    split = ReplicasToDelete()
    for replica in context.replicas_of(topic):
        if context.replica_status.get(replica) is ReplicaStatus.DELETION_SUCCESSFUL:
            continue
        online = context.is_online(replica.broker, replica.partition, or_shutting_down=True)
        (split.alive if online else split.dead).append(replica)
    return split
