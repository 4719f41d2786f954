"""What the controller's queue holds. Frozen, so that a watch that fires twice queues one event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from odradek.base.types import TopicPartition
from odradek.controller.requests import BrokerRequest


class Event:
    """Something that happened; handled one at a time, in order."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """`/controller` was made, changed or deleted, or the session came back."""


@dataclass(frozen=True, slots=True)
class SessionEstablished(Event):
    """A new session: the broker must register anew."""


@dataclass(frozen=True, slots=True)
class SessionLost(Event):
    """The session expired: nothing of ours is left."""


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """`/brokers/ids`, or one registration, changed."""


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """`/brokers/topics` has other children."""


@dataclass(frozen=True, slots=True)
class TopicChanged(Event):
    """A topic's znode changed: it may have more partitions."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """`/admin/delete_topics` has other children."""


@dataclass(frozen=True, slots=True)
class PreferredElectionWanted(Event):
    """`/admin/preferred_replica_election` was made."""


@dataclass(frozen=True, slots=True)
class IsrNoticesChanged(Event):
    """`/isr_change_notification` has other children: brokers wrote in-sync sets themselves."""


@dataclass(frozen=True, slots=True)
class LogDirNoticesChanged(Event):
    """`/log_dir_event_notification` has other children: log directories failed."""


@dataclass(frozen=True, slots=True)
class RebalanceDue(Event):
    """It is time to look whether preferred leaders lead."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered(Event):
    """A broker answered a request."""

    request: BrokerRequest
    response: Any


@dataclass(frozen=True, slots=True, eq=False)
class AlterPartitionAsked(Event):
    """A leader wants to change in-sync sets."""

    request: Any
    answer: asyncio.Future[dict[str, object]]


@dataclass(frozen=True, slots=True, eq=False)
class ShutdownAsked(Event):
    """A broker wants to stop; the answer lists the partitions that it still leads."""

    broker_id: int
    broker_epoch: int
    answer: asyncio.Future[list[TopicPartition]]


@dataclass(frozen=True, slots=True, eq=False)
class ElectionAsked(Event):
    """Preferred leaders are wanted for some partitions, None: for all; the answer has an error code for each."""

    partitions: tuple[TopicPartition, ...] | None
    answer: asyncio.Future[dict[TopicPartition, int]]
