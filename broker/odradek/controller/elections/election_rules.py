"""The rules of leader elections, with one function for each cause.

Pure: takes the assignment, the ISR and the live replicas, and returns the leader and the next ISR, or the obstacle.
Invariant: without unclean elections, the new leader was in the ISR, so it has every record that was acknowledged with
`acks=all`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from odradek.zk.layout import PartitionState


class Cause(Enum):
    """The reason for an election."""

    OFFLINE = "the leader is offline"
    PREFERRED = "the preferred leader is elected"
    REASSIGNMENT = "the leader is not among the new replicas"
    CONTROLLED_SHUTDOWN = "the leader is shutting down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The result of an election: the leader and the ISR."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False
    """Whether the leader was not in sync, so that records may be lost. It reports when it has recovered (KIP-704)."""
    reason: str

    def next_state(self, current: PartitionState, controller_epoch: int) -> PartitionState:
        """Return the state to write, with the next leader epoch."""
        return PartitionState(
            leader=self.leader,
            leader_epoch=current.leader_epoch + 1,
            isr=self.isr,
            controller_epoch=controller_epoch,
            recovering=self.unclean or (current.recovering and self.leader == current.leader),
        )


class Obstacle(Enum):
    """The reason why no leader was elected."""

    NO_LIVE_REPLICA = "no replica is alive"
    NO_IN_SYNC_REPLICA = "no in-sync replica is alive"
    PREFERRED_NOT_READY = "the preferred leader is not alive or not in sync"
    NOT_NEEDED = "the preferred leader already leads"
    CONTENDED = "the state of the partition keeps changing"


def elect_first(live: Sequence[int], controller_epoch: int) -> PartitionState | Obstacle:
    """Elect the first leader of a new partition. All live replicas are in sync, because there are no records yet."""
    if not live:
        return Obstacle.NO_LIVE_REPLICA
    return PartitionState(leader=live[0], leader_epoch=0, isr=tuple(live), controller_epoch=controller_epoch)


def elect_offline(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean: bool
) -> Elected | Obstacle:
    """Elect the first live replica that is in sync. If there is none and `unclean` is set, elect the first live
    replica, as the only member of the ISR."""
    for replica in assignment:
        if replica in live and replica in isr:
            return Elected(
                leader=replica, isr=tuple(member for member in isr if member in live), reason=Cause.OFFLINE.value
            )
    for replica in assignment:
        if replica in live:
            if not unclean:
                return Obstacle.NO_IN_SYNC_REPLICA
            return Elected(leader=replica, isr=(replica,), unclean=True, reason="no in-sync replica is alive")
    return Obstacle.NO_LIVE_REPLICA


def elect_preferred(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, leader: int
) -> Elected | Obstacle:
    """Elect the first replica of the assignment if it is alive and in sync."""
    preferred = assignment[0] if assignment else -1
    if preferred == leader:
        return Obstacle.NOT_NEEDED
    if preferred not in live or preferred not in isr:
        return Obstacle.PREFERRED_NOT_READY
    return Elected(leader=preferred, isr=tuple(isr), reason=Cause.PREFERRED.value)


def elect_reassigned(target: Sequence[int], isr: Collection[int], live: Collection[int]) -> Elected | Obstacle:
    """Elect the first of the new replicas that is alive and in sync."""
    for replica in target:
        if replica in live and replica in isr:
            return Elected(leader=replica, isr=tuple(isr), reason=Cause.REASSIGNMENT.value)
    return Obstacle.NO_IN_SYNC_REPLICA


def elect_for_shutdown(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, shutting_down: Collection[int]
) -> Elected | Obstacle:
    """Elect the first live in-sync replica whose broker is not shutting down, and remove replicas on brokers that are
    shutting down from the ISR.

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
