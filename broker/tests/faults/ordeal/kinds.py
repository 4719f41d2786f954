"""What may happen to a cluster: the kinds of faults, how long each lasts, and what is allowed to clients then. Pure.

`plan` draws faults by this table, `field` carries them out, `figures` holds what was measured against the goals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """A way to hurt the cluster; the value is its name on the command line and in reports."""

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
    """What is so about a kind."""

    title: str
    lasting: tuple[float, float]
    """Least and greatest time until it is taken back, in session time-outs."""
    on_broker: bool = True
    """Whether it befalls one broker, else ZooKeeper."""
    takes_data: bool = False
    """A replica is gone: everything must be in sync, and nothing else may be wrong."""


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
    """One thing that is done to the cluster."""

    kind: Kind
    broker: int | None = None
    """Whom it befalls; None: ZooKeeper."""
    after_ms: float = 0.0
    """When it begins, from the beginning of its episode."""
    lasting_ms: float = 0.0
    """How long it lasts; 0 is at once, or until it mends itself."""
    hard: bool = False
    """SIGKILL where SIGTERM would do: a broker before its disk is wiped, a ZooKeeper that restarts."""

    @property
    def trait(self) -> Trait:
        """What is so about its kind."""
        return TRAITS[self.kind]

    def __str__(self) -> str:
        where = "" if self.broker is None else f", broker {self.broker}"
        lasting = f", for {self.lasting_ms / 1000:.1f} s" if self.lasting_ms else ""
        return f"{self.trait.title}{where}{lasting}{', with SIGKILL' if self.hard else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """What a cluster is set to, as far as it decides how long something may take."""

    session_ms: float
    hang_ms: float


MACHINE_SLACK_MS: Final = 2_000.0
"""Beyond the session's time-out, for a machine that is lost."""
CRASH_GOAL_MS: Final = 2_000.0
SHUTDOWN_GOAL_MS: Final = 300.0
_STACKS_MS: Final = 1_000.0
"""A parent gives a hanging broker so long to write its stacks."""


def goal_ms(fault: Fault, timeouts: Timeouts) -> float | None:
    """How long clients of the broker's partitions may wait at most; None where nothing is promised.

    A broker that is killed before its disk is wiped has no parent to speak for it either: it is a lost machine.
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
