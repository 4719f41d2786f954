"""Who leads a partition, for each cause of an election.

Pure functions: the assignment, the in-sync set and the live replicas enter; a leader and the next in-sync set leave,
with the reason in words, or the reason why nobody may lead. Invariant: with unclean elections off, the leader was in
the in-sync set, so it has every record that was acknowledged by all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from odradek.zk.layout import PartitionState


class Cause(Enum):
    """Why a leader is elected."""

    OFFLINE = "the leader is gone"
    PREFERRED = "the preferred replica shall lead"
    REASSIGNMENT = "the leader is not among the new replicas"
    CONTROLLED_SHUTDOWN = "the leader is shutting down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The outcome: leader and in-sync set."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False
    """The leader was not in sync: records may be lost, and it says when it has recovered (KIP-704)."""
    reason: str

    def next_state(self, current: PartitionState, controller_epoch: int) -> PartitionState:
        """What to write: a new reign, hence the next leader epoch."""
        return PartitionState(
            leader=self.leader,
            leader_epoch=current.leader_epoch + 1,
            isr=self.isr,
            controller_epoch=controller_epoch,
            recovering=self.unclean or (current.recovering and self.leader == current.leader),
        )


class Obstacle(Enum):
    """Why nobody is elected."""

    NO_LIVE_REPLICA = "no replica is alive"
    NO_IN_SYNC_REPLICA = "no replica that is in sync is alive"
    PREFERRED_NOT_READY = "the preferred replica is not alive or not in sync"
    NOT_NEEDED = "the preferred replica leads already"
    CONTENDED = "its state keeps changing"


def elect_first(live: Sequence[int], controller_epoch: int) -> PartitionState | Obstacle:
    """The first leader of a new partition: every live replica is in sync, as there are no records yet."""
    if not live:
        return Obstacle.NO_LIVE_REPLICA
    return PartitionState(leader=live[0], leader_epoch=0, isr=tuple(live), controller_epoch=controller_epoch)


def elect_offline(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean: bool
) -> Elected | Obstacle:
    """The first live replica in sync; failing that, where `unclean` is allowed, the first live one, alone."""
    for replica in assignment:
        if replica in live and replica in isr:
            return Elected(
                leader=replica, isr=tuple(member for member in isr if member in live), reason=Cause.OFFLINE.value
            )
    for replica in assignment:
        if replica in live:
            if not unclean:
                return Obstacle.NO_IN_SYNC_REPLICA
            return Elected(leader=replica, isr=(replica,), unclean=True, reason="no replica in sync is alive")
    return Obstacle.NO_LIVE_REPLICA


def elect_preferred(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, leader: int
) -> Elected | Obstacle:
    """The first replica of the assignment, if it is alive and in sync."""
    preferred = assignment[0] if assignment else -1
    if preferred == leader:
        return Obstacle.NOT_NEEDED
    if preferred not in live or preferred not in isr:
        return Obstacle.PREFERRED_NOT_READY
    return Elected(leader=preferred, isr=tuple(isr), reason=Cause.PREFERRED.value)


def elect_reassigned(target: Sequence[int], isr: Collection[int], live: Collection[int]) -> Elected | Obstacle:
    """The first of the new replicas that is alive and in sync."""
    for replica in target:
        if replica in live and replica in isr:
            return Elected(leader=replica, isr=tuple(isr), reason=Cause.REASSIGNMENT.value)
    return Obstacle.NO_IN_SYNC_REPLICA


def elect_for_shutdown(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, shutting_down: Collection[int]
) -> Elected | Obstacle:
    """The first live replica in sync that stays; those that are shutting down leave the in-sync set.

    `live` includes brokers that are shutting down.
    """
    for replica in assignment:
        if replica in live and replica in isr and replica not in shutting_down:
            return Elected(
                leader=replica,
                isr=tuple(member for member in isr if member not in shutting_down),
                reason=Cause.CONTROLLED_SHUTDOWN.value,
            )
    return Obstacle.NO_IN_SYNC_REPLICA
