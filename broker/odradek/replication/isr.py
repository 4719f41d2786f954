"""The in-sync replicas of one partition and pending changes of them: a state machine as a table (KIP-497).

The leader decides who is in sync; the controller (or ZooKeeper) commits it. A proposed change is pending until the
answer arrives, and only one change is pending at a time. Meanwhile the larger set counts: a record is committed only
when all of `maximal` have it. After a proposed expansion this includes the new replica; after a proposed shrink it
still includes the leaving replica, because it is unknown whether the controller has applied the change. The owner
(`partition`) ignores answers that newer state of the partition supersedes. If an answer does not say what the
controller has committed, the change stays pending until the next LeaderAndIsr.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Phase(Enum):
    """What is known about the ISR."""

    COMMITTED = auto()
    EXPANDING = auto()
    SHRINKING = auto()


class IsrEvent(Enum):
    """What happens to the ISR."""

    EXPAND = auto()
    """The leader proposes to add one replica."""
    SHRINK = auto()
    """The leader proposes a smaller set."""
    COMMIT = auto()
    """A committed set became known, from an answer or LeaderAndIsr."""
    REJECT = auto()
    """The proposal was refused and certainly not applied."""


_TRANSITIONS: Final = {
    (Phase.COMMITTED, IsrEvent.EXPAND): Phase.EXPANDING,
    (Phase.COMMITTED, IsrEvent.SHRINK): Phase.SHRINKING,
    (Phase.COMMITTED, IsrEvent.COMMIT): Phase.COMMITTED,
    (Phase.EXPANDING, IsrEvent.COMMIT): Phase.COMMITTED,
    (Phase.EXPANDING, IsrEvent.REJECT): Phase.COMMITTED,
    (Phase.SHRINKING, IsrEvent.COMMIT): Phase.COMMITTED,
    (Phase.SHRINKING, IsrEvent.REJECT): Phase.COMMITTED,
}


@dataclass(frozen=True, slots=True)
class InSyncSet:
    """The ISR. `committed` is the last set from the controller; committing records waits for `maximal`."""

    committed: tuple[int, ...] = ()
    proposed: tuple[int, ...] = ()
    """The proposed set; equals `committed` if nothing is pending."""
    phase: Phase = Phase.COMMITTED

    @property
    def is_pending(self) -> bool:
        """Whether a change is pending."""
        return self.phase is not Phase.COMMITTED

    @property
    def maximal(self) -> tuple[int, ...]:
        """The larger of the committed and the proposed set."""
        return self.proposed if self.phase is Phase.EXPANDING else self.committed

    def step(self, event: IsrEvent, members: tuple[int, ...] = ()) -> InSyncSet:
        """Return the next state; `members` is the proposed or committed set. Raises `ValueError` if it is illegal."""
        phase = _TRANSITIONS.get((self.phase, event))
        if phase is None:
            raise ValueError(f"{event.name} is not possible while {self.phase.name}")
        if event is IsrEvent.REJECT:
            return InSyncSet(self.committed, self.committed)
        if event is IsrEvent.COMMIT:
            return InSyncSet(members, members)
        if event is IsrEvent.EXPAND and not set(members) > set(self.committed):
            raise ValueError(f"{members} does not expand {self.committed}")
        if event is IsrEvent.SHRINK and not set(members) < set(self.committed):
            raise ValueError(f"{members} does not shrink {self.committed}")
        return InSyncSet(self.committed, members, phase)


class FailedProposal(Enum):
    """What follows when a proposal fails."""

    REVERT = auto()
    """Certainly not applied: the committed set stays in effect, and a new proposal may follow."""
    WAIT = auto()
    """It is unknown what the controller has committed: stay pending until the next LeaderAndIsr."""
    RETRY = auto()
    """Send the proposal again."""


_REFUSALS: Final = {
    55: FailedProposal.REVERT,  # OPERATION_NOT_ATTEMPTED
    107: FailedProposal.REVERT,  # INELIGIBLE_REPLICA
    3: FailedProposal.WAIT,  # UNKNOWN_TOPIC_OR_PARTITION
    42: FailedProposal.WAIT,  # INVALID_REQUEST
    74: FailedProposal.WAIT,  # FENCED_LEADER_EPOCH
    95: FailedProposal.WAIT,  # INVALID_UPDATE_VERSION
    100: FailedProposal.WAIT,  # UNKNOWN_TOPIC_ID
    108: FailedProposal.WAIT,  # NEW_LEADER_ELECTED
}


def refusal_of(code: int) -> FailedProposal:
    """Return what to do after AlterPartition failed with an error `code`; unknown errors are retried."""
    return _REFUSALS.get(code, FailedProposal.RETRY)
