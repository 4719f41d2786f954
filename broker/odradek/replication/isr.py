"""The in-sync set of one partition and its changes under way: a state machine as a table (KIP-497).

Theory of operation. The leader decides who is in sync, the controller (or ZooKeeper) commits it. A change is proposed,
then pending, until the answer comes; one change at a time. While pending, safety rules with the larger set: a record
counts as committed only when all of `maximal` have it, which after a proposed expansion includes the new replica and
after a proposed shrinking still includes the replica that is to go, as nobody knows whether the controller has applied
the change. An answer that was decided before newer news of the partition is ignored by its owner (`partition`). When
an answer leaves open what the controller holds, the state stays pending until LeaderAndIsr tells the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Phase(Enum):
    """What is known of the in-sync set."""

    COMMITTED = auto()
    EXPANDING = auto()
    SHRINKING = auto()


class Event(Enum):
    """What happens to the in-sync set."""

    EXPAND = auto()
    """The leader proposes a set with one replica more."""
    SHRINK = auto()
    """The leader proposes a smaller set."""
    COMMIT = auto()
    """A committed set became known: an answer or LeaderAndIsr."""
    REJECT = auto()
    """The proposal was refused and certainly not applied."""


_TRANSITIONS: Final = {
    (Phase.COMMITTED, Event.EXPAND): Phase.EXPANDING,
    (Phase.COMMITTED, Event.SHRINK): Phase.SHRINKING,
    (Phase.COMMITTED, Event.COMMIT): Phase.COMMITTED,
    (Phase.EXPANDING, Event.COMMIT): Phase.COMMITTED,
    (Phase.EXPANDING, Event.REJECT): Phase.COMMITTED,
    (Phase.SHRINKING, Event.COMMIT): Phase.COMMITTED,
    (Phase.SHRINKING, Event.REJECT): Phase.COMMITTED,
}


@dataclass(frozen=True, slots=True)
class InSyncSet:
    """Who is in sync. `committed` is what the controller last told, `maximal` what commits must wait for."""

    committed: tuple[int, ...] = ()
    proposed: tuple[int, ...] = ()
    """The set that was asked for; equals `committed` while nothing is pending."""
    phase: Phase = Phase.COMMITTED

    @property
    def is_pending(self) -> bool:
        """Whether a change is under way."""
        return self.phase is not Phase.COMMITTED

    @property
    def maximal(self) -> tuple[int, ...]:
        """The larger of what is and what may be."""
        return self.proposed if self.phase is Phase.EXPANDING else self.committed

    def step(self, event: Event, members: tuple[int, ...] = ()) -> InSyncSet:
        """The next state; `members` is the proposed or committed set. `ValueError` for an illegal step."""
        phase = _TRANSITIONS.get((self.phase, event))
        if phase is None:
            raise ValueError(f"{event.name} is not possible while {self.phase.name}")
        if event is Event.REJECT:
            return InSyncSet(self.committed, self.committed)
        if event is Event.COMMIT:
            return InSyncSet(members, members)
        if event is Event.EXPAND and not set(members) > set(self.committed):
            raise ValueError(f"{members} does not expand {self.committed}")
        if event is Event.SHRINK and not set(members) < set(self.committed):
            raise ValueError(f"{members} does not shrink {self.committed}")
        return InSyncSet(self.committed, members, phase)


class Refusal(Enum):
    """What follows when a proposal fails."""

    REVERT = auto()
    """Certainly not applied: the committed set stands and a new proposal may follow."""
    WAIT = auto()
    """Unknown what the controller holds: stay pending until LeaderAndIsr comes."""
    RETRY = auto()
    """Say it again."""


_REFUSALS: Final = {
    55: Refusal.REVERT,  # OPERATION_NOT_ATTEMPTED
    107: Refusal.REVERT,  # INELIGIBLE_REPLICA
    3: Refusal.WAIT,  # UNKNOWN_TOPIC_OR_PARTITION
    42: Refusal.WAIT,  # INVALID_REQUEST
    74: Refusal.WAIT,  # FENCED_LEADER_EPOCH
    95: Refusal.WAIT,  # INVALID_UPDATE_VERSION
    100: Refusal.WAIT,  # UNKNOWN_TOPIC_ID
    108: Refusal.WAIT,  # NEW_LEADER_ELECTED
}


def refusal_of(code: int) -> Refusal:
    """What to do after AlterPartition answered with an error `code`; unknown ones are tried again."""
    return _REFUSALS.get(code, Refusal.RETRY)
