"""Every assignment is complete, balanced, and spread over as many racks and machines as possible."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.topic_rules import assign_replicas, check_assignment

racks = st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12)


@given(racks, st.booleans(), st.integers(1, 30), st.data())
def test_assignments_are_whole_and_spread(
    brokers: dict[int, str], with_racks: bool, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    known = brokers if with_racks else dict.fromkeys(brokers)
    assignment = assign_replicas(known, partitions, factor, start_index=start, shift=shift)
    check_assignment(assignment, brokers=list(brokers))
    assert sorted(assignment) == list(range(partitions))
    assert all(len(replicas) == factor for replicas in assignment.values())
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1
    if with_racks:
        reachable = min(factor, len(set(brokers.values())))
        assert all(len({brokers[broker] for broker in replicas}) >= reachable for replicas in assignment.values())


@st.composite
def placed(draw: st.DrawFn) -> tuple[dict[int, str | None], dict[int, str]]:
    """Brokers with their racks (all or none) and machines. Each machine is in one rack."""
    ids = draw(st.lists(st.integers(0, 200), min_size=1, max_size=14, unique=True))
    machine_count = draw(st.integers(1, 6))
    machines = {broker: f"m{draw(st.integers(0, machine_count - 1))}" for broker in ids}
    rack_of = {f"m{number}": f"r{number % draw(st.integers(1, 3))}" for number in range(machine_count)}
    with_racks = draw(st.booleans())
    return {broker: rack_of[machines[broker]] if with_racks else None for broker in ids}, machines


@given(placed(), st.integers(1, 40), st.integers(0, 100), st.integers(0, 100), st.data())
def test_no_two_replicas_share_a_machine_if_there_are_enough(
    place: tuple[dict[int, str | None], dict[int, str]], partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers, machines = place
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = assign_replicas(brokers, partitions, factor, start_index=start, shift=shift, machines=machines)
    check_assignment(assignment, brokers=list(brokers))
    for replicas in assignment.values():
        assert len({machines[broker] for broker in replicas}) == min(factor, len(set(machines.values())))
        assert len({brokers[broker] for broker in replicas}) == min(factor, len(set(brokers.values())))
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1


@given(racks, st.booleans(), st.integers(1, 30), st.integers(0, 100), st.integers(0, 100), st.data())
def test_machines_with_one_broker_each_change_nothing(
    brokers: dict[int, str], with_racks: bool, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    known = brokers if with_racks else dict.fromkeys(brokers)
    named = data.draw(st.sets(st.sampled_from(sorted(brokers))))
    plain = assign_replicas(known, partitions, factor, start_index=start, shift=shift)
    apart = {broker: f"host-{broker}" for broker in named}
    assert assign_replicas(known, partitions, factor, start_index=start, shift=shift, machines=apart) == plain


@given(st.integers(2, 6), st.integers(1, 4), st.booleans(), st.integers(0, 100), st.integers(0, 100), st.data())
def test_equal_machines_hold_equally_many_replicas_after_whole_rounds(
    machine_count: int, per_machine: int, in_rows: bool, start: int, shift: int, data: st.DataObject
) -> None:
    """In one round, each broker is first once, and the steps to the other replicas are the same for all of them."""
    count = machine_count * per_machine
    machines = {number: f"m{number // per_machine if in_rows else number % machine_count}" for number in range(count)}
    factor = data.draw(st.integers(1, machine_count))
    rounds = data.draw(st.integers(1, 5))
    assignment = assign_replicas(
        dict.fromkeys(range(count)), rounds * count, factor, start_index=start, shift=shift, machines=machines
    )
    held = Counter(broker for replicas in assignment.values() for broker in replicas)
    assert set(held.values()) == {rounds * factor}
