"""What holds for every target assignment: completeness, balance, and partitions that stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.groups.consumer.consumer_assignors import ASSIGNORS, Subscriber
from odradek.coordinator.groups.consumer.consumer_values import PartitionSet, TopicShape

Assignment = Mapping[str, PartitionSet]

UNIFORM, RANGE = ASSIGNORS["uniform"], ASSIGNORS["range"]
RANDOMS = st.integers(0, 1 << 32).map(Random)
EACH = pytest.mark.parametrize("name", sorted(ASSIGNORS))


def random_topics(random: Random) -> dict[UUID, TopicShape]:
    return {
        UUID(int=number): TopicShape(UUID(int=number), f"t-{number}", random.choice([1, 2, 3, 6, 6, 13]))
        for number in range(1, random.randint(2, 6))
    }


def random_members(random: Random, topics: Mapping[UUID, TopicShape], *, equal: bool) -> dict[str, Subscriber]:
    """Members whose current partitions are those of any earlier assignment of other members and topics."""
    earlier: dict[UUID, dict[int, str]] = {
        topic_id: {number: f"m-{random.randrange(9)}" for number in range(random.randrange(14))}
        for topic_id in [*topics, UUID(int=99)]
    }
    is_new = random.random() < 0.3
    members = {}
    for number in random.sample(range(9), random.randint(1, 8)):
        member_id = f"m-{number}"
        wanted = frozenset(topics) if equal else frozenset(each for each in topics if random.random() < 0.6)
        current = {
            topic_id: frozenset(partition for partition, owner in owners.items() if owner == member_id)
            for topic_id, owners in earlier.items()
        }
        members[member_id] = Subscriber(
            topics=wanted,
            instance_id=f"i-{9 - number}" if random.random() < 0.3 else None,
            current={} if is_new else {topic_id: numbers for topic_id, numbers in current.items() if numbers},
        )
    return members


def sizes(assignment: Assignment) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assignment.items()}


def owners(assignment: Assignment) -> dict[tuple[UUID, int], str]:
    found = {}
    for member_id, partitions in assignment.items():
        for topic_id, numbers in partitions.items():
            assert numbers
            for number in numbers:
                assert (topic_id, number) not in found
                found[topic_id, number] = member_id
    return found


def after(members: Mapping[str, Subscriber], assignment: Assignment) -> dict[str, Subscriber]:
    """Return the members with an assignment as their current one."""
    return {member_id: replace(member, current=assignment[member_id]) for member_id, member in members.items()}


@EACH
@given(RANDOMS, st.booleans())
def test_each_partition_has_one_owner_that_subscribes(name: str, random: Random, equal: bool) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=equal)
    assignment = ASSIGNORS[name](members, topics)
    assert assignment.keys() == members.keys()
    found = owners(assignment)
    subscribed = {topic_id for member in members.values() for topic_id in member.topics}
    assert found.keys() == {(each, number) for each in subscribed for number in range(topics[each].partition_count)}
    assert all(topic_id in members[owner].topics for (topic_id, _), owner in found.items())


@EACH
@given(RANDOMS, st.booleans())
def test_the_last_target_is_not_changed_without_reason(name: str, random: Random, equal: bool) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=equal)
    assignment = ASSIGNORS[name](members, topics)
    again = after(members, assignment)
    shuffled = dict(random.sample(list(again.items()), len(again)))
    assert ASSIGNORS[name](shuffled, topics) == assignment


@given(RANDOMS)
def test_equal_subscriptions_get_equal_numbers_with_the_fewest_moves(random: Random) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=True)
    assignment = UNIFORM(members, topics)
    assert max(sizes(assignment).values()) - min(sizes(assignment).values()) <= 1
    before = {
        partition: owner
        for partition, owner in owners({each: member.current for each, member in members.items()}).items()
        if partition in owners(assignment)
    }
    kept = sum(owners(assignment)[partition] == owner for partition, owner in before.items())
    had = sorted((sum(owner == each for owner in before.values()) for each in members), reverse=True)
    size, extra = divmod(len(owners(assignment)), len(members))
    assert kept == sum(min(count, size + (place < extra)) for place, count in enumerate(had))


@given(RANDOMS)
def test_no_move_within_a_topic_improves_the_balance(random: Random) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=False)
    assignment = UNIFORM(members, topics)
    load = sizes(assignment)
    for (topic_id, _), owner in owners(assignment).items():
        assert all(load[owner] - load[each] <= 1 for each, member in members.items() if topic_id in member.topics)


@given(RANDOMS)
def test_if_a_member_leaves_only_its_partitions_move(random: Random) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=True)
    assignment = UNIFORM(members, topics)
    left = after(members, assignment)
    del left[random.choice(sorted(left))]
    before = owners(assignment)
    for partition, owner in owners(UNIFORM(left, topics)).items():
        assert before[partition] in (owner, *(members.keys() - left.keys()))


@given(RANDOMS)
def test_if_a_member_joins_partitions_move_only_to_it(random: Random) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=True)
    assignment = UNIFORM(members, topics)
    joined = {**after(members, assignment), "new": Subscriber(topics=frozenset(topics))}
    before = owners(assignment)
    for partition, owner in owners(UNIFORM(joined, topics)).items():
        assert owner in (before[partition], "new")


@given(RANDOMS)
def test_topics_with_equal_numbers_of_partitions_have_the_same_ranges(random: Random) -> None:
    topics = random_topics(random)
    members = random_members(random, topics, equal=True)
    for partitions in RANGE(members, topics).values():
        ranges = {(topics[topic_id].partition_count, numbers) for topic_id, numbers in partitions.items()}
        assert len(ranges) == len({count for count, _ in ranges})
        assert all(numbers == frozenset(range(min(numbers), max(numbers) + 1)) for _, numbers in ranges)


@EACH
@given(RANDOMS)
def test_a_static_member_keeps_its_partitions_under_another_member_id(name: str, random: Random) -> None:
    topics = random_topics(random)
    members = {
        member_id: replace(member, instance_id=f"i-{member_id}")
        for member_id, member in random_members(random, topics, equal=True).items()
    }
    assignment = ASSIGNORS[name](members, topics)
    renamed = {f"{random.randrange(99)}-{each}": member for each, member in after(members, assignment).items()}
    assert {each.partition("-")[2]: part for each, part in ASSIGNORS[name](renamed, topics).items()} == assignment


@EACH
@pytest.mark.parametrize("other", [frozenset({UUID(int=1)}), frozenset({UUID(int=1), UUID(int=2)})])
def test_a_partition_of_two_members_and_one_that_does_not_exist(name: str, other: frozenset[UUID]) -> None:
    topics = {UUID(int=number): TopicShape(UUID(int=number), f"t-{number}", 2) for number in (1, 2)}
    both = {UUID(int=1): frozenset({0, 7})}
    members = {"a": Subscriber(frozenset({UUID(int=1)}), current=both), "b": Subscriber(other, current=both)}
    found = owners(ASSIGNORS[name](members, topics))
    assert found[UUID(int=1), 0] == "a"
    assert len(found) == 2 * len(other)


@EACH
def test_groups_without_members_or_topics(name: str) -> None:
    assign = ASSIGNORS[name]
    assert assign({}, {}) == {}
    nothing = Subscriber(topics=frozenset(), current={UUID(int=1): frozenset({0})})
    unknown = Subscriber(topics=frozenset({UUID(int=1)}), current={UUID(int=1): frozenset({0})})
    assert assign({"a": nothing, "b": nothing}, {}) == {"a": {}, "b": {}}
    assert assign({"a": nothing, "b": unknown}, {}) == {"a": {}, "b": {}}
    assert assign({"b": unknown}, {}) == {"b": {}}
