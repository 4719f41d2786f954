"""Readings from brokers: they expire, and are dropped when their topic or group no longer exists."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.client.metadata import ClusterView, Node, PartitionView, TopicView
from odradek_operator.exporter.exporter_settings import ExporterSettings, NameFilter
from odradek_operator.exporter.readings import Members, Readings
from odradek_operator.exporter.snapshot import GroupReading, PartitionReading, Position

SETTINGS = ExporterSettings(interval=10, stale_after=60, sizes_interval=30, lag_cap=1000)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def view(*topics: str) -> ClusterView:
    partitions = {
        0: PartitionView(0, 1, 5, (1, 2), (1, 2)),
        1: PartitionView(1, 2, 5, (1, 2), (2,)),
    }
    return ClusterView(
        nodes={2: Node(2, "::1", 9093), 1: Node(1, "host", 9092)},
        topics={name: TopicView(name=name, partitions=partitions) for name in topics},
    )


def filled(settings: ExporterSettings = SETTINGS) -> Readings:
    """Return readings, all of them taken at time 100."""
    readings = Readings(settings)
    readings.set_cluster(view("t"), 100.0)
    readings.set_ends({A: 50, B: 70}, 100.0)
    readings.starts.put({A: 5, B: 0}, 100.0)
    readings.sizes.put({A: 500, B: 700}, 100.0)
    readings.listed.put({1: frozenset({"g"})}, 100.0)
    readings.members.put({"g": Members(2, frozenset({B}))}, 100.0)
    readings.commits.put({"g": {A: 40}}, 100.0)
    return readings


def test_everything_that_was_told_is_in_the_snapshot() -> None:
    snapshot = filled().snapshot(100.0)
    assert [tuple(broker) for broker in snapshot.brokers] == [(1, "host:9092"), (2, "[::1]:9093")]
    (topic,) = snapshot.topics
    assert topic.partitions == (
        PartitionReading(0, 1, (1, 2), 2, 5, 50, 500),
        PartitionReading(1, 2, (1, 2), 1, 0, 70, 700),
    )
    assert [each.is_under_replicated for each in topic.partitions] == [False, True]
    assert [each.has_preferred_leader for each in topic.partitions] == [True, False]
    assert snapshot.groups == (
        GroupReading(name="g", members=2, positions=(Position("t", 0, 40, 10, None), Position("t", 1, -1, None, None))),
    )


def test_what_one_broker_told_grows_old_alone() -> None:
    readings = filled()
    readings.set_cluster(view("t"), 160.0)
    readings.set_ends({A: 55}, 160.0)
    readings.listed.put({2: frozenset({"h"})}, 160.0)
    readings.commits.put({"h": {A: 55}}, 160.0)
    for now, ends, groups in ((160.0, [55, 70], ["g", "h"]), (161.0, [55, None], ["h"])):
        readings.forget(now)
        snapshot = readings.snapshot(now)
        assert [each.end for each in snapshot.topics[0].partitions] == ends
        assert [each.name for each in snapshot.groups] == groups
        assert [each.size_bytes for each in snapshot.topics[0].partitions] == [500, 700], (
            "sizes are reported less often"
        )
    readings.forget(191.0)
    assert [each.size_bytes for each in readings.snapshot(191.0).topics[0].partitions] == [None, None]


def test_a_view_that_is_old_leaves_nothing() -> None:
    readings = filled()
    assert readings.snapshot(160.0).topics
    snapshot = readings.snapshot(160.1)
    assert (snapshot.brokers, snapshot.topics, snapshot.groups) == ((), (), ())


def test_a_topic_that_is_gone_takes_its_positions_along() -> None:
    readings = filled()
    readings.set_cluster(view("other"), 101.0)
    snapshot = readings.snapshot(101.0)
    assert [topic.name for topic in snapshot.topics] == ["other"]
    assert snapshot.groups == (GroupReading(name="g", members=2),)


def test_a_group_that_is_not_listed_any_more_is_gone() -> None:
    readings = filled()
    readings.listed.put({1: frozenset()}, 101.0)
    assert readings.snapshot(101.0).groups == ()


def test_a_commit_that_is_newer_than_the_end_is_no_lag() -> None:
    readings = filled()
    readings.commits.put({"g": {A: 51}}, 101.0)
    assert readings.snapshot(101.0).groups[0].positions[0] == Position("t", 0, 51, 0, 0.0)


def test_lag_in_seconds_is_capped() -> None:
    readings = filled()
    readings.set_ends({A: 51}, 110.0)
    assert readings.snapshot(110.0).groups[0].positions[0].lag_seconds == 10.0 + 100.0
    readings.commits.put({"g": {A: 0}}, 110.0)
    readings.seed({A: [(40, -1e9)]})
    assert readings.snapshot(110.0).groups[0].positions[0].lag_seconds == SETTINGS.lag_cap


def test_who_stands_before_all_that_was_seen_is_asked_about_once() -> None:
    readings = filled()
    assert readings.to_seed(100.0) == {A}
    readings.seed({A: []})
    assert readings.to_seed(100.0) == frozenset()
    assert filled().to_seed(161.0) == frozenset(), "what is old is not asked about"


def test_topics_are_filtered() -> None:
    readings = filled(ExporterSettings(topics=NameFilter.of(".*", "t")))
    assert readings.snapshot(100.0).topics == ()
    assert readings.snapshot(100.0).groups == (GroupReading(name="g", members=2),)


def test_groups_of_zookeeper_are_all_told_at_once() -> None:
    readings = filled()
    readings.set_zookeeper_commits({"old": {A: 20}, "older": {A: 10}}, 100.0)
    readings.set_zookeeper_commits({"old": {A: 30}}, 101.0)
    assert readings.snapshot(101.0).zookeeper_groups == (
        GroupReading(name="old", members=None, positions=(Position("t", 0, 30, 20, 1.0),)),
    )
