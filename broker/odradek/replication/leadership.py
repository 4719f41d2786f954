"""Carries out the controller's decisions: roles, stopped replicas, epochs.

`manager` passes LeaderAndIsr and StopReplica states and gets an error code per partition. Requests of a replaced
controller and older leader epochs are refused, so that a late request changes nothing.

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
    InconsistentTopicIdError,
    KafkaStorageError,
    ProtocolError,
    StaleControllerEpochError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.log.manager import LogManager
from odradek.replication.follower.fetchers import FetcherManager
from odradek.replication.high_watermarks import HighWatermarks
from odradek.replication.partition import LeaderAndIsrState, Partition, Role
from odradek.replication.table import HostedPartition, PartitionTable

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch with which the controller stops replicas of a deleted topic; it overrides every other epoch."""

logger = logging.getLogger(__name__)


class StopReplica(NamedTuple):
    """One entry of a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int = NO_EPOCH
    """-1 from controllers that do not specify it, -2 if the topic is being deleted."""
    delete: bool = False


class _NoNewsError(StaleControllerEpochError):
    """The role is already known: a new controller sends the state of every partition again."""


class Leadership:
    """The roles of the partitions in one table."""

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
        on_reign: Callable[[HostedPartition], None] = lambda partition: None,
    ) -> None:
        """`on_change` completes what waits for a partition; `on_reign` runs for each epoch that this broker leads."""
        self._table: Final = table
        self._logs: Final = log_manager
        self._clock: Final = clock
        self._config: Final = config
        self._topic_config: Final = topic_config
        self._fetchers: Final = fetchers
        self._marks: Final = marks
        self._on_change: Final = on_change
        self._on_reign: Final = on_reign
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

    # Roles

    def apply(
        self, controller_epoch: int, states: Sequence[tuple[TopicPartition, UUID, LeaderAndIsrState]]
    ) -> dict[TopicPartition, int]:
        """Change the roles. Returns an error code for each partition."""
        self._check_controller(controller_epoch)
        codes: dict[TopicPartition, int] = {}
        for topic_partition, topic_id, state in states:
            try:
                self._apply(topic_partition, topic_id, state)
                codes[topic_partition] = 0
            except (StorageError, KafkaStorageError):
                logger.exception("%s cannot take its role", topic_partition)
                self.take_offline(topic_partition)
                codes[topic_partition] = KafkaStorageError.code
            except ProtocolError as error:
                level = logging.DEBUG if isinstance(error, _NoNewsError) else logging.WARNING
                logger.log(level, "%s: LeaderAndIsr refused: %s", topic_partition, error)
                codes[topic_partition] = error.code
        led = sum(not codes[tp] and state.leader == self._config.broker_id for tp, _, state in states)
        taken = sum(not code for code in codes.values())
        logger.info("controller epoch %d: now leads %d and follows %d partitions", controller_epoch, led, taken - led)
        return codes

    def _apply(self, topic_partition: TopicPartition, topic_id: UUID, state: LeaderAndIsrState) -> None:
        partition = self._table.online.get(topic_partition)
        if topic_partition in self._table.offline:
            raise KafkaStorageError(f"the log directory of {topic_partition} has failed")
        if self._config.broker_id not in state.replicas:
            raise UnknownTopicOrPartitionError(f"{topic_partition} is not assigned to this broker")
        if partition is not None:
            self._check_id(partition, topic_id)
            if self._is_id_alone(partition, topic_id, state):
                self._take_id(partition, topic_id)
                return
            self._check_news(partition, state)
        else:
            partition = self._host(topic_partition, topic_id, is_new=state.is_new)
        if state.leader == self._config.broker_id:
            self._lead(partition, state)
        else:
            self._follow(partition, state)

    @staticmethod
    def _check_id(partition: HostedPartition, topic_id: UUID) -> None:
        known_id = partition.log.topic_id
        if known_id is not None and topic_id not in (ZERO_UUID, known_id):
            raise InconsistentTopicIdError(f"{partition.topic_partition} has topic id {known_id}, not {topic_id}")

    @staticmethod
    def _check_news(partition: HostedPartition, state: LeaderAndIsrState) -> None:
        if state.leader_epoch == partition.leader_epoch:
            raise _NoNewsError(f"leader epoch {state.leader_epoch} is known already")
        if state.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpochError(
                f"leader epoch {state.leader_epoch} is below {partition.leader_epoch}, which is known already"
            )

    @staticmethod
    def _is_id_alone(partition: HostedPartition, topic_id: UUID, state: LeaderAndIsrState) -> bool:
        """Whether only the topic id is new: an upgrade to topic ids does not start a new leader epoch."""
        return state.leader_epoch == partition.leader_epoch and partition.log.topic_id is None and topic_id != ZERO_UUID

    def _take_id(self, partition: HostedPartition, topic_id: UUID) -> None:
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
        # Followers may have later epochs than our log has entries for: the start of ours tells them where to truncate.
        partition.log.assign_epoch_start(state.leader_epoch, partition.log.log_end_offset)
        logger.debug("%s: leader in epoch %d, in-sync set %s", topic_partition, state.leader_epoch, state.isr)
        partition.advance(now_ms)
        self._on_change(topic_partition)
        self._on_reign(partition)
        if is_new_leader:
            for listener in self._leader_listeners:
                listener(topic_partition, state.leader_epoch)

    def _follow(self, partition: HostedPartition, state: LeaderAndIsrState) -> None:
        topic_partition = partition.topic_partition
        self._fetchers.remove(topic_partition)
        partition.become_follower(state)
        logger.debug("%s: follower of %d in epoch %d", topic_partition, state.leader, state.leader_epoch)
        self._on_change(topic_partition)
        if state.leader != NO_BROKER and (not self.is_leaving or self._config.broker_id in state.isr):
            self._fetchers.add(partition)
        for listener in self._follower_listeners:
            listener(topic_partition)

    # End of roles

    def stop(self, controller_epoch: int, stops: Sequence[StopReplica]) -> dict[TopicPartition, int]:
        """Stop replicas, and delete them if requested. Returns an error code for each."""
        self._check_controller(controller_epoch)
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

    def _stop(self, stop: StopReplica) -> None:
        topic_partition = stop.topic_partition
        if topic_partition in self._table.offline:
            raise KafkaStorageError(f"the log directory of {topic_partition} has failed")
        partition = self._table.online.get(topic_partition)
        if partition is not None:
            if 0 <= stop.leader_epoch < partition.leader_epoch:
                raise FencedLeaderEpochError(f"{topic_partition} is in epoch {partition.leader_epoch}")
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
            logger.info("%s was moved away from this broker by epoch %d", topic_partition, leader_epoch)
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

    def _check_controller(self, controller_epoch: int) -> None:
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpochError(
                f"controller epoch {controller_epoch} is below {self.controller_epoch}, which is known already"
            )
        self.controller_epoch = controller_epoch
