"""Every assignment is complete, balanced, and spread over as many racks as possible."""

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
