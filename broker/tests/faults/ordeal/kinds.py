"""The kinds of faults: their duration, and the goal for the waiting time of clients. Pure.

`plan` chooses faults from this table, `arena` carries them out, and `figures` compares measurements with the goals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """A kind of fault. The value is its name on the command line and in reports."""

    CRASH = "crash"
    HANG = "hang"
    MACHINE = "machine"
    BLINK = "pause"
    SLEEP = "long-pause"
    SHUTDOWN = "shutdown"
    WIPE = "wipe"
    ZOOKEEPER_RESTART = "zookeeper-restart"
    ZOOKEEPER_BLINK = "zookeeper-pause"
    ZOOKEEPER_SLEEP = "zookeeper-long-pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """The properties of a kind of fault."""

    title: str
    lasting: tuple[float, float]
    """Minimum and maximum duration, in session timeouts."""
    on_broker: bool = True
    """Whether it affects one broker; otherwise it affects ZooKeeper."""
    takes_data: bool = False
    """Whether a replica is lost, so that all replicas must be in sync before and no other fault may overlap."""


TRAITS: Final[dict[Kind, Trait]] = {
    Kind.CRASH: Trait(title="broker process killed", lasting=(0.0, 0.0)),
    Kind.HANG: Trait(title="broker process hangs", lasting=(0.0, 0.0)),
    Kind.MACHINE: Trait(title="machine lost: broker and parent killed", lasting=(1.3, 2.0)),
    Kind.BLINK: Trait(title="broker paused, shorter than its session", lasting=(0.2, 0.6)),
    Kind.SLEEP: Trait(title="broker paused, longer than its session", lasting=(1.5, 2.2)),
    Kind.SHUTDOWN: Trait(title="controlled shutdown and start", lasting=(0.0, 0.7)),
    Kind.WIPE: Trait(title="broker stopped, its disk wiped", lasting=(0.0, 0.7), takes_data=True),
    Kind.ZOOKEEPER_RESTART: Trait(title="ZooKeeper restarted", lasting=(0.0, 0.5), on_broker=False),
    Kind.ZOOKEEPER_BLINK: Trait(title="ZooKeeper paused, shorter than sessions", lasting=(0.2, 0.6), on_broker=False),
    Kind.ZOOKEEPER_SLEEP: Trait(title="ZooKeeper paused, longer than sessions", lasting=(1.2, 2.0), on_broker=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of an episode."""

    kind: Kind
    broker: int | None = None
    """The broker that it affects; None for ZooKeeper."""
    after_ms: float = 0.0
    """Milliseconds from the beginning of the episode to that of the fault."""
    lasting_ms: float = 0.0
    """Milliseconds that it lasts. 0 if it has no duration or ends by itself."""
    hard: bool = False
    """Whether SIGKILL is used instead of SIGTERM: for a broker before its disk is wiped, and a restart of ZooKeeper."""

    @property
    def trait(self) -> Trait:
        """The properties of its kind."""
        return TRAITS[self.kind]

    def __str__(self) -> str:
        where = "" if self.broker is None else f", broker {self.broker}"
        lasting = f", for {self.lasting_ms / 1000:.1f} s" if self.lasting_ms else ""
        return f"{self.trait.title}{where}{lasting}{', with SIGKILL' if self.hard else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The settings of a cluster that determine maximum durations."""

    session_ms: float
    hang_ms: float


MACHINE_SLACK_MS: Final = 2_000.0
"""Additional time, after the session timeout, when a machine is lost."""
CRASH_GOAL_MS: Final = 2_000.0
SHUTDOWN_GOAL_MS: Final = 300.0
_STACKS_MS: Final = 1_000.0
"""Time in which a hanging broker can print its stacks before its parent kills it."""


def goal_ms(fault: Fault, timeouts: Timeouts) -> float | None:
    """Return the goal for the wait of clients of the broker's partitions; None if there is none.

    If a broker is killed before its disk is wiped, its parent is killed, too, so it counts as a lost machine.
    """
    kind = Kind.MACHINE if fault.kind is Kind.WIPE and fault.hard else fault.kind
    goals = {
        Kind.CRASH: CRASH_GOAL_MS,
        Kind.HANG: timeouts.hang_ms + _STACKS_MS + CRASH_GOAL_MS,
        Kind.MACHINE: timeouts.session_ms + MACHINE_SLACK_MS,
        Kind.SHUTDOWN: SHUTDOWN_GOAL_MS,
        Kind.WIPE: SHUTDOWN_GOAL_MS,
    }
    return goals.get(kind)
