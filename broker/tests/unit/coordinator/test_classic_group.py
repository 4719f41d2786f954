"""A classic group: its transitions, its protocol and its leader."""

from __future__ import annotations

import itertools

import pytest

from odradek.coordinator.groups.classic.classic_group import (
    TRANSITIONS,
    ClassicGroup,
    GroupState,
    IllegalGroupTransitionError,
)
from odradek.coordinator.groups.classic.classic_member import ClassicMember
from odradek.coordinator.groups.group_records import GroupValue, MemberValue
from odradek.coordinator.groups.group_requests import Protocols
from odradek_testkit.groups import RANGE

TIMEOUTS_MS = (60_000, 10_000)
NOW_MS = 1000


def member(member_id: str, *protocols: str, instance_id: str | None = None) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=TIMEOUTS_MS[0],
        session_timeout_ms=TIMEOUTS_MS[1],
        protocols=tuple((name, name.encode()) for name in protocols),
    )


def group_of(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup("group", NOW_MS)
    group.protocol_type = "consumer"
    for one in members:
        group.add(one, None)
    group.move_to(GroupState.PREPARING_REBALANCE, NOW_MS)
    return group


@pytest.mark.parametrize(("before", "after"), list(itertools.product(GroupState, GroupState)))
def test_only_transitions_of_the_table_are_allowed(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("group", NOW_MS)
    group.state = before
    if after in TRANSITIONS[before]:
        group.move_to(after, NOW_MS + 5)
        assert (group.state, group.state_timestamp_ms) == (after, NOW_MS + 5)
    else:
        with pytest.raises(IllegalGroupTransitionError):
            group.move_to(after, NOW_MS + 5)
        assert (group.state, group.state_timestamp_ms) == (before, NOW_MS)


def test_every_state_is_reachable_and_dead_is_final() -> None:
    reached = {GroupState.EMPTY}
    for _ in GroupState:
        reached |= {after for before in reached for after in TRANSITIONS[before]}
    assert reached == set(GroupState)
    assert all(GroupState.DEAD in after for before, after in TRANSITIONS.items() if before is not GroupState.DEAD)


@pytest.mark.parametrize(
    ("protocols", "selected"),
    [
        ([("range",), ("range", "sticky")], "range"),
        ([("sticky", "range"), ("sticky", "range"), ("range", "sticky")], "sticky"),
        ([("a", "b"), ("b", "a")], "a"),
        ([("a", "c"), ("b", "c"), ("c",)], "c"),
    ],
)
def test_the_common_protocol_with_the_most_votes_is_selected(protocols: list[tuple[str, ...]], selected: str) -> None:
    group = group_of(*(member(f"m{index}", *names) for index, names in enumerate(protocols)))
    assert group.select_protocol() == selected


def test_members_that_a_group_accepts() -> None:
    group = group_of(member("m1", "range", "sticky"), member("m2", "sticky"))
    sticky: Protocols = (("sticky", b""),)
    assert group.supports("consumer", sticky)
    assert not group.supports("connect", sticky)
    assert not group.supports("consumer", (("range", b""),))
    group.remove("m2")
    assert group.supports("consumer", (("range", b""),))


def test_members_that_an_empty_group_accepts() -> None:
    group = ClassicGroup("group", NOW_MS)
    assert group.supports("anything", RANGE)
    assert not group.supports("", RANGE)
    assert not group.supports("anything", ())


def test_the_first_member_leads_and_the_eldest_after_it() -> None:
    group = group_of(member("m1", "a"), member("m2", "a"), member("m3", "a"))
    assert group.leader_id == "m1"
    group.remove("m1")
    assert group.leader_id == "m2"
    group.remove("m2")
    group.remove("m3")
    assert group.leader_id is None


def test_a_leader_that_did_not_join_is_replaced() -> None:
    group = group_of(member("m1", "a", instance_id="static"), member("m2", "a"))
    assert not group.elect_joined_leader()
    group.update(group.members["m2"], RANGE, TIMEOUTS_MS, lambda result: None)
    assert group.elect_joined_leader()
    assert group.leader_id == "m2"


def test_an_instance_id_belongs_to_one_member() -> None:
    group = group_of(member("m1", "a", instance_id="static"))
    with pytest.raises(ValueError, match="static"):
        group.add(member("m2", "a", instance_id="static"), None)
    group.remove("m1")
    group.add(member("m2", "a", instance_id="static"), None)
    assert group.static_members == {"static": "m2"}


def test_a_generation_knows_the_topics_of_its_consumers() -> None:
    group = ClassicGroup("group", NOW_MS)
    group.protocol_type = "consumer"
    one, two = member("m1"), member("m2")
    one.protocols = RANGE
    two.protocols = (("range", b"\x00\x03\x00\x00\x00\x01\x00\x05other and more"),)
    group.add(one, None)
    group.add(two, None)
    group.move_to(GroupState.PREPARING_REBALANCE, NOW_MS)
    group.begin_generation(NOW_MS)
    assert group.subscribed_topics == {"events", "other"}


def test_topics_are_unknown_when_one_subscription_cannot_be_read() -> None:
    group = group_of(member("m1", "range"))
    group.members["m1"].protocols = (("range", b"\x00\x00\x00\x00\x00\x09"),)
    group.begin_generation(NOW_MS)
    assert group.subscribed_topics is None


def test_a_group_from_the_log() -> None:
    stored = MemberValue(
        member_id="m1",
        instance_id="static",
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        subscription=RANGE[0][1],
        assignment=b"mine",
    )
    value = GroupValue(
        protocol_type="consumer", generation=7, protocol="range", leader="m1", state_timestamp_ms=9, members=(stored,)
    )
    group = ClassicGroup.loaded("group", value, NOW_MS)
    assert (group.state, group.state_timestamp_ms) == (GroupState.STABLE, 9)
    assert group.static_members == {"static": "m1"}
    assert group.subscribed_topics == {"events"}
    assert group.value({"m1": b"mine"}) == value


def test_an_empty_group_from_the_log_accepts_any_protocol() -> None:
    value = GroupValue(protocol_type="connect", generation=7, protocol=None, leader=None)
    group = ClassicGroup.loaded("group", value, NOW_MS)
    assert (group.state, group.state_timestamp_ms) == (GroupState.EMPTY, None)
    assert group.supports("consumer", RANGE)
