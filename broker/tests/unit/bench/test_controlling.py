"""Workloads of the control plane: their topics, their samples, and the times of a failover from ZooKeeper's changes."""

from __future__ import annotations

import pytest
from comparison.controller_watch import ControllerWatch
from comparison.workloads.base import topics_of
from comparison.workloads.controlling import ControllerFailover, spread

from odradek.base.types import TopicPartition


@pytest.mark.parametrize(("partitions", "sizes"), [(1, [1]), (1000, [1000]), (2500, [1000, 1000, 500])])
def test_topics_hold_all_partitions(partitions: int, sizes: list[int]) -> None:
    topics = topics_of("x", partitions)
    assert list(topics.values()) == sizes
    assert all(name.startswith("x-") for name in topics)


@pytest.mark.parametrize(("of", "count", "picked"), [(3, 20, [0, 1, 2]), (40, 4, [0, 10, 20, 30]), (45, 2, [0, 22])])
def test_a_sample_is_spread_evenly(of: int, count: int, picked: list[int]) -> None:
    every = [TopicPartition("t", number) for number in range(of)]
    assert [partition.partition for partition in spread(every, count)] == picked


def test_a_failover_is_read_from_the_changes() -> None:
    watch = ControllerWatch("localhost:1")
    assert (watch.controller, watch.detected(1), watch.elected(1)) == (None, None, None)
    watch.controllers.append((1.0, 1))
    watch.brokers.append((1.0, frozenset({0, 1, 2})))
    assert (watch.controller, watch.detected(1), watch.elected(1)) == (1, None, None)
    watch.controllers += [(5.0, None), (5.5, 2), (9.0, 0)]
    watch.brokers += [(5.1, frozenset({0, 2})), (8.0, frozenset({0, 1, 2})), (9.0, frozenset({0}))]
    assert (watch.controller, watch.detected(1), watch.elected(1)) == (0, 5.0, 5.5)


def test_an_election_that_is_seen_before_its_cause_took_no_time() -> None:
    """ZooKeeper notifies the two watches one after the other, so the election may be seen before the failure."""
    watch = ControllerWatch("localhost:1")
    watch.controllers += [(1.0, 1), (5.5, 2)]
    watch.brokers += [(1.0, frozenset({0, 1, 2})), (5.6, frozenset({0, 2}))]
    assert (watch.detected(1), watch.elected(1)) == (5.5, 5.5)


def test_a_small_failover_still_has_partitions_on_every_broker() -> None:
    assert ControllerFailover(partitions=5_000, replicas=3).scaled(1e-9).partitions >= 3
