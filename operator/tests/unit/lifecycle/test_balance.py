"""Rebalancing: no more moves than needed, racks are respected, the result is stable, and when it runs at all."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.zk.layout import PartitionState, ReplicaAssignment
from odradek_operator.lifecycle import balance
from odradek_operator.lifecycle.replicas import Partition

Shape = list[tuple[int, ...]]


def partition(number: int, replicas: tuple[int, ...], topic: str = "t", leader: int | None = None) -> Partition:
    first = replicas[0] if leader is None else leader
    return Partition(
        name=TopicPartition(topic, number),
        assignment=ReplicaAssignment(replicas=replicas),
        state=PartitionState(leader=first, leader_epoch=0, isr=replicas, controller_epoch=1),
    )


def partitions(shape: Shape) -> list[Partition]:
    return [partition(number, replicas) for number, replicas in enumerate(shape)]


def held(found: list[Partition], brokers: int) -> list[int]:
    counts = Counter(broker for one in found for broker in one.target)
    return [counts[broker] for broker in range(brokers)]


def led(found: list[Partition], brokers: int) -> list[int]:
    counts = Counter(one.target[0] for one in found)
    return [counts[broker] for broker in range(brokers)]


def carried_out(found: list[Partition], targets: dict[TopicPartition, tuple[int, ...]]) -> list[Partition]:
    return [partition(one.name.partition, targets.get(one.name, one.target), one.name.topic) for one in found]


def to_the_end(
    found: list[Partition],
    brokers: int,
    racks: dict[int, str | None],
    limit: int,
    machines: dict[int, str] | None = None,
    pods: dict[int, int] | None = None,
) -> list[Partition]:
    for _ in range(1_000):
        targets = balance.portion(
            found, range(brokers), racks, live=range(brokers), limit=limit, machines=machines, pods=pods
        )
        assert len(targets) <= limit
        if not targets:
            return found
        assert all(targets[one.name] != one.target for one in found if one.name in targets)
        found = carried_out(found, targets)
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("shape", "brokers", "due"),
    [
        ([(0, 1, 2)] * 6, 4, True),
        ([(0, 1, 2)] * 6, 3, False),
        ([(0,)] * 3, 3, False),
        ([(0,)] * 4 + [(1,)] * 4 + [(2,)] * 2, 3, False),
        ([(0,)] * 5 + [(1,)] * 5 + [(2,)], 3, True),
        ([(0,)] * 4 + [(1,)] * 4 + [(2,)] * 2, 4, True),
        ([], 3, False),
        ([(7, 8)] * 9, 3, False),
    ],
)
def test_it_is_due_where_a_broker_has_less_than_half_and_two_less_than_its_share(
    shape: Shape, brokers: int, due: bool
) -> None:
    assert balance.is_due(partitions(shape), range(brokers)) is due


def test_a_replica_keeps_its_place() -> None:
    found = partitions([(0, 1), (1, 0), (0, 1), (1, 0)])
    targets = balance.portion(found, range(3), {}, live=range(3), limit=10)
    assert targets == {TopicPartition("t", 0): (2, 1), TopicPartition("t", 1): (2, 0)}


def test_topics_spread_too() -> None:
    found = [partition(number, (0,), topic) for topic in ("a", "b") for number in range(4)]
    targets = balance.portion(found, range(2), {}, live=range(2), limit=10)
    assert sorted(name.topic for name in targets) == ["a", "a", "b", "b"]


def test_a_partition_without_a_leader_stays() -> None:
    found = [partition(number, (0,), leader=-1) for number in range(4)]
    assert balance.portion(found, range(2), {}, live=range(2), limit=10) == {}


def test_a_partition_with_a_broker_that_is_not_there_stays() -> None:
    found = partitions([(0, 7), (0, 8), (0, 8), (0, 7)])
    targets = balance.portion(found, range(2), {}, live=[0, 1, 8], limit=10)
    assert [name.partition for name in targets] == [1, 2]


def test_leaders_are_handed_on_along_a_chain() -> None:
    # Broker 0 leads three partitions and shares none with broker 2. So 0 hands a leadership to 1, and 1 hands one to 2.
    # No records move.
    found = partitions([(0, 1), (0, 1), (0, 1), (1, 2), (2, 1), (2, 0), (1, 2), (1, 0)])
    found = [*found[:4], partition(4, (1, 2)), partition(5, (0, 2))]
    assert (held(found, 3), led(found, 3)) == ([4, 5, 3], [4, 2, 0])
    done = to_the_end(found, 3, {}, limit=1)
    assert max(held(done, 3)) - min(held(done, 3)) <= 1
    assert led(done, 3) == [2, 2, 2]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Partition], int]:
    brokers = draw(st.integers(2, 6))
    subset = st.permutations(range(brokers)).flatmap(
        lambda order: st.integers(1, len(order)).map(lambda count: tuple(order[:count]))
    )
    shape = draw(st.lists(subset, min_size=1, max_size=25))
    found = [partition(number, replicas, f"t{number % 3}") for number, replicas in enumerate(shape)]
    return found, brokers


@given(clusters(), st.integers(1, 30))
def test_all_end_within_one_of_the_mean_with_the_fewest_moves(cluster: tuple[list[Partition], int], limit: int) -> None:
    found, brokers = cluster
    counts = held(found, brokers)
    low, rest = divmod(sum(counts), brokers)
    over = sum(max(0, count - low - (rest > 0)) for count in counts)
    under = sum(max(0, low - count) for count in counts)
    assert balance.replicas_to_move(found, range(brokers)) == max(over, under)
    done = to_the_end(found, brokers, {}, limit)
    moved = sum(len(set(after.target) - set(one.target)) for one, after in zip(found, done, strict=True))
    assert moved == max(over, under)
    assert max(held(done, brokers)) - min(held(done, brokers)) <= 1
    assert [len(one.target) for one in found] == [len(one.target) for one in done]
    assert not balance.portion(done, range(brokers), {}, live=range(brokers), limit=limit)


@given(clusters(), st.integers(2, 3), st.integers(1, 30))
def test_no_partition_loses_a_rack(cluster: tuple[list[Partition], int], count: int, limit: int) -> None:
    found, brokers = cluster
    racks: dict[int, str | None] = {broker: f"r{broker % count}" for broker in range(brokers)}
    done = to_the_end(found, brokers, racks, limit)
    for before, after in zip(found, done, strict=True):
        assert len({racks[broker] for broker in after.target}) >= len({racks[broker] for broker in before.target})
        assert len({racks[broker] for broker in after.target}) == min(len(after.target), len(set(racks.values())))
    unaware = {**racks, 0: None}
    even = to_the_end(found, brokers, unaware, limit)
    assert max(held(even, brokers)) - min(held(even, brokers)) <= 1, "one broker without a rack: racks do not count"


def test_a_new_rack_gets_its_copy_of_each_partition() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "c"}
    done = to_the_end(partitions([(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1)]), 4, racks, limit=3)
    assert held(done, 4) == [2, 2, 4, 4]


@given(clusters(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 30))
def test_all_end_on_as_many_machines_as_possible(
    cluster: tuple[list[Partition], int], machine_count: int, rack_count: int, limit: int
) -> None:
    found, brokers = cluster
    machines = {broker: f"m{broker % machine_count}" for broker in range(brokers)}
    racks: dict[int, str | None] = {broker: f"r{broker % machine_count % rack_count}" for broker in range(brokers)}
    with_racks = to_the_end(found, brokers, racks, limit, machines)
    for one in (*with_racks, *to_the_end(found, brokers, {}, limit, machines)):
        assert len({machines[broker] for broker in one.target}) == min(len(one.target), len(set(machines.values())))
    for one in with_racks:
        assert len({racks[broker] for broker in one.target}) == min(len(one.target), len(set(racks.values())))


@given(clusters(), st.integers(1, 3), st.integers(1, 30))
def test_machines_with_one_broker_each_change_no_move(
    cluster: tuple[list[Partition], int], rack_count: int, limit: int
) -> None:
    found, brokers = cluster
    machines = {broker: f"m{broker}" for broker in range(brokers) if broker % 3}
    racks: dict[int, str | None] = {broker: f"r{broker % rack_count}" for broker in range(brokers)}
    plain = balance.portion(found, range(brokers), racks, live=range(brokers), limit=limit)
    assert balance.portion(found, range(brokers), racks, live=range(brokers), limit=limit, machines=machines) == plain


@given(clusters(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(1, 30))
def test_all_end_as_even_over_pods_as_their_brokers_allow(
    cluster: tuple[list[Partition], int], pod_count: int, machine_count: int, rack_count: int, limit: int
) -> None:
    found, brokers = cluster
    pods = {broker: broker % pod_count for broker in range(brokers)}
    machines = {broker: f"m{pod % machine_count}" for broker, pod in pods.items()}
    racks: dict[int, str | None] = {broker: f"r{pod % machine_count % rack_count}" for broker, pod in pods.items()}
    sizes = Counter(pods.values())
    for one in to_the_end(found, brokers, racks, limit, machines, pods):
        assert len({racks[broker] for broker in one.target}) == min(len(one.target), len(set(racks.values())))
        assert len({machines[broker] for broker in one.target}) == min(len(one.target), len(set(machines.values())))
        used = Counter(pods[broker] for broker in one.target)
        open_pods = [used[pod] for pod, size in sizes.items() if used[pod] < size]
        assert max(used.values()) - min(open_pods, default=len(one.target)) <= 1


@given(clusters(), st.integers(1, 3), st.integers(1, 30))
def test_pods_with_one_broker_each_change_no_move(
    cluster: tuple[list[Partition], int], rack_count: int, limit: int
) -> None:
    found, brokers = cluster
    racks: dict[int, str | None] = {broker: f"r{broker % rack_count}" for broker in range(brokers)}
    pods = {broker: broker for broker in range(0, brokers, 2)}
    plain = balance.portion(found, range(brokers), racks, live=range(brokers), limit=limit)
    assert balance.portion(found, range(brokers), racks, live=range(brokers), limit=limit, pods=pods) == plain


def test_new_brokers_on_the_same_machines_get_their_share_from_their_machine() -> None:
    # Two machines with one broker each, then two with two each: no partition may lose a machine.
    machines = {0: "a", 1: "b", 2: "a", 3: "b"}
    done = to_the_end(partitions([(0, 1), (1, 0)] * 6), 4, {}, 3, machines)
    assert held(done, 4) == [6, 6, 6, 6]
    assert all({machines[broker] for broker in one.target} == {"a", "b"} for one in done)


@given(clusters(), st.integers(1, 30))
def test_leaders_end_as_even_as_handing_on_can_make_them(cluster: tuple[list[Partition], int], limit: int) -> None:
    found, brokers = cluster
    done = to_the_end(found, brokers, {}, limit)
    counts = led(done, brokers)
    # Along the partitions that it leads, no broker reaches a broker that leads two partitions fewer.
    for start in range(brokers):
        reached, edge = {start}, [start]
        while edge:
            broker = edge.pop()
            for one in done:
                if one.target[0] == broker:
                    edge += [member for member in one.target if member not in reached]
                    reached |= set(one.target)
        assert all(counts[start] - counts[other] <= 1 for other in reached)


def test_brokers_of_others_are_left_alone() -> None:
    found = partitions([(0, 7), (0, 7), (0, 8), (0, 8)])
    done = carried_out(found, balance.portion(found, range(2), {}, live=[0, 1, 7, 8], limit=10))
    assert held(done, 2) == [2, 2]
    assert [one.target[1] for one in done] == [7, 7, 8, 8]


def test_what_moves_counts_where_it_goes() -> None:
    one = dataclasses.replace(
        partition(0, (0, 1)), assignment=ReplicaAssignment(replicas=(1, 0), adding=(1,), removing=(0,))
    )
    assert held([one], 2) == [0, 1]
