"""One reign of this broker as controller: its context, its fenced writes, and the operations of event handlers.

Pure modules make the decisions. A reign writes them to ZooKeeper, updates the context and adds the requests to brokers
to the batch. `active`, `topic_deletion` and `reassigner` call it, one event at a time. Invariant: the context matches
ZooKeeper. A state is added to the context only after its write succeeded. A state that another process wrote is read
again.
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
from odradek.controller.broker_requests.request_batch import BrokerRequest, ControllerIdentity, RequestBatch
from odradek.controller.broker_requests.request_sender import RequestSender
from odradek.controller.context import ControllerContext, Leadership, PartitionStatus, Replica, ReplicaStatus, slices
from odradek.controller.controller_election import Election
from odradek.controller.elections.election_rules import Cause, Obstacle
from odradek.controller.machines import move_partitions, move_replicas
from odradek.controller.plans import Plan, StateWrite
from odradek.controller.store import Store, Written
from odradek.zk.port import ZkClient

log = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Maximum number of attempts to write a state that others keep changing. After that, the next event tries again."""

_NAMED = 5
"""Maximum number of partitions that a warning names."""

_LOGGED_EACH = 20
"""If at most this many states are written at once, each is logged."""

UNCLEAN_SETTING = "unclean.leader.election.enable"

Inform = Callable[[TopicPartition], None]
"""Adds the requests about a partition's new state to the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The parts of the broker that a reign uses."""

    zk: ZkClient
    clock: Clock
    config: BrokerConfig
    broker_id: int
    dispatcher: RequestSender


