"""What the controller's queue holds. Frozen, so that a watch that fires twice queues one event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.controller.broker_requests.request_batch import BrokerRequest

if TYPE_CHECKING:
    from odradek.controller.active import ActiveController


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
class ReassignmentsWanted(Event):
    """`/admin/reassign_partitions` was made, changed or removed."""


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged(Event):
    """Settings of a topic, or with None the defaults of all, were changed."""

    topic: str | None


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
class Asked(Event):
    """A handler asks the active controller for something: `work` does it, its outcome is the answer."""

    work: Callable[[ActiveController], Awaitable[Any]]
    answer: asyncio.Future[Any]
    state: int = 0
    """What the controller is doing meanwhile; see `states`."""
