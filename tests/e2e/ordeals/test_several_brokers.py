"""Tests pods with two brokers: they get the second one, lose a pod, and are reduced to one again, all under load."""

from __future__ import annotations

from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from ordeals.conftest import Loaded, change, finish, uids
from support.figures import tell
from support.isr import in_sync, replicas
from support.product import Demo
from support.waiting import eventually

pytestmark = pytest.mark.e2e_full

RESIZED_SECONDS: Final = 900.0
"""Three pods restart one after the other, and replicas move."""


def containers(demo: Demo) -> list[list[str]]:
    """The names of the containers of each broker pod."""
    return [
        [one["name"] for one in demo.kubectl.require("pod", pod.name)["spec"]["containers"]]
        for pod in demo.pods("kafka")
    ]


def resize(demo: Demo, per_pod: int) -> None:
    """Change the number of brokers in each pod, and wait until all run and replicas have moved."""
    change(demo, {"brokers": {"perPod": per_pod}})
    wanted = [["kafka", "kafka-1"][:per_pod]] * 3
    eventually(lambda: containers(demo), lambda found: found == wanted, what="the containers", seconds=RESIZED_SECONDS)
    demo.await_ready(RESIZED_SECONDS)
    assert demo.cluster()["status"]["brokersReady"] == f"{3 * per_pod}/{3 * per_pod}"


def test_pods_get_a_second_broker_and_lose_it_again(demo: Demo, admin: AdminClient, topic: str, loaded: Loaded) -> None:
    try:
        with loaded() as load:
            resize(demo, 2)
            found = replicas(admin, topic)
            tell(f"replicas {found}")
            assert any(broker >= 1000 for members in found.values() for broker in members)
            assert all(len({broker % 1000 for broker in members}) == 3 for members in found.values())
            load.await_more()

            before = uids(demo, "kafka")["demo-kafka-1"]
            demo.kubectl.delete("pod", "demo-kafka-1", wait=False, force=True)
            load.await_more()
            eventually(
                lambda: uids(demo, "kafka").get("demo-kafka-1"),
                lambda uid: uid not in (None, before),
                what="the pod is back",
            )
            eventually(
                lambda: in_sync(admin, topic),
                lambda seen: all(len(members) == 3 for members in seen.values()),
                what="everything in sync again",
                seconds=RESIZED_SECONDS,
            )
            demo.await_ready(RESIZED_SECONDS)

            resize(demo, 1)
            finish(load)
        assert all(members == (0, 1, 2) for members in in_sync(admin, topic).values())
    finally:
        change(demo, {"brokers": {"perPod": 1}})