class Reign:
    """The context and the operations of one reign."""

    def __init__(self, environment: Environment, election_result: Election) -> None:
        """Create a reign with an empty context."""
        self.environment = environment
        self.epoch = election_result.epoch
        self.context = ControllerContext()
        self.store = Store(environment.zk, election_result)
        self.batch = RequestBatch(
            self.context,
            ControllerIdentity(
                controller_id=environment.broker_id,
                controller_epoch=election_result.epoch,
                listener=environment.config.inter_broker_listener,
            ),
        )
        self.unclean_elections = 0
        self._image_changes = 0
        self._warned: dict[tuple[str, Obstacle], set[TopicPartition]] = {}
        """The partitions of the last warning of each kind."""
        self.moved: set[TopicPartition] = set()
        """Partitions that are being reassigned and whose state has changed since the last check."""

    @property
    def changes(self) -> int:
        """Increases before every change in ZooKeeper or in the context."""
        return self._image_changes + self.store.transactions

    def about_to_change_image(self) -> None:
        """Increase `changes` before a change of the context without a write to ZooKeeper."""
        self._image_changes += 1

    def flush(self) -> None:
        """Send the requests of the batch."""
        self.environment.dispatcher.send(self.batch.take())

    async def flush_in_turns(self) -> None:
        """Send the requests of the batch, and let other tasks run in between, because there may be thousands of
        partitions."""
        requests: list[BrokerRequest] = []
        for group in self.batch.groups():
            requests += group
            await self.pause()
        self.environment.dispatcher.send(requests)

    async def pause(self) -> None:
        """Let other tasks run between two slices of work that awaits nothing else."""
        await self.environment.clock.sleep_ms(0)

    # Partitions

    async def create(self, partitions: Collection[TopicPartition]) -> None:
        """Initialize the states of new partitions, and elect the first leaders of those with a live replica."""
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
        """Elect leaders. Returns the obstacle of each partition without a new leader.

        A replica that is not in sync can lead an offline partition if its topic allows it, or if `unclean` is set.
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
        default = str(self.environment.config.unclean_leader_election_enable)
        default = (await self.store.dynamic_broker_settings(self.environment.broker_id)).get(UNCLEAN_SETTING, default)
        settings = await self.store.topic_settings(sorted(topics))
        return {topic for topic, values in settings.items() if values.get(UNCLEAN_SETTING, default).lower() == "true"}

    async def trigger_online(self, topic: str | None = None) -> None:
        """Try to elect leaders of all partitions without one, or of those of a topic. Topics that are being deleted are
        ignored."""
        new, offline = [], []
        for partition, status in self.context.partition_status.items():
            if self.context.is_being_deleted(partition.topic) or topic not in (None, partition.topic):
                continue
            if status is PartitionStatus.NEW:
                new.append(partition)
            elif status is PartitionStatus.OFFLINE:
                offline.append(partition)
        await self.elect_first(new)
        self._warn_of("partitions have no leader", await self.elect(offline, Cause.OFFLINE))

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
            inform=lambda partition: self._inform_others(partition, going[partition]),
        )
        move_replicas(self.context, replicas, ReplicaStatus.OFFLINE, self.batch)

    def _inform_others(self, partition: TopicPartition, going: Collection[Replica]) -> None:
        """Inform all replicas except those that stop, which would otherwise follow the leader in the new epoch."""
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
        inform: Inform | None = None,
    ) -> Plan:
        """Write planned states and update the context. If a state was changed meanwhile, plan again. Returns the
        remaining obstacles.

        `inform` adds the requests about a written state to the batch. By default every online replica is informed.
        """
        result = Plan()
        for some in slices(partitions):
            result.obstacles |= await self._write(some, plan_for, is_new=is_new, inform=inform)
        return result

    async def _write(
        self,
        partitions: Collection[TopicPartition],
        plan_for: Callable[[Collection[TopicPartition]], Plan],
        *,
        is_new: bool,
        inform: Inform | None,
    ) -> dict[TopicPartition, Obstacle]:
        left = partitions
        obstacles: dict[TopicPartition, Obstacle] = {}
        for _ in range(_ATTEMPTS):
            plan = plan_for(left)
            obstacles |= plan.obstacles
            if not plan.writes:
                return obstacles
            left = await self.carry_out(plan.writes, is_new=is_new, inform=inform)
            if not left:
                return obstacles
            if is_new:
                # An earlier controller elected a leader, so these partitions are no longer new.
                self.inform(left)
                await self.elect([part for part in left if self.context.has_offline_leader(part)], Cause.OFFLINE)
                return obstacles
        log.error(
            "%d partitions were not written because others keep changing them; the next event tries again", len(left)
        )
        return obstacles | dict.fromkeys(left, Obstacle.CONTENDED)

    async def carry_out(
        self,
        writes: Collection[StateWrite],
        *,
        is_new: bool = False,
        by_leader: bool = False,
        inform: Inform | None = None,
    ) -> list[TopicPartition]:
        """Write states, and update the context with those that succeeded. Returns the partitions whose znode had
        changed.

        The states of these partitions were read again. With `by_leader`, the replicas are not informed: the leader
        requested the change and learns of it from the response.
        """
        results = await self.store.write_states(list(writes))
        conflicts, done = [], []
        for write in writes:
            partition, result = write.partition, results[write.partition]
            if isinstance(result, Written):
                plans.apply_write(self.context, write, result.partition_epoch)
                self._follow_leader(partition)
                done.append(write)
                if inform is not None:
                    inform(partition)
                elif by_leader:
                    self.batch.update_metadata([partition])
                else:
                    self.inform([partition], is_new=is_new)
                continue
            conflicts.append(partition)
            if result.found is None:
                log.warning("the znode with the state of %s was deleted", partition)
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

    async def reread_doubtful(self, replicas: Iterable[Replica]) -> None:
        """Read again the states in which a replica that goes offline is not in the ISR, or no member of the ISR is
        alive.

        Below inter-broker protocol 2.7-IV2, leaders write the ISR to ZooKeeper themselves and notify the controller
        later. A replica that has joined the ISR since then would stay in it although its broker is dead, or would not
        be elected. Other states are not read, because their writes are conditional on the version of the znode.
        """
        unsure: set[TopicPartition] = set()
        for replica in replicas:
            known = self.context.leaderships.get(replica.partition)
            if known is None:
                continue
            members = set(known.state.isr)
            if replica.broker not in members or members.isdisjoint(self.context.brokers):
                unsure.add(replica.partition)
        self.update_states(await self.store.leaderships(sorted(unsure)))

    def update_states(self, states: Mapping[TopicPartition, Leadership]) -> None:
        """Read states that others wrote, and update the context."""
        self.context.leaderships |= states
        self.moved |= self.context.reassigning & states.keys()

    def _follow_leader(self, partition: TopicPartition) -> None:
        if partition in self.context.reassigning:
            self.moved.add(partition)
        online = self.context.leader(partition) != NO_BROKER
        move_partitions(self.context, [partition], PartitionStatus.ONLINE if online else PartitionStatus.OFFLINE)

    def inform(self, partitions: Iterable[TopicPartition], *, is_new: bool = False) -> None:
        """Inform every online replica of the states of these partitions."""
        for partition in partitions:
            online = self.context.online_replicas(partition, or_shutting_down=True)
            self.batch.leader_and_isr(online, partition, is_new=is_new)


def _some(partitions: Collection[TopicPartition]) -> str:
    """Return the names of the first partitions and the number of the others."""
    names = ", ".join(str(partition) for partition in sorted(partitions)[:_NAMED])
    return names if len(partitions) <= _NAMED else f"{names} and {len(partitions) - _NAMED} others"
