"""Carries out the controller's decisions: roles of replicas, stopped replicas and controller epochs.

`server/control` passes the states of LeaderAndIsr and StopReplica requests and gets an error code for each partition.
`role_plan` decides what a state changes. Requests of a replaced controller and older leader epochs are refused, so that
a late request changes nothing.

A role change has a fixed order, so that no incomplete role is visible: the old fetcher stops, the partition changes its
role, waiting requests are rechecked, the fetcher for the new leader starts, and the listeners (the coordinators) are
called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    ProtocolError,
    StaleControllerEpochError,
    StorageError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, NO_EPOCH, TopicPartition
from odradek.log.log_manager import LogManager
from odradek.replication.follower.fetchers import FetcherManager
from odradek.replication.high_watermarks import HighWatermarks
from odradek.replication.partition import LeaderAndIsrState, Partition, Role
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.replication.role_plan import RoleChange, RoleKnownError, RoleStep, plan_roles

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch with which the controller stops replicas of a deleted topic; it overrides every other epoch."""

logger = logging.getLogger(__name__)


class StopReplica(NamedTuple):
    """One entry of a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int = NO_EPOCH
    """-1 from controllers that do not specify it, -2 if the topic is being deleted."""
    delete: bool = False


class ReplicaRoles:
    """The roles of the partitions in one table, and the epoch of the controller that assigns them."""

    def __init__(
        self,
        table: PartitionTable,
        log_manager: LogManager,
        clock: Clock,
        config: BrokerConfig,
        *,
        topic_config: Callable[[str], TopicConfig],
        fetchers: FetcherManager,
        marks: HighWatermarks,
        on_change: Callable[[TopicPartition], None],
        on_lead: Callable[[HostedPartition], None],
        on_applied: Callable[[HostedPartition], None],
    ) -> None:
        """`on_change` completes what waits for a partition. `on_lead` runs for each epoch that this broker leads.

        `on_applied` runs for each partition of a LeaderAndIsr request that is hosted here, whether it changed or not.
        """
        self._table: Final = table
        self._logs: Final = log_manager
        self._clock: Final = clock
        self._config: Final = config
        self._topic_config: Final = topic_config
        self._fetchers: Final = fetchers
        self._marks: Final = marks
        self._on_change: Final = on_change
        self._on_lead: Final = on_lead
        self._on_applied: Final = on_applied
        self._leader_listeners: list[Callable[[TopicPartition, int], None]] = []
        self._follower_listeners: list[Callable[[TopicPartition], None]] = []
        self.controller_epoch: int = NO_EPOCH
        self.is_leaving = False
        """Whether this broker is shutting down: it then no longer follows partitions whose ISR it was removed from.
        Otherwise the new leader would wait for a follower that has caught up but leaves before it joins."""

    def add_listener(
        self, on_leader: Callable[[TopicPartition, int], None], on_follower: Callable[[TopicPartition], None]
    ) -> None:
        """Add listeners for gained leadership, and for lost leadership or stopped replicas."""
        self._leader_listeners.append(on_leader)
        self._follower_listeners.append(on_follower)

    def check_controller(self, controller_epoch: int) -> None:
        """Raise `StaleControllerEpochError` if a later controller was admitted."""
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpochError(
                f"The request has controller epoch {controller_epoch}; the current one is {self.controller_epoch}."
            )

    def admit(self, controller_epoch: int) -> None:
        """Accept requests of this controller, and no longer those of earlier ones. Raises as `check_controller`."""
        self.check_controller(controller_epoch)
        self.controller_epoch = controller_epoch

    # Roles

    def apply(self, states: Sequence[tuple[TopicPartition, UUID, LeaderAndIsrState]]) -> dict[TopicPartition, int]:
        """Change the roles as an admitted controller decided. Returns an error code for each partition."""
        table, broker_id = self._table, self._config.broker_id
        codes = {
            change.topic_partition: self._apply(change)
            for change in plan_roles(states, online=table.online, offline=table.offline, broker_id=broker_id)
        }
        led = sum(not codes[tp] and state.leader == broker_id for tp, _, state in states)
        taken = sum(not code for code in codes.values())
        logger.info(
            "controller epoch %d: now leads %d and follows %d partitions", self.controller_epoch, led, taken - led
        )
        for topic_partition in codes:
            partition = table.online.get(topic_partition)
            if partition is not None:
                self._on_applied(partition)
        return codes

    def _apply(self, change: RoleChange) -> int:
        """Carry out one change; returns its error code."""
        topic_partition, _, _, step = change
        if isinstance(step, ProtocolError):
            if isinstance(step, KafkaStorageError):
                self.take_offline(topic_partition)
            level = logging.DEBUG if isinstance(step, RoleKnownError) else logging.WARNING
            logger.log(level, "%s: LeaderAndIsr refused: %s", topic_partition, step)
            return step.code
        try:
            self._carry_out(change, step)
        except (StorageError, KafkaStorageError):
            logger.exception("%s: the role of LeaderAndIsr cannot be applied", topic_partition)
            self.take_offline(topic_partition)
            return KafkaStorageError.code
        except ProtocolError as error:
            logger.warning("%s: LeaderAndIsr refused: %s", topic_partition, error)
            return error.code
        return 0

    def _carry_out(self, change: RoleChange, step: RoleStep) -> None:
        topic_partition, topic_id, state, _ = change
        partition = self._table.online.get(topic_partition)
        if partition is None:
            partition = self._host(topic_partition, topic_id, is_new=state.is_new)
        match step:
            case RoleStep.ADOPT_TOPIC_ID:
                self._adopt_topic_id(partition, topic_id)
            case RoleStep.LEAD:
                self._lead(partition, state)
            case RoleStep.FOLLOW:
                self._follow(partition, state)

    def _adopt_topic_id(self, partition: HostedPartition, topic_id: UUID) -> None:
        self._logs.get_or_create(partition.topic_partition, topic_id, partition.log.config)
        if partition.role is Role.FOLLOWER and partition.leader_id != NO_BROKER:
            self._fetchers.add(partition)  # from now on, fetch it by id

    def _host(self, topic_partition: TopicPartition, topic_id: UUID, *, is_new: bool) -> HostedPartition:
        """Open or create the log, and set its last high watermark."""
        config = self._topic_config(topic_partition.topic)
        log = self._logs.get_or_create(topic_partition, topic_id, config, is_new=is_new)
        mark = self._marks.claim(topic_partition)
        log.high_watermark = min(max(mark, log.log_start_offset), log.log_end_offset)
        partition = Partition(
            topic_partition,
            log,
            local_id=self._config.broker_id,
            lag_max_ms=self._config.replica_lag_time_max_ms,
            may_join=self._table.may_join,
        )
        self._table.online[topic_partition] = partition
        return partition

    def _lead(self, partition: HostedPartition, state: LeaderAndIsrState) -> None:
        topic_partition = partition.topic_partition
        self._fetchers.remove(topic_partition)
        now_ms = self._clock.monotonic_ms()
        is_new_leader = partition.become_leader(state, now_ms)
        # Followers may have later epochs than this log: the start of the new epoch shows where they must truncate.
        partition.log.assign_epoch_start(state.leader_epoch, partition.log.log_end_offset)
        logger.debug("%s: leader in epoch %d, ISR %s", topic_partition, state.leader_epoch, state.isr)
        partition.advance(now_ms)
        self._on_change(topic_partition)
        self._on_lead(partition)
        if is_new_leader:
            for listener in self._leader_listeners:
                listener(topic_partition, state.leader_epoch)

    def _follow(self, partition: HostedPartition, state: LeaderAndIsrState) -> None:
        topic_partition = partition.topic_partition
        self._fetchers.remove(topic_partition)
        partition.become_follower(state)
        logger.debug("%s: follower of broker %d in epoch %d", topic_partition, state.leader, state.leader_epoch)
        self._on_change(topic_partition)
        if state.leader != NO_BROKER and (not self.is_leaving or self._config.broker_id in state.isr):
            self._fetchers.add(partition)
        for listener in self._follower_listeners:
            listener(topic_partition)

    # End of roles

    def stop(self, stops: Sequence[StopReplica]) -> dict[TopicPartition, int]:
        """Stop replicas, and delete them if requested, as an admitted controller decided. Returns error codes."""
        codes: dict[TopicPartition, int] = {}
        for stop in stops:
            try:
                self._stop(stop)
                codes[stop.topic_partition] = 0
            except StorageError:
                logger.exception("%s cannot be deleted", stop.topic_partition)
                codes[stop.topic_partition] = KafkaStorageError.code
            except ProtocolError as error:
                codes[stop.topic_partition] = error.code
        return codes

    async def stop_durably(self, stops: Sequence[StopReplica]) -> dict[TopicPartition, int]:
        """Like `stop`, and wait until the deletions are durable: afterwards the controller may create the topics again.

        A log that a power failure could bring back has an error code; see `LogManager.undurable_deletions`. Requests
        that are sent again because of such an error do not wait, as the controller's other requests wait behind them.
        """
        deleted = [stop.topic_partition for stop in stops if stop.delete]
        waits = any(self._logs.get(topic_partition) is not None for topic_partition in deleted)
        codes = self.stop(stops)
        errors = await self._logs.undurable_deletions(deleted, waits=waits)
        return codes | {topic_partition: error.code for topic_partition, error in errors.items()}

    def _stop(self, stop: StopReplica) -> None:
        topic_partition = stop.topic_partition
        if topic_partition in self._table.offline:
            raise KafkaStorageError(f"the log directory of {topic_partition} has failed")
        partition = self._table.online.get(topic_partition)
        if partition is not None:
            if 0 <= stop.leader_epoch < partition.leader_epoch:
                raise FencedLeaderEpochError(
                    f"{topic_partition} already has the newer leader epoch {partition.leader_epoch}"
                )
            self._fetchers.remove(topic_partition)
            if stop.delete:
                del self._table.online[topic_partition]
                partition.retire()
            self._on_change(topic_partition)
            for listener in self._follower_listeners:
                listener(topic_partition)
        if stop.delete:
            self._marks.claim(topic_partition)  # so that a later topic of this name does not get it
            if self._logs.get(topic_partition) is not None:
                self._logs.delete(topic_partition)

    def moved_away(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """End a role from before `leader_epoch`, since which this broker has no replica of the partition.

        A broker that was unresponsive while a replica was reassigned, and whose session expired, gets no StopReplica.
        It would remain leader and accept records that are then lost, as Kafka's brokers do. The log is kept until it is
        deleted or the replica is assigned again.
        """
        partition = self._table.online.get(topic_partition)
        if partition is not None and partition.leader_epoch < leader_epoch:
            logger.info("%s is no longer assigned to this broker since leader epoch %d", topic_partition, leader_epoch)
            self._end_role(topic_partition)

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """End every role of a partition whose log has failed. Idempotent."""
        self._table.offline.add(topic_partition)
        self._end_role(topic_partition)

    def _end_role(self, topic_partition: TopicPartition) -> None:
        self._fetchers.remove(topic_partition)
        partition = self._table.online.pop(topic_partition, None)
        if partition is None:
            return
        partition.retire()
        self._on_change(topic_partition)
        for listener in self._follower_listeners:
            listener(topic_partition)
