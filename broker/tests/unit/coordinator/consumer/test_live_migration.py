"""Groups with members that become consumer groups and classic groups again, and classic members in consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotEnoughReplicasError,
    ProtocolError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownServerError,
)
from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.consumer.consumer_values import ReconciliationState
from odradek.coordinator.groups.group_records import GroupKey, decode_key
from odradek.coordinator.groups.group_requests import JoinResult, LeaveResult, LeavingMember, OffsetToCommit
from odradek_testkit.groups import REBALANCE_MS, SESSION_MS, SETTINGS, GroupLab, Reply, image_of, visible

PLACE = TopicPartition("events", 0)
ALL = (0, 1, 2, 3)


def lab(*, classic_max_size: int = 100, **consumer: Any) -> GroupLab:
    settings = replace(SETTINGS, max_size=classic_max_size, consumer=replace(SETTINGS.consumer, **consumer))
    return GroupLab(image=image_of(events=len(ALL)), settings=settings)


def protocols(*owned: int, name: str = "cooperative-sticky") -> tuple[tuple[str, bytes], ...]:
    places = tuple(TopicPartition("events", number) for number in owned)
    return ((name, encode_subscription(Subscription(topics=("events",), owned=places), 3)),)


def classic_group(lab: GroupLab, *assigned: Iterable[int], instance_id: str | None = None) -> list[str]:
    """Form a stable classic group whose members have these partitions. Returns their ids."""
    replies = [lab.join(protocols=protocols(), instance_id=instance_id) for _ in assigned]
    while any(reply.is_parked for reply in replies):
        lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    member_ids = [reply.value.member_id for reply in replies]
    first = replies[0].value
    assignments = {
        member_id: encode_assignment([TopicPartition("events", number) for number in numbers])
        for member_id, numbers in zip(member_ids, assigned, strict=True)
    }
    for member_id in sorted(member_ids, key=lambda other: other == first.leader):
        lab.sync(member_id, first.generation, assignments)
    lab.log.settle()
    assert lab.group.state is GroupState.STABLE
    return member_ids


def rejoin(lab: GroupLab, member_id: str, *owned: int, **changes: Any) -> JoinResult:
    reply = lab.join(member_id, protocols=protocols(*owned), **changes)
    lab.log.settle()
    return reply.value


def read(lab: GroupLab, member_id: str, generation: int) -> list[int]:
    """Return the partitions that SyncGroup gives."""
    reply = lab.sync(member_id, generation, protocol_type="consumer", protocol_name="cooperative-sticky")
    lab.log.settle()
    assert (reply.value.protocol_type, reply.value.protocol_name) == ("consumer", "cooperative-sticky")
    return sorted(place.partition for place in decode_assignment(reply.value.assignment))


def leave(lab: GroupLab, *members: LeavingMember) -> list[LeaveResult]:
    reply: Reply[list[LeaveResult]] = Reply()
    lab.shard.leave("group", members, reply)
    lab.log.settle()
    return reply.value


def beat(lab: GroupLab, member_id: str, epoch: int, **changes: Any) -> dict[str, Any]:
    reply = lab.consumer_heartbeat(member_id, epoch, **changes)
    lab.log.settle()
    assignment = reply.value.assignment
    partitions = None if assignment is None else sorted(number for part in assignment.values() for number in part)
    return {"epoch": reply.value.epoch, "partitions": partitions}


def agrees(lab: GroupLab) -> bool:
    return lab.replayed() == visible(lab.shard)


def mixed_group(lab: GroupLab) -> str:
    """A classic member that has all partitions, and a consumer `new` that waits. Returns the id of the first."""
    (old,) = classic_group(lab, ALL)
    assert beat(lab, "new", 0) == {"epoch": 2, "partitions": []}
    return old


def settled_group(lab: GroupLab) -> str:
    """A classic member and the consumer `new` that have two partitions each. Returns the first one's id."""
    old = mixed_group(lab)
    joined = rejoin(lab, old, *ALL)
    kept = read(lab, old, joined.generation)
    joined = rejoin(lab, old, *kept)
    assert joined.generation == 2
    assert read(lab, old, 2) == kept
    topics = {lab.image.topics["events"].topic_id: frozenset(kept)}
    gained = beat(lab, "new", 2, owned={})
    assert gained["partitions"] == sorted({*ALL} - {*topics.popitem()[1]})
    assert lab.consumer_group.phase.value == "Stable"
    return old


