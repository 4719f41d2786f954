"""Tests that a load continues when a node is lost for good, a ZooKeeper member is killed, or the API server is down."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kube.cluster import Cluster
from ordeals.conftest import Loaded, finish, uids
from support.figures import tell
from support.isr import in_sync
from support.product import TOPIC, Demo
from support.values import Pod
from support.waiting import eventually

pytestmark = pytest.mark.e2e_full

REPLACED_SECONDS: Final = 400.0
"""Kubernetes takes 50 s to declare a node lost, and the operator waits 20 s more. Then all replicas are copied."""
OUTAGE_SECONDS: Final = 60.0
RETENTION: Final = "retention.ms"


def number_of(node: str) -> int:
    return int(node.removeprefix("node"))


def claim_uid(demo: Demo, pod: str) -> str:
    found: str = demo.kubectl.require("persistentvolumeclaim", f"data-{pod}")["metadata"]["uid"]
    return found


def elsewhere(demo: Demo, lost: Pod, claim: str) -> Pod:
    """Wait until the pod of the same name is ready on another node with another disk, and return it."""
    found = eventually(
        lambda: demo.kubectl.pod(lost.name),
        lambda pod: pod is not None and pod.ready and pod.uid != lost.uid,
        what=f"another {lost.name}",
        seconds=REPLACED_SECONDS,
    )
    assert found is not None
    assert found.node != lost.node
    assert claim_uid(demo, lost.name) != claim
    return found


def test_broker_and_member_whose_node_is_lost_are_refilled_on_another_node(
    demo: Demo, admin: AdminClient, topic: str, loaded: Loaded, mended: Cluster
) -> None:
    ensemble = demo.pods("zookeeper")
    lost = next(pod for pod in demo.pods("kafka") if any(member.node == pod.node for member in ensemble))
    members = [pod for pod in ensemble if pod.node == lost.node]
    before = {pod.name: claim_uid(demo, pod.name) for pod in [lost, *members]}
    with loaded() as load:
        mended.kill_node(number_of(lost.node))
        began = time.monotonic()
        load.await_more()
        tell(f"records go on {time.monotonic() - began:.1f} s after the loss of {lost.node}")

        replaced = elsewhere(demo, lost, before[lost.name])
        eventually(
            lambda: in_sync(admin, topic),
            lambda seen: all(members == (0, 1, 2) for members in seen.values()),
            what="everything in sync again",
            seconds=REPLACED_SECONDS,
        )
        tell(f"all in sync again {time.monotonic() - began:.1f} s after the loss, on {replaced.node}")
        for member in members:
            found = elsewhere(demo, member, before[member.name])
            tell(f"{member.name} serves again {time.monotonic() - began:.1f} s after the loss, on {found.node}")
        finish(load)


def test_a_killed_member_of_zookeeper_does_not_stop_the_load(demo: Demo, loaded: Loaded) -> None:
    before = uids(demo, "zookeeper")
    brokers = uids(demo, "kafka")
    with loaded() as load:
        for name in sorted(before):
            demo.kubectl.delete("pod", name, wait=False, force=True)
            load.await_more()
            eventually(
                lambda name=name: demo.kubectl.pod(name),
                lambda pod, name=name: pod is not None and pod.ready and pod.uid != before[name],
                what=f"{name} is back",
            )
        finish(load)

    assert uids(demo, "kafka") == brokers
    assert all(pod.restarts == 0 for pod in demo.pods("kafka"))
    demo.await_ready()


def drift(admin: AdminClient, topic: str) -> None:
    """Change a topic that a resource describes, as another tool would."""
    entry = ConfigEntry(RETENTION, "1000", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([asked], request_timeout=30).values():
        answer.result()


def retention(admin: AdminClient, topic: str) -> str:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([asked], request_timeout=30).values()
    entries: dict[str, Any] = answer.result()
    value: str = entries[RETENTION].value
    return value


def test_without_the_api_server_the_load_goes_on_and_the_operator_recovers(
    demo: Demo, admin: AdminClient, topic: str, loaded: Loaded, mended: Cluster
) -> None:
    demo.kubectl.patch(TOPIC, topic, {"spec": {"config": {RETENTION: 86_400_000}}})
    demo.await_topic(topic)
    pods = uids(demo, "")
    with loaded() as load:
        mended.stop_api_server()
        began = time.monotonic()
        drift(admin, topic)
        while time.monotonic() - began < OUTAGE_SECONDS:
            load.await_more()
        assert retention(admin, topic) == "1000", "the operator cannot know what is specified while it cannot ask"
        mended.start_api_server()

        # The operator reverts changes that were made in ZooKeeper meanwhile, and it also applies new changes.
        eventually(lambda: retention(admin, topic), lambda value: value == "86400000", what="the specified retention")
        demo.kubectl.patch(TOPIC, topic, {"spec": {"config": {RETENTION: 96_400_000}}})
        eventually(lambda: retention(admin, topic), lambda value: value == "96400000", what="the next retention")
        finish(load)

    demo.await_ready()
    assert {name: uid for name, uid in uids(demo, "").items() if name in pods} == pods
