"""The state machines of partitions and replicas, as tables.

    partition   NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> NON_EXISTENT
    replica     NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL -> NON_EXISTENT
                OFFLINE, DELETION_STARTED -> DELETION_INELIGIBLE -> ONLINE, OFFLINE

Each table has, for each state, the states from which it can be reached. Many partitions or replicas can change their
state at once: either all transitions are legal, or `IllegalTransitionError` is raised and no state changes. A
transition of a replica adds requests to the request batch. `plans` plans the writes to ZooKeeper that must come first.
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
    """A transition that the table does not allow: a bug. No state was changed."""


def move_partitions(
    context: ControllerContext, partitions: Collection[TopicPartition], target: PartitionStatus
) -> None:
    """Change the state of every partition to `target`."""
    allowed = PARTITION_PREDECESSORS[target]
    status = context.partition_status
    for partition in partitions:
        current = status.get(partition, PartitionStatus.NON_EXISTENT)
        if current not in allowed:
            raise IllegalTransitionError(
                f"the state of partition {partition} cannot change from {current.name} to {target.name}"
            )
    for partition in partitions:
        if target is PartitionStatus.NON_EXISTENT:
            status.pop(partition, None)
        else:
            status[partition] = target


def move_replicas(
    context: ControllerContext, replicas: Collection[Replica], target: ReplicaStatus, batch: RequestBatch
) -> None:
    """Change the state of every replica to `target`, and add the requests to its broker and to others to the batch.

    A replica must be removed from the ISR (`plans.isr_removals`) before it becomes OFFLINE.
    """
    allowed = REPLICA_PREDECESSORS[target]
    status = context.replica_status
    for replica in replicas:
        current = status.get(replica, ReplicaStatus.NON_EXISTENT)
        if current not in allowed:
            raise IllegalTransitionError(
                f"the replica of {replica.partition} on broker {replica.broker} "
                f"cannot change from {current.name} to {target.name}"
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
    """Return the replicas in this state."""
    return [replica for replica in replicas if context.replica_status.get(replica) is wanted]
