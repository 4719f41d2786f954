"""Rebalances classic groups: waits for members, removes them, distributes assignments, and writes records.

`membership` calls it when members join, sync or leave, and the purgatories call it when a wait ends
(`delayed_rebalances`). Changes are appended through `RecordLog`. An assignment takes effect when its record is
committed. A failed append causes another rebalance. All calls are made on the event loop, one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek.base.errors import (
    MessageTooLargeError,
    ProtocolError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
)
from odradek.base.ports import Clock
from odradek.base.types import Offset
from odradek.coordinator.append_errors import COMMON_ERRORS, ErrorTable, translated
from odradek.coordinator.coordinator_ports import RecordLog
from odradek.coordinator.groups.classic.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic.classic_member import AnswerJoin, AnswerSync, ClassicMember
from odradek.coordinator.groups.classic.delayed_rebalances import (
    DelayedHeartbeat,
    DelayedJoin,
    DelayedSync,
    Heartbeats,
    InitialDelayedJoin,
    Rebalances,
)
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_records import GroupKey, encode_group_key, encode_group_value
from odradek.coordinator.groups.group_requests import GroupSettings, JoinRequest, JoinResult, SyncResult

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Maximum wait of a member's first JoinGroup. The member cannot send heartbeats yet, so a client that gives up and
tries again would leave a dead member each time."""

NOBODY_JOINED_BACKOFF_MS: Final = 100
"""Minimum wait before a rebalance that no member has joined is checked again. The rebalance timeout may be 0."""

_JOIN: Final = "\0join"
_SYNC: Final = "\0sync"

_STORE_ERRORS: Final[ErrorTable] = {
    **COMMON_ERRORS,
    RequestTimedOutError: RebalanceInProgressError,
    MessageTooLargeError: UnknownServerError,
    RecordListTooLargeError: UnknownServerError,
}
"""Errors for members by error of a failed append of the group's record."""


def with_reason(event: str, reason: str | None) -> str:
    """Return a text for the log, with the reason that the member gave (KIP-800), if it gave one."""
    return f"{event}: {reason}" if reason else event


