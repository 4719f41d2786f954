"""The broker from which a consumer reads a partition."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.client.consumer.fetch_state import PartitionFetchState

LEADER, FOLLOWER = 1, 2


def test_a_preferred_replica_is_read_until_it_expires() -> None:
    state = PartitionFetchState(TopicPartition("t", 0))
    nodes = {LEADER, FOLLOWER}
    assert state.source(0.0, nodes, LEADER) == LEADER
    state.prefer(FOLLOWER, 1000.0)
    assert [state.source(now_ms, nodes, LEADER) for now_ms in (0.0, 999.0, 1000.0, 0.0)] == [
        FOLLOWER,
        FOLLOWER,
        LEADER,
        LEADER,  # The replica is forgotten until the leader names it again.
    ]


def test_a_preferred_replica_that_is_down_is_forgotten() -> None:
    state = PartitionFetchState(TopicPartition("t", 0))
    state.prefer(FOLLOWER, 1000.0)
    assert state.source(0.0, {LEADER}, LEADER) == LEADER
    assert state.source(0.0, {LEADER, FOLLOWER}, LEADER) == LEADER
