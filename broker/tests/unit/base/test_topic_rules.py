"""Topic names, and the assignment of replicas."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from odradek.base.topic_rules import (
    assign_replicas,
    check_assignment,
    check_topic_name,
    colliding_topic,
    growth_start,
    rack_alternated,
)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "...", "x" * 249])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "a:b", "a\x00"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)


def test_names_that_are_one_metric() -> None:
    assert colliding_topic("a.b", ["a_b"]) == "a_b"
    assert colliding_topic("a.b", ["a.b", "ab"]) is None


def test_without_racks_leaders_are_round_robin_and_followers_shifted() -> None:
    brokers = dict.fromkeys(range(5))
    assert assign_replicas(brokers, 10, 3, start_index=0, shift=0) == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_with_racks_every_partition_is_spread_over_the_racks() -> None:
    # The example in Kafka's documentation of the algorithm.
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert rack_alternated(racks) == [0, 3, 1, 5, 4, 2]
    assert assign_replicas(racks, 7, 3, start_index=0, shift=0) == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }


def test_replicas_are_spread_over_machines_and_leaders_alternate_between_them() -> None:
    brokers = dict.fromkeys(range(6))
    machines = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    assert assign_replicas(brokers, 7, 3, start_index=0, shift=0, machines=machines) == {
        0: [0, 2, 4],
        1: [2, 4, 1],
        2: [4, 1, 3],
        3: [1, 3, 5],
        4: [3, 5, 0],
        5: [5, 0, 2],
        6: [0, 3, 5],
    }


def test_racks_come_before_machines() -> None:
    # Both machines of rack b are needed only after rack a has a replica.
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    machines = {0: "m0", 1: "m0", 2: "m1", 3: "m2"}
    assignment = assign_replicas(racks, 8, 2, start_index=0, shift=0, machines=machines)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in assignment.values())
    assignment = assign_replicas(racks, 8, 3, start_index=0, shift=0, machines=machines)
    assert all({machines[broker] for broker in replicas} == {"m0", "m1", "m2"} for replicas in assignment.values())


def test_a_broker_without_a_machine_has_one_to_itself() -> None:
    brokers = dict.fromkeys(range(4))
    assignment = assign_replicas(brokers, 12, 3, start_index=1, shift=2, machines={0: "m", 2: "m", 9: "gone"})
    assert all(not {0, 2} <= set(replicas) for replicas in assignment.values())


def test_more_replicas_than_machines_use_every_machine() -> None:
    machines = {0: "a", 1: "a", 2: "b", 3: "b"}
    assignment = assign_replicas(dict.fromkeys(range(4)), 4, 3, start_index=0, shift=0, machines=machines)
    assert all({machines[broker] for broker in replicas} == {"a", "b"} for replicas in assignment.values())


def test_new_partitions_continue_the_assignment() -> None:
    brokers = dict.fromkeys(range(3))
    whole = assign_replicas(brokers, 6, 2, start_index=1, shift=1)
    grown = assign_replicas(brokers, 2, 2, start_index=1, shift=1, existing={n: whole[n] for n in range(4)})
    assert sorted(grown) == [4, 5]
    assert growth_start([3, 1, 2], {0: [2, 3]}) == 1
    assert growth_start([1, 2], {0: [9]}) == 0
    assert growth_start([1, 2], {}) == 0


def test_one_broker_and_what_cannot_be() -> None:
    assert assign_replicas({7: None}, 2, 1, start_index=3, shift=5) == {0: [7], 1: [7]}
    with pytest.raises(InvalidReplicationFactorError, match="1 brokers"):
        assign_replicas({7: None}, 1, 2, start_index=0, shift=0)
    with pytest.raises(InvalidReplicationFactorError):
        assign_replicas({7: None}, 1, 0, start_index=0, shift=0)
    with pytest.raises(InvalidPartitionsError):
        assign_replicas({7: None}, 0, 1, start_index=0, shift=0)


@pytest.mark.parametrize(
    "assignment",
    [{}, {1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [1, 1]}, {0: [-1]}, {0: [1], 1: [1, 2]}, {0: [9]}],
)
def test_broken_manual_assignments(assignment: dict[int, list[int]]) -> None:
    with pytest.raises(InvalidReplicaAssignmentError):
        check_assignment(assignment, brokers=[1, 2])


def test_a_whole_manual_assignment() -> None:
    check_assignment({0: [1, 2], 1: [2, 1]}, brokers=[1, 2])
