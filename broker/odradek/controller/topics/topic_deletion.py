"""Deletion of topics: decides which steps are possible and carries them out.

`active` calls `TopicDeleter` when topics are marked for deletion, when brokers have deleted replicas, and when brokers
register or disappear. `next_steps` and `replicas_to_delete` only read the context.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from odradek.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from odradek.controller.machines import in_status, move_partitions, move_replicas
from odradek.controller.reign import Reign

log = logging.getLogger(__name__)

REASON_DEAD_REPLICA = "a replica is on a broker that is not alive"
REASON_FAILED_REPLICA = "a replica could not be deleted"
REASON_SLOW_DISK = "the disk of a broker is slow, so the deletion of a replica is not durable yet"


@dataclass(slots=True)
class DeletionSteps:
    """The steps of all deletions that are possible now."""

    finished: list[str] = field(default_factory=list)
    """Topics whose replicas are all deleted: their znodes are removed."""
    retried: list[Replica] = field(default_factory=list)
    """Replicas whose deletion failed and is tried again, because their topic is not blocked."""
    started: list[str] = field(default_factory=list)
    """Topics whose replicas can be deleted."""


def next_steps(context: ControllerContext) -> DeletionSteps:
    """Return the steps that are possible now."""
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
    """The replicas of a topic that are still to be deleted, on live and on dead brokers."""

    alive: list[Replica] = field(default_factory=list)
    dead: list[Replica] = field(default_factory=list)


def replicas_to_delete(context: ControllerContext, topic: str) -> ReplicasToDelete:
    """Return the replicas that are not deleted yet. Those on dead brokers block the deletion."""
    split = ReplicasToDelete()
    for replica in context.replicas_of(topic):
        if context.replica_status.get(replica) is ReplicaStatus.DELETION_SUCCESSFUL:
            continue
        online = context.is_online(replica.broker, replica.partition, or_shutting_down=True)
        (split.alive if online else split.dead).append(replica)
    return split


class TopicDeleter:
    """The deletions of one reign."""

    def __init__(self, reign: Reign, on_deleted: Callable[[str], None]) -> None:
        """`on_deleted` is called before the znodes of a topic are removed, so that watches can be cancelled."""
        self._reign = reign
        self._on_deleted = on_deleted

    def begin_or_defer(self, topics: Iterable[str]) -> None:
        """Start the deletion of topics. Topics that are being reassigned wait until the reassignment is complete."""
        context = self._reign.context
        for topic in topics:
            if not context.is_being_reassigned(topic):
                context.deletions.add(topic)
            elif topic not in context.deletions | context.deferred_deletions:
                log.info("the deletion of topic %s waits until its reassignments are complete", topic)
                context.deferred_deletions.add(topic)

    async def enqueue(self, topics: Collection[str]) -> None:
        """Delete topics."""
        self.begin_or_defer(topics)
        await self.resume()

    async def start_deferred(self, topics: Iterable[str]) -> None:
        """Start the deletions that waited for the reassignments of these topics, which are complete."""
        context = self._reign.context
        ready = [
            topic for topic in topics if topic in context.deferred_deletions and not context.is_being_reassigned(topic)
        ]
        context.deferred_deletions.difference_update(ready)
        if ready:
            await self.enqueue(ready)

    async def unblock(self, topics: Iterable[str]) -> None:
        """Try the deletion of these topics again, because the reason why it was blocked may no longer exist."""
        for topic in topics:
            self._reign.context.blocked_deletions.pop(topic, None)
        await self.resume()

    async def retry_slow(self) -> None:
        """Try the deletions again that wait for a slow disk."""
        blocked = self._reign.context.blocked_deletions
        await self.unblock([topic for topic, reason in blocked.items() if reason == REASON_SLOW_DISK])

    async def fail(self, replicas: Collection[Replica], reason: str) -> None:
        """Block the deletion of the topics of replicas that could not be deleted."""
        context = self._reign.context
        # A replica that was dropped in a reassignment no longer belongs to the topic.
        failed = [
            replica
            for replica in replicas
            if context.is_being_deleted(replica.partition.topic) and replica in context.replica_status
        ]
        able = [
            replica
            for replica in failed
            if context.replica_status.get(replica) in (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
        ]
        move_replicas(context, able, ReplicaStatus.DELETION_INELIGIBLE, self._reign.batch)
        for replica in failed:
            self._block(replica.partition.topic, reason)
        await self.resume()

    async def complete(self, replicas: Collection[Replica]) -> None:
        """Handle replicas that brokers have deleted."""
        context = self._reign.context
        done = in_status(context, replicas, ReplicaStatus.DELETION_STARTED)
        move_replicas(context, done, ReplicaStatus.DELETION_SUCCESSFUL, self._reign.batch)
        await self.resume()

    async def resume(self) -> None:
        """Carry out the steps that are possible now."""
        context, batch = self._reign.context, self._reign.batch
        steps = next_steps(context)
        for topic in steps.finished:
            move_replicas(context, context.replicas_of(topic), ReplicaStatus.NON_EXISTENT, batch)
            self._on_deleted(topic)
            await self._reign.store.delete_topic(topic)
            context.remove_topic(topic)
            log.info("topic %s was deleted", topic)
        move_replicas(context, steps.retried, ReplicaStatus.OFFLINE, batch)
        for topic in steps.started:
            self._start(topic)

    def _start(self, topic: str) -> None:
        context, batch = self._reign.context, self._reign.batch
        partitions = context.partitions_of(topic)
        if topic not in context.deletions_begun:
            log.info("topic %s is being deleted", topic)
            known = [partition for partition in partitions if partition in context.partition_status]
            move_partitions(context, known, PartitionStatus.OFFLINE)
            move_partitions(context, known, PartitionStatus.NON_EXISTENT)
            context.deletions_begun.add(topic)
        batch.update_metadata(partitions)
        split = replicas_to_delete(context, topic)
        move_replicas(context, split.alive, ReplicaStatus.OFFLINE, batch)
        move_replicas(context, split.alive, ReplicaStatus.DELETION_STARTED, batch)
        dead = [
            replica
            for replica in split.dead
            if context.replica_status.get(replica) is not ReplicaStatus.DELETION_INELIGIBLE
        ]
        move_replicas(context, in_status(context, dead, ReplicaStatus.ONLINE), ReplicaStatus.OFFLINE, batch)
        move_replicas(context, dead, ReplicaStatus.DELETION_INELIGIBLE, batch)
        if split.dead:
            self._block(topic, REASON_DEAD_REPLICA)

    def _block(self, topic: str, reason: str) -> None:
        if topic not in self._reign.context.blocked_deletions:
            log.info("the deletion of topic %s waits: %s", topic, reason)
        self._reign.context.blocked_deletions[topic] = reason