class Rebalancer:
    """Rebalances the groups of one `__consumer_offsets` partition."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        clock: Clock,
        log: RecordLog,
        heartbeats: Heartbeats,
        rebalances: Rebalances,
        events: GroupEvents,
    ) -> None:
        """The purgatories may be shared by all partitions."""
        self._settings = settings
        self._clock = clock
        self._log = log
        self._heartbeats = heartbeats
        self._rebalances = rebalances
        self._events = events

    # Members

    def add_member(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, answer: AnswerJoin) -> None:
        """Add a new member and start a rebalance."""
        if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member, answer)
        self.end_wait(group, member.member_id)  # It may have been a pending member.
        self._expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.prepare_if_possible(group, with_reason(f"member {member.member_id} joined", request.reason))

    def update_member(
        self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, answer: AnswerJoin
    ) -> None:
        """Update a member that joins again, and start a rebalance."""
        timeouts_ms = (request.rebalance_timeout_ms, request.session_timeout_ms)
        group.update(member, request.protocols, timeouts_ms, answer)
        self.prepare_if_possible(group, with_reason(f"member {member.member_id} joined again", request.reason))

    def remove_member(self, group: ClassicGroup, member: ClassicMember, reason: str) -> None:
        """Remove a member and start a rebalance of the others."""
        group.remove(member.member_id)
        self.end_wait(group, member.member_id)
        self.prepare_if_possible(group, reason)
        self.check_joined(group)

    def remove_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a pending member, which got an id and has not joined with it."""
        group.remove(member_id)
        self.end_wait(group, member_id)
        self.check_joined(group)

    def expect_pending(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Delay a rebalance until a member that has just got its id joins, for at most its session timeout."""
        group.pending_members.add(member_id)
        operation = DelayedHeartbeat(self, group, member_id, timeout_ms, is_pending=True)
        self._heartbeats.try_complete_else_watch(operation, [(group, member_id)])

    def heartbeat(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Handle a heartbeat: restart the member's session timeout."""
        self._expect_heartbeat(group, member, member.session_timeout_ms)

    def end_wait(self, group: ClassicGroup, member_id: str) -> None:
        """Stop waiting for a member that was removed."""
        self._heartbeats.check((group, member_id))

    def _expect_heartbeat(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int) -> None:
        wait = member.wait
        if wait is not None and not wait.is_completed:
            self._heartbeats.restart(wait, timeout_ms)
            return
        member.wait = operation = DelayedHeartbeat(self, group, member.member_id, timeout_ms)
        self._heartbeats.try_complete_else_watch(operation, [(group, member.member_id)])

    def heartbeat_expired(self, group: ClassicGroup, member_id: str, is_pending: bool) -> None:
        """Remove a member whose heartbeat is overdue. Called when a wait ends."""
        if is_pending:
            logger.info("%r: pending member %s did not join in time", group, member_id)
            self.remove_pending(group, member_id)
        else:
            logger.info("%r: member %s did not send a heartbeat in time", group, member_id)
            self.remove_member(group, group.members[member_id], f"the session of member {member_id} has expired")

    # Generations

    def prepare_if_possible(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, unless the group already waits for members to join."""
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, in which all members must join."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignment(group, RebalanceInProgressError("The group is rebalancing: join again."))
        self._end_sync_wait(group)
        was_empty = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE, self._clock.wall_ms())
        logger.info("%r: rebalance because of %s", group, reason)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._delay_first(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        else:
            self._await_joins(group, group.rebalance_timeout_ms)

    def check_joined(self, group: ClassicGroup) -> None:
        """Start the generation if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.check((group, _JOIN))

    def _await_joins(self, group: ClassicGroup, timeout_ms: float) -> None:
        self._rebalances.try_complete_else_watch(DelayedJoin(self, group, timeout_ms), [(group, _JOIN)])

    def _delay_first(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        operation = InitialDelayedJoin(self, group, delay_ms, remaining_ms=remaining_ms)
        self._rebalances.try_complete_else_watch(operation, [(group, _JOIN)])

    def initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Extend the wait if a member joined meanwhile, otherwise start the first generation (KIP-134). Called when a
        wait ends."""
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._delay_first(group, delay, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Start the next generation with the members that joined, and remove the other dynamic members. Called when a
        wait ends."""
        for member in group.unjoined_dynamic_members():
            logger.info("%r: member %s did not join in time", group, member.member_id)
            group.remove(member.member_id)
            self.end_wait(group, member.member_id)
        if not group.elect_joined_leader():
            # There are only static members and none has rejoined: wait until they do or their sessions time out.
            self._await_joins(group, max(group.rebalance_timeout_ms, NOBODY_JOINED_BACKOFF_MS))
            return
        group.begin_generation(self._clock.wall_ms())
        logger.info("%r: the generation begins", group)
        if group.state is GroupState.EMPTY:
            self.store(group, {}, self._warn_when_failed(group))
            return
        for member in list(group.members.values()):
            group.answer_join(member, group.joined(member.member_id))
            self.heartbeat(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        operation = DelayedSync(self, group, group.rebalance_timeout_ms)
        self._rebalances.try_complete_else_watch(operation, [(group, _SYNC)])

    # Assignments

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignments. Send them to the members when they are committed."""
        generation = group.generation
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}

        def stored(error: ProtocolError | None) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return  # Another rebalance has started, for which all members must join again.
            if error is None:
                self._distribute(group, complete)
            else:
                self._drop_assignment(group, error)
                self.prepare_if_possible(group, f"the assignment could not be stored: {error}")

        self.store(group, complete, stored)

    def _distribute(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        group.move_to(GroupState.STABLE, self._clock.wall_ms())
        self._events.rebalances += 1
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(group, member, self.assignment_of(group, member))

    def _drop_assignment(self, group: ClassicGroup, error: ProtocolError) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            self._answer_sync(group, member, error)

    def _answer_sync(self, group: ClassicGroup, member: ClassicMember, result: SyncResult | ProtocolError) -> None:
        # The session did not expire while the member waited for this response, so restart it now.
        if group.answer_sync(member, result):
            self.heartbeat(group, member)

    def assignment_of(self, group: ClassicGroup, member: ClassicMember) -> SyncResult:
        """Return the SyncGroup result for a member of a stable group."""
        return SyncResult(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def keep_sync(self, group: ClassicGroup, member: ClassicMember, answer: AnswerSync) -> None:
        """Keep a SyncGroup request until the assignment is known."""
        group.keep_sync(member, answer)
        self.record_sync(group, member)

    def record_sync(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Record that the member has sent SyncGroup in this generation."""
        group.pending_sync.discard(member.member_id)
        self._rebalances.check((group, _SYNC))

    def _end_sync_wait(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._rebalances.check((group, _SYNC))

    def sync_expired(self, group: ClassicGroup, generation: int) -> None:
        """Remove members that did not send SyncGroup in this generation (KAFKA-12890). Called when a wait ends."""
        silent = sorted(group.pending_sync)
        logger.info("%r: in generation %d, no SyncGroup arrived from %s", group, generation, silent)
        for member_id in silent:
            group.remove(member_id)
            self.end_wait(group, member_id)
        self.prepare(group, "members that did not send SyncGroup")

    # The log

    def store(
        self, group: ClassicGroup, assignments: Mapping[str, bytes], done: Callable[[ProtocolError | None], None]
    ) -> None:
        """Append the group's record. `done` gets None when it is committed, or the error for the members."""

        def appended(result: Offset | ProtocolError) -> None:
            if not isinstance(result, ProtocolError):
                done(None)
                return
            done(translated(result, _STORE_ERRORS))

        key = encode_group_key(GroupKey(group.group_id))
        value = encode_group_value(group.value(assignments), self._settings.group_value_version)
        self._log.append([(key, value)], appended)

    def _warn_when_failed(self, group: ClassicGroup) -> Callable[[ProtocolError | None], None]:
        # As in Kafka: if the partition moves, the old generation is loaded again, and its members expire.
        def done(error: ProtocolError | None) -> None:
            if error is not None:
                logger.warning("%r: the record of the empty group was not stored: %s", group, error)

        return done

    # Loading and unloading

    def on_loaded(self, group: ClassicGroup) -> None:
        """Start to wait for heartbeats of the members of a group that was read from the log."""
        if len(group.members) > self._settings.max_size:
            self.prepare(group, f"the group has more than {self._settings.max_size} members")
        for member in list(group.members.values()):
            self.heartbeat(group, member)

    def kill(self, group: ClassicGroup, error: ProtocolError) -> None:
        """End a group that was removed or moved. Waiting requests get `error`."""
        group.move_to(GroupState.DEAD, self._clock.wall_ms())
        for member in list(group.members.values()):
            group.answer_join(member, JoinResult(member_id=member.member_id, error_code=error.code))
            group.answer_sync(member, error)
            self.end_wait(group, member.member_id)
        for member_id in sorted(group.pending_members):
            self.end_wait(group, member_id)
        self._rebalances.check((group, _JOIN))
        self._rebalances.check((group, _SYNC))
