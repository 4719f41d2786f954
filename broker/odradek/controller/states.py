"""What the controller is doing, by the numbers of Kafka's metric `ControllerState`.

In: the event that is being handled. Out: its state. Called by `runtime`, for metrics alone. Source of names and
numbers: https://github.com/apache/kafka/blob/3.9/core/src/main/scala/kafka/controller/ControllerState.scala
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from odradek.controller.events import (
    Answered,
    Asked,
    BrokersChanged,
    ControllerChanged,
    DeletionsChanged,
    Event,
    IsrNoticesChanged,
    LogDirNoticesChanged,
    PreferredElectionWanted,
    ReassignmentsWanted,
    RebalanceDue,
    SessionEstablished,
    SessionLost,
    TopicChanged,
    TopicsChanged,
    TopicSettingsChanged,
)


class ControllerState(IntEnum):
    """Kafka's states of ZooKeeper times, as far as there is something here that they stand for."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_FEATURES = 17


_STATES: Final[dict[type[Event], ControllerState]] = {
    ControllerChanged: ControllerState.CONTROLLER_CHANGE,
    SessionEstablished: ControllerState.CONTROLLER_CHANGE,
    SessionLost: ControllerState.CONTROLLER_CHANGE,
    BrokersChanged: ControllerState.BROKER_CHANGE,
    TopicsChanged: ControllerState.TOPIC_CHANGE,
    TopicChanged: ControllerState.TOPIC_CHANGE,
    DeletionsChanged: ControllerState.TOPIC_DELETION,
    ReassignmentsWanted: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    RebalanceDue: ControllerState.AUTO_LEADER_BALANCE,
    PreferredElectionWanted: ControllerState.MANUAL_LEADER_BALANCE,
    IsrNoticesChanged: ControllerState.ISR_CHANGE,
    Answered: ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
    LogDirNoticesChanged: ControllerState.LOG_DIR_CHANGE,
    TopicSettingsChanged: ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
}


def state_of(event: Event) -> ControllerState:
    """What the controller does while it handles the event; a request says so itself."""
    if isinstance(event, Asked):
        return ControllerState(event.state)
    return _STATES[type(event)]
