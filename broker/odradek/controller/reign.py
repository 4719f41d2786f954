"""One reign of this broker as controller: its context, its fenced writes, and the changes that events consist of.

Pure modules decide. A reign writes the decisions to ZooKeeper, updates the context and adds the requests to brokers to
the batch. `active`, `topic_deletion` and `reassigner` call it, one event at a time. Invariant: the context matches
ZooKeeper. A state enters the context only after its write succeeded; a state that someone else wrote is read again.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.controller import plans
from odradek.controller.broker_requests.dispatch import Dispatcher
from odradek.controller.broker_requests.request_batch import BrokerRequest, RequestBatch, Sender
from odradek.controller.context import ControllerContext, Leadership, PartitionStatus, Replica, ReplicaStatus, slices
from odradek.controller.controller_election import Seat
from odradek.controller.elections.election_rules import Cause, Obstacle
from odradek.controller.machines import move_partitions, move_replicas
from odradek.controller.plans import Plan, StateWrite
from odradek.controller.store import Store, Written
from odradek.zk.port import ZkClient

log = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Attempts to write a state that others keep changing, before it is left to the next event."""

_NAMED = 5
"""How many partitions a warning names."""

_LOGGED_EACH = 20
"""Up to this many states written at once are logged one by one."""

UNCLEAN_SETTING = "unclean.leader.election.enable"

Tell = Callable[[TopicPartition], None]
"""Adds the requests about a partition's new state to the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a reign uses of its broker."""

    zk: ZkClient
    clock: Clock
    config: BrokerConfig
    broker_id: int
    dispatcher: Dispatcher


