"""The waits of a classic group, as operations of the purgatories: for members to join, to sync, and to show life.

`rebalancing` makes them and says, through `Waits`, what follows when one ends. All of them end at once, without effect,
when the group is dead; after a move the operations of the old group object so leave the purgatory at the next check.
"""

from __future__ import annotations

from typing import Protocol

from odradek.coordinator.classic_group import ClassicGroup, GroupState
from odradek.timer.purgatory import DelayedOperation, Purgatory


class Waits(Protocol):
    """What follows when a wait ends."""

    def complete_join(self, group: ClassicGroup) -> None:
        """All have joined, or time is up."""
        ...

    def initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """The initial rebalance delay has passed."""
        ...

    def sync_expired(self, group: ClassicGroup, generation: int) -> None:
        """Members did not send SyncGroup in time."""
        ...

    def heartbeat_expired(self, group: ClassicGroup, member_id: str, is_pending: bool) -> None:
        """A member gave no sign of life in time."""
        ...


class DelayedRebalance(DelayedOperation):
    """A wait for all members of a group."""

    __slots__ = ("_waits", "group")

    def __init__(self, waits: Waits, group: ClassicGroup, timeout_ms: float) -> None:
        """`timeout_ms`: how long members may take."""
        super().__init__(timeout_ms)
        self._waits = waits
        self.group = group


class DelayedJoin(DelayedRebalance):
    """Waits until all known members have joined; then, or when time is up, the next generation begins."""

    __slots__ = ()

    def try_complete(self) -> bool:
        """All have joined."""
        return self.group.is_dead or self.group.has_all_joined

    def on_complete(self) -> None:
        """Begin the generation."""
        if not self.group.is_dead:
            self._waits.complete_join(self.group)


class InitialDelayedJoin(DelayedRebalance):
    """Waits before the first generation of an empty group, so that members that start together meet in it.

    `remaining_ms`: by how much the wait may be extended yet, within the rebalance time-out.
    """

    __slots__ = ("_remaining_ms",)

    def __init__(self, waits: Waits, group: ClassicGroup, delay_ms: int, *, remaining_ms: int) -> None:
        """`delay_ms`: this part of the wait."""
        super().__init__(waits, group, delay_ms)
        self._remaining_ms = remaining_ms

    def try_complete(self) -> bool:
        """Only time ends it."""
        return self.group.is_dead

    def on_complete(self) -> None:
        """Extend the wait or begin the generation."""
        if not self.group.is_dead:
            self._waits.initial_delay_over(self.group, int(self.timeout_ms), self._remaining_ms)


class DelayedSync(DelayedRebalance):
    """Waits until all members of a generation have sent SyncGroup; who has not when time is up is removed."""

    __slots__ = ("_generation",)

    def __init__(self, waits: Waits, group: ClassicGroup, timeout_ms: float) -> None:
        """Waits for the group's present generation."""
        super().__init__(waits, group, timeout_ms)
        self._generation = group.generation

    def try_complete(self) -> bool:
        """All have sent it, or the generation is over."""
        group = self.group
        if group.generation != self._generation:
            return True
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return True
        return not group.pending_sync

    def on_complete(self) -> None:
        """Nothing: the generation goes on by itself."""

    def on_expire(self) -> None:
        """Remove the silent ones."""
        if not self.try_complete():
            self._waits.sync_expired(self.group, self._generation)


class DelayedHeartbeat(DelayedOperation):
    """Waits for a sign of life of a member, or for a pending member to join with the id that it was given."""

    __slots__ = ("_group", "_is_pending", "_member_id", "_waits")

    def __init__(
        self, waits: Waits, group: ClassicGroup, member_id: str, timeout_ms: float, *, is_pending: bool = False
    ) -> None:
        """`timeout_ms`: session time-out, or how long a join may be parked."""
        super().__init__(timeout_ms)
        self._waits = waits
        self._group = group
        self._member_id = member_id
        self._is_pending = is_pending

    def try_complete(self) -> bool:
        """The member is alive, or no longer there."""
        group = self._group
        if group.is_dead:
            return True
        if self._is_pending:
            return self._member_id not in group.pending_members
        member = group.members.get(self._member_id)
        return member is None or member.is_alive

    def on_complete(self) -> None:
        """Nothing: a new wait begins with each sign of life."""

    def on_expire(self) -> None:
        """The member is gone."""
        if not self.try_complete():
            self._waits.heartbeat_expired(self._group, self._member_id, self._is_pending)


Heartbeats = Purgatory[DelayedHeartbeat]
Rebalances = Purgatory[DelayedRebalance]