# Upgrade


def test_a_consumer_joins_a_classic_group() -> None:
    office = lab()
    (old,) = classic_group(office, ALL)
    office.commit({PLACE: OffsetToCommit(offset=5)}, old, 1)
    office.log.settle()
    reply = office.consumer_heartbeat("new", 0)
    (records, _, _) = office.log.waiting[0]
    assert len(office.log.waiting) == 1, "one append"
    assert (decode_key(records[0][0]), records[0][1]) == (GroupKey("group"), None)
    office.log.settle()
    assert (reply.value.epoch, reply.value.assignment) == (2, {}), "nothing is free yet"
    member = office.consumer_group.state.members[old]
    assert (member.epoch, member.classic is not None) == (1, True)
    assert sum(map(len, member.assigned.values())) == len(ALL)
    assert office.fetch([PLACE])[PLACE].offset == 5
    assert agrees(office)
    office.reload()
    assert {*office.consumer_group.state.members} == {old, "new"}


def test_partitions_move_from_the_classic_member_to_the_consumer() -> None:
    office = lab()
    settled_group(office)
    assert agrees(office)


def test_waiting_members_are_asked_to_join_again() -> None:
    office = lab()
    one, two = classic_group(office, ALL, ())
    joining = office.join(one, protocols=protocols())
    assert office.group.state is GroupState.PREPARING_REBALANCE
    beat(office, "new", 0)
    assert joining.value.error_code == RebalanceInProgressError.code

    office = lab()
    one, two = classic_group(office, ALL, ())
    for member_id in (one, two):
        office.join(member_id, protocols=protocols())
    follower = two if office.group.is_leader(one) else one
    waiting = office.sync(follower, 2)
    assert office.group.state is GroupState.COMPLETING_REBALANCE
    beat(office, "new", 0)
    with pytest.raises(RebalanceInProgressError):
        _ = waiting.value
    assert office.consumer_group.state.epoch == 3
    assert agrees(office)


def test_a_group_in_its_first_rebalance_is_upgraded() -> None:
    office = lab()
    first = office.join(protocols=protocols())
    beat(office, "new", 0)
    assert first.value.error_code == RebalanceInProgressError.code
    again = rejoin(office, first.value.member_id)
    assert again.generation == 2
    pending = lab()
    pending.join(requires_known_member_id=True)
    assert beat(pending, "new", 0) == {"epoch": 1, "partitions": [*ALL]}


def test_the_session_of_a_classic_member_goes_on() -> None:
    office = lab()
    old = mixed_group(office)
    office.clock.advance(SESSION_MS - 1)
    with pytest.raises(RebalanceInProgressError):
        office.heartbeat(old, 1)
    office.clock.advance(SESSION_MS - 1)
    assert old in office.consumer_group.state.members
    office.clock.advance(1)
    office.log.settle()
    assert {*office.consumer_group.state.members} == {"new"}


@pytest.mark.parametrize("consumer", [{"allows_upgrade": False}, {"max_size": 1}])
def test_a_classic_group_that_may_not_be_upgraded_keeps_consumers_out(consumer: dict[str, Any]) -> None:
    office = lab(**consumer)
    (old, *_) = classic_group(office, ALL, ())
    with pytest.raises(GroupIdNotFoundError, match="not a consumer group"):
        office.consumer_heartbeat("new", 0)
    office.heartbeat(old, 1)
    other = lab()
    other.join(protocol_type="connect", protocols=(("eager", b""),))
    with pytest.raises(GroupIdNotFoundError):
        other.consumer_heartbeat("new", 0)


