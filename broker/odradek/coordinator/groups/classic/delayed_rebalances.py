"""The delayed operations of a classic group, which wait for JoinGroup, SyncGroup and heartbeats of members.

`rebalancing` creates them and implements `Waits`, whose methods are called when a wait ends. If the group is Dead, they
complete without effect, so the operations of a group that moved leave the purgatory at the next check.
"""

from __future__ import annotations

from typing import Protocol

from odradek.coordinator.groups.classic.classic_group import ClassicGroup, GroupState
from odradek.timer.purgatory import DelayedOperation, Purgatory


class Waits(Protocol):
    """Callbacks for the end of a wait."""

    def complete_join(self, group: ClassicGroup) -> None:
        """Called when all members have joined or the timeout has passed."""
        ...

    def initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Called when the initial rebalance delay has passed."""
        ...

    def sync_expired(self, group: ClassicGroup, generation: int) -> None:
        """Called when members did not send SyncGroup in time."""
        ...

    def heartbeat_expired(self, group: ClassicGroup, member_id: str, is_pending: bool) -> None:
        """Called when a member did not send a heartbeat in time."""
        ...


class DelayedRebalance(DelayedOperation):
    """A wait for all members of a group."""

    __slots__ = ("_waits", "group")

    def __init__(self, waits: Waits, group: ClassicGroup, timeout_ms: float) -> None:
        """`timeout_ms` is the maximum wait for the members."""
        super().__init__(timeout_ms)
        self._waits = waits
        self.group = group


class DelayedJoin(DelayedRebalance):
    """Waits until all known members have joined, or until the timeout. Then the next generation starts."""

    __slots__ = ()

    def try_complete(self) -> bool:
        """Complete if all members have joined."""
        return self.group.is_dead or self.group.has_all_joined

    def on_complete(self) -> None:
        """Start the generation."""
        if not self.group.is_dead:
            self._waits.complete_join(self.group)


class InitialDelayedJoin(DelayedRebalance):
    """Waits before the first generation of an empty group, so that members that start together join the same one.

    `remaining_ms` is the time by which the wait may be extended; the rebalance timeout limits it.
    """

    __slots__ = ("_remaining_ms",)

    def __init__(self, waits: Waits, group: ClassicGroup, delay_ms: int, *, remaining_ms: int) -> None:
        """`delay_ms` is the duration of this part of the wait."""
        super().__init__(waits, group, delay_ms)
        self._remaining_ms = remaining_ms

    def try_complete(self) -> bool:
        """Return False: the wait never completes before the timeout."""
        return self.group.is_dead

    def on_complete(self) -> None:
        """Extend the wait or start the generation."""
        if not self.group.is_dead:
            self._waits.initial_delay_over(self.group, int(self.timeout_ms), self._remaining_ms)


class DelayedSync(DelayedRebalance):
    """Waits until all members of a generation have sent SyncGroup. Members that do not send it in time are removed."""

    __slots__ = ("_generation",)

    def __init__(self, waits: Waits, group: ClassicGroup, timeout_ms: float) -> None:
        """Create a wait for the current generation of the group."""
        super().__init__(waits, group, timeout_ms)
        self._generation = group.generation

    def try_complete(self) -> bool:
        """Complete if all members have sent SyncGroup, or if the generation has ended."""
        group = self.group
        if group.generation != self._generation:
            return True
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return True
        return not group.pending_sync

    def on_complete(self) -> None:
        """Do nothing: the generation continues."""

    def on_expire(self) -> None:
        """Remove the members that did not send SyncGroup."""
        if not self.try_complete():
            self._waits.sync_expired(self.group, self._generation)


class DelayedHeartbeat(DelayedOperation):
    """Waits for the next heartbeat of a member, or for a pending member to join with its assigned id.

    A heartbeat does not complete the wait of a member but restarts it, so it needs no new operation.
    """

    __slots__ = ("_group", "_is_pending", "_member_id", "_waits")

    def __init__(
        self, waits: Waits, group: ClassicGroup, member_id: str, timeout_ms: float, *, is_pending: bool = False
    ) -> None:
        """`timeout_ms` is the session timeout, or the maximum wait of a JoinGroup."""
        super().__init__(timeout_ms)
        self._waits = waits
        self._group = group
        self._member_id = member_id
        self._is_pending = is_pending

    def try_complete(self) -> bool:
        """Complete if the member waits for a response, whose end starts a new wait, or was removed."""
        group = self._group
        if group.is_dead:
            return True
        if self._is_pending:
            return self._member_id not in group.pending_members
        member = group.members.get(self._member_id)
        return member is None or member.is_alive

    def on_complete(self) -> None:
        """Do nothing: the next heartbeat starts a new wait."""

    def on_expire(self) -> None:
        """Remove the member."""
        if not self.try_complete():
            self._waits.heartbeat_expired(self._group, self._member_id, self._is_pending)


Heartbeats = Purgatory[DelayedHeartbeat]
Rebalances = Purgatory[DelayedRebalance]
