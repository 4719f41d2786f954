"""The assignors sticky and cooperative-sticky over several rebalances."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import NO_GENERATION, Assignment, Member, Previous
from odradek.client.consumer.assignors import ASSIGNORS, is_cooperative
from odradek.client.consumer.group_protocol import Subscription
from odradek.client.consumer.sticky_assignor import (
    assign_cooperative_sticky,
    assign_sticky,
    cooperative_previous,
    cooperative_user_data,
    sticky_previous,
    sticky_user_data,
)

TOPICS: Final = ("a", "b", "c", "d")
Counts = dict[str, int]
counts = st.fixed_dictionaries({topic: st.integers(0, 8) for topic in TOPICS})
member_ids = st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, max_size=6, unique=True)
some_topics = st.lists(st.sampled_from(TOPICS), unique=True).map(tuple)
partitions = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9))


@st.composite
def claims(draw: st.DrawFn) -> list[Member]:
    """Members that claim any partitions, also those of others and such as do not exist."""
    return [
        Member(
            member_id,
            draw(some_topics),
            owned=draw(st.lists(partitions, unique=True, max_size=12)),
            generation_id=draw(st.integers(-1, 3)),
        )
        for member_id in draw(member_ids)
    ]


@st.composite
def equal_members(draw: st.DrawFn) -> list[Member]:
    """Members with the same topics."""
    topics = draw(some_topics)
    return [Member(member_id, topics) for member_id in draw(member_ids)]


def expected_partitions(group: list[Member], sizes: Counts) -> Counter[TopicPartition]:
    wanted = {topic for member in group for topic in member.topics}
    return Counter(TopicPartition(topic, number) for topic in wanted for number in range(sizes[topic]))


def all_of(assignment: Assignment) -> Counter[TopicPartition]:
    return Counter(partition for owned in assignment.values() for partition in owned)


def check_balance(group: list[Member], assignment: Assignment) -> None:
    """A member with at least two more than another has nothing that the other could take."""
    for poor in group:
        for rich in group:
            if len(assignment[rich.member_id]) > len(assignment[poor.member_id]) + 1:
                assert not {each.topic for each in assignment[rich.member_id]} & set(poor.topics)


def after(group: list[Member], assignment: Assignment, generation_id: int = 1) -> list[Member]:
    """The members with this assignment as what they had."""
    return [
        member._replace(owned=assignment[member.member_id], generation_id=generation_id)
        for member in group
        if member.member_id in assignment
    ]


@given(group=claims(), sizes=counts)
def test_each_partition_has_one_owner_and_the_result_is_balanced(group: list[Member], sizes: Counts) -> None:
    assignment = assign_sticky(group, sizes)
    assert all_of(assignment) == expected_partitions(group, sizes)
    for member in group:
        assert {each.topic for each in assignment[member.member_id]} <= set(member.topics)
    check_balance(group, assignment)
    assert assign_sticky(group[::-1], sizes) == assignment


@given(group=claims(), sizes=counts)
def test_a_second_rebalance_changes_nothing(group: list[Member], sizes: Counts) -> None:
    assignment = assign_sticky(group, sizes)
    again = assign_sticky(after(group, assignment), sizes)
    assert {member: set(owned) for member, owned in again.items()} == {m: set(o) for m, o in assignment.items()}


@given(group=equal_members(), sizes=counts, leaver=st.integers(0, 5))
def test_when_a_member_leaves_the_others_keep_their_partitions(group: list[Member], sizes: Counts, leaver: int) -> None:
    before = assign_sticky(group, sizes)
    rest = [member for index, member in enumerate(group) if index != leaver % len(group)]
    if rest:
        assignment = assign_sticky(after(rest, before), sizes)
        for member in rest:
            assert set(before[member.member_id]) <= set(assignment[member.member_id])


@given(group=equal_members(), sizes=counts)
def test_when_a_member_joins_partitions_move_only_to_it(group: list[Member], sizes: Counts) -> None:
    before = assign_sticky(group, sizes)
    new = Member("new", group[0].topics)
    assignment = assign_sticky([*after(group, before), new], sizes)
    for member in group:
        assert set(assignment[member.member_id]) <= set(before[member.member_id])


@given(group=claims(), sizes=counts)
def test_with_different_topics_only_as_many_partitions_move_as_the_new_member_gets(
    group: list[Member], sizes: Counts
) -> None:
    before = assign_sticky(group, sizes)
    for member in group:
        joined = [*after(group, before), Member("new", member.topics)]
        assignment = assign_sticky(joined, sizes)
        check_balance(joined, assignment)
        # A member never gives a partition away and takes another of the same topic from the same member.
        swaps = Counter[tuple[str, str, str]]()
        previous = {each: owner for owner, owned in before.items() for each in owned}
        for owner, owned in assignment.items():
            for each in owned:
                if previous.get(each, owner) != owner:
                    swaps[previous[each], owner, each.topic] += 1
        assert not [pair for pair in swaps if (pair[1], pair[0], pair[2]) in swaps]


@given(group=claims(), sizes=counts)
@example(
    group=[
        Member("x", TOPICS, owned=[TopicPartition("a", 0), TopicPartition("a", 1)], generation_id=0),
        Member("z", ("a",)),
        Member("xx", ("b",)),
        Member("xy", ("a", "b", "c")),
    ],
    sizes={"a": 5, "b": 6, "c": 5, "d": 4},
)
def test_a_cooperative_group_is_balanced_after_two_rebalances(group: list[Member], sizes: Counts) -> None:
    """Between them, no member gets a partition that another one has not revoked yet."""
    first = assign_cooperative_sticky(group, sizes)
    assert not all_of(first) - expected_partitions(group, sizes)
    for member in group:
        for each in set(first[member.member_id]) - set(member.owned):
            assert not [other for other in group if other is not member and each in other.owned]
    second = assign_cooperative_sticky(after(group, first), sizes)
    assert all_of(second) == expected_partitions(group, sizes)
    check_balance(group, second)
    for member in group:
        assert set(first[member.member_id]) <= set(second[member.member_id])


def test_the_newest_generation_keeps_a_partition_and_equal_ones_lose_it() -> None:
    claimed = [TopicPartition("a", 0)]
    old, new = Member("old", ("a",), owned=claimed, generation_id=1), Member("zew", ("a",), generation_id=2)
    newer = new._replace(owned=claimed)
    assert assign_sticky([old, newer], {"a": 1}) == {"old": [], "zew": claimed}
    assert assign_sticky([old, newer._replace(generation_id=1)], {"a": 1}) == {"old": claimed, "zew": []}
    assert assign_cooperative_sticky([old, newer._replace(generation_id=1)], {"a": 1}) == {"old": claimed, "zew": []}


def test_the_example_of_the_java_documentation() -> None:
    """Three members with different topics, of which the first leaves."""
    sizes = {"t0": 1, "t1": 2, "t2": 3}
    group = [Member("C0", ("t0",)), Member("C1", ("t0", "t1")), Member("C2", ("t0", "t1", "t2"))]
    before = assign_sticky(group, sizes)
    assert {member: len(owned) for member, owned in before.items()} == {"C0": 1, "C1": 2, "C2": 3}
    assignment = assign_sticky(after(group[1:], before), sizes)
    assert set(assignment["C1"]) == {TopicPartition("t0", 0), TopicPartition("t1", 0), TopicPartition("t1", 1)}
    assert set(assignment["C2"]) == set(before["C2"])


@given(owned=st.lists(partitions, unique=True), generation_id=st.integers(-1, 2**31 - 1))
def test_user_data_survive_a_round_trip(owned: list[TopicPartition], generation_id: int) -> None:
    previous = Previous(tuple(sorted(owned)), generation_id)
    data = sticky_user_data(previous)
    assert sticky_previous(Subscription(topics=(), user_data=data)) == previous
    by_field = Subscription(topics=(), user_data=cooperative_user_data(previous), owned=previous.partitions or ())
    assert cooperative_previous(by_field) == previous


@given(data=st.none() | st.binary(max_size=60))
def test_other_user_data_are_ignored(data: bytes | None) -> None:
    subscription = Subscription(topics=("a",), user_data=data, owned=(TopicPartition("a", 1),))
    assert sticky_previous(subscription).generation_id >= -(2**31)
    assert cooperative_previous(subscription).partitions == subscription.owned


def test_user_data_have_the_bytes_of_the_java_client() -> None:
    previous = Previous((TopicPartition("t", 0), TopicPartition("t", 5)), 7)
    expected = "00000001 0001 74 00000002 00000000 00000005 00000007"
    assert sticky_user_data(previous) == bytes.fromhex(expected)
    assert sticky_user_data(Previous()) is None
    assert cooperative_user_data(Previous()) == b"\xff\xff\xff\xff"
    # Version 0 of the format of sticky has no generation.
    version_0 = Subscription(topics=(), user_data=bytes.fromhex(expected)[:-4])
    assert sticky_previous(version_0) == previous._replace(generation_id=NO_GENERATION)


@pytest.mark.parametrize(
    ("names", "cooperative"),
    [
        (("cooperative-sticky",), True),
        (("cooperative-sticky", "range"), False),
        (("sticky",), False),
        (("range", "roundrobin"), False),
    ],
)
def test_the_protocol_is_cooperative_if_all_assignors_support_it(names: tuple[str, ...], cooperative: bool) -> None:
    assert is_cooperative(names) is cooperative
    assert set(names) <= ASSIGNORS.keys()
