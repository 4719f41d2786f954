"""The metadata of a client, backoff and the schedule of refreshes."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.types import TopicPartition
from odradek.client.metadata import Backoff, ClusterView, Node, PartitionView, RefreshSchedule, TopicView

FIRST = TopicPartition("t", 0)
UNKNOWN_TOPIC, NO_LEADER_NOW = 3, 5


def topic(leader: int, epoch: int, *, topic_id: int = 1, error: int = 0, partitions: int = 1) -> TopicView:
    found = {} if error else {number: PartitionView(number, leader, epoch) for number in range(partitions)}
    return TopicView(name="t", topic_id=UUID(int=0 if error else topic_id), partitions=found, error_code=error)


def view(*topics: TopicView, nodes: tuple[int, ...] = (1, 2)) -> ClusterView:
    return ClusterView(
        nodes={number: Node(number, "h", number) for number in nodes}, topics={each.name: each for each in topics}
    )


@pytest.mark.parametrize(
    ("answer", "leader", "epoch"),
    [
        pytest.param(topic(2, 6), 2, 6, id="newer epoch"),
        pytest.param(topic(2, 4), 1, 5, id="an older epoch is ignored"),
        pytest.param(topic(2, -1), 2, -1, id="a broker without leader epochs"),
        pytest.param(topic(2, 0, topic_id=2), 2, 0, id="another topic with the same name"),
        pytest.param(topic(0, 0, error=NO_LEADER_NOW), 1, 5, id="a retriable error keeps the partitions"),
        pytest.param(topic(0, 0, error=UNKNOWN_TOPIC), -1, -1, id="a deleted topic"),
    ],
)
def test_a_response_updates_the_metadata(answer: TopicView, leader: int, epoch: int) -> None:
    updated = view(topic(1, 5)).updated(view(answer), complete=False)
    assert (updated.leader(FIRST), updated.leader_epoch(FIRST)) == (leader, epoch)
    assert updated.topics["t"].error_code == answer.error_code


def test_a_complete_response_removes_other_topics() -> None:
    other = TopicView(name="u")
    assert set(view(topic(1, 5)).updated(view(other), complete=False).topics) == {"t", "u"}
    assert set(view(topic(1, 5)).updated(view(other), complete=True).topics) == {"u"}


@pytest.mark.parametrize(("leader", "epoch", "expected"), [(2, 6, 2), (2, 5, 1), (2, 4, 1), (9, 6, 1)])
def test_a_leader_in_a_produce_response_is_used_if_it_is_newer_and_known(
    leader: int, epoch: int, expected: int
) -> None:
    assert view(topic(1, 5)).with_leader(FIRST, leader, epoch).leader(FIRST) == expected


def test_partitions_without_leader_are_not_available() -> None:
    partitions = {0: PartitionView(0, -1, 3), 1: PartitionView(1, 2, 3)}
    assert TopicView(name="t", partitions=partitions).available == [1]


@pytest.mark.parametrize(("failures", "middle"), [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (5_000, 1_000)])
def test_backoff_doubles_with_jitter(failures: int, middle: float) -> None:
    backoff = Backoff(100, 1_000)
    assert backoff.delay_ms(failures, 0.5) == pytest.approx(middle)
    assert backoff.delay_ms(failures, 0.0) == pytest.approx(0.8 * middle)
    assert backoff.delay_ms(failures, 0.999) < 1.2 * middle


def test_the_schedule_of_refreshes() -> None:
    schedule = RefreshSchedule(Backoff(100, 1_000), 5_000)
    assert schedule.due_in_ms(10) == 0
    schedule.succeeded(10, 0.5)
    assert schedule.due_in_ms(10) == 5_000
    schedule.request()
    assert schedule.due_in_ms(10) == pytest.approx(100)
    schedule.request(urgent=True)
    assert schedule.due_in_ms(10) == 0
    schedule.failed(20, 0.5)
    schedule.failed(20, 0.5)
    schedule.request(urgent=True)
    assert schedule.due_in_ms(20) == pytest.approx(200)
    schedule.succeeded(300, 0.5)
    assert schedule.due_in_ms(5_299) == pytest.approx(1)
