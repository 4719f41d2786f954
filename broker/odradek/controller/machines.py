"""The lives of partitions and replicas, as tables.

    partition   NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> NON_EXISTENT
    replica     NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL -> NON_EXISTENT
                OFFLINE, DELETION_STARTED -> DELETION_INELIGIBLE -> ONLINE, OFFLINE

Each state lists the states that it may be reached from. Steps are taken for many at once: either all of them are legal
and happen, or `IllegalTransitionError` is raised and nothing changed. What a replica's step means for brokers is noted
in the batch of requests; what must be written to ZooKeeper first is planned in `plans` before the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.request_batch import RequestBatch
from odradek.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus

PARTITION_PREDECESSORS: Final[Mapping[PartitionStatus, frozenset[PartitionStatus]]] = {
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
}

REPLICA_PREDECESSORS: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}


class IllegalTransitionError(OdradekError):
    """A step that the table does not have; nothing was changed. It means that the image is wrong."""


def move_partitions(
    context: ControllerContext, partitions: Collection[TopicPartition], target: PartitionStatus
) -> None:
    """Take every partition to `target`."""
    allowed = PARTITION_PREDECESSORS[target]
    status = context.partition_status
    for partition in partitions:
        current = status.get(partition, PartitionStatus.NON_EXISTENT)
        if current not in allowed:
            raise IllegalTransitionError(f"partition {partition} cannot go from {current.name} to {target.name}")
    for partition in partitions:
        if target is PartitionStatus.NON_EXISTENT:
            status.pop(partition, None)
        else:
            status[partition] = target


def move_replicas(
    context: ControllerContext, replicas: Collection[Replica], target: ReplicaStatus, batch: RequestBatch
) -> None:
    """Take every replica to `target` and note what its broker, and others, must be told.

    A replica that goes OFFLINE must have been taken out of the in-sync set before, by `plans.isr_removals`.
    """
    allowed = REPLICA_PREDECESSORS[target]
    status = context.replica_status
    for replica in replicas:
        current = status.get(replica, ReplicaStatus.NON_EXISTENT)
        if current not in allowed:
            raise IllegalTransitionError(
                f"the replica of {replica.partition} on broker {replica.broker} "
                f"cannot go from {current.name} to {target.name}"
            )
    for replica in replicas:
        if target is ReplicaStatus.NON_EXISTENT:
            status.pop(replica, None)
        else:
            status[replica] = target
        _note(context, replica, target, batch)


def _note(context: ControllerContext, replica: Replica, target: ReplicaStatus, batch: RequestBatch) -> None:
    led = replica.partition in context.leaderships
    if target in (ReplicaStatus.NEW, ReplicaStatus.ONLINE):
        if led:
            batch.leader_and_isr([replica.broker], replica.partition, is_new=target is ReplicaStatus.NEW)
    elif target in (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED):
        batch.stop_replica(replica.broker, replica.partition, delete=target is ReplicaStatus.DELETION_STARTED)


def in_status(context: ControllerContext, replicas: Iterable[Replica], wanted: ReplicaStatus) -> list[Replica]:
    """The replicas of that status."""
    return [replica for replica in replicas if context.replica_status.get(replica) is wanted]
