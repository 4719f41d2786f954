"""The cluster image: updates make a new one and leave the old as it was."""

from __future__ import annotations

from uuid import UUID

from odradek.base.types import ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import LEADER_DURING_DELETE, AnnouncedBroker, ClusterImage, PartitionMetadata

ONE, TWO = UUID(int=1), UUID(int=2)
BROKERS = [AnnouncedBroker(broker_id=i, endpoints=(Endpoint("PLAINTEXT", f"h{i}", 9092),)) for i in (0, 1)]


def state(leader: int, **changes: int) -> PartitionMetadata:
    return PartitionMetadata(leader=leader, leader_epoch=changes.get("epoch", 0), isr=(0, 1), replicas=(0, 1))


def image_with(*partitions: tuple[str, int, UUID, PartitionMetadata], base: ClusterImage | None = None) -> ClusterImage:
    return (base or ClusterImage()).updated(
        controller_id=1,
        brokers=BROKERS,
        partitions=[(TopicPartition(name, number), topic_id, s) for name, number, topic_id, s in partitions],
    )


def test_update_adds_and_changes() -> None:
    first = image_with(("a", 1, ONE, state(1)), ("a", 0, ONE, state(0)))
    second = image_with(("a", 1, ONE, state(0, epoch=1)), ("b", 0, TWO, state(1)), base=first)
    assert list(second.topics["a"].partitions) == [0, 1]
    assert second.topics["a"].partitions[1].leader_epoch == 1
    assert second.topic_names == {ONE: "a", TWO: "b"}
    assert first.topics["a"].partitions[1].leader_epoch == 0
    assert "b" not in first.topics


def test_deleted_partitions_go_and_take_the_topic_with_them() -> None:
    first = image_with(("a", 0, ONE, state(0)), ("a", 1, ONE, state(0)))
    second = image_with(("a", 0, ONE, state(LEADER_DURING_DELETE)), base=first)
    assert list(second.topics["a"].partitions) == [1]
    third = image_with(("a", 1, ONE, state(LEADER_DURING_DELETE)), base=second)
    assert third.topics == {}
    assert third.topic_names == {}


def test_a_topic_made_anew_keeps_nothing_of_the_old() -> None:
    first = image_with(("a", 0, ONE, state(0)), ("a", 1, ONE, state(0)))
    second = image_with(("a", 0, TWO, state(1)), base=first)
    assert list(second.topics["a"].partitions) == [0]
    assert second.topic_names == {TWO: "a"}


def test_an_update_without_id_keeps_the_known_one() -> None:
    first = image_with(("a", 0, ONE, state(0)))
    assert image_with(("a", 0, ZERO_UUID, state(1)), base=first).topic_id("a") == ONE


def test_an_update_of_brokers_alone_keeps_the_topics() -> None:
    first = image_with(("a", 0, ONE, state(0)))
    second = first.updated(controller_id=0, brokers=BROKERS[:1], partitions=[])
    assert set(second.brokers) == {0}
    assert second.topics is first.topics


def test_leader_endpoint() -> None:
    image = image_with(("a", 0, ONE, state(1)), ("a", 1, ONE, state(7)))
    assert image.leader_endpoint(TopicPartition("a", 0), "PLAINTEXT") == (1, Endpoint("PLAINTEXT", "h1", 9092))
    assert image.leader_endpoint(TopicPartition("a", 0), "TLS") is None
    assert image.leader_endpoint(TopicPartition("a", 1), "PLAINTEXT") is None
    assert image.leader_endpoint(TopicPartition("b", 0), "PLAINTEXT") is None


def test_a_leader_knows_topic_ids_from_leader_and_isr() -> None:
    first = ClusterImage().with_announced({ONE: "a", ZERO_UUID: "none"})
    assert (first.topic_name(ONE), first.topic_name(ZERO_UUID), first.topics) == ("a", None, {})
    assert first.with_announced({ONE: "a"}).topic_name(ONE) == "a"
    second = image_with(("a", 0, ONE, state(0)), base=first)
    assert (second.topic_name(ONE), second.announced) == ("a", {})
    assert second.with_announced({ONE: "a"}) is second
    gone = image_with(("a", 0, ONE, state(LEADER_DURING_DELETE)), base=first)
    assert gone.topic_name(ONE) is None
