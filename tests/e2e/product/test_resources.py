"""Tests that `kubectl get` prints the true state, topics follow their resources, and records are protected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata

from support import tables
from support.clients import consume_all, produce_all
from support.product import CLUSTER, TOPIC, Demo
from support.waiting import eventually

SIZE_SECONDS = 90.0
"""The exporter, the operator's queries and its status updates each run every half minute: 40 s on an idle machine."""


def brokers_word(admin: AdminClient) -> ClusterMetadata:
    """The cluster metadata that the brokers report."""
    return admin.list_topics(timeout=30)


def row(demo: Demo, kind: str, name: str) -> dict[str, str]:
    """The row that `kubectl get` prints for a resource."""
    (found,) = tables.parse(demo.kubectl.run("get", kind, name, "--output=wide"))
    return found


def counts(metadata: ClusterMetadata, topic: str) -> tuple[int, int, int]:
    """The partitions of a topic, the replicas of each, and the number of under-replicated partitions."""
    partitions = metadata.topics[topic].partitions.values()
    (replicas,) = {len(partition.replicas) for partition in partitions}
    return len(partitions), replicas, sum(len(each.isrs) < len(each.replicas) for each in partitions)


def numbers(start: int, count: int) -> list[str]:
    return [f"record {number}" for number in range(start, start + count)]


@pytest.fixture(scope="module", autouse=True)
def sized(demo: Demo, outside: str) -> str:
    """A topic with a megabyte of records. The last test checks its size, which appears while other tests run."""
    demo.make_topic("sized", partitions=3, config={"compression.type": "uncompressed"})
    produce_all(outside, "sized", [f"{number:06d}".ljust(1000, ".") for number in range(1000)])
    return "sized"


def test_the_columns_of_a_cluster_are_what_its_brokers_say(demo: Demo, admin: AdminClient) -> None:
    metadata = eventually(lambda: brokers_word(admin), lambda word: len(word.brokers) == 3, what="three brokers")

    shown = eventually(
        lambda: row(demo, CLUSTER, "demo"),
        lambda seen: seen["CONTROLLER"] == str(brokers_word(admin).controller_id),
        what="the controller that the brokers name",
    )

    assert shown["BROKERS"] == f"{len(metadata.brokers)}/3"
    assert shown["READY"] == "True"
    assert shown["REASON"] == "Running"
    assert shown["VERSION"] == "0.1.0"
    assert shown["BOOTSTRAP"] == f"demo-kafka-bootstrap.{demo.kubectl.namespace}.svc:9092"
    assert demo.cluster()["status"]["clusterId"] == metadata.cluster_id


def test_the_columns_of_topics_are_what_the_brokers_say(demo: Demo, admin: AdminClient) -> None:
    demo.make_topic("single", partitions=2, replicas=1)
    demo.make_topic("double", partitions=5, replicas=2)
    demo.await_topic("departures")

    metadata = brokers_word(admin)

    for name, wanted in {"departures": (12, 3, 0), "single": (2, 1, 0), "double": (5, 2, 0)}.items():
        shown = row(demo, TOPIC, name)
        columns = (shown["PARTITIONS"], shown["REPLICAS"], shown["UNDER-REPLICATED"])
        assert counts(metadata, name) == wanted
        assert columns == tuple(map(str, wanted))
        assert (shown["CLUSTER"], shown["READY"], shown["REASON"]) == ("demo", "True", "Reconciled")


def test_partitions_grow_and_records_stay(demo: Demo, admin: AdminClient, outside: str) -> None:
    demo.make_topic("growing", partitions=2)
    produce_all(outside, "growing", numbers(0, 300))

    demo.make_topic("growing", partitions=5)
    assert counts(brokers_word(admin), "growing") == (5, 3, 0)
    assert Counter(consume_all(outside, "growing", 300)) == Counter(numbers(0, 300))

    produce_all(outside, "growing", numbers(300, 300))
    assert Counter(consume_all(outside, "growing", 600)) == Counter(numbers(0, 600))


def test_a_protected_topic_outlives_its_resource_and_is_adopted_again(
    demo: Demo, admin: AdminClient, outside: str
) -> None:
    demo.make_topic("protected", deletion="Protect")
    produce_all(outside, "protected", numbers(0, 100))
    before = demo.topic("protected")["status"]["topicId"]

    demo.kubectl.delete(TOPIC, "protected")

    assert demo.kubectl.get(TOPIC, "protected") is None
    # A topic that is created later and exists shows that the operator has compared the topics since.
    demo.make_topic("later")
    assert "protected" in brokers_word(admin).topics
    assert Counter(consume_all(outside, "protected", 100)) == Counter(numbers(0, 100))
    demo.make_topic("protected", deletion="Protect")
    assert demo.topic("protected")["status"]["topicId"] == before


def test_a_topic_that_may_go_goes_with_its_resource(demo: Demo, admin: AdminClient, outside: str) -> None:
    demo.make_topic("passing", deletion="Delete")
    produce_all(outside, "passing", numbers(0, 100))
    assert demo.topic("passing")["metadata"]["finalizers"] == ["odradek.dev/topic"]

    demo.kubectl.delete(TOPIC, "passing")  # waits until the finalizer is removed

    assert demo.kubectl.get(TOPIC, "passing") is None
    eventually(lambda: "passing" not in brokers_word(admin).topics, what="the end of the topic on all brokers")


@pytest.fixture
def bound_topic(demo: Demo) -> Iterator[str]:
    """A topic whose resource has a finalizer while the test runs."""
    demo.make_topic("bound", deletion="Delete")
    yield "bound"
    demo.kubectl.delete(TOPIC, "bound")


def test_a_resource_that_turns_to_protection_lets_go_of_its_finalizer(demo: Demo, bound_topic: str) -> None:
    demo.kubectl.patch(TOPIC, bound_topic, {"spec": {"deletion": "Protect"}})

    eventually(
        lambda: demo.topic(bound_topic)["metadata"].get("finalizers", []), lambda names: not names, what="no finalizer"
    )
    demo.kubectl.patch(TOPIC, bound_topic, {"spec": {"deletion": "Delete"}})
    eventually(lambda: demo.topic(bound_topic)["metadata"].get("finalizers", []), what="the finalizer again")


def test_the_size_of_a_topic_follows_its_records(demo: Demo, sized: str) -> None:
    """The size is that of one replica: of three equal replicas the leader's."""
    status = eventually(
        lambda: demo.topic(sized)["status"],
        lambda seen: seen.get("sizeBytes", 0) >= 1_000_000,
        what="a size of all records",
        seconds=SIZE_SECONDS,
    )

    assert status["sizeBytes"] < 1_300_000
    assert row(demo, TOPIC, sized)["SIZE"] == status["size"]
