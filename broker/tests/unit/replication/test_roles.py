"""Roles that controllers assign to a broker, and requests that it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from odradek.base.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    StaleControllerEpochError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.replication.partition import LeaderAndIsrState
from odradek.replication.roles import StopReplica
from odradek_testkit.loop import VirtualClock
from odradek_testkit.replicas import LED, REPLICATED, TOPIC_ID, MemoryBroker, assume

TP, OTHER, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("elsewhere", 0)

Play = Callable[..., None]


def test_look_up_raises_what_is_wrong(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        assume(broker, replace(LED, leader=2, replicas=(1, 2)), OTHER)
        assert broker.replicas.leader(TP, 5) is broker.replicas.partition(TP)
        for tp, epoch, error in (
            (TP, 4, FencedLeaderEpochError),
            (TP, 6, UnknownLeaderEpochError),
            (OTHER, -1, NotLeaderOrFollowerError),
            (ELSEWHERE, -1, UnknownTopicOrPartitionError),
        ):
            with pytest.raises(error):
                broker.replicas.leader(tp, epoch)
        broker.replicas.take_offline(TP)
        with pytest.raises(KafkaStorageError):
            broker.replicas.partition(TP)

    play(scenario)


def test_listeners_hear_of_roles_once(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        changes: list[object] = []
        broker.replicas.roles.add_listener(lambda tp, epoch: changes.append((tp, epoch)), changes.append)
        assume(broker)
        assume(broker, replace(LED, leader_epoch=6))
        assume(broker, replace(LED, leader_epoch=7, leader=2, replicas=(1, 2)))
        assume(broker, replace(LED, leader_epoch=8))
        broker.replicas.roles.stop([StopReplica(TP, -2, delete=True)])
        assert changes == [(TP, 5), TP, (TP, 8), TP]

    play(scenario)


def test_outdated_requests_are_refused(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "odradek.replication.roles")

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assert assume(broker) == [0]
        assert assume(broker) == [11]
        # Every new controller sends the state of all partitions again: not worth a warning.
        assert all(record.levelno < logging.WARNING for record in caplog.records)
        assert assume(broker, replace(LED, leader_epoch=4)) == [11]
        assert caplog.records[-2].levelno == logging.WARNING
        assert assume(broker, replace(LED, leader_epoch=6, replicas=(2, 3))) == [3]
        other_topic = [(TP, UUID(int=3), replace(LED, leader_epoch=6))]
        assert broker.replicas.roles.apply(other_topic) == {TP: 103}
        with pytest.raises(StaleControllerEpochError):
            assume(broker, replace(LED, controller_epoch=2, leader_epoch=9))
        with pytest.raises(StaleControllerEpochError):
            broker.replicas.roles.admit(2)
        assert broker.partition(TP).leader_epoch == 5

    play(scenario)


def test_a_topic_id_is_adopted_without_a_new_leader_epoch(play: Play) -> None:
    """A cluster whose protocol is raised to 2.8 assigns topic ids without a new leader epoch."""

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        def send(topic_id: UUID, state: LeaderAndIsrState) -> int:
            return broker.replicas.roles.apply([(TP, topic_id, state)])[TP]

        for state in (LED, replace(REPLICATED, leader=2, leader_epoch=6)):
            assert send(ZERO_UUID, state) == 0
            assert broker.partition(TP).log.topic_id is None
            assert send(ZERO_UUID, state) == StaleControllerEpochError.code
            assert send(TOPIC_ID, replace(state, leader_epoch=state.leader_epoch - 1)) == StaleControllerEpochError.code
            assert send(TOPIC_ID, state) == 0
            assert broker.partition(TP).log.topic_id == TOPIC_ID
            assert send(TOPIC_ID, state) == StaleControllerEpochError.code
            assert send(UUID(int=9), state) == InconsistentTopicIdError.code
            broker.partition(TP).log.topic_id = None  # as in a log that was created earlier

    play(scenario)


@pytest.mark.parametrize("state", [LED, replace(REPLICATED, leader=2)])
def test_a_role_ends_when_the_replica_was_moved_away(play: Play, state: LeaderAndIsrState) -> None:
    """It received no StopReplica, because it was unresponsive meanwhile."""

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, state)
        changes: list[object] = []
        broker.replicas.roles.add_listener(lambda tp, epoch: changes.append((tp, epoch)), changes.append)
        broker.replicas.roles.moved_away(TP, state.leader_epoch)
        assert broker.replicas.partition(TP).leader_epoch == state.leader_epoch
        broker.replicas.roles.moved_away(TP, state.leader_epoch + 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            broker.replicas.partition(TP)
        assert changes == [TP]
        broker.replicas.roles.moved_away(TP, state.leader_epoch + 2)
        # The log is kept until it is deleted or the replica is assigned again.
        log = broker.logs.get(TP)
        assert log is not None
        assert assume(broker, replace(state, leader_epoch=state.leader_epoch + 3)) == [0]
        assert broker.partition(TP).log is log
        broker.replicas.roles.moved_away(TP, state.leader_epoch + 4)
        assert broker.replicas.roles.stop([StopReplica(TP, -2, delete=True)]) == {TP: 0}
        assert broker.logs.get(TP) is None

    play(scenario)
