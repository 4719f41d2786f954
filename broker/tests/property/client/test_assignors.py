"""The assignors compared with simple implementations."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import Member
from odradek.client.consumer.assignors import ASSIGNORS, assign_roundrobin
from odradek.client.consumer.range_assignor import assign_range

TOPICS = ["a", "b", "c"]
counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


@st.composite
def members(draw: st.DrawFn) -> list[Member]:
    ids = draw(st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, max_size=5, unique=True))
    return [
        Member(
            member_id,
            tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True))),
            draw(st.none() | st.just(f"static-{member_id}")),
        )
        for member_id in ids
    ]


def in_order(group: list[Member]) -> list[Member]:
    """Static members by instance id first, then the others by member id."""
    static = sorted((m for m in group if m.group_instance_id is not None), key=lambda m: m.group_instance_id or "")
    return static + sorted((m for m in group if m.group_instance_id is None), key=lambda m: m.member_id)


@given(group=members(), partitions=counts)
def test_every_subscribed_partition_has_one_owner_that_subscribes_to_it(
    group: list[Member], partitions: dict[str, int]
) -> None:
    wanted = {topic for member in group for topic in member.topics}
    for assign in (assignor.assign for assignor in ASSIGNORS.values()):
        assignment = assign(group, partitions, {})
        assert assignment.keys() == {member.member_id for member in group}
        owners = Counter(partition for owned in assignment.values() for partition in owned)
        assert owners == Counter(TopicPartition(t, n) for t in wanted for n in range(partitions[t]))
        for member in group:
            assert {partition.topic for partition in assignment[member.member_id]} <= set(member.topics)
        assert assign(list(reversed(group)), partitions, {}) == assignment


@given(group=members(), partitions=counts)
def test_range_assigns_consecutive_partitions(group: list[Member], partitions: dict[str, int]) -> None:
    expected: dict[str, list[TopicPartition]] = {member.member_id: [] for member in group}
    for topic in TOPICS:
        wanting = [member for member in in_order(group) if topic in member.topics]
        shares = Counter(wanting[number % len(wanting)].member_id for number in range(partitions[topic]) if wanting)
        number = 0
        for member in wanting:
            for _ in range(shares[member.member_id]):
                expected[member.member_id].append(TopicPartition(topic, number))
                number += 1
    assert assign_range(group, partitions) == expected


RACKS = ["r1", "r2", "r3"]
replicas = st.frozensets(st.sampled_from(RACKS), max_size=3)


@st.composite
def placed(draw: st.DrawFn) -> tuple[list[Member], dict[str, int], dict[TopicPartition, frozenset[str]]]:
    """Members, topics and replicas, all in racks."""
    group = [member._replace(rack_id=draw(st.sampled_from([None, *RACKS]))) for member in draw(members())]
    sizes = draw(counts)
    partitions = [TopicPartition(topic, number) for topic, count in sizes.items() for number in range(count)]
    return group, sizes, {partition: draw(replicas) for partition in partitions}


@given(case=placed())
def test_range_prefers_racks_and_keeps_equal_shares(
    case: tuple[list[Member], dict[str, int], dict[TopicPartition, frozenset[str]]],
) -> None:
    group, sizes, racks = case
    with_racks, without = assign_range(group, sizes, racks), assign_range(group, sizes)
    assert sorted(each for owned in with_racks.values() for each in owned) == sorted(
        each for owned in without.values() for each in owned
    )
    for topic in TOPICS:
        before = sorted(sum(each.topic == topic for each in owned) for owned in without.values())
        assert sorted(sum(each.topic == topic for each in owned) for owned in with_racks.values()) == before
    assert assign_range(group[::-1], sizes, racks) == with_racks


def test_range_assigns_within_racks_if_the_replicas_are_in_different_ones() -> None:
    group = [Member("m1", ("a", "b"), rack_id="r2"), Member("m2", ("a", "b"), rack_id="r1")]
    racks = {
        TopicPartition(topic, number): frozenset({"r1" if number < 2 else "r2"})
        for topic in "ab"
        for number in range(4)
    }
    assignment = assign_range(group, {"a": 4, "b": 4}, racks)
    assert [(topic, number) for topic, number in assignment["m1"]] == [("a", 2), ("a", 3), ("b", 2), ("b", 3)]
    # If every partition has replicas in all racks, they make no difference.
    everywhere = dict.fromkeys(racks, frozenset({"r1", "r2"}))
    assert assign_range(group, {"a": 4, "b": 4}, everywhere) == assign_range(group, {"a": 4, "b": 4})


@given(group=members(), partitions=counts)
def test_roundrobin_assigns_partitions_in_turn(group: list[Member], partitions: dict[str, int]) -> None:
    expected: dict[str, list[TopicPartition]] = {member.member_id: [] for member in group}
    waiting = in_order(group)
    wanted = {topic for member in group for topic in member.topics}
    for partition in sorted(TopicPartition(t, n) for t in wanted for n in range(partitions[t])):
        while partition.topic not in waiting[0].topics:
            waiting.append(waiting.pop(0))
        expected[waiting[0].member_id].append(partition)
        waiting.append(waiting.pop(0))
    assert assign_roundrobin(group, partitions) == expected
