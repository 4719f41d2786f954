"""Tests that a Topic resource adopts an existing topic and keeps its settings and records."""

from __future__ import annotations

import json

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from support.product import TOPIC, Demo
from support.waiting import eventually


def settings(admin: AdminClient, topic: str) -> dict[str, str]:
    """The settings of the topic itself, as a broker reports them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(60)
    return {name: entry.value for name, entry in entries.items() if not entry.is_default and entry.source == 1}


def test_an_adopted_topic_keeps_what_others_have_set(demo: Demo, admin: AdminClient) -> None:
    kept = {"retention.ms": "-1", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic("inherited", 3, 2, config=kept)])["inherited"].result(60)
    eventually(lambda: settings(admin, "inherited"), lambda seen: seen == kept, what="the settings of the topic")

    resource = {
        "apiVersion": "odradek.dev/v1",
        "kind": "Topic",
        "metadata": {"name": "inherited"},
        "spec": {"cluster": "demo", "partitions": 3},
    }
    demo.kubectl.apply(resource)
    status = demo.await_topic("inherited")["status"]

    assert settings(admin, "inherited") == kept
    assert status["replicas"] == 2
    assert [word for word in ("retention.ms=-1", "segment.bytes=1048576") if word not in json.dumps(status)] == []

    demo.kubectl.patch(TOPIC, "inherited", {"spec": {"config": {"max.message.bytes": 2_000_000}}})
    demo.await_topic("inherited")
    more = {**kept, "max.message.bytes": "2000000"}
    eventually(lambda: settings(admin, "inherited"), lambda seen: seen == more, what="the setting of the resource")

    demo.kubectl.patch(TOPIC, "inherited", {"spec": {"config": None}})
    demo.await_topic("inherited")
    eventually(lambda: settings(admin, "inherited"), lambda seen: seen == kept, what="that only its own setting went")
