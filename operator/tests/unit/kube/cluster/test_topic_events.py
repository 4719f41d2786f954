"""A change of many topics creates one Event of the cluster; a change of few topics creates one Event for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.kubernetes_events import Events
from odradek_operator.kube.cluster.topic_events import FEW, CompletedAction, write_topic_events
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.surroundings import cluster_body, topic_body
from odradek_testkit.loop import run_virtual


def events_of(done: Iterable[CompletedAction], topics: int) -> list[Object]:
    """Return the Events of a round in a cluster with `count` Topic resources, `topic-000` and so on."""

    async def run() -> list[Object]:
        api = KubernetesApi()
        events = Events(MemoryClient(api, writes_per_second=100_000), instance="operator-0")
        cluster = api.put(cluster_body())
        bodies = {name: api.put(topic_body(name)) for name in map(name_of, range(topics))}
        await write_topic_events(events, cluster, bodies, done)
        return api.store.all(api.place("/api/v1/events").resource, None)

    return run_virtual(run())


def name_of(number: int) -> str:
    return f"topic-{number:03}"


def created(count: int) -> list[CompletedAction]:
    return [
        CompletedAction(topic=name_of(number), what="CreateTopic", reason="it is asked for") for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, FEW])
def test_a_few_topics_have_an_event_each(count: int) -> None:
    events = events_of(created(count), count)

    assert Counter(event["involvedObject"]["name"] for event in events) == Counter(map(name_of, range(count)))
    assert {(event["reason"], event["message"]) for event in events} == {("CreateTopic", "it is asked for")}


def test_many_topics_are_one_event_of_the_cluster() -> None:
    (event,) = events_of(created(200), 200)

    assert event["involvedObject"]["kind"] == "Cluster"
    assert event["reason"] == "CreateTopic"
    assert event["message"] == "200 topics: topic-000, topic-001, topic-002, topic-003, topic-004 and 195 more"


def test_a_summary_does_not_replace_other_events_of_the_same_round() -> None:
    changed = CompletedAction(topic=name_of(7), what="SetTopicConfig", reason="retention.ms is set to 1")

    events = events_of([*created(50), changed], 50)

    assert [(event["involvedObject"]["kind"], event["reason"]) for event in events] == [
        ("Cluster", "CreateTopic"),
        ("Topic", "SetTopicConfig"),
    ]


def test_a_topic_without_a_resource_gets_no_event() -> None:
    assert events_of(created(3), 1)[0]["involvedObject"]["name"] == name_of(0)
    assert len(events_of(created(3), 1)) == 1
