"""Handles the requests of members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`group_shard` calls it with a group and a request. This module decides, for each state of the group, whether a request
is allowed, and `rebalancing` carries it out. Errors are raised, or returned if the response contains more than the
error. The rules and the order of checks are the same as in Apache Kafka 3.9 in ZooKeeper mode, including KIP-394 (known
member ids), KIP-345 (static members), KIP-559 (protocol type and name) and KIP-814 (skipping the assignment).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.base.errors import (
    NONE,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from odradek.base.ports import Clock
from odradek.coordinator.groups.classic.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic.classic_member import AnswerJoin, AnswerSync, ClassicMember
from odradek.coordinator.groups.classic.rebalancing import Rebalancer, with_reason
from odradek.coordinator.groups.group_requests import (
    UNKNOWN_MEMBER_ID,
    GroupSettings,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberCheck,
    SyncRequest,
)

logger = logging.getLogger(__name__)

_MEMBER_ID_BYTES: Final = 16


class Membership:
    """Handles the requests of members, for the groups of one partition."""

    def __init__(self, *, settings: GroupSettings, clock: Clock, rebalancer: Rebalancer) -> None:
        """`clock` provides randomness for member ids."""
        self._settings = settings
        self._clock = clock
        self._rebalancer = rebalancer

    # JoinGroup

    def join(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> None:
        """Add a member to the next generation. The response waits until the generation begins."""
        group.check_alive()
        if not self._has_capacity(group, request.member_id):
            group.remove(request.member_id)
            answer(JoinResult(member_id=UNKNOWN_MEMBER_ID, error_code=GroupMaxSizeReachedError.code))
        elif not group.supports(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocolError(
                f"The member supports no protocol that all members of group {group.group_id!r} (protocol type "
                f"{group.protocol_type!r}) support."
            )
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_unknown(group, request, answer)
        elif request.member_id in group.pending_members and request.instance_id is None:
            self._rebalancer.add_member(group, ClassicMember.joining(request, request.member_id), request, answer)
        else:
            self._join_again(group, request, answer)
        self._rebalancer.check_joined(group)

    def _has_capacity(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Only waiting members are counted, so that a group can become smaller after the limit was lowered.
            is_waiting = member is not None and member.answer_join is not None
            return is_waiting or group.awaiting_join < self._settings.max_size
        return member is not None or len(group.members) < self._settings.max_size

    def _join_unknown(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> None:
        member_id = self.new_member_id(request)
        if request.instance_id is not None:
            if request.instance_id in group.static_members:
                self._replace_static(group, request, member_id, answer)
            else:
                self._rebalancer.add_member(group, ClassicMember.joining(request, member_id), request, answer)
        elif request.requires_known_member_id:
            self._rebalancer.expect_pending(group, member_id, request.session_timeout_ms)
            answer(JoinResult(member_id=member_id, error_code=MemberIdRequiredError.code))
        else:
            self._rebalancer.add_member(group, ClassicMember.joining(request, member_id), request, answer)

    def new_member_id(self, request: JoinRequest) -> str:
        """Return an id for a member that joins without one."""
        unique = UUID(bytes=self._clock.token_bytes(_MEMBER_ID_BYTES), version=4)
        return f"{request.client_id if request.instance_id is None else request.instance_id}-{unique}"

    def _join_again(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> None:
        member = group.member_of(request.member_id, request.instance_id)
        state = group.state
        is_unchanged = member.protocols == request.protocols
        if state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # The member may not have received the response to its first JoinGroup of this generation.
            answer(group.joined(member.member_id))
        elif state is GroupState.STABLE and is_unchanged and not group.is_leader(member.member_id):
            answer(group.joined(member.member_id))
        else:
            # The leader may have noticed a change, for example of its topics, that is not visible in its metadata.
            self._rebalancer.update_member(group, member, request, answer)

    # Rejoining static members

    def _replace_static(self, group: ClassicGroup, request: JoinRequest, member_id: str, answer: AnswerJoin) -> None:
        """Give a static member that restarted a new id, if possible without a rebalance."""
        instance_id = request.instance_id
        assert instance_id is not None
        old_member_id, old_leader = group.static_members[instance_id], group.leader_id or ""
        member = group.replace_static(instance_id, member_id)
        self._rebalancer.end_wait(group, old_member_id)
        self._rebalancer.heartbeat(group, member)
        before = (member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms))
        group.update(member, request.protocols, (request.rebalance_timeout_ms, request.session_timeout_ms), answer)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be computing an assignment for the old id.
            self._rebalancer.prepare(group, f"static member {member_id} has restarted")
            return
        if group.state is not GroupState.STABLE:
            return
        if group.select_protocol() != group.protocol_name:
            self._rebalancer.prepare(group, f"static member {member_id} has restarted and changes the protocol")
            return

        def stored(error: ProtocolError | None) -> None:
            if group.is_dead or group.members.get(member_id) is not member:
                return  # The member has left or was replaced again, and its JoinGroup was answered then.
            if error is None:
                group.answer_join(member, self._static_answer(group, request, member_id, old_leader))
                self._rebalancer.heartbeat(group, member)
                return
            logger.warning("%r: the new id of static member %s was not stored: %s", group, member_id, error)
            failed = replace(group.joined(UNKNOWN_MEMBER_ID), error_code=error.code, leader=old_leader)
            group.answer_join(member, failed)
            group.update(member, *before, None)
            group.replace_static(instance_id, old_member_id)
            self._rebalancer.end_wait(group, member_id)
            self._rebalancer.heartbeat(group, member)

        assignments = {other.member_id: other.assignment for other in group.members.values()}
        self._rebalancer.store(group, assignments, stored)

    def _static_answer(self, group: ClassicGroup, request: JoinRequest, member_id: str, old_leader: str) -> JoinResult:
        """Return the current generation in such a form that the leader does not compute the assignment again."""
        if not request.supports_skipping_assignment:
            # An older client acts as leader if the leader's id is its own. With the old id, it does not.
            return replace(group.joined(member_id, shows_members=False), leader=old_leader)
        return replace(group.joined(member_id), skip_assignment=group.is_leader(member_id))

    # SyncGroup

    def sync(self, group: ClassicGroup, request: SyncRequest, answer: AnswerSync) -> None:
        """Respond with the member's assignment when the assignments of the leader are committed."""
        group.check_alive()
        member = group.check_generation(request.member)
        for given, own in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if given is not None and given != own:
                raise InconsistentGroupProtocolError(
                    f"The protocol of group {group.group_id!r} is {own!r}, not {given!r}."
                )
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"Group {group.group_id!r} rebalances: join again.")
        if group.state is GroupState.STABLE:
            self._rebalancer.record_sync(group, member)
            answer(self._rebalancer.assignment_of(group, member))
            self._rebalancer.heartbeat(group, member)
            return
        self._rebalancer.keep_sync(group, member, answer)
        if group.is_leader(member.member_id):
            self._rebalancer.assign(group, request.assignments)

    # Heartbeat

    def heartbeat(self, group: ClassicGroup, check: MemberCheck) -> None:
        """Extend the session of a member. Raises `RebalanceInProgressError` if it must join again."""
        group.check_alive()
        self._rebalancer.heartbeat(group, group.check_generation(check))
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"Group {group.group_id!r} rebalances: join again.")

    def committed(self, group: ClassicGroup, check: MemberCheck) -> None:
        """Extend the session of the member that has sent OffsetCommit, if it is one."""
        member = group.members.get(check.member_id)
        if member is not None and check.generation >= 0:
            self._rebalancer.heartbeat(group, member)

    # LeaveGroup

    def leave(self, group: ClassicGroup, members: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Remove members. Each has a result."""
        group.check_alive()
        results = []
        for leaving in members:
            code = self._leave(group, leaving)
            results.append(LeaveResult(member_id=leaving.member_id, instance_id=leaving.instance_id, error_code=code))
        return results

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            if leaving.instance_id not in group.static_members:
                return UnknownMemberIdError.code
            member_id = group.static_members[leaving.instance_id]
        elif member_id in group.pending_members:
            self._rebalancer.remove_pending(group, member_id)
            return NONE
        try:
            member = group.member_of(member_id, leaving.instance_id)
        except ProtocolError as error:
            return error.code
        self._rebalancer.remove_member(group, member, with_reason(f"member {member_id} left", leaving.reason))
        return NONE
