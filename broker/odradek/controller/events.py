"""The events in the controller's queue, and the value of Kafka's metric `ControllerState` for each.

Events are frozen and compared by value, so a watch that fires twice queues one event. `controller_runtime` adds the
event for calls of request handlers. Names and numbers of the states are the same as in Kafka 3.9 (`ControllerState`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.protocol.messages.internal import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse


class ControllerState(IntEnum):
    """The activity of the controller: those states of Kafka in ZooKeeper mode that can occur here."""

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


Response = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse
"""Responses of brokers to the controller."""


class Event:
    """An event. The controller handles events in order, one at a time."""

    __slots__ = ()

    controller_state: ControllerState
    """The state of the controller while it handles the event."""


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """`/controller` was created, changed or deleted, or the session was restored."""

    controller_state = ControllerState.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class SessionEstablished(Event):
    """A new session was established: the broker must register again."""

    controller_state = ControllerState.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class SessionLost(Event):
    """The session expired, and its ephemeral znodes are gone."""

    controller_state = ControllerState.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """`/brokers/ids` or a registration changed."""

    controller_state = ControllerState.BROKER_CHANGE


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """The children of `/brokers/topics` changed."""

    controller_state = ControllerState.TOPIC_CHANGE


@dataclass(frozen=True, slots=True)
class TopicChanged(Event):
    """The znode of a topic changed: it may have more partitions."""

    controller_state = ControllerState.TOPIC_CHANGE

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """The children of `/admin/delete_topics` changed."""

    controller_state = ControllerState.TOPIC_DELETION


@dataclass(frozen=True, slots=True)
class PreferredElectionRequested(Event):
    """`/admin/preferred_replica_election` was created."""

    controller_state = ControllerState.MANUAL_LEADER_BALANCE


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested(Event):
    """`/admin/reassign_partitions` was created, changed or deleted."""

    controller_state = ControllerState.ALTER_PARTITION_REASSIGNMENT


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged(Event):
    """The settings of a topic changed, or the defaults of all topics if `topic` is None."""

    controller_state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE

    topic: str | None


@dataclass(frozen=True, slots=True)
class IsrNoticesChanged(Event):
    """The children of `/isr_change_notification` changed: leaders wrote ISR changes to ZooKeeper themselves."""

    controller_state = ControllerState.ISR_CHANGE


@dataclass(frozen=True, slots=True)
class LogDirNoticesChanged(Event):
    """The children of `/log_dir_event_notification` changed: log directories failed."""

    controller_state = ControllerState.LOG_DIR_CHANGE


@dataclass(frozen=True, slots=True)
class RebalanceDue(Event):
    """The interval of the automatic leader balance has passed."""

    controller_state = ControllerState.AUTO_LEADER_BALANCE


@dataclass(frozen=True, slots=True)
class DeletionsRetryDue(Event):
    """Deletions that wait for slow disks are to be tried again."""

    controller_state = ControllerState.TOPIC_DELETION


@dataclass(frozen=True, slots=True, eq=False)
class Answered(Event):
    """A broker answered a request."""

    controller_state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED

    request: BrokerRequest
    response: Response
