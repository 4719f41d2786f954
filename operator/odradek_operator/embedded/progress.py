"""What the embedded cluster tells the person before the terminal, as values.

Whoever starts a cluster hands in a `Report`; the command prints events or writes them as JSON, tests collect them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class ProgressKind(Enum):
    """What an event is about."""

    PROCESS = "process"
    """A child was started, ended, or is started again."""
    ACTION = "action"
    """Something was written to ZooKeeper."""
    STATUS = "status"
    """A resource became ready, or ceased to be."""
    NOTICE = "notice"
    """Something has no effect, or something failed that will be tried again."""
    READY = "ready"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `subject` is what it concerns, such as `broker 1` or `topic departures`."""

    kind: ProgressKind
    subject: str
    message: str
    details: Mapping[str, object] = field(default_factory=dict)
    """More, for machines."""
    good: bool = True
    """False for what a person should look at."""


Report = Callable[[Event], None]
