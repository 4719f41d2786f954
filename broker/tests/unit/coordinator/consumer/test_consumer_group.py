"""A consumer group in memory: its queue of operations, appends that fail, and the timers of its members."""

from __future__ import annotations

from uuid import NAMESPACE_DNS, uuid5

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    IllegalGenerationError,
    InvalidRequestError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownServerError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.consumer.consumer_values import ConsumerGroupPhase, ReconciliationState
from odradek.coordinator.groups.group_requests import CommitRequest, LeaveResult, LeavingMember, OffsetToCommit
from odradek_testkit.groups import REBALANCE_MS, GroupLab, Reply, image_of, visible

EVENTS = uuid5(NAMESPACE_DNS, "events")
SESSION_MS = 45_000
PLACE = TopicPartition("events", 0)


def lab() -> GroupLab:
    return GroupLab(image=image_of(events=4))


def joined(lab: GroupLab, *member_ids: str) -> None:
    """Let members join, and reconcile all of them."""
    for member_id in member_ids:
        lab.consumer_heartbeat(member_id, 0)
        lab.log.settle()
    settled(lab)


def settled(lab: GroupLab) -> None:
    """Let every member send heartbeats, in which it has what it is assigned, until nothing changes."""
    while lab.consumer_group.phase is not ConsumerGroupPhase.STABLE:
        for member in [*lab.consumer_group.state.members.values()]:
            lab.consumer_heartbeat(member.member_id, member.epoch, owned=member.assigned)
            lab.log.settle()


def shares(lab: GroupLab) -> dict[str, int]:
    members = lab.consumer_group.state.members.values()
    return {member.member_id: len(member.assigned.get(EVENTS, ())) for member in members}


# The queue


def test_a_response_waits_until_the_records_are_committed() -> None:
    office = lab()
    reply = office.consumer_heartbeat("one", 0)
    assert reply.is_parked
    assert office.consumer_group.state.is_empty
    office.log.settle()
    assert reply.value.epoch == 1
    assert reply.value.assignment == {EVENTS: {0, 1, 2, 3}}
    assert office.replayed() == visible(office.shard)


def test_what_arrives_during_an_append_is_one_append() -> None:
    office = lab()
    first = office.consumer_heartbeat("one", 0)
    others = [office.consumer_heartbeat(name, 0) for name in ("two", "three")]
    assert len(office.log.waiting) == 1
    office.log.commit_next()
    assert first.value.epoch == 1
    assert len(office.log.waiting) == 1
    assert all(reply.is_parked for reply in others)
    office.log.settle()
    assert [reply.value.member_id for reply in others] == ["two", "three"]
    assert len(office.log.record_sets) == 2
    assert office.replayed() == visible(office.shard)


def test_each_new_group_epoch_is_a_rebalance() -> None:
    office = lab()
    joined(office, "one", "two")
    assert office.events.consumer_rebalances == office.consumer_group.state.epoch == 2
    office.consumer_heartbeat("two", -1)
    assert office.events.consumer_rebalances == 2, "it is not committed yet"
    office.log.settle()
    settled(office)
    assert office.events.consumer_rebalances == 3
    office.reload()
    assert office.events.consumer_rebalances == 3, "a replay is no rebalance"
    assert office.events.rebalances == 0


def test_a_heartbeat_that_changes_nothing_is_answered_without_records() -> None:
    office = lab()
    joined(office, "one")
    count = len(office.log.record_sets)
    assert office.consumer_heartbeat("one", 1).value.assignment is None
    assert len(office.log.record_sets) == count


def test_a_heartbeat_that_changes_nothing_waits_for_the_append_before_it() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("two", 0)
    unchanged = office.consumer_heartbeat("one", 1)
    assert unchanged.is_parked
    office.log.settle()
    assert unchanged.value.member_id == "one"


def test_an_operation_that_fails_answers_only_itself() -> None:
    office = lab()
    office.consumer_heartbeat("one", 0)
    unknown = office.consumer_heartbeat("nobody", 5)
    other = office.consumer_heartbeat("two", 0)
    office.log.settle()
    with pytest.raises(UnknownMemberIdError):
        _ = unknown.value
    assert other.value.epoch == 2


