"""Events of the embedded cluster for its user.

The command prints them or writes them as JSON; tests collect them. Names in `details` are stable:

- `action` of an `ACTION`: `AddBroker`, `RestartBroker`, `RemoveBroker`, or the class of a step in `lifecycle/steps` or
  an action in `topics/topic_actions`. `broker`: the id of the broker, if there is one.
- `status` and `reason` of a `STATUS`: those of a condition in Kubernetes, and `RolledOut`, `BrokersChanged` (with
  `bootstrap` and `count`). `waiting`: what cannot continue, as in `lifecycle/steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class ProgressKind(Enum):
    """The kind of an event."""

    PROCESS = "process"
    """A child process was started, ended, or is restarted."""
    ACTION = "action"
    """Something was written to ZooKeeper, or a broker is added, restarted or removed because of a resource."""
    STATUS = "status"
    """A resource became ready or is no longer ready, a change is complete, or something waits."""
    NOTICE = "notice"
    """Something has no effect, or something failed and is tried again."""
    READY = "ready"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `subject`: for example `broker 1` or `topic departures`."""

    kind: ProgressKind
    subject: str
    message: str
    details: Mapping[str, object] = field(default_factory=dict)
    """Details for machines."""
    good: bool = True
    """False if a person should look at it."""


Report = Callable[[Event], None]
