"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic and static members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.group_requests import LeavingMember
from odradek_testkit.groups import RANGE, REBALANCE_MS, SESSION_MS, SETTINGS, GroupLab

STICKY = (("sticky", b"other metadata"),)


@pytest.fixture
def lab() -> GroupLab:
    return GroupLab()


def test_the_first_member_waits_for_others_then_leads_generation_1(lab: GroupLab) -> None:
    reply = lab.join()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms - 1)
    assert reply.is_parked
    lab.clock.advance(2)
    joined = reply.value
    assert (joined.error_code, joined.generation, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("client-")
    assert [member.metadata for member in joined.members] == [RANGE[0][1]]
    assert lab.group.state is GroupState.COMPLETING_REBALANCE


def test_the_initial_delay_is_extended_while_members_join_up_to_the_rebalance_timeout(lab: GroupLab) -> None:
    lab.settings = replace(SETTINGS, initial_rebalance_delay_ms=1000)
    lab.shard = lab.load()
    replies = [lab.join(rebalance_timeout_ms=2500)]
    for _ in range(2):
        lab.clock.advance(900)
        replies.append(lab.join(rebalance_timeout_ms=2500))
    lab.clock.advance(650)
    assert all(reply.is_parked for reply in replies)
    lab.clock.advance(100)
    assert [reply.value.generation for reply in replies] == [1, 1, 1]


def test_only_the_leader_gets_the_members(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    assert len(first.value.members) == 2
    assert second.value.members == ()
    assert second.value.leader == first.value.member_id


def test_a_member_without_an_id_first_gets_one(lab: GroupLab) -> None:
    refused = lab.join(requires_known_member_id=True).value
    assert refused.error_code == MemberIdRequiredError.code
    assert lab.group.state is GroupState.EMPTY
    reply = lab.join(refused.member_id, requires_known_member_id=True)
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    assert reply.value.member_id == refused.member_id


def test_a_rebalance_waits_for_pending_members_until_they_expire(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.join(requires_known_member_id=True)
    reply = lab.join(member_id)
    assert reply.is_parked
    lab.clock.advance(SESSION_MS - 1)
    assert reply.is_parked
    lab.clock.advance(2)
    assert reply.value.generation == 2


def test_a_pending_member_can_leave(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    pending = lab.join(requires_known_member_id=True).value.member_id
    reply = lab.join(member_id)
    assert [result.error_code for result in lab.leave(LeavingMember(member_id=pending))] == [NONE]
    assert reply.value.generation == 2


def test_a_pending_member_that_expired_is_unknown(lab: GroupLab) -> None:
    lab.form(None)
    pending = lab.join(requires_known_member_id=True).value.member_id
    lab.clock.advance(SESSION_MS + 1)
    with pytest.raises(UnknownMemberIdError):
        lab.join(pending)


def test_a_new_member_starts_a_rebalance(lab: GroupLab) -> None:
    old_id, other_id = lab.form(None, None)
    new = lab.join()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        lab.heartbeat(old_id, 1)
    with pytest.raises(RebalanceInProgressError):
        lab.sync(old_id, 1)
    replies = [new, lab.join(old_id), lab.join(other_id)]
    assert [reply.value.generation for reply in replies] == [2, 2, 2]
    assert new.value.leader == old_id


def test_members_that_do_not_join_in_time_are_removed(lab: GroupLab) -> None:
    gone_id, old_id = lab.form(None, None)
    new, old = lab.join(), lab.join(old_id)
    for _ in range(REBALANCE_MS // 5000):
        lab.clock.advance(5000)
        if gone_id in lab.group.members and lab.group.state is GroupState.PREPARING_REBALANCE:
            with pytest.raises(RebalanceInProgressError):
                lab.heartbeat(gone_id, 1)
    assert (new.value.generation, old.value.generation) == (2, 2)
    assert old.value.leader == old_id
    with pytest.raises(UnknownMemberIdError):
        lab.heartbeat(gone_id, 1)


def test_an_unchanged_follower_that_joins_a_stable_group_gets_the_generation(lab: GroupLab) -> None:
    leader_id, follower_id = lab.form(None, None)
    joined = lab.join(follower_id).value
    assert (joined.generation, joined.leader, joined.members) == (1, leader_id, ())
    assert lab.group.state is GroupState.STABLE


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_join_of_the_leader_or_a_changed_member_starts_a_rebalance(lab: GroupLab, is_leader: bool) -> None:
    leader_id, follower_id = lab.form(None, None)
    if is_leader:
        reply = lab.join(leader_id)
    else:
        reply = lab.join(follower_id, protocols=(("range", b"new topics"),))
    assert reply.is_parked
    assert lab.group.state is GroupState.PREPARING_REBALANCE


def test_joining_again_before_the_assignment_changes_nothing(lab: GroupLab) -> None:
    first = lab.join()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    assert lab.join(first.value.member_id).value == first.value


def test_a_changed_member_before_the_assignment_causes_another_rebalance(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    waiting = lab.sync(second.value.member_id, 1)
    lab.join(first.value.member_id, protocols=(("range", b"new topics"),))
    with pytest.raises(RebalanceInProgressError):
        _ = waiting.value


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocols": STICKY}, {"protocols": ()}, {"protocol_type": ""}]
)
def test_a_member_that_does_not_fit_is_refused(lab: GroupLab, changes: dict[str, object]) -> None:
    lab.form(None)
    with pytest.raises(InconsistentGroupProtocolError):
        lab.join(**changes)


def test_a_refused_member_creates_no_group(lab: GroupLab) -> None:
    with pytest.raises(InconsistentGroupProtocolError):
        lab.join(protocols=())
    assert lab.shard.groups == {}
    with pytest.raises(UnknownMemberIdError):
        lab.join("somebody")


def test_a_full_group_accepts_only_its_members(lab: GroupLab) -> None:
    lab.settings = replace(SETTINGS, max_size=2)
    lab.shard = lab.load()
    member_ids = lab.form(None, None)
    full = lab.join().value
    assert (full.error_code, full.member_id) == (GroupMaxSizeReachedError.code, "")
    replies = [lab.join(member_id) for member_id in member_ids]
    assert [reply.value.generation for reply in replies] == [2, 2]


def test_a_group_that_became_too_large_shrinks(lab: GroupLab) -> None:
    member_ids = lab.form(None, None, None)
    lab.settings = replace(SETTINGS, max_size=2)
    lab.reload()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    first, second, third = (lab.join(member_id) for member_id in member_ids)
    assert third.value.error_code == GroupMaxSizeReachedError.code
    assert (first.value.generation, second.value.generation) == (2, 2)


# SyncGroup


def test_assignments_are_sent_when_they_are_committed(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    leader_id, follower_id = first.value.member_id, second.value.member_id
    follower = lab.sync(follower_id, 1, protocol_type="consumer", protocol_name="range")
    leader = lab.sync(leader_id, 1, {leader_id: b"one", follower_id: b"two"})
    assert leader.is_parked and follower.is_parked
    assert lab.group.state is GroupState.COMPLETING_REBALANCE
    lab.log.settle()
    assert (leader.value.assignment, follower.value.assignment) == (b"one", b"two")
    assert (follower.value.protocol_type, follower.value.protocol_name) == ("consumer", "range")
    assert lab.group.state is GroupState.STABLE
    assert lab.sync(follower_id, 1).value.assignment == b"two"


def test_a_member_without_an_assignment_gets_an_empty_one(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    follower = lab.sync(second.value.member_id, 1)
    lab.sync(first.value.member_id, 1, {first.value.member_id: b"all"})
    lab.log.settle()
    assert follower.value.assignment == b""


@pytest.mark.parametrize(
    ("failure", "answered"),
    [
        (NotEnoughReplicasError, CoordinatorNotAvailableError),
        (UnknownTopicOrPartitionError, CoordinatorNotAvailableError),
        (NotLeaderOrFollowerError, NotCoordinatorError),
        (KafkaStorageError, NotCoordinatorError),
        (RequestTimedOutError, RebalanceInProgressError),
        (MessageTooLargeError, UnknownServerError),
        (CoordinatorNotAvailableError, CoordinatorNotAvailableError),
    ],
)
def test_an_assignment_that_is_not_stored_causes_another_rebalance(
    lab: GroupLab, failure: type[ProtocolError], answered: type[ProtocolError]
) -> None:
    reply = lab.join()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    member_id = reply.value.member_id
    sync = lab.sync(member_id, 1, {member_id: b"all"})
    lab.log.fail_next(failure("no"))
    with pytest.raises(answered):
        _ = sync.value
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    assert lab.group.members[member_id].assignment == b""
    assert lab.join(member_id).value.generation == 2


def test_an_assignment_committed_after_the_next_rebalance_began_is_dropped(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.join()
    lab.join(member_id)
    sync = lab.sync(member_id, 2, {member_id: b"old"})
    lab.join(member_id, protocols=(("range", b"new topics"),))
    with pytest.raises(RebalanceInProgressError):
        _ = sync.value
    lab.log.settle()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    assert lab.group.members[member_id].assignment == b""


def test_a_follower_cannot_assign(lab: GroupLab) -> None:
    _, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    reply = lab.sync(second.value.member_id, 1, {second.value.member_id: b"mine"})
    assert reply.is_parked
    assert lab.log.waiting == []


@pytest.mark.parametrize(
    ("changes", "generation", "error"),
    [
        ({}, 2, IllegalGenerationError),
        ({"protocol_type": "connect"}, 1, InconsistentGroupProtocolError),
        ({"protocol_name": "sticky"}, 1, InconsistentGroupProtocolError),
        ({"instance_id": "nobody"}, 1, UnknownMemberIdError),
    ],
)
def test_sync_of_a_stranger(
    lab: GroupLab, changes: dict[str, object], generation: int, error: type[ProtocolError]
) -> None:
    (member_id,) = lab.form(None)
    with pytest.raises(error):
        lab.sync(member_id, generation, **changes)


def test_sync_of_an_unknown_member_or_group(lab: GroupLab) -> None:
    with pytest.raises(UnknownMemberIdError):
        lab.sync("nobody", 1)
    lab.form(None)
    with pytest.raises(UnknownMemberIdError):
        lab.sync("nobody", 1)


def test_members_that_never_sync_are_removed(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join()
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    leader_id, silent_id = first.value.member_id, second.value.member_id
    lab.sync(leader_id, 1, {leader_id: b"all"})
    lab.log.settle()
    for _ in range(REBALANCE_MS // 5000):
        lab.clock.advance(5000)
        if silent_id in lab.group.members:
            lab.heartbeat(leader_id, 1)
            lab.heartbeat(silent_id, 1)
    assert list(lab.group.members) == [leader_id]
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    assert lab.join(leader_id).value.generation == 2


# Heartbeat


def test_a_member_without_heartbeats_is_removed(lab: GroupLab) -> None:
    member_id, silent_id = lab.form(None, None)
    lab.clock.advance(SESSION_MS - 1)
    lab.heartbeat(member_id, 1)
    assert lab.group.state is GroupState.STABLE
    lab.clock.advance(2)
    assert list(lab.group.members) == [member_id]
    with pytest.raises(RebalanceInProgressError):
        lab.heartbeat(member_id, 1)
    with pytest.raises(UnknownMemberIdError):
        lab.heartbeat(silent_id, 1)


def test_a_heartbeat_of_another_generation(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    for generation in (0, 2, -1):
        with pytest.raises(IllegalGenerationError):
            lab.heartbeat(member_id, generation)


def test_heartbeats_count_before_the_assignment_too(lab: GroupLab) -> None:
    reply = lab.join()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    for _ in range(4):
        lab.heartbeat(reply.value.member_id, 1)
        lab.clock.advance(SESSION_MS - 1)
    assert list(lab.group.members) == [reply.value.member_id]


def test_members_that_wait_for_an_answer_do_not_expire(lab: GroupLab) -> None:
    first_id, second_id = lab.form(None, None)
    joining = lab.join(first_id)
    for _ in range(3):
        lab.clock.advance(SESSION_MS - 1)
        with pytest.raises(RebalanceInProgressError):
            lab.heartbeat(second_id, 1)
    assert joining.is_parked
    assert set(lab.group.members) == {first_id, second_id}


def test_a_first_join_that_takes_too_long_is_removed(lab: GroupLab) -> None:
    (old_id,) = lab.form(None)
    new = lab.join(rebalance_timeout_ms=3_600_000)
    for _ in range(300):
        lab.clock.advance(1000)
        with pytest.raises(RebalanceInProgressError):
            lab.heartbeat(old_id, 1)
    lab.clock.advance(1000)
    assert new.value.error_code == UnknownMemberIdError.code


# LeaveGroup


def test_the_last_member_leaves_an_empty_generation(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    (result,) = lab.leave(LeavingMember(member_id=member_id))
    assert result.error_code == NONE
    assert (lab.group.state, lab.group.generation, lab.group.leader_id) == (GroupState.EMPTY, 2, None)
    assert len(lab.log.waiting) == 1


def test_a_leaving_member_starts_a_rebalance_immediately(lab: GroupLab) -> None:
    leader_id, other_id = lab.form(None, None)
    lab.leave(LeavingMember(member_id=leader_id))
    assert lab.join(other_id).value.leader == other_id


def test_each_leaving_member_has_its_own_result(lab: GroupLab) -> None:
    first_id, second_id = lab.form(None, "static")
    results = lab.leave(
        LeavingMember(member_id="nobody"),
        LeavingMember(instance_id="static"),
        LeavingMember(member_id=first_id),
        LeavingMember(member_id=first_id),
        LeavingMember(instance_id="static"),
        LeavingMember(),
    )
    unknown = UnknownMemberIdError.code
    assert [result.error_code for result in results] == [unknown, NONE, NONE, unknown, unknown, unknown]
    assert second_id not in lab.group.members


def test_leaving_a_group_that_does_not_exist(lab: GroupLab) -> None:
    (result,) = lab.leave(LeavingMember(member_id="somebody"))
    assert (result.member_id, result.error_code) == ("somebody", UnknownMemberIdError.code)


def test_a_member_that_waits_for_its_generation_leaves(lab: GroupLab) -> None:
    reply = lab.join(requires_known_member_id=True)
    waiting = lab.join(reply.value.member_id)
    lab.leave(LeavingMember(member_id=reply.value.member_id))
    assert waiting.value.error_code == UnknownMemberIdError.code


# Static members


def test_a_static_member_restarts_without_a_rebalance(lab: GroupLab) -> None:
    leader_id, static_id = lab.form(None, "static")
    reply = lab.join(instance_id="static")
    assert reply.is_parked
    lab.log.settle()
    joined = reply.value
    assert joined.member_id not in (leader_id, static_id)
    assert joined.member_id.startswith("static-")
    assert (joined.generation, joined.leader, joined.skip_assignment) == (1, leader_id, False)
    assert lab.group.state is GroupState.STABLE
    assert lab.sync(joined.member_id, 1, instance_id="static").value.assignment == b"assigned to " + static_id.encode()
    with pytest.raises(FencedInstanceIdError):
        lab.heartbeat(static_id, 1, "static")
    with pytest.raises(FencedInstanceIdError):
        lab.sync(static_id, 1, instance_id="static")
    with pytest.raises(FencedInstanceIdError):
        lab.join(static_id, instance_id="static")
    (left,) = lab.leave(LeavingMember(member_id=static_id, instance_id="static"))
    assert left.error_code == FencedInstanceIdError.code


def test_a_restarted_static_leader_skips_the_assignment(lab: GroupLab) -> None:
    (old_id,) = lab.form("static")
    old_client = lab.join(instance_id="static")
    lab.log.settle()
    assert (old_client.value.leader, old_client.value.members) == (old_id, ())
    new_client = lab.join(instance_id="static", supports_skipping_assignment=True)
    lab.log.settle()
    joined = new_client.value
    assert (joined.leader, joined.skip_assignment, len(joined.members)) == (joined.member_id, True, 1)


def test_a_restarted_static_member_keeps_its_old_id_when_it_cannot_be_stored(lab: GroupLab) -> None:
    _, old_id = lab.form(None, "static")
    reply = lab.join(instance_id="static", protocols=(*RANGE, *STICKY))
    lab.log.fail_next(NotEnoughReplicasError("no"))
    assert (reply.value.error_code, reply.value.member_id) == (CoordinatorNotAvailableError.code, "")
    lab.heartbeat(old_id, 1, "static")
    assert lab.group.members[old_id].protocols == RANGE
    assert lab.group.static_members == {"static": old_id}


def test_a_restarted_static_member_that_changes_the_protocol_makes_the_group_rebalance(lab: GroupLab) -> None:
    both = (*RANGE, *STICKY)
    reply = lab.join(instance_id="static", protocols=both)
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    lab.sync(reply.value.member_id, 1, {}, instance_id="static")
    lab.log.settle()
    again = lab.join(instance_id="static", protocols=both[::-1])
    assert (again.value.generation, again.value.protocol_name) == (2, "sticky")


def test_a_static_member_that_restarts_before_the_assignment_causes_another_rebalance(lab: GroupLab) -> None:
    first, second = lab.join(), lab.join(instance_id="static")
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    waiting = lab.sync(second.value.member_id, 1, instance_id="static")
    lab.join(instance_id="static")
    with pytest.raises(FencedInstanceIdError):
        _ = waiting.value
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    assert lab.join(first.value.member_id).value.generation == 2


def test_a_second_instance_fences_the_join_of_the_first(lab: GroupLab) -> None:
    first = lab.join(instance_id="static")
    second = lab.join(instance_id="static")
    assert first.value.error_code == FencedInstanceIdError.code
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    assert second.value.generation == 1


def test_a_static_member_that_does_not_join_stays_until_its_session_ends(lab: GroupLab) -> None:
    lab.form("static", None)
    static_id, other_id = lab.group.members
    for member in lab.group.members.values():
        member.rebalance_timeout_ms = 4000
    new, other = lab.join(rebalance_timeout_ms=4000), lab.join(other_id, rebalance_timeout_ms=4000)
    assert new.is_parked
    lab.clock.advance(4001)
    assert (new.value.generation, other.value.generation) == (2, 2)
    assert static_id in lab.group.members
    lab.clock.advance(SESSION_MS)
    assert static_id not in lab.group.members


def test_a_rebalance_that_nobody_joined_waits_for_the_static_members_to_expire(lab: GroupLab) -> None:
    lab.form("a", "b", None)
    a_id, b_id, dynamic_id = lab.group.members
    lab.leave(LeavingMember(member_id=dynamic_id))
    for _ in range(30):
        for member_id, instance_id in ((a_id, "a"), (b_id, "b")):
            with pytest.raises(RebalanceInProgressError):
                lab.heartbeat(member_id, 1, instance_id)
        lab.clock.advance(5000)
    assert set(lab.group.members) == {a_id, b_id}
    assert (lab.group.state, lab.group.generation) == (GroupState.PREPARING_REBALANCE, 1)
    back = lab.join(a_id, instance_id="a")
    lab.clock.advance(REBALANCE_MS)
    assert back.value.generation == 2


def test_a_static_member_is_removed_by_instance_id_only_with_the_right_member_id(lab: GroupLab) -> None:
    (static_id,) = lab.form("static")
    (fenced,) = lab.leave(LeavingMember(member_id="other", instance_id="static"))
    assert fenced.error_code == FencedInstanceIdError.code
    (removed,) = lab.leave(LeavingMember(member_id=static_id, instance_id="static"))
    assert removed.error_code == NONE


def test_a_rebalance_timeout_of_0_does_not_block_the_event_loop(lab: GroupLab) -> None:
    reply = lab.join(rebalance_timeout_ms=0)
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    assert reply.value.generation == 1
    assert lab.group.state is GroupState.EMPTY
    lab.form("static")
    (member,) = lab.group.members.values()
    member.rebalance_timeout_ms = 0
    lab.join(rebalance_timeout_ms=0)
    lab.clock.advance(1000)
    assert lab.group.generation >= 2
