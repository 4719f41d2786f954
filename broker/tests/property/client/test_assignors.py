"""The assignors compared with simple implementations."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignors import ASSIGNORS, Member, assign_range, assign_roundrobin

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
    for assign in ASSIGNORS.values():
        assignment = assign(group, partitions)
        assert assignment.keys() == {member.member_id for member in group}
        owners = Counter(partition for owned in assignment.values() for partition in owned)
        assert owners == Counter(TopicPartition(t, n) for t in wanted for n in range(partitions[t]))
        for member in group:
            assert {partition.topic for partition in assignment[member.member_id]} <= set(member.topics)
        assert assign(list(reversed(group)), partitions) == assignment


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
