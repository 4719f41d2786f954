"""The evaluation of Metadata responses about leaders and replicas."""

from __future__ import annotations

from ordeal.sightings import Answer, Sightings

from odradek.client.metadata import PartitionView

ALL = (0, 1, 2)


def view(partition: int, leader: int, epoch: int, isr: tuple[int, ...] = ALL) -> PartitionView:
    return PartitionView(partition, leader, epoch, replicas=(partition, *(b for b in ALL if b != partition)), isr=isr)


def answer(requested: float, *views: PartitionView) -> Answer:
    return Answer(requested=requested, answered=requested + 0.1, partitions={each.partition: each for each in views})


def whole(requested: float = 1.0) -> Sightings:
    """Return the state of three brokers and two partitions with all replicas in sync."""
    seen = Sightings(3, 2)
    for broker in ALL:
        seen.see(broker, answer(requested, view(0, 0, 1), view(1, 1, 1)))
    return seen


def test_a_cluster_is_whole_when_every_broker_says_so() -> None:
    seen = whole(5.0)
    assert seen.is_whole(5.0)
    assert not seen.is_whole(5.1)
    assert seen.unbalanced() == []
    assert seen.led_by(0) == [0]


def test_nothing_is_whole_before_every_broker_answered() -> None:
    seen = Sightings(3, 1)
    assert not seen.is_whole(0.0)
    seen.see(0, answer(1.0, view(0, 0, 1)))
    assert not seen.is_whole(0.0)
    assert "brokers that never answered: [1, 2]" in seen.lacks()


def test_a_replica_out_of_sync_or_a_missing_leader_is_not_whole() -> None:
    seen = whole()
    seen.see(1, answer(2.0, view(0, 2, 2, isr=(1, 2)), view(1, -1, 2)))
    assert not seen.is_whole(0.0)
    assert "without a leader: [1], with a replica out of sync: [0]" in seen.lacks()


def test_an_in_sync_set_may_change_within_an_epoch() -> None:
    seen = whole()
    seen.see(0, answer(2.0, view(0, 0, 1, isr=(0, 2)), view(1, 1, 1)))
    assert seen.lacks().endswith("with a replica out of sync: [0]")
    seen.see(0, answer(3.0, view(0, 0, 1), view(1, 1, 1)))
    assert seen.lacks().endswith("with a replica out of sync: []")
    assert seen.is_whole(1.0)


def test_a_broker_that_lags_is_not_whole_and_brings_nothing_back() -> None:
    seen = whole()
    for broker in (1, 2):
        seen.see(broker, answer(2.0, view(0, 2, 2), view(1, 1, 1)))
    assert not seen.is_whole(0.0)
    seen.see(0, answer(2.5, view(0, 0, 1), view(1, 1, 1)))
    assert not seen.is_whole(0.0)
    assert seen.led_by(0) == []
    assert seen.unbalanced() == [0]
    seen.see(0, answer(3.0, view(0, 2, 2), view(1, 1, 1)))
    assert seen.is_whole(2.0)


def test_a_partition_is_elsewhere_when_another_leader_is_told() -> None:
    seen = whole()
    seen.see(1, answer(3.0, view(0, -1, 2), view(1, 1, 1)))
    seen.see(2, answer(4.0, view(0, 2, 3), view(1, 1, 1)))
    seen.see(1, answer(5.0, view(0, 1, 4), view(1, 1, 1)))
    assert [round(each) for each in seen.elsewhere_ms([0, 1], 0, 2.0)] == [2100]
    assert seen.elsewhere_ms([0], 0, 6.0) == []
    seen.forget_moves()
    assert seen.elsewhere_ms([0], 0, 2.0) == []
