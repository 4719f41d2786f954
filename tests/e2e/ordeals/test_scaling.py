"""Tests more brokers, fewer brokers and more replicas, all under load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from ordeals.conftest import Loaded, change, finish, ready_condition, topic_made
from support.figures import tell
from support.isr import in_sync, replicas
from support.kubernetes import Kubernetes
from support.product import TOPIC, Demo
from support.waiting import eventually

pytestmark = pytest.mark.e2e_full

MOVED_SECONDS: Final = 600.0
UNEVEN: Final = 2
"""The allowed difference between brokers of one rack, and between racks: each is within one replica of the mean."""


def brokers_of(admin: AdminClient, topic: str) -> set[int]:
    """The brokers that have a replica of a topic."""
    return {broker for members in replicas(admin, topic).values() for broker in members}


def shares(admin: AdminClient) -> Counter[int]:
    """The number of replicas of each broker, of all topics."""
    topics = admin.list_topics(timeout=30).topics.values()
    return Counter(broker for one in topics for partition in one.partitions.values() for broker in partition.replicas)


def assert_even(admin: AdminClient, racks: Mapping[int, str]) -> None:
    """Assert that replicas are evenly distributed among the brokers of each rack and among racks.

    With three replicas in three racks, each rack has one replica, so only brokers of the same rack share the load.
    """
    found = shares(admin)
    by_rack: dict[str, list[int]] = {}
    for broker, rack in racks.items():
        by_rack.setdefault(rack, []).append(found[broker])
    tell(f"replicas by broker {dict(sorted(found.items()))}, by rack {by_rack}")
    for rack, counts in by_rack.items():
        assert max(counts) - min(counts) <= UNEVEN, f"uneven in {rack}: {found}"
    totals = [sum(counts) for counts in by_rack.values()]
    assert max(totals) - min(totals) <= UNEVEN, f"uneven among racks: {found}"


def racks_of(kubernetes: Kubernetes, demo: Demo) -> dict[int, str]:
    """The rack of each broker: the zone of its pod's node."""
    zones = {node.name: node.zone for node in kubernetes.kubectl.nodes()}
    return {int(pod.name.rpartition("-")[2]): zones[pod.node] for pod in demo.pods("kafka")}


def await_pods(demo: Demo, count: int) -> None:
    """Wait until exactly `count` broker pods exist, so that the last drained broker has ended."""
    wanted = [f"{demo.name}-kafka-{number}" for number in range(count)]
    eventually(lambda: [pod.name for pod in demo.pods("kafka")], lambda names: names == wanted, what="the right pods")


def test_a_fourth_broker_gets_its_share_and_gives_it_back(
    kubernetes: Kubernetes, demo: Demo, admin: AdminClient, topic: str, loaded: Loaded
) -> None:
    assert brokers_of(admin, topic) == {0, 1, 2}
    try:
        with loaded() as load:
            change(demo, {"brokers": {"replicas": 4}})
            demo.await_ready(MOVED_SECONDS)
            assert brokers_of(admin, topic) == {0, 1, 2, 3}
            assert_even(admin, racks_of(kubernetes, demo))
            load.await_more()

            change(demo, {"brokers": {"replicas": 3}})
            demo.await_ready(MOVED_SECONDS)
            assert brokers_of(admin, topic) == {0, 1, 2}
            await_pods(demo, 3)
            finish(load)
        assert all(members == (0, 1, 2) for members in in_sync(admin, topic).values())
    finally:
        change(demo, {"brokers": {"replicas": 3}})


def test_a_broker_that_a_topic_needs_is_not_drained(demo: Demo, admin: AdminClient) -> None:
    change(demo, {"brokers": {"replicas": 4}})
    demo.await_ready(MOVED_SECONDS)
    with topic_made(demo, partitions=1, replicas=4) as needs_four:
        change(demo, {"brokers": {"replicas": 3}})
        message = eventually(
            lambda: ready_condition(demo),
            lambda one: one.get("reason") == "ReplicasDoNotFit",
            what="the refusal to drain",
        )
        tell(f"{message['message']}")
        assert message["status"] == "False"
        assert needs_four in message["message"]
        assert [pod.name for pod in demo.pods("kafka") if pod.ready] == [f"demo-kafka-{number}" for number in range(4)]
        assert len(brokers_of(admin, needs_four)) == 4
    demo.await_ready(MOVED_SECONDS)

    await_pods(demo, 3)


def test_a_topic_gets_a_third_copy(demo: Demo, admin: AdminClient) -> None:
    with topic_made(demo, partitions=4, replicas=2) as name:
        assert {len(members) for members in replicas(admin, name).values()} == {2}
        demo.kubectl.patch(TOPIC, name, {"spec": {"replicas": 3}})
        demo.await_topic(name)

        found = eventually(
            lambda: in_sync(admin, name),
            lambda seen: all(members == (0, 1, 2) for members in seen.values()),
            what="three copies in sync",
        )
        assert len(found) == 4
        assert {len(members) for members in replicas(admin, name).values()} == {3}
        assert demo.topic(name)["status"]["replicas"] == 3
