"""The active controller: the handlers of all events.

An event only means that something may have changed. Its handler reads ZooKeeper, compares the result with the context,
calls the pure modules for decisions, and carries them out through `reign`. The runtime calls one handler at a time. An
error that a handler does not catch ends the reign. The next reign reads the whole state from ZooKeeper again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from uuid import UUID

from odradek.base.config import parse_release
from odradek.base.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    FeatureUpdateFailedError,
    InvalidRequestError,
    ProtocolError,
    StaleBrokerEpochError,
    UnknownServerError,
)
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.controller import features
from odradek.controller.context import LiveBroker, PartitionStatus, Replica, ReplicaStatus, slices
from odradek.controller.controller_election import Election
from odradek.controller.elections.election_rules import Cause
from odradek.controller.elections.leader_elections import LeaderElections
from odradek.controller.events import (
    BrokersChanged,
    DeletionsChanged,
    Event,
    IsrNoticesChanged,
    LogDirNoticesChanged,
    PreferredElectionRequested,
    ReassignmentsRequested,
    TopicChanged,
    TopicsChanged,
)
from odradek.controller.features import FeatureUpdate
from odradek.controller.machines import move_partitions, move_replicas
from odradek.controller.reassignment.reassigner import Reassigner
from odradek.controller.reign import Environment, Reign
from odradek.controller.store import topics_without_id
from odradek.controller.topics.topic_deletion import REASON_DEAD_REPLICA, TopicDeleter
from odradek.protocol.feature_levels import TRANSACTION_VERSION
from odradek.protocol.release_versions import has_topic_ids
from odradek.zk import layout
from odradek.zk.layout import LayoutError, TopicAssignment, decode_partitions
from odradek.zk.port import BadVersion, NoNode, Watch
from odradek.zk.registration import next_producer_ids

log = logging.getLogger(__name__)

_ELIGIBLE_TO_RETURN = frozenset(
    {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
)


class ActiveController:
    """The event handlers of one reign."""

    def __init__(self, environment: Environment, election_result: Election, post: Callable[[Event], None]) -> None:
        """`post` queues an event. Watches call it."""
        self.reign = Reign(environment, election_result)
        self.context = self.reign.context
        self.deleter = TopicDeleter(self.reign, self._forget_topic)
        self.reassigner = Reassigner(self.reign, self.deleter)
        self.elections = LeaderElections(self.reign)
        self._environment = environment
        self._post = post
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}
        self._broker_watches: dict[int, Watch] = {}

    # Beginning and end

    async def start(self) -> None:
        """Read the state of the cluster from ZooKeeper, elect missing leaders, and resume interrupted operations."""
        self._watch_roots()
        store, batch = self.reign.store, self.reign.batch
        await self._set_up_features()
        for parent in (layout.ISR_CHANGES, layout.LOG_DIR_EVENTS):
            await store.delete_each(await store.notices(parent))
        await self._load()
        batch.update_metadata([])
        self.reign.flush()
        await self.reign.trigger_online()
        await self.reign.take_offline(self._dead_replicas())
        for some in slices(self.context.leaderships):
            # A broker that has already deleted its replica would create it again if it received a role.
            self.reign.inform(part for part in some if not self.context.is_being_deleted(part.topic))
            batch.update_metadata(part for part in some if self.context.is_being_deleted(part.topic))
            await self.reign.pause()
        # In the same batch as the roles, so that replicas that are being added are marked as new.
        begun = await self.reassigner.take_requested()
        await self.reassigner.resume(self.context.reassigning - begun)
        await self.reign.flush_in_turns()
        await self.deleter.resume()
        await self.elections.take_requested()
        await self._raise_features()
        await self.settle()

    async def settle(self) -> None:
        """Complete reassignments that can be completed after the last event, and send the requests of the batch. Called
        after every event."""
        await self.reassigner.advance()
        self.reign.flush()

    def stop(self) -> None:
        """Cancel all watches."""
        for watch in [*self._watches, *self._topic_watches.values(), *self._broker_watches.values()]:
            watch.cancel()

    def _watch_roots(self) -> None:
        zk = self._environment.zk
        children: dict[str, Event] = {
            layout.BROKER_IDS: BrokersChanged(),
            layout.TOPICS: TopicsChanged(),
            layout.DELETE_TOPICS: DeletionsChanged(),
            layout.ISR_CHANGES: IsrNoticesChanged(),
            layout.LOG_DIR_EVENTS: LogDirNoticesChanged(),
        }
        data: dict[str, Event] = {
            layout.PREFERRED_ELECTION: PreferredElectionRequested(),
            layout.REASSIGN_PARTITIONS: ReassignmentsRequested(),
        }
        self._watches += [zk.watch_children(path, self._poster(event)) for path, event in children.items()]
        self._watches += [zk.watch_data(path, self._poster(event)) for path, event in data.items()]

    async def _set_up_features(self) -> None:
        """Update `/feature` for the inter-broker protocol version."""
        text = self._environment.config.inter_broker_protocol_version
        try:
            found = await self.reign.store.feature()
        except LayoutError as error:
            log.error("the finalized features are not changed: %s", error)
            return
        current, version = (None, None) if found is None else found
        wanted = features.initial(parse_release("inter.broker.protocol.version", text), current)
        if wanted != current:
            await self.reign.store.put_feature(wanted, version)

    async def update_features(
        self, updates: Collection[FeatureUpdate], *, validate_only: bool
    ) -> dict[str, ProtocolError | None]:
        """Change finalized features. Returns the error of each update. Raises `InvalidRequestError` if features are
        disabled."""
        found = await self.reign.store.feature()
        if found is None or not found[0].enabled:
            raise InvalidRequestError("The inter-broker protocol version of this cluster does not support features.")
        feature, version = found
        levels, results = features.updated(feature.features, updates, self._registered_features())
        if levels == feature.features or validate_only:
            return results
        try:
            await self.reign.store.put_feature(replace(feature, features=levels), version)
        except (BadVersion, NoNode):
            failed = FeatureUpdateFailedError("The finalized features were changed at the same time: try again.")
            return {name: error or failed for name, error in results.items()}
        return results

    def _registered_features(self) -> dict[int, features.RegisteredFeatures]:
        """Return the features that each live broker supports."""
        return {broker_id: broker.registration.features for broker_id, broker in self.context.brokers.items()}

    async def _raise_features(self) -> None:
        """Finalize the levels that the settings want. Waits until all brokers with replicas are live, because one that
        is down may not support them."""
        wanted = {TRANSACTION_VERSION: self._environment.config.transaction_version}
        assigned = {broker for part in self.context.partitions() for broker in self.context.assignment(part).replicas}
        if not any(wanted.values()) or not assigned <= self.context.brokers.keys():
            return
        try:
            found = await self.reign.store.feature()
        except LayoutError as error:
            log.error("the finalized features are not changed: %s", error)
            return
        if found is None or not found[0].enabled:
            return
        feature, version = found
        levels = features.raised(feature.features, wanted, self._registered_features())
        if levels == feature.features:
            return
        try:
            await self.reign.store.put_feature(replace(feature, features=levels), version)
        except (BadVersion, NoNode):
            log.warning("the features were changed at the same time; the next change of the brokers raises them")
            return
        log.info("the finalized features are now %s", levels)

    def _poster(self, event: Event) -> Callable[[], None]:
        return lambda: self._post(event)

    async def _load(self) -> None:
        context, store = self.context, self.reign.store
        for broker in (await store.brokers()).values():
            self._put_broker(broker)
        await self._put_topics(await store.topics(self._watched(await store.topic_names())))
        context.leaderships |= await store.leaderships(context.partitions())
        self.deleter.begin_or_defer(await self._marked_for_deletion())
        for some in slices(context.partitions()):
            self._initialize_states(some)
            await self.reign.pause()
        for topic in sorted(context.assignments.keys() & context.deletions):
            if any(not context.is_online(rep.broker, rep.partition) for rep in context.replicas_of(topic)):
                context.blocked_deletions[topic] = REASON_DEAD_REPLICA

    def _initialize_states(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the initial states of partitions and replicas from the state in ZooKeeper."""
        context = self.context
        for partition in partitions:
            if partition not in context.leaderships:
                status = PartitionStatus.NEW
            elif context.has_offline_leader(partition) or context.has_restarted_leader(partition):
                status = PartitionStatus.OFFLINE
            else:
                status = PartitionStatus.ONLINE
            context.partition_status[partition] = status
            deleting = context.is_being_deleted(partition.topic)
            gone = ReplicaStatus.DELETION_INELIGIBLE if deleting else ReplicaStatus.OFFLINE
            for broker in context.assignment(partition).replicas:
                online = context.is_online(broker, partition)
                context.replica_status[Replica(partition, broker)] = ReplicaStatus.ONLINE if online else gone

    def _dead_replicas(self) -> list[Replica]:
        statuses = self.context.replica_status.items()
        return [replica for replica, status in statuses if status is ReplicaStatus.OFFLINE]

    # Brokers

    async def brokers_changed(self) -> None:
        """Handle brokers that have registered, disappeared, restarted or changed their addresses since the last
        read."""
        found, known = await self.reign.store.brokers(), dict(self.context.brokers)
        gone = known.keys() - found.keys()
        restarted = {broker for broker in found.keys() & known.keys() if found[broker].epoch != known[broker].epoch}
        new = found.keys() - known.keys()
        moved = [
            broker
            for broker in found.keys() & known.keys() - restarted
            if found[broker].registration != known[broker].registration
        ]
        if gone or restarted:
            await self._brokers_disappeared(sorted(gone | restarted))
            # Send the batch before restarted brokers are added: its requests to stop replicas are for their earlier
            # epochs.
            await self.reign.flush_in_turns()
        for broker in moved:
            self._put_broker(found[broker])
            self.reign.batch.update_metadata([])
        if new or restarted:
            await self._brokers_appeared([found[broker] for broker in sorted(new | restarted)])
        await self.reign.flush_in_turns()
        await self._raise_features()

    def _put_broker(self, broker: LiveBroker) -> None:
        broker_id = broker.registration.broker_id
        self.context.brokers[broker_id] = broker
        self._environment.dispatcher.put_broker(broker)
        if broker_id not in self._broker_watches:
            path = layout.broker_path(broker_id)
            self._broker_watches[broker_id] = self._environment.zk.watch_data(path, self._poster(BrokersChanged()))

    async def _brokers_appeared(self, brokers: Collection[LiveBroker]) -> None:
        """Handle new brokers: inform the others of them, send them all metadata, bring their replicas online, and elect
        leaders."""
        context, batch = self.context, self.reign.batch
        for broker in brokers:
            log.info("broker %d is up", broker.registration.broker_id)
            self._put_broker(broker)
        ids = [broker.registration.broker_id for broker in brokers]
        batch.update_metadata([])
        batch.full_metadata(ids)
        self.reign.flush()
        replicas = context.replicas_on(ids)
        returning = [rep for rep in replicas if context.replica_status.get(rep) in _ELIGIBLE_TO_RETURN]
        move_replicas(context, returning, ReplicaStatus.ONLINE, batch)
        await self.reign.trigger_online()
        concerned = [part for part in context.reassigning if set(context.assignment(part).target) & set(ids)]
        await self.reassigner.resume(concerned)
        await self.deleter.unblock({replica.partition.topic for replica in replicas})

    async def _brokers_disappeared(self, brokers: Collection[int]) -> None:
        for broker in brokers:
            log.info("broker %d is down", broker)
            self.context.remove_broker(broker)
            self._environment.dispatcher.remove_broker(broker)
            watch = self._broker_watches.pop(broker, None)
            if watch is not None:
                watch.cancel()
        await self._replicas_offline(self.context.replicas_on(brokers))
        self.reign.batch.update_metadata([])

    async def _replicas_offline(self, replicas: Collection[Replica]) -> None:
        """Handle offline replicas: elect other leaders, remove the replicas from the ISRs, and block deletions."""
        context = self.context
        await self.reign.reread_doubtful(replicas)
        led = [
            partition
            for partition in context.leaderships
            if not context.is_being_deleted(partition.topic) and context.has_offline_leader(partition)
        ]
        move_partitions(context, led, PartitionStatus.OFFLINE)
        await self.reign.trigger_online()
        await self.reign.take_offline([rep for rep in replicas if not context.is_being_deleted(rep.partition.topic)])
        deleting = [rep for rep in replicas if context.is_being_deleted(rep.partition.topic)]
        if deleting:
            await self.deleter.fail(deleting, REASON_DEAD_REPLICA)

    # Topics

    async def topics_changed(self) -> None:
        """Handle topics that were created, or whose znodes were removed."""
        context = self.context
        names = await self.reign.store.topic_names()
        for topic in context.assignments.keys() - set(names):
            self._forget_topic(topic)
            context.remove_topic(topic)
        fresh = self._watched(name for name in names if name not in context.assignments)
        await self.reign.create(await self._put_topics(await self.reign.store.topics(fresh)))
        await self.reign.flush_in_turns()

    async def partitions_added(self, topics: Collection[str]) -> None:
        """Handle topics that may have new partitions."""
        fresh: list[TopicPartition] = []
        for found in (await self.reign.store.topics(topics)).values():
            fresh += await self._growth(found)
        if fresh:
            await self.reign.create(fresh)
        await self.reign.flush_in_turns()

    async def _growth(self, found: TopicAssignment) -> list[TopicPartition]:
        """Return the new partitions of a topic. A topic that is being deleted gets its old assignment back."""
        known = self.context.assignments.get(found.topic)
        if known is None or not found.partitions.keys() - known.keys():
            return []
        if self.context.is_marked_for_deletion(found.topic):
            log.warning("topic %s is being deleted: the partitions that were added to it are removed", found.topic)
            kept = {number: part for number, part in found.partitions.items() if number in known}
            await self.reign.store.set_topic(replace(found, partitions=kept))
            return []
        # Existing partitions keep the assignment of the context: a change of this znode does not request a
        # reassignment.
        fresh = {number: part for number, part in found.partitions.items() if number not in known}
        return self.context.put_topic(replace(found, partitions=fresh))

    def _watched(self, names: Iterable[str]) -> list[str]:
        """Watch topics and return their names. Called before they are read, so that no change is missed."""
        wanted = list(names)
        for name in wanted:
            if name not in self._topic_watches:
                path = layout.topic_path(name)
                self._topic_watches[name] = self._environment.zk.watch_data(path, self._poster(TopicChanged(name)))
        return wanted

    def _forget_topic(self, topic: str) -> None:
        watch = self._topic_watches.pop(topic, None)
        if watch is not None:
            watch.cancel()

    async def _put_topics(self, topics: dict[str, TopicAssignment]) -> list[TopicPartition]:
        """Add topics to the context. Topics without an id get one if the inter-broker protocol has topic ids."""
        knows_ids = has_topic_ids(self._environment.config.inter_broker_protocol_version)
        for topic in topics_without_id(topics) if knows_ids else ():
            topic_id = UUID(bytes=self._environment.clock.token_bytes(16), version=4)
            topics[topic.topic] = replace(topic, topic_id=topic_id)
            await self.reign.store.set_topic(topics[topic.topic])
        fresh = []
        for assignment in topics.values():
            fresh += self.context.put_topic(assignment)
        return fresh

    async def deletions_changed(self) -> None:
        """Handle topics that were marked for deletion."""
        topics = await self._marked_for_deletion()
        if topics:
            await self.deleter.enqueue(topics)
        self.reign.flush()

    async def _marked_for_deletion(self) -> list[str]:
        """Return the topics to delete. Marks of unknown topics are removed, and all marks while deletion is
        disabled."""
        marked = await self.reign.store.deletions()
        enabled = self._environment.config.delete_topic_enable
        wanted = [topic for topic in marked if enabled and topic in self.context.assignments]
        refused = [layout.delete_topic_path(topic) for topic in marked if topic not in wanted]
        if refused:
            log.warning(
                "topics are not deleted because they do not exist or delete.topic.enable is false: %s",
                ", ".join(refused),
            )
            await self.reign.store.delete_each(refused)
        return wanted

    # Elections

    async def preferred_election_requested(self) -> None:
        """Handle the creation of `/admin/preferred_replica_election`."""
        await self.elections.take_requested()

    async def reassignments_requested(self) -> None:
        """Handle a change of `/admin/reassign_partitions`."""
        await self.reassigner.take_requested()

    async def rebalance_due(self) -> None:
        """Run the automatic leader balance."""
        await self.elections.balance(self._environment.config.leader_imbalance_per_broker_percentage)

    async def topic_settings_changed(self, topic: str | None) -> None:
        """Try elections again after a change of the settings of a topic, or of the defaults if `topic` is None: they
        may allow unclean elections now."""
        await self.reign.trigger_online(topic)

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker that stops, and remove its replicas from the ISRs. Returns the partitions
        that it still leads."""
        context, batch = self.context, self.reign.batch
        live = context.brokers.get(broker)
        if live is None:
            raise BrokerNotAvailableError(f"broker {broker} is not alive")
        if broker_epoch != NO_EPOCH and broker_epoch < live.epoch:
            raise StaleBrokerEpochError(f"broker {broker} has restarted: its epoch is {live.epoch}")
        self.reign.about_to_change_image()
        context.shutting_down.add(broker)
        hosted = [
            replica.partition
            for replica in context.replicas_on([broker])
            if len(context.assignment(replica.partition).replicas) > 1
            and replica.partition in context.leaderships
            and not context.is_being_deleted(replica.partition.topic)
        ]
        led = [partition for partition in hosted if context.leader(partition) == broker]
        followed = [partition for partition in hosted if context.leader(partition) != broker]
        await self.reign.elect(led, Cause.CONTROLLED_SHUTDOWN)
        batch.update_metadata(hosted)
        await self.reign.flush_in_turns()
        await self.reign.take_offline([Replica(partition, broker) for partition in followed])
        await self.reign.flush_in_turns()
        # A partition without another replica cannot move, so the broker does not have to wait for it.
        return [partition for partition in hosted if context.leader(partition) == broker]

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> tuple[int, int]:
        """Allocate the next block of producer ids to a broker. Returns its first id and its size."""
        live = self.context.brokers.get(broker)
        if live is None:
            raise BrokerIdNotRegisteredError(f"broker {broker} is not alive")
        if broker_epoch != live.epoch:
            raise StaleBrokerEpochError(f"broker {broker} has epoch {live.epoch}, not {broker_epoch}")
        try:
            block = await next_producer_ids(self._environment.zk, broker)
        except LayoutError as error:
            raise UnknownServerError(str(error)) from error
        return block.first_id, block.last_id - block.first_id + 1

    # Notifications of brokers

    async def isr_notices_changed(self) -> None:
        """Read the ISRs that leaders with an old inter-broker protocol wrote themselves, and inform all brokers."""
        notices = await self.reign.store.notices(layout.ISR_CHANGES)
        changed: set[TopicPartition] = set()
        for path, data in notices.items():
            try:
                changed |= decode_partitions(path, data)
            except LayoutError as error:
                log.error("ignoring an invalid notification: %s", error)
        known = sorted(part for part in changed if part in self.context.leaderships)
        self.reign.update_states(await self.reign.store.leaderships(known))
        if known:
            self.reign.batch.update_metadata(known)
            self.reign.flush()
        await self.reign.store.delete_each(notices)

    async def log_dir_notices_changed(self) -> None:
        """Send brokers with failed log directories the roles of all their replicas. Their responses have an error for
        each replica that has failed."""
        notices = await self.reign.store.notices(layout.LOG_DIR_EVENTS)
        brokers = set()
        for path, data in notices.items():
            try:
                brokers.add(layout.LogDirEvent.decode(path, data).broker_id)
            except LayoutError as error:
                log.error("ignoring an invalid notification: %s", error)
        online = [
            rep
            for rep in self.context.replicas_on(brokers)
            if self.context.replica_status.get(rep) is ReplicaStatus.ONLINE
        ]
        move_replicas(self.context, online, ReplicaStatus.ONLINE, self.reign.batch)
        self.reign.flush()
        await self.reign.store.delete_each(notices)

    async def replicas_failed(self, failed: Collection[Replica], working: Collection[Replica]) -> None:
        """Handle the response of a broker, which has an error for each replica that it cannot serve."""
        context = self.context
        context.offline_directory_replicas -= set(working)
        fresh = set(failed) - context.offline_directory_replicas
        if fresh:
            context.offline_directory_replicas |= fresh
            await self._replicas_offline(sorted(fresh))
            self.reign.flush()
