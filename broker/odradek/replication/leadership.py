"""Carries out what the controller decides: roles, stopped replicas, epochs.

LeaderAndIsr and StopReplica states enter through `manager`; an error code per partition leaves. Every decision of a
replaced controller and every older leader epoch is refused, so a late request changes nothing.

Order of a change, so that nobody sees a half-made role: the fetcher stops, the partition changes its role, waiting
requests learn of it, then the fetcher of the new leader starts and the listeners (the coordinators) are told.
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
from odradek.replication.fetchers import FetcherManager
from odradek.replication.marks import HighWatermarks
from odradek.replication.partition import LeaderAndIsrState, Partition, Role
from odradek.replication.table import HostedPartition, PartitionTable

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch with which the controller stops replicas of a deleted topic: above every other."""

logger = logging.getLogger(__name__)


class StopReplica(NamedTuple):
    """One entry of a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int = NO_EPOCH
    """-1 from controllers that do not say, -2 while the topic is deleted."""
    delete: bool = False


class _NoNewsError(StaleControllerEpochError):
    """The role is known: after each change of controllers every partition is told again as it is."""


class Leadership:
    """Roles of the partitions of one table."""

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
        """`on_change` completes what waits for a partition; `on_reign` hears of each epoch in which this one leads."""
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
        """Whether this broker shuts down: it follows nothing any more that it was taken out of the in-sync set of. Else
        the new leader would wait for a follower that has caught up and is gone before it has joined."""

    def add_listener(
        self, on_leader: Callable[[TopicPartition, int], None], on_follower: Callable[[TopicPartition], None]
    ) -> None:
        """Tell of every leadership taken, and of every one lost or replica stopped."""
        self._leader_listeners.append(on_leader)
        self._follower_listeners.append(on_follower)

    # Roles

    def apply(
        self, controller_epoch: int, states: Sequence[tuple[TopicPartition, UUID, LeaderAndIsrState]]
    ) -> dict[TopicPartition, int]:
        """Take the roles; the error code of each partition."""
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
        """Whether the only news is the topic's id: a cluster that learns of ids begins no new epoch for that."""
        return state.leader_epoch == partition.leader_epoch and partition.log.topic_id is None and topic_id != ZERO_UUID

    def _take_id(self, partition: HostedPartition, topic_id: UUID) -> None:
        self._logs.get_or_create(partition.topic_partition, topic_id, partition.log.config)
        if partition.role is Role.FOLLOWER and partition.leader_id != NO_BROKER:
            self._fetchers.add(partition)  # asks for it by its id from now on

    def _host(self, topic_partition: TopicPartition, topic_id: UUID, *, is_new: bool) -> HostedPartition:
        """Open or make the log, and give it its last high watermark."""
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
        # Followers may hold later epochs than our log has entries of: noting the start of ours tells them where to cut.
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

    # Ends

    def stop(self, controller_epoch: int, stops: Sequence[StopReplica]) -> dict[TopicPartition, int]:
        """Stop, and where asked delete, replicas; the error code of each."""
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
            self._marks.claim(topic_partition)  # not for a later topic of this name
            if self._logs.get(topic_partition) is not None:
                self._logs.delete(topic_partition)

    def moved_away(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """The cluster has no replica of a partition here since `leader_epoch`: end the role that was left.

        A broker that stood still while a replica was taken from it, and whose session ended, is never told to stop: it
        would lead on, and take records that are lost. Kafka's brokers do. The log stays until it is deleted or wanted.
        """
        partition = self._table.online.get(topic_partition)
        if partition is not None and partition.leader_epoch < leader_epoch:
            logger.info("%s was moved away from this broker by epoch %d", topic_partition, leader_epoch)
            self._end_role(topic_partition)

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """End every role of a partition whose log has failed; idempotent."""
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