def test_a_bug_in_an_operation_answers_only_itself() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("two", 0)
    broken: Reply[None] = Reply()

    def fail(*_: object) -> None:
        raise KeyError("a bug")

    office.consumer_group.submit(fail, broken)  # type: ignore[arg-type]  # it returns nothing
    other = office.consumer_heartbeat("three", 0)
    office.log.settle()
    with pytest.raises(UnknownServerError):
        _ = broken.value
    assert other.value.member_id == "three"


# Appends that fail


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotEnoughReplicasError("few"), CoordinatorNotAvailableError),
        (RequestTimedOutError("slow"), CoordinatorNotAvailableError),
        (NotLeaderOrFollowerError("moved"), NotCoordinatorError),
        (MessageTooLargeError("big"), UnknownServerError),
        (NotCoordinatorError("moved"), NotCoordinatorError),
    ],
    ids=str,
)
def test_a_failed_append_changes_nothing_and_is_told(error: ProtocolError, told: type[ProtocolError]) -> None:
    office = lab()
    joined(office, "one")
    before = office.consumer_group.state
    replies = [office.consumer_heartbeat("two", 0), office.consumer_heartbeat("nobody", 4)]
    office.log.fail_next(error)
    with pytest.raises(told):
        _ = replies[0].value
    assert office.consumer_group.state is before
    with pytest.raises(UnknownMemberIdError):
        office.log.settle()
        _ = replies[1].value


@pytest.mark.parametrize("is_written", [True, False])
def test_the_next_append_repairs_the_log(is_written: bool) -> None:
    office = lab()
    joined(office, "one")
    lost = office.consumer_heartbeat("lost", 0)
    timeout = RequestTimedOutError("slow")
    (office.log.commit_next if is_written else office.log.fail_next)(timeout)
    with pytest.raises(CoordinatorNotAvailableError):
        _ = lost.value
    assert [*office.consumer_group.state.members] == ["one"]

    unchanged = office.consumer_heartbeat("one", 1)
    assert unchanged.is_parked, "it must not rely on a state that the log may not have"
    office.log.settle()
    assert unchanged.value.epoch == 1
    assert office.replayed() == visible(office.shard)
    count = len(office.log.record_sets)
    assert not office.consumer_heartbeat("one", 1).is_parked
    assert len(office.log.record_sets) == count


def sizes(office: GroupLab) -> list[int]:
    """Return the number of records of each append that waits."""
    return [len(records) for records, _, _ in office.log.waiting]


@pytest.mark.parametrize("is_written", [True, False])
def test_appends_do_not_grow_with_the_number_of_failures(is_written: bool) -> None:
    """Otherwise they exceed the size of a batch, and the group cannot change any more."""
    office = lab()
    joined(office, "one")
    timeout = RequestTimedOutError("slow")
    found = []
    for number in range(20):
        reply = office.consumer_heartbeat(f"lost-{number}", 0)
        found += sizes(office)
        (office.log.commit_next if is_written else office.log.fail_next)(timeout)
        with pytest.raises(CoordinatorNotAvailableError):
            _ = reply.value
    assert len(found) == 20
    assert found[1:] == [found[1]] * 19, "each append has only the keys of the first one, which are in doubt"
    assert found[1] <= found[0] + 1
    late = office.consumer_heartbeat("two", 0)
    office.log.settle()
    assert late.value.member_id == "two"
    assert {*office.consumer_group.state.members} == {"one", "two"}
    assert office.replayed() == visible(office.shard)