class Reign:
    """The context and the operations of one reign."""

    def __init__(self, around: Surroundings, seat: Seat) -> None:
        """Start with an empty context."""
        self.around = around
        self.epoch = seat.epoch
        self.context = ControllerContext()
        self.store = Store(around.zk, seat)
        self.batch = RequestBatch(
            self.context,
            Sender(
                controller_id=around.broker_id,
                controller_epoch=seat.epoch,
                listener=around.config.inter_broker_listener,
            ),
        )
        self.unclean_elections = 0
        self._image_changes = 0
        self._warned: dict[tuple[str, Obstacle], set[TopicPartition]] = {}
        """The partitions of the last warning of each kind."""
        self.moved: set[TopicPartition] = set()
        """Partitions being reassigned whose state has changed since it was last checked."""

    @property
    def changes(self) -> int:
        """Increases before every change in ZooKeeper or in the context. While it is the same, nothing has changed."""
        return self._image_changes + self.store.transactions

    def about_to_change_image(self) -> None:
        """Count a change of the context that has no write to ZooKeeper before it."""
        self._image_changes += 1

    def flush(self) -> None:
        """Send the requests of the batch."""
        self.around.dispatcher.send(self.batch.take())

    async def flush_in_turns(self) -> None:
        """Send the requests of the batch, and yield to other tasks in between: there may be thousands of partitions."""
        requests: list[BrokerRequest] = []
        for lot in self.batch.lots():
            requests += lot
            await self.pause()
        self.around.dispatcher.send(requests)

    async def pause(self) -> None:
        """Yield to other tasks between slices of work that awaits nothing else."""
        await self.around.clock.sleep_ms(0)

    # Partitions

    async def create(self, partitions: Collection[TopicPartition]) -> None:
        """Give new partitions a state, and a first leader where a replica is alive."""
        move_partitions(self.context, partitions, PartitionStatus.NEW)
        replicas = [
            Replica(partition, broker)
            for partition in partitions
            for broker in self.context.assignment(partition).replicas
        ]
        move_replicas(self.context, replicas, ReplicaStatus.NEW, self.batch)
        await self.elect_first(partitions)
        for status, wanted in ((ReplicaStatus.ONLINE, True), (ReplicaStatus.OFFLINE, False)):
            some = [rep for rep in replicas if self.context.is_online(rep.broker, rep.partition) is wanted]
            move_replicas(self.context, some, status, self.batch)

    async def elect_first(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect first leaders of partitions that are NEW. Partitions without a live replica stay NEW."""
        plan = await self.write(
            partitions, lambda wanted: plans.first_leaders(self.context, wanted, self.epoch), is_new=True
        )
        self._warn_of("new partitions have no leader yet", plan.obstacles)

    async def elect(
        self, partitions: Iterable[TopicPartition], cause: Cause, *, unclean: bool = False
    ) -> dict[TopicPartition, Obstacle]:
        """Elect leaders. Returns the obstacle of each partition that got none.

        A replica that is not in sync can lead an offline partition if its topic allows it, or if `unclean`.
        """
        wanted = [partition for partition in partitions if partition in self.context.leaderships]
        plan = await self.write(wanted, lambda left: plans.elections(self.context, left, cause, self.epoch))
        if cause is not Cause.OFFLINE:
            return plan.obstacles
        return await self._elect_unclean(plan.obstacles, everywhere=unclean)

    async def _elect_unclean(
        self, obstacles: dict[TopicPartition, Obstacle], *, everywhere: bool
    ) -> dict[TopicPartition, Obstacle]:
        stuck = [part for part, obstacle in obstacles.items() if obstacle is Obstacle.NO_IN_SYNC_REPLICA]
        topics = {partition.topic for partition in stuck}
        allowed = topics if everywhere else await self._unclean_topics(topics)
        wanted = [partition for partition in stuck if partition.topic in allowed]
        if not wanted:
            return obstacles
        plan = await self.write(
            wanted,
            lambda left: plans.elections(self.context, left, Cause.OFFLINE, self.epoch, unclean_topics=allowed),
        )
        done = set(wanted) - plan.obstacles.keys()
        return {partition: obstacle for partition, obstacle in obstacles.items() if partition not in done}

    async def _unclean_topics(self, topics: Collection[str]) -> set[str]:
        if not topics:
            return set()
        default = str(self.around.config.unclean_leader_election_enable)
        default = (await self.store.dynamic_broker_settings(self.around.broker_id)).get(UNCLEAN_SETTING, default)
        settings = await self.store.topic_settings(sorted(topics))
        return {topic for topic, values in settings.items() if values.get(UNCLEAN_SETTING, default).lower() == "true"}

    async def trigger_online(self, topic: str | None = None) -> None:
        """Try to elect a leader for each partition without one, of a topic or of all, except those being deleted."""
        new, offline = [], []
        for partition, status in self.context.partition_status.items():
            if self.context.is_being_deleted(partition.topic) or topic not in (None, partition.topic):
                continue
            if status is PartitionStatus.NEW:
                new.append(partition)
            elif status is PartitionStatus.OFFLINE:
                offline.append(partition)
        await self.elect_first(new)
        self._warn_of("partitions stay without a leader", await self.elect(offline, Cause.OFFLINE))

    def _warn_of(self, what: str, obstacles: Mapping[TopicPartition, Obstacle]) -> None:
        """Log one line for each obstacle: when a cluster stops or starts, thousands of partitions have no leader.

        A repeated warning goes to the debug log, because many events try all these partitions again.
        """
        groups: defaultdict[Obstacle, list[TopicPartition]] = defaultdict(list)
        for partition, obstacle in obstacles.items():
            groups[obstacle].append(partition)
        for obstacle, partitions in groups.items():
            known, self._warned[what, obstacle] = self._warned.get((what, obstacle)), set(partitions)
            level = logging.DEBUG if known == set(partitions) else logging.WARNING
            log.log(level, "%d %s: %s: %s", len(partitions), what, obstacle.value, _some(partitions))

    # Replicas

    async def take_offline(self, replicas: Collection[Replica]) -> None:
        """Remove replicas from their ISRs, stop them if their brokers are alive, and inform the other brokers."""
        going: defaultdict[TopicPartition, list[Replica]] = defaultdict(list)
        for replica in replicas:
            going[replica.partition].append(replica)
        await self.write(
            going,
            lambda left: plans.isr_removals(
                self.context, [replica for partition in left for replica in going[partition]], self.epoch
            ),
            tell=lambda partition: self._tell_others(partition, going[partition]),
        )
        move_replicas(self.context, replicas, ReplicaStatus.OFFLINE, self.batch)

    def _tell_others(self, partition: TopicPartition, going: Collection[Replica]) -> None:
        """Inform all but the replicas that stop: they would follow in the epoch that begins without them."""
        brokers = {replica.broker for replica in going}
        online = self.context.online_replicas(partition, or_shutting_down=True)
        self.batch.leader_and_isr([broker for broker in online if broker not in brokers], partition)

    # Writing

    async def write(
        self,
        partitions: Iterable[TopicPartition],
        plan_for: Callable[[Collection[TopicPartition]], Plan],
        *,
        is_new: bool = False,
        tell: Tell | None = None,
    ) -> Plan:
        """Plan, write and update the context; plan again where someone else changed the state. Returns the obstacles
        left.

        `tell` adds the requests about a written state to the batch; by default every online replica is informed.
        """
        result = Plan()
        for some in slices(partitions):
            result.obstacles |= await self._write(some, plan_for, is_new=is_new, tell=tell)
        return result

    async def _write(
        self,
        partitions: Collection[TopicPartition],
        plan_for: Callable[[Collection[TopicPartition]], Plan],
        *,
        is_new: bool,
        tell: Tell | None,
    ) -> dict[TopicPartition, Obstacle]:
        left = partitions
        obstacles: dict[TopicPartition, Obstacle] = {}
        for _ in range(_ATTEMPTS):
            plan = plan_for(left)
            obstacles |= plan.obstacles
            if not plan.writes:
                return obstacles
            left = await self.carry_out(plan.writes, is_new=is_new, tell=tell)
            if not left:
                return obstacles
            if is_new:
                # An earlier controller elected a leader: from now on they are like any other partition.
                self.tell(left)
                await self.elect([part for part in left if self.context.has_offline_leader(part)], Cause.OFFLINE)
                return obstacles
        log.error("%d partitions keep changing and are left to the next event", len(left))
        return obstacles | dict.fromkeys(left, Obstacle.CONTENDED)

    async def carry_out(
        self,
        writes: Collection[StateWrite],
        *,
        is_new: bool = False,
        by_leader: bool = False,
        tell: Tell | None = None,
    ) -> list[TopicPartition]:
        """Write states, and update the context with those that succeeded. Returns the partitions whose znode had
        changed.

        Their states were read again. `by_leader`: the leader requested the change and learns of it from its response,
        so the replicas are not informed.
        """
        results = await self.store.write_states(list(writes))
        conflicts, done = [], []
        for write in writes:
            partition, result = write.partition, results[write.partition]
            if isinstance(result, Written):
                plans.apply_write(self.context, write, result.partition_epoch)
                self._follow_leader(partition)
                done.append(write)
                if tell is not None:
                    tell(partition)
                elif by_leader:
                    self.batch.update_metadata([partition])
                else:
                    self.tell([partition], is_new=is_new)
                continue
            conflicts.append(partition)
            if result.found is None:
                log.warning("the state of %s is gone", partition)
                self.context.leaderships.pop(partition, None)
            else:
                self.context.leaderships[partition] = result.found
                self._follow_leader(partition)
        self._log(done)
        return [partition for partition in conflicts if partition in self.context.leaderships]

    def _log(self, writes: Collection[StateWrite]) -> None:
        """Log each state that was written, or only the number for each reason if there are many."""
        self.unclean_elections += sum(write.unclean for write in writes)
        many = len(writes) > _LOGGED_EACH
        for write in writes:
            usual = logging.DEBUG if many or write.expected_epoch is None else logging.INFO
            level = logging.WARNING if write.unclean else usual
            if log.isEnabledFor(level):
                state = write.state
                text = "%s: leader %d, in sync %s: %s"
                log.log(level, text, write.partition, state.leader, list(state.isr), write.reason)
        if many:
            for reason, count in Counter(write.reason for write in writes).items():
                log.info("%d partitions have new states: %s", count, reason)

    async def look_again(self, replicas: Iterable[Replica]) -> None:
        """Read states again in which the replicas that go offline are not in sync, or no other replica is.

        Below inter-broker protocol 2.7-IV2, leaders write the ISR to ZooKeeper themselves and notify the controller
        later. A replica that has joined since would stay in the ISR although its broker is dead, or would not be
        elected. Other states need no check, because their writes are conditional on the version of the znode.
        """
        unsure: set[TopicPartition] = set()
        for replica in replicas:
            known = self.context.leaderships.get(replica.partition)
            if known is None:
                continue
            members = set(known.state.isr)
            if replica.broker not in members or members.isdisjoint(self.context.brokers):
                unsure.add(replica.partition)
        self.take_over(await self.store.leaderships(sorted(unsure)))

    def take_over(self, states: Mapping[TopicPartition, Leadership]) -> None:
        """Update the context with states that others wrote."""
        self.context.leaderships |= states
        self.moved |= self.context.reassigning & states.keys()

    def _follow_leader(self, partition: TopicPartition) -> None:
        if partition in self.context.reassigning:
            self.moved.add(partition)
        online = self.context.leader(partition) != NO_BROKER
        move_partitions(self.context, [partition], PartitionStatus.ONLINE if online else PartitionStatus.OFFLINE)

    def tell(self, partitions: Iterable[TopicPartition], *, is_new: bool = False) -> None:
        """Inform every online replica of the states of these partitions."""
        for partition in partitions:
            online = self.context.online_replicas(partition, or_shutting_down=True)
            self.batch.leader_and_isr(online, partition, is_new=is_new)


def _some(partitions: Collection[TopicPartition]) -> str:
    """Return the names of the first partitions, and the number of the others."""
    names = ", ".join(str(partition) for partition in sorted(partitions)[:_NAMED])
    return names if len(partitions) <= _NAMED else f"{names} and {len(partitions) - _NAMED} others"
