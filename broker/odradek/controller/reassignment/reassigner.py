"""Carries out reassignments, in the steps that docs/design/0007 lists and `reassignment` decides.

Called by `active` for requests, for the znode `/admin/reassign_partitions`, when a reign begins, when brokers come
back, and after every event to complete what has caught up. Everything that a successor needs is in ZooKeeper before
brokers are told of it, so a reassignment goes on wherever a reign ended.
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
from odradek.controller.reassignment import decisions as reassignment
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
"""The way of a replica that nobody needs: its broker is asked to delete it and, as in Kafka, not waited for."""

Errors = dict[TopicPartition, ProtocolError | None]
"""What became of each wish; None: it was granted."""

Wishes = Mapping[TopicPartition, tuple[int, ...] | None]
"""The replicas that partitions shall have; None cancels."""


class Reassigner:
    """The reassignments of one reign."""

    def __init__(self, reign: Reign, deleter: TopicDeleter) -> None:
        """`deleter` is told when a topic has no reassignment left."""
        self._reign = reign
        self._context = reign.context
        self._deleter = deleter
        self._has_znode = False

    # What is asked

    async def ask(self, wishes: Wishes) -> Errors:
        """Begin, replace or cancel reassignments; the error of each partition.

        The latest wish counts: entries of `/admin/reassign_partitions` for these partitions are dropped.
        """
        accepted, results = self._sorted_out(wishes, must_live=True)
        await self._drop_wishes(lambda partition, _: partition in accepted)
        return results | await self._begin(accepted)

    async def take_wishes(self) -> set[TopicPartition]:
        """`/admin/reassign_partitions` was made or changed: begin what it asks for, drop what cannot or need not be.

        Returns what was begun.
        """
        found = await self._reign.store.reassignments()
        self._has_znode = found is not None
        if found is None:
            return set()
        accepted, errors = self._sorted_out(found, must_live=False)
        news = {part: wish for part, wish in accepted.items() if self._is_news(part, wish)}
        errors |= await self._begin(news)
        for partition, error in errors.items():
            if error is not None:
                log.warning("%s is not reassigned: %s", partition, error)
        await self._drop_wishes(self._is_over)
        return set(news)

    async def _drop_wishes(self, is_over: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        # A znode that was made meanwhile has an event of its own.
        if self._has_znode:
            await self._reign.store.drop_reassignments(is_over)

    def list(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """Those of these partitions, None: of all, that are being reassigned."""
        context = self._context
        wanted = context.reassigning if partitions is None else context.reassigning & set(partitions)
        return {partition: context.assignment(partition) for partition in sorted(wanted)}

    def _sorted_out(self, wishes: Wishes, *, must_live: bool) -> tuple[dict[TopicPartition, ReplicaAssignment], Errors]:
        accepted: dict[TopicPartition, ReplicaAssignment] = {}
        refused: Errors = {}
        for partition, target in wishes.items():
            try:
                accepted[partition] = reassignment.wished(self._context, partition, target, must_live=must_live)
            except ProtocolError as error:
                refused[partition] = error
        return accepted, refused

    def _is_news(self, partition: TopicPartition, wish: ReplicaAssignment) -> bool:
        """Whether a wish in the znode, which is read again whenever it changes, was not taken up yet."""
        return self._context.assignment(partition) != wish

    def _is_over(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        """Whether a wish in the znode is fulfilled, was refused, or gave way to another one."""
        assignment = self._context.assignment(partition)
        return not assignment.is_being_reassigned or assignment.target != target

    # Steps

    async def _begin(self, wishes: Mapping[TopicPartition, ReplicaAssignment]) -> Errors:
        context = self._context
        errors: Errors = dict.fromkeys(wishes)
        unneeded = {part: reassignment.dropped(context, part, wish) for part, wish in wishes.items()}
        gone = {part: replicas for part, replicas in unneeded.items() if replicas}
        kept = await self._narrow({partition: wishes[partition].replicas for partition in gone})
        for partition in gone.keys() - kept:
            errors[partition] = InvalidReplicaAssignmentError("No replica that is kept is alive and in sync any more.")
        todo = {part: wish for part, wish in wishes.items() if errors[part] is None}
        changes = {part: wish for part, wish in todo.items() if context.assignment(part) != wish}
        failed = await self._reign.store.set_assignments(changes)
        for partition in [part for part in todo if part.topic in failed]:
            errors[partition] = _told(failed[partition.topic])
            del todo[partition]
        for partition, wish in todo.items():
            log.info("%s: replicas %s are to become %s", partition, list(wish.origin), list(wish.target))
            context.set_assignment(partition, wish)
        self._reign.tell([part for part in gone if part in kept])
        self._drop({part: gone[part] for part in todo if part in gone})
        await self._go_on(todo)
        return errors

    async def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with these, or all, reassignments: after a change of controller, or of the brokers that take part."""
        wanted = self._context.reassigning if partitions is None else self._context.reassigning & set(partitions)
        await self._go_on(sorted(wanted))

    async def advance(self) -> None:
        """Complete what the last event brought in sync."""
        moved = sorted(self._reign.moved & self._context.reassigning)
        self._reign.moved.clear()
        ready = [partition for partition in moved if reassignment.is_complete(self._context, partition)]
        if ready:
            await self._complete(ready)
            self._reign.flush()

    async def _go_on(self, partitions: Collection[TopicPartition]) -> None:
        ready = [partition for partition in partitions if reassignment.is_complete(self._context, partition)]
        await self._catch_up([partition for partition in partitions if partition not in set(ready)])
        await self._complete(ready)

    async def _catch_up(self, partitions: Collection[TopicPartition]) -> None:
        """All replicas learn of all replicas; the new ones start."""
        context, batch = self._context, self._reign.batch

        def tell(partition: TopicPartition) -> None:
            online = context.online_replicas(partition, or_shutting_down=True)
            adding = context.assignment(partition).adding
            batch.leader_and_isr([broker for broker in online if broker not in adding], partition)
            # A new replica may be made in any directory that works; an old one would have to be where it was.
            batch.leader_and_isr([broker for broker in online if broker in adding], partition, is_new=True)

        await self._reign.write(
            partitions, lambda left: reassignment.epoch_bumps(context, left, self._reign.epoch), tell=tell
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
        """The wanted replicas are the replicas; those that are not wanted go."""
        if not partitions:
            return
        context = self._context
        assignments = {partition: context.assignment(partition) for partition in partitions}
        never_led = [partition for partition in partitions if partition not in context.leaderships]
        done = await self._narrow({part: assignments[part].target for part in partitions if part not in never_led})
        finished = {part: ReplicaAssignment(replicas=assignments[part].target) for part in [*sorted(done), *never_led]}
        if not finished:
            return
        for partition, assignment in finished.items():
            context.set_assignment(partition, assignment)
            self._reign.batch.leader_and_isr(context.online_replicas(partition, or_shutting_down=True), partition)
        self._drop({partition: assignments[partition].removing for partition in finished})
        # Brokers first: as long as the znode names the old replicas, a successor would have them deleted.
        self._reign.flush()
        for error in (await self._reign.store.set_assignments(finished)).values():
            if isinstance(error, TooLarge):
                raise error
        await self._drop_wishes(self._is_over)
        for partition, assignment in finished.items():
            log.info("%s: its replicas are %s now", partition, list(assignment.replicas))
        self._reign.batch.update_metadata(finished)
        await self._deleter.undefer({partition.topic for partition in finished})

    async def _narrow(self, kept: Mapping[TopicPartition, Collection[int]]) -> set[TopicPartition]:
        """Leadership and in-sync set within what is kept; where that was possible. Nobody is told yet."""
        context = self._context
        led = {partition: tuple(left) for partition, left in kept.items() if partition in context.leaderships}
        plan = await self._reign.write(
            led,
            lambda left: reassignment.narrowed(context, {part: led[part] for part in left}, self._reign.epoch),
            tell=lambda partition: None,
        )
        vanished = led.keys() - context.leaderships.keys()
        return set(kept) - plan.obstacles.keys() - vanished

    def _drop(self, gone: Mapping[TopicPartition, Collection[int]]) -> None:
        """Replicas that are neither leaders nor in sync any more are stopped, deleted and forgotten."""
        replicas = [Replica(partition, broker) for partition, brokers in gone.items() for broker in brokers]
        known = [replica for replica in replicas if replica in self._context.replica_status]
        for status in _DROPPED:
            move_replicas(self._context, known, status, self._reign.batch)
        self._context.offline_directory_replicas.difference_update(replicas)


def _told(error: NoNode | TooLarge) -> ProtocolError:
    """What a client learns about an assignment that could not be written."""
    if isinstance(error, TooLarge):
        return PolicyViolationError(str(error))
    return UnknownTopicOrPartitionError("The topic is gone.")