def test_a_member_that_cannot_join_changes_no_group() -> None:
    office = lab(max_size=1)
    (old,) = classic_group(office, ALL)
    with pytest.raises(GroupMaxSizeReachedError):
        office.consumer_heartbeat("new", 0)
    with pytest.raises(GroupIdNotFoundError):
        office.consumer_heartbeat("new", 3)
    office.heartbeat(old, 1)
    assert office.group.state is GroupState.STABLE


@pytest.mark.parametrize("is_written", [True, False])
def test_an_upgrade_that_is_not_stored_is_repeated(is_written: bool) -> None:
    office = lab()
    (old,) = classic_group(office, ALL)
    reply = office.consumer_heartbeat("new", 0)
    (office.log.commit_next if is_written else office.log.fail_next)(RequestTimedOutError("slow"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    office.heartbeat(old, 1)
    office.log.settle()
    assert {*office.consumer_group.state.members} == {old}
    assert agrees(office)
    assert beat(office, "new", 0)["epoch"] == 2
    assert agrees(office)


# Classic members


def test_join_group() -> None:
    office = lab()
    beat(office, "new", 0)
    asked = office.join(protocols=protocols(), requires_known_member_id=True).value
    assert asked.error_code == MemberIdRequiredError.code
    joined = rejoin(office, asked.member_id, requires_known_member_id=True)
    expected = JoinResult(
        member_id=asked.member_id, generation=2, protocol_type="consumer", protocol_name="cooperative-sticky"
    )
    assert joined == expected
    assert read(office, asked.member_id, 2) == [], "the consumer has not revoked its partitions yet"
    office.heartbeat(asked.member_id, 2)
    held = beat(office, "new", 1)
    topic_id = office.image.topics["events"].topic_id
    beat(office, "new", 1, owned={topic_id: frozenset(held["partitions"])})
    with pytest.raises(RebalanceInProgressError):
        office.heartbeat(asked.member_id, 2)
    assert rejoin(office, asked.member_id).generation == 2
    assert len(read(office, asked.member_id, 2)) == 2
    office.heartbeat(asked.member_id, 2)
    assert agrees(office)


def test_an_eager_member_revokes_everything_when_it_joins() -> None:
    office = lab()
    old = mixed_group(office)
    assert rejoin(office, old).generation == 2
    assert len(read(office, old, 2)) == 2
    assert len(beat(office, "new", 2, owned={})["partitions"]) == 2


def test_join_group_is_refused() -> None:
    office = lab(max_size=1)
    beat(office, "new", 0)
    refusals: list[tuple[type[ProtocolError], dict[str, Any]]] = [
        (GroupMaxSizeReachedError, {}),
        (UnknownMemberIdError, {"member_id": "other", "instance_id": "nobody"}),
    ]
    with pytest.raises(GroupMaxSizeReachedError):
        rejoin(office, "")
    office = lab()
    old = mixed_group(office)
    refusals = [
        (InconsistentGroupProtocolError, {"protocol_type": "connect"}),
        (InconsistentGroupProtocolError, {"protocols": protocols(name="range")}),
        (UnknownServerError, {"protocols": (("cooperative-sticky", b"\x00"),)}),
        (UnknownMemberIdError, {"member_id": old, "instance_id": "nobody"}),
    ]
    for error, changes in refusals:
        with pytest.raises(error):
            _ = office.join(**({"protocols": protocols()} | changes)).value
    assert agrees(office)


def test_sync_group_and_heartbeat_are_refused() -> None:
    office = lab()
    old = settled_group(office)
    for member_id, generation, error in (
        ("nobody", 2, UnknownMemberIdError),
        ("new", 2, UnknownMemberIdError),
        (old, 1, IllegalGenerationError),
    ):
        with pytest.raises(error):
            _ = office.sync(member_id, generation).value
        with pytest.raises(error):
            office.heartbeat(member_id, generation)
    for changes in ({"protocol_type": "connect"}, {"protocol_name": "range"}):
        with pytest.raises(InconsistentGroupProtocolError):
            _ = office.sync(old, 2, **changes).value
    beat(office, "newer", 0)
    with pytest.raises(RebalanceInProgressError):
        _ = office.sync(old, 2).value
    with pytest.raises(RebalanceInProgressError):
        office.heartbeat(old, 2)


def test_a_classic_member_commits_with_its_epoch() -> None:
    office = lab()
    old = settled_group(office)
    with pytest.raises(IllegalGenerationError):
        office.commit({PLACE: OffsetToCommit(offset=1)}, old, 1)
    stored = office.commit({PLACE: OffsetToCommit(offset=1)}, old, 2)
    office.log.settle()
    assert stored.value == {PLACE: NONE}


def test_a_member_that_does_not_send_the_expected_request_is_removed() -> None:
    office = lab()
    old = mixed_group(office)
    for _ in range(REBALANCE_MS // 5000 - 1):
        with pytest.raises(RebalanceInProgressError):
            office.heartbeat(old, 1)
        beat(office, "new", 2)
        office.clock.advance(5000)
    assert old in office.consumer_group.state.members
    office.clock.advance(5000)
    office.log.settle()
    assert {*office.consumer_group.state.members} == {"new"}, "it did not send JoinGroup"

    joined = rejoin(office, "")
    for _ in range(REBALANCE_MS // 5000):
        office.clock.advance(5000)
        beat(office, "new", office.consumer_group.state.members["new"].epoch)
        if joined.member_id in office.consumer_group.state.members:
            office.heartbeat(joined.member_id, joined.generation)
    office.log.settle()
    assert {*office.consumer_group.state.members} == {"new"}, "it did not send SyncGroup"


def test_a_removal_that_is_not_stored_is_repeated() -> None:
    office = lab()
    beat(office, "new", 0)
    joined = rejoin(office, "", session_timeout_ms=2 * REBALANCE_MS)
    for _ in range(REBALANCE_MS // 30_000):
        office.clock.advance(30_000)
        if not office.log.waiting:
            beat(office, "new", 1)
    office.log.fail_next(NotEnoughReplicasError("few"))
    assert joined.member_id in office.consumer_group.state.members
    office.clock.advance(1000)
    office.log.settle()
    assert {*office.consumer_group.state.members} == {"new"}


def test_static_members_change_the_protocol() -> None:
    office = lab(allows_downgrade=False)
    (old,) = classic_group(office, ALL, instance_id="here")
    assert beat(office, "new", 0, instance_id="here") == {"epoch": 1, "partitions": [*ALL]}
    assert {*office.consumer_group.state.members} == {"new"}
    with pytest.raises(FencedInstanceIdError):
        office.heartbeat(old, 1, "here")
    back = rejoin(office, "", instance_id="here")
    assert {*office.consumer_group.state.members} == {back.member_id}
    assert back.generation == 1
    member = office.consumer_group.state.members[back.member_id]
    assert (member.classic is not None, member.state) == (True, ReconciliationState.STABLE)
    with pytest.raises(FencedInstanceIdError):
        rejoin(office, "new", instance_id="here")
    assert agrees(office)


def test_leave_group() -> None:
    office = lab()
    beat(office, "new", 0, instance_id="there")
    one, two = rejoin(office, "").member_id, rejoin(office, "", instance_id="here").member_id
    fenced, unknown = FencedInstanceIdError.code, UnknownMemberIdError.code
    results = leave(
        office,
        LeavingMember(member_id=one),
        LeavingMember(member_id="nobody"),
        LeavingMember(member_id="new"),
        LeavingMember(member_id="new", instance_id="there"),
        LeavingMember(member_id="new", instance_id="here"),
        LeavingMember(instance_id="nobody"),
        LeavingMember(instance_id="here"),
    )
    assert [result.error_code for result in results] == [NONE, unknown, unknown, unknown, fenced, unknown, NONE]
    assert results[-1].member_id == two
    assert {*office.consumer_group.state.members} == {"new"}
    assert agrees(office)


def test_a_classic_member_does_not_resolve_regular_expressions() -> None:
    office = lab()
    reply = office.consumer_heartbeat("new", 0, topics=None, regex="ev.*", may_describe=lambda _: False)
    office.log.settle()
    assert reply.value.assignment == {}
    office.clock.advance(40_000)
    office.clock._now_ms += office.settings.consumer.regex_refresh_interval_ms  # A jump without timers.
    joined = rejoin(office, "")
    assert read(office, joined.member_id, joined.generation) == [*ALL]
    assert [resolved.topics for resolved in office.consumer_group.state.regexes.values()] == [frozenset()]


# Downgrade


@pytest.mark.parametrize("expires", [False, True])
def test_the_last_consumer_leaves(expires: bool) -> None:
    office = lab()
    old = settled_group(office)
    office.commit({PLACE: OffsetToCommit(offset=5)}, old, 2)
    office.log.settle()
    if expires:
        for _ in range(9):
            office.clock.advance(5000)
            if not office.log.waiting:
                office.heartbeat(old, 2)
    else:
        office.consumer_heartbeat("new", -1)
    assert len(office.log.waiting) == 1, "one append"
    office.log.settle()
    assert office.group.state is GroupState.PREPARING_REBALANCE
    assert {*office.group.members} == {old}
    with pytest.raises(RebalanceInProgressError):
        office.heartbeat(old, 2)
    joined = office.join(old, protocols=protocols())
    assert (joined.value.generation, joined.value.leader) == (3, old)
    office.sync(old, 3, {old: encode_assignment([PLACE])})
    office.log.settle()
    assert office.group.state is GroupState.STABLE
    assert office.fetch([PLACE])[PLACE].offset == 5
    assert agrees(office)


def test_the_log_has_a_classic_group_after_a_downgrade() -> None:
    office = lab()
    old = settled_group(office)
    beat(office, "new", -1)
    office.reload()
    assert (office.group.generation, office.group.state) == (2, GroupState.STABLE)
    assert {*office.group.members} == {old}


@pytest.mark.parametrize("limits", [{"allows_downgrade": False}, {"classic_max_size": 1}])
def test_a_consumer_group_that_may_not_be_downgraded(limits: dict[str, Any]) -> None:
    office = lab(**limits)
    old = settled_group(office)
    other = rejoin(office, "").member_id
    beat(office, "new", -1)
    assert {*office.consumer_group.state.members} == {old, other}
    assert agrees(office)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_downgrade_that_is_not_stored_is_repeated(is_written: bool) -> None:
    office = lab()
    old = settled_group(office)
    reply = office.consumer_heartbeat("new", -1)
    (office.log.commit_next if is_written else office.log.fail_next)(RequestTimedOutError("slow"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert {*office.consumer_group.state.members} == {old, "new"}
    office.heartbeat(old, 2)
    office.log.settle()
    assert agrees(office), "the repair removes the record of the classic group"
    beat(office, "new", -1)
    assert {*office.group.members} == {old}


def test_requests_that_wait_for_a_downgrade_are_repeated() -> None:
    office = lab()
    old = settled_group(office)
    office.consumer_heartbeat("new", -1)
    waiting = office.join(old, protocols=protocols())
    newer = office.consumer_heartbeat("newer", 0)
    office.log.settle()
    for reply in (waiting, newer):
        with pytest.raises(CoordinatorNotAvailableError):
            _ = reply.value
    assert beat(office, "newer", 0)["epoch"] == 3
    assert office.consumer_group.state.members.keys() == {old, "newer"}
    assert agrees(office)


def test_a_static_consumer_that_comes_back_as_a_classic_member_downgrades_without_a_rebalance() -> None:
    office = lab()
    beat(office, "new", 0, instance_id="here")
    back = rejoin(office, "", instance_id="here")
    assert (office.group.state, office.group.generation) == (GroupState.STABLE, back.generation)
    assert read(office, back.member_id, back.generation) == [*ALL]
    assert agrees(office)


def test_offsets_of_open_transactions_survive() -> None:
    office = lab()
    old = settled_group(office)
    stored = office.commit_transactional({PLACE: OffsetToCommit(offset=8)}, old, 2)
    office.consumer_heartbeat("new", -1)
    office.log.settle()
    assert stored.value == {PLACE: NONE}
    office.end()
    assert office.fetch([PLACE])[PLACE].offset == 8
