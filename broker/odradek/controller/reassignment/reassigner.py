"""Carries out reassignments in the steps that docs/design/0007 describes. `reassignment_decisions` makes the decisions.

`active` calls it for requests, for the znode `/admin/reassign_partitions`, when a reign begins, when brokers return,
and after every event to complete reassignments whose replicas have caught up. The state is written to ZooKeeper before
brokers are informed, so the next controller can continue at any step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from odradek.base.errors import (
    InvalidReplicaAssignmentError,
    PolicyViolationError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.controller.context import Replica, ReplicaStatus
from odradek.controller.machines import move_replicas
from odradek.controller.reassignment import reassignment_decisions as reassignment
from odradek.controller.reign import Reign
from odradek.controller.topics.topic_deletion import TopicDeleter
from odradek.zk.layout import ReplicaAssignment
from odradek.zk.port import NoNode, TooLarge

log = logging.getLogger(__name__)

_DROPPED: Final = (
    ReplicaStatus.OFFLINE,
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_SUCCESSFUL,
    ReplicaStatus.NON_EXISTENT,
)
"""The states through which a dropped replica passes. As in Kafka, the deletion on its broker is not awaited."""

Errors = dict[TopicPartition, ProtocolError | None]
"""The error of each partition; None if its request was accepted."""

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
"""The requested replicas of partitions. None cancels a reassignment."""


class Reassigner:
    """The reassignments of one reign."""

    def __init__(self, reign: Reign, deleter: TopicDeleter) -> None:
        """`deleter` is called when the last reassignment of a topic is complete."""
        self._reign = reign
        self._context = reign.context
        self._deleter = deleter
        self._has_znode = False

    # Requests

    async def request(self, targets: Targets) -> Errors:
        """Start, replace or cancel reassignments. Returns the error of each partition.

        The latest request applies, so entries of `/admin/reassign_partitions` for these partitions are removed.
        """
        accepted, results = self._validate(targets, must_live=True)
        await self._drop_requested(lambda partition, _: partition in accepted)
        return results | await self._begin(accepted)

    async def take_requested(self) -> set[TopicPartition]:
        """Start the reassignments in `/admin/reassign_partitions`, and remove entries that are invalid or complete.

        Returns the partitions whose reassignment started.
        """
        found = await self._reign.store.reassignments()
        self._has_znode = found is not None
        if found is None:
            return set()
        accepted, errors = self._validate(found, must_live=False)
        news = {part: assignment for part, assignment in accepted.items() if self._is_new(part, assignment)}
        errors |= await self._begin(news)
        for partition, error in errors.items():
            if error is not None:
                log.warning("the reassignment of %s was refused: %s", partition, error)
        await self._drop_requested(self._is_over)
        return set(news)

    async def _drop_requested(self, is_over: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        # If the znode is created again meanwhile, there is another event.
        if self._has_znode:
            await self._reign.store.drop_reassignments(is_over)

    def list(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """Return which of these partitions, or of all if None, are being reassigned."""
        context = self._context
        wanted = context.reassigning if partitions is None else context.reassigning & set(partitions)
        return {partition: context.assignment(partition) for partition in sorted(wanted)}

    def _validate(self, targets: Targets, *, must_live: bool) -> tuple[dict[TopicPartition, ReplicaAssignment], Errors]:
        accepted: dict[TopicPartition, ReplicaAssignment] = {}
        refused: Errors = {}
        for partition, target in targets.items():
            try:
                accepted[partition] = reassignment.requested_assignment(
                    self._context, partition, target, must_live=must_live
                )
            except ProtocolError as error:
                refused[partition] = error
        return accepted, refused

    def _is_new(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        """Return whether an entry of the znode has not been started yet. The znode is read again after every change."""
        return self._context.assignment(partition) != assignment

    def _is_over(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        """Return whether an entry of the znode is complete, was refused, or was replaced by another request."""
        assignment = self._context.assignment(partition)
        return not assignment.is_being_reassigned or assignment.target != target

    # Steps

    async def _begin(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Errors:
        context = self._context
        errors: Errors = dict.fromkeys(assignments)
        unneeded = {part: reassignment.dropped(context, part, assignment) for part, assignment in assignments.items()}
        gone = {part: replicas for part, replicas in unneeded.items() if replicas}
        kept = await self._restrict({partition: assignments[partition].replicas for partition in gone})
        for partition in gone.keys() - kept:
            errors[partition] = InvalidReplicaAssignmentError(
                "None of the replicas that are kept is alive and in sync."
            )
        todo = {part: assignment for part, assignment in assignments.items() if errors[part] is None}
        changes = {part: assignment for part, assignment in todo.items() if context.assignment(part) != assignment}
        failed = await self._reign.store.set_assignments(changes)
        for partition in [part for part in todo if part.topic in failed]:
            errors[partition] = _write_error(failed[partition.topic])
            del todo[partition]
        for partition, assignment in todo.items():
            log.info(
                "%s: reassignment from replicas %s to %s starts",
                partition,
                list(assignment.origin),
                list(assignment.target),
            )
            context.set_assignment(partition, assignment)
        self._reign.inform([part for part in gone if part in kept])
        self._drop({part: gone[part] for part in todo if part in gone})
        await self._continue(todo)
        return errors

    async def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue these reassignments, or all if None, after a change of the controller or of the brokers involved."""
        wanted = self._context.reassigning if partitions is None else self._context.reassigning & set(partitions)
        await self._continue(sorted(wanted))

    async def advance(self) -> None:
        """Complete the reassignments whose target replicas are in sync after the last event."""
        moved = sorted(self._reign.moved & self._context.reassigning)
        self._reign.moved.clear()
        ready = [partition for partition in moved if reassignment.is_complete(self._context, partition)]
        if ready:
            await self._complete(ready)
            self._reign.flush()

    async def _continue(self, partitions: Collection[TopicPartition]) -> None:
        ready = [partition for partition in partitions if reassignment.is_complete(self._context, partition)]
        await self._catch_up([partition for partition in partitions if partition not in set(ready)])
        await self._complete(ready)

    async def _catch_up(self, partitions: Collection[TopicPartition]) -> None:
        """Inform all replicas of the assignment, and start the new replicas."""
        context, batch = self._context, self._reign.batch

        def inform(partition: TopicPartition) -> None:
            online = context.online_replicas(partition, or_shutting_down=True)
            adding = context.assignment(partition).adding
            batch.leader_and_isr([broker for broker in online if broker not in adding], partition)
            # A new replica may be created in any online directory. The log of an old one must already exist.
            batch.leader_and_isr([broker for broker in online if broker in adding], partition, is_new=True)

        await self._reign.write(
            partitions, lambda left: reassignment.epoch_bumps(context, left, self._reign.epoch), inform=inform
        )
        new = [
            replica
            for partition in partitions
            for broker in context.assignment(partition).adding
            if (replica := Replica(partition, broker)) not in context.replica_status
        ]
        move_replicas(context, new, ReplicaStatus.NEW, batch)
        for status, wanted in ((ReplicaStatus.ONLINE, True), (ReplicaStatus.OFFLINE, False)):
            some = [rep for rep in new if context.is_online(rep.broker, rep.partition) is wanted]
            move_replicas(context, some, status, batch)
        await self._reign.elect_first([part for part in partitions if part not in context.leaderships])

    async def _complete(self, partitions: Collection[TopicPartition]) -> None:
        """Complete reassignments: the target replicas become the replicas of the partition, and the others are
        dropped."""
        if not partitions:
            return
        context = self._context
        assignments = {partition: context.assignment(partition) for partition in partitions}
        never_led = [partition for partition in partitions if partition not in context.leaderships]
        done = await self._restrict({part: assignments[part].target for part in partitions if part not in never_led})
        finished = {part: ReplicaAssignment(replicas=assignments[part].target) for part in [*sorted(done), *never_led]}
        if not finished:
            return
        for partition, assignment in finished.items():
            context.set_assignment(partition, assignment)
            self._reign.batch.leader_and_isr(context.online_replicas(partition, or_shutting_down=True), partition)
        self._drop({partition: assignments[partition].removing for partition in finished})
        # Send the requests first: while the znode has the old replicas, the next controller can still delete them.
        self._reign.flush()
        for error in (await self._reign.store.set_assignments(finished)).values():
            if isinstance(error, TooLarge):
                raise error
        await self._drop_requested(self._is_over)
        for partition, assignment in finished.items():
            log.info("%s: reassignment to replicas %s is complete", partition, list(assignment.replicas))
        self._reign.batch.update_metadata(finished)
        await self._deleter.start_deferred({partition.topic for partition in finished})

    async def _restrict(self, kept: Mapping[TopicPartition, Collection[int]]) -> set[TopicPartition]:
        """Limit leader and ISR to the kept replicas, without informing brokers. Returns the partitions for which it was
        possible."""
        context = self._context
        led = {partition: tuple(left) for partition, left in kept.items() if partition in context.leaderships}
        plan = await self._reign.write(
            led,
            lambda left: reassignment.restricted(context, {part: led[part] for part in left}, self._reign.epoch),
            inform=lambda partition: None,
        )
        vanished = led.keys() - context.leaderships.keys()
        return set(kept) - plan.obstacles.keys() - vanished

    def _drop(self, gone: Mapping[TopicPartition, Collection[int]]) -> None:
        """Stop and delete replicas that are neither leaders nor in sync, and remove them from the context."""
        replicas = [Replica(partition, broker) for partition, brokers in gone.items() for broker in brokers]
        known = [replica for replica in replicas if replica in self._context.replica_status]
        for status in _DROPPED:
            move_replicas(self._context, known, status, self._reign.batch)
        self._context.offline_directory_replicas.difference_update(replicas)


def _write_error(error: NoNode | TooLarge) -> ProtocolError:
    """Return the error for the client if an assignment could not be written."""
    if isinstance(error, TooLarge):
        return PolicyViolationError(str(error))
    return UnknownTopicOrPartitionError("The topic was deleted.")