def test_a_change_after_a_failed_append_needs_two_successful_ones() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("lost", 0)
    office.log.fail_next(NotEnoughReplicasError("few"))
    joining = office.consumer_heartbeat("two", 0)
    unknown = office.consumer_heartbeat("nobody", 4)
    office.log.commit_next()
    assert joining.is_parked, "its own records are not stored"
    office.log.commit_next(RequestTimedOutError("slow"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = joining.value
    office.log.settle()
    with pytest.raises(UnknownMemberIdError):
        _ = unknown.value
    assert [*office.consumer_group.state.members] == ["one"]
    assert office.replayed() == visible(office.shard)


def test_a_repair_that_is_too_large_for_one_append_is_made_in_parts() -> None:
    office = lab()
    names = [f"member-{number}" for number in range(10)]
    for name in names:
        office.consumer_heartbeat(name, 0, instance_id=name)
        office.log.settle()
    settled(office)
    removed: Reply[list[LeaveResult]] = Reply()
    office.consumer_group.leave([LeavingMember(instance_id=name) for name in names], removed)
    (all_records,) = sizes(office)
    office.log.commit_next(RequestTimedOutError("slow"))
    epoch = office.consumer_group.state.members["member-3"].epoch
    heartbeat = office.consumer_heartbeat("member-3", epoch, instance_id="member-3")
    part_sizes = []
    limit = 7
    while office.log.waiting:
        part_sizes += sizes(office)
        if part_sizes[-1] > limit:
            office.log.fail_next(RecordListTooLargeError("big"))
        else:
            office.log.commit_next()
    assert part_sizes[0] >= all_records
    assert sum(size > limit for size in part_sizes) == part_sizes.index(next(n for n in part_sizes if n <= limit))
    assert heartbeat.value.member_id == "member-3"
    assert len(office.consumer_group.state.members) == 10
    assert office.replayed() == visible(office.shard)


def test_a_change_that_is_too_large_leaves_nothing_to_repair() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("two", 0)
    office.log.fail_next(MessageTooLargeError("big"))
    assert not office.consumer_group.is_uncertain
    assert not office.consumer_heartbeat("one", 1).is_parked


def test_a_group_that_moves_during_a_repair_appends_nothing_more() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("lost", 0)
    office.log.fail_next(NotEnoughReplicasError("few"))
    joining = office.consumer_heartbeat("two", 0)
    office.shard.on_unloaded()
    office.log.commit_next()
    with pytest.raises(NotCoordinatorError):
        _ = joining.value
    assert not office.log.waiting


def test_heartbeats_keep_a_member_alive_while_nothing_can_be_stored() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("lost", 0)
    office.log.fail_next(NotEnoughReplicasError("few"))
    for _ in range(4):
        office.clock.advance(SESSION_MS / 2)
        office.consumer_heartbeat("one", 1)
        office.log.fail_next(NotEnoughReplicasError("few"))
    office.clock.advance(SESSION_MS / 2)
    office.consumer_heartbeat("one", 1)
    office.log.settle()
    assert [*office.consumer_group.state.members] == ["one"]


def test_what_waits_during_a_failed_append_is_applied_to_the_old_state() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("lost", 0)
    waiting = office.consumer_heartbeat("two", 0)
    office.log.commit_next(RequestTimedOutError("slow"))
    office.log.settle()
    assert waiting.value.member_id == "two"
    assert {*office.consumer_group.state.members} == {"one", "two"}
    assert office.replayed() == visible(office.shard)


def test_a_group_whose_first_append_failed_is_removed_by_the_next_check() -> None:
    office = lab()
    office.consumer_heartbeat("one", 0)
    office.log.commit_next(RequestTimedOutError("slow"))
    assert office.consumer_group.is_empty
    office.shard.expire()
    office.log.settle()
    assert office.replayed() == {}
    assert office.shard.groups == {}


def test_a_closed_group_answers_what_waits() -> None:
    office = lab()
    in_progress = office.consumer_heartbeat("one", 0)
    waiting = office.consumer_heartbeat("two", 0)
    group = office.consumer_group
    office.shard.on_unloaded()
    with pytest.raises(NotCoordinatorError):
        _ = waiting.value
    office.log.fail_next(NotCoordinatorError("moved"))
    with pytest.raises(NotCoordinatorError):
        _ = in_progress.value
    late: Reply[None] = Reply()
    group.submit(lambda state, _: (state, None), late)
    with pytest.raises(NotCoordinatorError):
        _ = late.value
    assert group.phase is ConsumerGroupPhase.DEAD
    assert office.clock.pending == 0


# Sessions


def test_a_member_without_heartbeats_is_removed() -> None:
    office = lab()
    joined(office, "one", "two")
    assert shares(office) == {"one": 2, "two": 2}
    for _ in range(3):
        office.clock.advance(SESSION_MS / 2)
        office.consumer_heartbeat("one", office.consumer_group.state.members["one"].epoch)
        office.log.settle()
    assert [*office.consumer_group.state.members] == ["one"]
    settled(office)
    assert shares(office) == {"one": 4}
    with pytest.raises(UnknownMemberIdError):
        _ = office.consumer_heartbeat("two", 2).value


def test_one_timer_serves_all_heartbeats_of_a_session() -> None:
    office = lab()
    joined(office, "one")
    for _ in range(100):
        office.clock.advance(5000)
        office.consumer_heartbeat("one", 1)
        assert office.clock.pending == 1
    office.clock.advance(SESSION_MS)
    office.log.settle()
    assert office.consumer_group.state.is_empty
    assert office.clock.pending == 0


def test_a_heartbeat_after_the_end_of_the_session_is_too_late() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("two", 0)
    office.clock.advance(SESSION_MS)  # The removal waits behind the append.
    reply = office.consumer_heartbeat("one", 1)
    office.log.fail_next(NotEnoughReplicasError("few"))
    office.log.settle()
    with pytest.raises(UnknownMemberIdError):
        _ = reply.value
    assert office.replayed() == visible(office.shard)


def test_the_removal_is_repeated_until_it_is_stored() -> None:
    office = lab()
    joined(office, "one")
    office.clock.advance(SESSION_MS)
    office.log.fail_next(NotEnoughReplicasError("few"))
    assert [*office.consumer_group.state.members] == ["one"]
    office.clock.advance(1000)
    office.log.settle()
    assert office.consumer_group.state.is_empty
    assert office.replayed() == visible(office.shard)


def test_a_member_whose_heartbeats_cannot_be_stored_is_alive() -> None:
    office = lab()
    joined(office, "one")
    for _ in range(20):
        office.clock.advance(5000)
        office.consumer_heartbeat("one", 1, topics=frozenset({"events", "others"}))
        office.log.fail_next(NotEnoughReplicasError("few"))
    assert [*office.consumer_group.state.members] == ["one"]


def test_sessions_start_again_after_a_reload() -> None:
    office = lab()
    joined(office, "one")
    office.clock.advance(SESSION_MS - 1)
    office.reload()
    office.clock.advance(SESSION_MS - 1)
    assert not office.log.waiting
    office.clock.advance(1)
    office.log.settle()
    assert office.consumer_group.state.is_empty


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    office = lab()
    office.consumer_heartbeat("one", 0, instance_id="here")
    office.log.settle()
    left = office.consumer_heartbeat("one", -2, instance_id="here")
    office.log.settle()
    assert left.value.epoch == -2
    assert office.consumer_group.state.members["one"].epoch == -2
    office.clock.advance(SESSION_MS)
    office.log.settle()
    assert office.consumer_group.state.is_empty


# Rebalances


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    office = lab()
    office.consumer_heartbeat("one", 0, rebalance_timeout_ms=7000)
    office.log.settle()
    joined_two = office.consumer_heartbeat("two", 0)
    office.log.settle()
    assert joined_two.value.assignment == {}
    told = office.consumer_heartbeat("one", 1, owned={EVENTS: frozenset(range(4))})
    office.log.settle()
    assert told.value.assignment is not None
    assert office.consumer_group.state.members["one"].state is ReconciliationState.UNREVOKED_PARTITIONS
    office.clock.advance(6999)
    office.consumer_heartbeat("one", 1, owned={EVENTS: frozenset(range(4))})
    assert not office.log.waiting, "the heartbeat does not extend the time"
    office.clock.advance(1)
    office.log.settle()
    assert [*office.consumer_group.state.members] == ["two"]


def test_a_member_that_revokes_in_time_stays() -> None:
    office = lab()
    joined(office, "one", "two")
    for _ in range(30):
        office.clock.advance(REBALANCE_MS / 10)
        for member in [*office.consumer_group.state.members.values()]:
            office.consumer_heartbeat(member.member_id, member.epoch)
    assert shares(office) == {"one": 2, "two": 2}


def test_the_time_to_revoke_starts_again_after_a_reload() -> None:
    office = lab()
    joined(office, "one")
    office.consumer_heartbeat("two", 0)
    office.log.settle()
    office.consumer_heartbeat("one", 1, owned={EVENTS: frozenset(range(4))})
    office.log.settle()
    office.reload()
    for _ in range(20):
        office.clock.advance(REBALANCE_MS / 20)
        for member in [*office.consumer_group.state.members.values()]:
            office.consumer_heartbeat(member.member_id, member.epoch)
            office.log.settle()
    assert [*office.consumer_group.state.members] == ["two"]


# Topics


def test_a_new_partition_is_assigned_by_the_next_heartbeat() -> None:
    office = lab()
    joined(office, "one")
    office.image = image_of(events=5)
    told = office.consumer_heartbeat("one", 1)
    office.log.settle()
    assert told.value.assignment == {EVENTS: {0, 1, 2, 3, 4}}


def test_a_change_of_the_topics_is_seen_again_after_a_failed_append() -> None:
    office = lab()
    joined(office, "one")
    office.image = image_of(events=5)
    office.consumer_heartbeat("one", 1)
    office.log.fail_next(NotEnoughReplicasError("few"))
    told = office.consumer_heartbeat("one", 1)
    office.log.settle()
    assert told.value.assignment == {EVENTS: {0, 1, 2, 3, 4}}


def test_a_departure_does_not_hide_a_change_of_the_topics() -> None:
    office = lab()
    joined(office, "one", "two")
    office.image = image_of(events=5)
    office.consumer_heartbeat("two", -1)
    office.log.settle()
    settled(office)
    office.consumer_heartbeat("one", office.consumer_group.state.members["one"].epoch)
    office.log.settle()
    settled(office)
    assert shares(office) == {"one": 5}


def test_a_regular_expression_matches_only_topics_that_the_client_may_see() -> None:
    office = GroupLab(image=image_of(events=1, secret=1))
    reply = office.consumer_heartbeat("one", 0, topics=None, regex=".*", may_describe=lambda name: name == "events")
    office.log.settle()
    assert reply.value.assignment == {EVENTS: {0}}
    assert office.consumer_group.subscribed_topics == {"events"}


# Commits


def test_members_commit_with_their_epoch() -> None:
    office = lab()
    joined(office, "one")
    offsets = {PLACE: OffsetToCommit(offset=3)}
    stored = office.commit(offsets, "one", 1)
    office.log.settle()
    assert stored.value == {PLACE: NONE}
    with pytest.raises(StaleMemberEpochError):
        office.commit(offsets, "one", 0)
    with pytest.raises(UnknownMemberIdError):
        office.commit(offsets, "two", 1)
    with pytest.raises(UnknownMemberIdError):
        office.commit(offsets)
    with pytest.raises(UnsupportedVersionError):
        old = CommitRequest(member=office.check("one", 1), offsets=offsets, supports_member_epochs=False)
        office.shard.commit(old, Reply())


def test_transactions_name_the_epoch_as_generation() -> None:
    office = lab()
    joined(office, "one")
    offsets = {PLACE: OffsetToCommit(offset=3)}
    for member_id, epoch in (("one", 1), ("", -1)):
        stored = office.commit_transactional(offsets, member_id, epoch)
        office.log.settle()
        assert stored.value == {PLACE: NONE}
    with pytest.raises(IllegalGenerationError):
        office.commit_transactional(offsets, "one", 0)
    office.end()
    assert office.fetch([PLACE])[PLACE].offset == 3


def test_a_member_fetches_with_its_epoch() -> None:
    office = lab()
    joined(office, "one")
    assert office.shard.fetch("group", [PLACE], require_stable=True, member=office.check("one", 1))
    with pytest.raises(StaleMemberEpochError):
        office.shard.fetch("group", [PLACE], require_stable=True, member=office.check("one", 0))
    with pytest.raises(UnknownMemberIdError):
        office.shard.fetch("group", [PLACE], require_stable=True, member=office.check("two", 1))


def test_errors_of_the_rules_change_nothing() -> None:
    office = lab()
    joined(office, "one")
    with pytest.raises(FencedMemberEpochError):
        _ = office.consumer_heartbeat("one", 7).value
    with pytest.raises(InvalidRequestError):
        _ = office.consumer_heartbeat("one", -2).value
    assert not office.log.waiting
