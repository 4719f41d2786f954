"""Tests that the deletion of a Topic follows its last specification, even immediately after a change."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from support.product import TOPIC, Demo
from support.waiting import eventually


def topics(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=60).topics)


def test_a_topic_that_is_let_go_and_deleted_at_once_goes(demo: Demo, admin: AdminClient) -> None:
    """The operator has no time to add its finalizer between the two changes."""
    demo.make_topic("hasty", partitions=1)
    eventually(lambda: topics(admin), lambda names: "hasty" in names, what="the topic on the brokers")

    demo.kubectl.patch(TOPIC, "hasty", {"spec": {"deletion": "Delete"}})
    demo.kubectl.delete(TOPIC, "hasty")

    assert demo.kubectl.get(TOPIC, "hasty") is None
    eventually(lambda: topics(admin), lambda names: "hasty" not in names, what="the end of the topic")


def test_a_paused_cluster_lets_go_of_a_topic_that_turns_to_protection(demo: Demo, admin: AdminClient) -> None:
    demo.make_topic("held", partitions=1, deletion="Delete")
    demo.kubectl.run("annotate", "cluster.odradek.dev", "demo", "odradek.dev/paused=true")
    try:
        demo.kubectl.run("delete", TOPIC, "held", "--wait=false")
        demo.kubectl.patch(TOPIC, "held", {"spec": {"deletion": "Protect"}})
        eventually(lambda: demo.kubectl.get(TOPIC, "held") is None, what="the end of the resource")
    finally:
        demo.kubectl.run("annotate", "cluster.odradek.dev", "demo", "odradek.dev/paused-")
    assert "held" in topics(admin)
    demo.await_ready()
