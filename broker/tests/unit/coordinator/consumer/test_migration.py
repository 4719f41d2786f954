"""Classic groups of consumers that become consumer groups, and back."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from odradek.base.errors import GroupIdNotFoundError
from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.consumer.consumer_values import (
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupSettings,
    RuleContext,
)
from odradek.coordinator.groups.consumer.migration import can_downgrade, can_upgrade, downgraded, upgraded
from odradek.coordinator.groups.group_records import GroupValue, MemberValue
from odradek_testkit.consumer_groups.consumer_rules_lab import RulesLab, check_state
from odradek_testkit.consumer_groups.fake_topics import FakeTopics

SETTINGS = ConsumerGroupSettings()
SUBSCRIPTION = encode_subscription(Subscription(topics=("t", "missing"), rack_id="r"), 3)


def member(member_id: str, *partitions: int, subscription: bytes = SUBSCRIPTION) -> MemberValue:
    assigned = [TopicPartition("t", number) for number in partitions] + [TopicPartition("gone", 0)]
    return MemberValue(
        member_id=member_id,
        instance_id=f"i-{member_id}",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=7,
        session_timeout_ms=5,
        subscription=subscription,
        assignment=encode_assignment(assigned),
    )


def group(*members: MemberValue, protocol_type: str = "consumer") -> ClassicGroup:
    value = GroupValue(protocol_type=protocol_type, generation=9, protocol="range", leader="a", members=members)
    return ClassicGroup.loaded("g", value, 0)


def context(topics: FakeTopics) -> RuleContext:
    return RuleContext(SETTINGS, topics, 0, False)


def test_groups_of_consumers_can_be_upgraded() -> None:
    assert can_upgrade(group(member("a")), SETTINGS)
    assert not can_upgrade(group(member("a")), replace(SETTINGS, allows_upgrade=False))
    assert not can_upgrade(group(member("a"), member("b")), replace(SETTINGS, max_size=1))
    assert not can_upgrade(group(member("a"), protocol_type="connect"), SETTINGS)


def test_members_keep_their_partitions() -> None:
    topics = FakeTopics(t=4)
    state = upgraded(group(member("a", 0, 1), member("b", 1, 2)), context(topics))
    check_state(state)
    assert (state.epoch, state.assignment_epoch, state.topics.keys()) == (9, 9, {"t"})
    first = state.members["a"]
    assert (first.epoch, first.previous_epoch, first.instance_id, first.rack_id) == (9, 9, "i-a", "r")
    assert first.topics == {"t", "missing"}
    assert first.classic == ClassicMetadata(session_timeout_ms=5, protocols=(ClassicProtocol("range", SUBSCRIPTION),))
    assert first.assigned == state.target["a"] == {topics.id("t"): {0, 1}}
    assert state.members["b"].assigned == {topics.id("t"): {2}}, "one owner for each partition"


def test_a_member_without_an_assignment_has_what_it_reported() -> None:
    topics = FakeTopics(t=4)
    owned = tuple(TopicPartition("t", number) for number in (0, 1))
    reported = encode_subscription(Subscription(topics=("t",), owned=owned), 3)
    rebalancing = replace(member("b", subscription=reported), assignment=b"")
    state = upgraded(group(member("a", 1), rebalancing), context(topics))
    check_state(state)
    assert state.members["b"].assigned == {topics.id("t"): {0}}


def test_a_malformed_subscription_prevents_the_upgrade() -> None:
    for subscription in (b"", b"\xff\xff", b"\x00\x00\x7f"):
        with pytest.raises(GroupIdNotFoundError, match="'a'"):
            upgraded(group(member("a", subscription=subscription)), context(FakeTopics()))


def test_a_member_of_the_new_protocol_comes_and_goes() -> None:
    lab = RulesLab(FakeTopics(t=4))
    lab.put(upgraded(group(member("a", 0, 1), member("b", 2, 3)), lab.context))
    lab.join("c", "t")
    assert not can_downgrade(lab.state, (), SETTINGS, 10), "c stays"
    assert can_downgrade(lab.state, ("c",), SETTINGS, 2)
    assert not can_downgrade(lab.state, ("c",), SETTINGS, 1)
    assert not can_downgrade(lab.state, ("a",), SETTINGS, 10), "c stays"
    assert not can_downgrade(lab.state, ("a", "b", "c"), SETTINGS, 10), "nobody stays"
    assert not can_downgrade(lab.state, ("c",), replace(SETTINGS, allows_downgrade=False), 10)

    value = downgraded(lab.state, ("c",), now_ms=77)
    assert (value.generation, value.protocol, value.leader, value.state_timestamp_ms) == (10, "range", "a", 77)
    for found in value.members:
        assert replace(found, assignment=b"") == replace(member(found.member_id), assignment=b"")
        expected = lab.state.target[found.member_id][lab.topics.id("t")]
        assert decode_assignment(found.assignment) == tuple(TopicPartition("t", number) for number in sorted(expected))


def test_the_protocol_that_all_support_is_chosen() -> None:
    state = upgraded(group(member("a", 0), member("b", 1), member("c")), context(FakeTopics(t=2)))

    def with_protocols(**names: str) -> None:
        nonlocal state
        members = {
            member_id: replace(
                state.members[member_id],
                classic=ClassicMetadata(
                    session_timeout_ms=5,
                    protocols=tuple(ClassicProtocol(name, SUBSCRIPTION) for name in wanted.split()),
                ),
            )
            for member_id, wanted in names.items()
        }
        state = replace(state, members=MappingProxyType({**state.members, **members}))

    with_protocols(a="sticky range", b="range sticky cooperative", c="x")
    assert downgraded(state, ("c",), now_ms=0).protocol == "sticky"
    with_protocols(a="sticky", b="range")
    assert not can_downgrade(state, ("c",), SETTINGS, 10)
