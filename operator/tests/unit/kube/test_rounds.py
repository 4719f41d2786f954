"""Whole rounds of the operator, against an API server and ZooKeeper in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.zk.port import ConnectionLost
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.kube.cluster.finalizers import FINALIZERS
from odradek_operator.objects import names
from odradek_operator.objects.storage import template_sizes
from odradek_operator_testkit.resources import Resource
from odradek_operator_testkit.store import key_of
from odradek_operator_testkit.surroundings import (
    IDLE_SECONDS,
    Operator,
    World,
    cluster_body,
    condition,
    scenario,
    topic_body,
    until,
)
from odradek_testkit.loop import run_virtual


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: object) -> None:
    run_virtual(scenario(steps, **options)())


async def made(world: World, *topics: str) -> None:
    world.api.put(cluster_body())
    for topic in topics:
        world.api.put(topic_body(topic))
    await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, *topics), "all is ready")


def _events(world: World) -> Resource:
    return world.api.place("/api/v1/events").resource


def test_a_cluster_and_its_topics_become_ready() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("early", partitions=2))
        await until(
            lambda: condition(world.find(Kind.TOPIC, "early")) == ("False", "NoCluster"), "the status reports it"
        )
        await made(world, "orders")
        await until(lambda: world.ready(Kind.TOPIC, "early"), "the early one is ready, too")
        assert world.topics() == {"early", "orders"}
        status = world.get(Kind.TOPIC, "early")["status"]
        assert (status["partitions"], status["replicas"], status["underReplicated"]) == (2, 3, 0)
        cluster = world.get(Kind.CLUSTER, "demo")["status"]
        assert (cluster["brokersReady"], cluster["clusterId"]) == ("3/3", "the-id")
        assert [one["bootstrap"] for one in cluster["listeners"]] == ["demo-kafka-bootstrap.shop.svc:9092"]

    play(steps)


def test_nothing_is_written_when_nothing_changes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        await asyncio.sleep(5 * IDLE_SECONDS)
        before = (world.api.store.version, world.tree.last_zxid)
        await asyncio.sleep(operator.settings.resync_seconds * 3)
        # A resync applies all objects again, which changes nothing.
        assert (world.api.store.version, world.tree.last_zxid) == before

    play(steps)


def test_objects_that_others_changed_or_deleted_are_restored() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)
        service = names.bootstrap_service("demo")
        wanted = world.get(Kind.SERVICE, service)["spec"]
        world.change(Kind.SERVICE, service, {"spec": {"ports": None}})
        await until(lambda: world.get(Kind.SERVICE, service)["spec"] == wanted, "it is set back", IDLE_SECONDS / 2)
        world.delete(Kind.SERVICE, service)
        await until(lambda: world.find(Kind.SERVICE, service) is not None, "it is created again", IDLE_SECONDS / 2)

    play(steps)


def test_a_topic_with_deletion_delete_is_deleted_before_its_resource() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world, "kept")
        await until(lambda: world.ready(Kind.TOPIC, "loose"), "it is ready")
        assert world.get(Kind.TOPIC, "loose")["metadata"]["finalizers"] == [FINALIZERS[Kind.TOPIC]]
        assert "finalizers" not in world.get(Kind.TOPIC, "kept")["metadata"]
        world.delete(Kind.TOPIC, "loose")
        world.delete(Kind.TOPIC, "kept")
        assert world.find(Kind.TOPIC, "kept") is None
        seen = set[tuple[bool, bool]]()

        def gone() -> bool:
            state = (world.find(Kind.TOPIC, "loose") is None, "loose" not in world.topics())
            seen.add(state)
            return all(state)

        await until(gone, "both are gone")
        assert (True, False) not in seen
        assert world.topics() == {"kept"}

    play(steps)


def test_a_resource_that_is_set_to_delete_and_deleted_at_once_deletes_its_topic() -> None:
    """The operator has not added its finalizer yet, so the watch event of the deletion decides."""

    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("kept"))
        await made(world, "orders")
        await until(lambda: world.ready(Kind.TOPIC, "kept"), "both are there")
        world.change(Kind.TOPIC, "orders", {"spec": {"deletion": "Delete"}})
        world.delete(Kind.TOPIC, "orders")
        assert world.find(Kind.TOPIC, "orders") is None, "it has no finalizer"
        await until(lambda: world.topics() == {"kept"}, "the topic is gone")
        world.api.put(topic_body("orders"))
        await until(lambda: world.ready(Kind.TOPIC, "orders"), "it is there again")
        await asyncio.sleep(3 * IDLE_SECONDS)
        assert world.topics() == {"orders", "kept"}, "a new topic of that name is not deleted"

    play(steps)


def test_a_topic_stays_when_a_user_removes_the_finalizer() -> None:
    """The documented way to delete a resource while no operator runs."""

    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world, "orders")
        await until(lambda: world.get(Kind.TOPIC, "loose")["metadata"].get("finalizers"), "it has the finalizer")
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("Unknown", "Paused"), "it is paused")
        world.delete(Kind.TOPIC, "loose")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert world.find(Kind.TOPIC, "loose") is not None, "it waits"
        world.change(Kind.TOPIC, "loose", {"metadata": {"finalizers": None}})
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: None}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "reconciliation continues")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert "loose" in world.topics()

    play(steps)


@pytest.mark.parametrize(
    "hold",
    [{"metadata": {"annotations": {names.PAUSED: "true"}}}, {"spec": {"brokers": {"config": {"broker.id": "7"}}}}],
)
def test_a_paused_or_invalid_cluster_releases_a_topic_that_becomes_protected(hold: dict[str, Any]) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world, "orders")
        await until(lambda: world.get(Kind.TOPIC, "loose")["metadata"].get("finalizers"), "it has the finalizer")
        world.change(Kind.CLUSTER, "demo", hold)
        world.delete(Kind.TOPIC, "loose")
        world.change(Kind.TOPIC, "loose", {"spec": {"deletion": "Protect"}})
        await until(lambda: world.find(Kind.TOPIC, "loose") is None, "its finalizer is removed")
        assert "loose" in world.topics()

    play(steps)


def test_a_paused_cluster_shows_how_many_brokers_are_ready() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("Unknown", "Paused"), "it is paused")
        not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        world.api.store.merge(key_of(world.get(Kind.POD, "demo-kafka-1")), not_ready, status_only=True)
        await until(lambda: world.get(Kind.CLUSTER, "demo")["status"]["brokersReady"] == "2/3", "it is counted")

    play(steps)


def test_the_status_says_why_kubernetes_does_not_create_a_pod() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)
        head = "create Pod demo-kafka-3 in StatefulSet demo-kafka failed error: "
        about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo-kafka", "namespace": "shop"}
        world.api.put(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "refused", "namespace": "shop"},
                "involvedObject": about,
                "reason": "FailedCreate",
                "message": f"{head}exceeded quota: pods=3",
                "lastTimestamp": "2026-01-01T00:00:00Z",
            }
        )
        world.makes_pods = False
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        warning = "Broker 3 is missing: It has no pod. Kubernetes does not create it: exceeded quota: pods=3."
        await until(
            lambda: warning in str(world.get(Kind.CLUSTER, "demo")["status"]["conditions"]), "the status reports it"
        )

    play(steps)


def said_of(world: World, topic: str) -> str:
    """Return the message of a Topic's condition; empty if there is none."""
    conditions = world.get(Kind.TOPIC, topic).get("status", {}).get("conditions") or [{"message": ""}]
    return str(conditions[0]["message"])


def test_a_topic_that_waits_for_its_deletion_says_why_and_how_to_keep_the_topic() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world, "orders")
        await until(lambda: world.get(Kind.TOPIC, "loose")["metadata"].get("finalizers"), "it has the finalizer")
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        world.delete(Kind.TOPIC, "loose")
        waits = ("False", "DeletionWaits")
        await until(lambda: condition(world.get(Kind.TOPIC, "loose")) == waits, "the status reports it")
        assert "Cluster demo is paused: remove its annotation odradek.dev/paused." in said_of(world, "loose")
        command = "kubectl patch topic.odradek.dev loose --namespace shop --type merge -p "
        assert command + """'{"spec":{"deletion":"Protect"}}'""" in said_of(world, "loose")

        await operator.lose_zookeeper(ConnectionLost("nobody answers"))
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: None}}})
        await until(lambda: "does not answer" in said_of(world, "loose"), "ZooKeeper does not answer")
        operator.zookeeper_trouble = None
        await until(lambda: world.find(Kind.TOPIC, "loose") is None, "reconciliation continues")
        assert world.topics() == {"orders"}

    play(steps)


def test_the_deletion_policy_of_a_resource_can_change() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.change(Kind.TOPIC, "orders", {"spec": {"deletion": "Delete"}})
        await until(lambda: "finalizers" in world.get(Kind.TOPIC, "orders")["metadata"], "it has one")
        world.change(Kind.TOPIC, "orders", {"spec": {"deletion": "Protect"}})
        await until(lambda: not world.get(Kind.TOPIC, "orders")["metadata"].get("finalizers"), "it has none")

    play(steps)


def test_a_deleted_cluster_releases_its_topic_resources() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world)
        await until(lambda: world.ready(Kind.TOPIC, "loose"), "it is ready")
        world.delete(Kind.CLUSTER, "demo")
        world.delete(Kind.TOPIC, "loose")
        await until(lambda: world.find(Kind.TOPIC, "loose") is None, "it has no finalizer")
        assert world.find(Kind.STATEFUL_SET, "demo-kafka") is None
        assert world.find(Kind.CLAIM, "data-demo-kafka-0") is not None

    play(steps)


def test_a_paused_cluster_is_not_changed() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        await until(
            lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("Unknown", "Paused"), "the status reports it"
        )
        world.delete(Kind.SERVICE, names.bootstrap_service("demo"))
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        world.api.put(topic_body("late"))
        await asyncio.sleep(5 * IDLE_SECONDS)
        assert world.find(Kind.SERVICE, names.bootstrap_service("demo")) is None
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["replicas"] == 3
        assert world.topics() == {"orders"}
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: None}}})
        await until(
            lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "late"), "reconciliation continues"
        )
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["replicas"] == 4

    play(steps)


def test_a_paused_topic_is_not_changed() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.change(Kind.TOPIC, "orders", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        world.change(Kind.TOPIC, "orders", {"spec": {"partitions": 4}})
        await until(
            lambda: condition(world.get(Kind.TOPIC, "orders")) == ("Unknown", "Paused"), "the status reports it"
        )
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert world.get(Kind.TOPIC, "orders")["status"]["partitions"] == 1
        world.change(Kind.TOPIC, "orders", {"metadata": {"annotations": {names.PAUSED: None}}})
        await until(lambda: world.ready(Kind.TOPIC, "orders"), "reconciliation continues")
        assert world.get(Kind.TOPIC, "orders")["status"]["partitions"] == 4

    play(steps)


def test_an_invalid_topic_is_reported_and_others_are_reconciled() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.api.put(topic_body("wrong", partitions=0))
        world.api.put(topic_body("right"))
        await until(lambda: world.ready(Kind.TOPIC, "right"), "the other one is ready")
        await until(
            lambda: condition(world.get(Kind.TOPIC, "wrong")) == ("False", "InvalidSpec"), "the status reports it"
        )
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 0}}})
        await until(
            lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("False", "InvalidSpec"), "the status reports it"
        )
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["replicas"] == 3
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 3}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")

    play(steps)


def test_an_outage_of_the_api_server_is_survived() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        for fault in ("refuses", "status", "loses_answers"):
            setattr(world.api.faults, fault, 503 if fault == "status" else True)
            world.api.put(topic_body(f"during-{fault.replace('_', '-')}"))
            world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"config": {"num.partitions": "9"}}}})
            await asyncio.sleep(4 * IDLE_SECONDS)
            setattr(world.api.faults, fault, 0 if fault == "status" else False)
            topic = f"during-{fault.replace('_', '-')}"
            await until(lambda name=topic: world.ready(Kind.TOPIC, name), "the change is carried out", 4 * IDLE_SECONDS)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the cluster is ready")

    play(steps)


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refused_object_is_reported_and_topics_are_still_reconciled(status: int) -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.api.faults.concerns = lambda asked: asked.method == "PATCH" and "/configmaps/" in asked.path
        world.api.faults.status = status
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"config": {"num.partitions": "9"}}}})
        reason = ("False", "KubernetesRefuses")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == reason, "the status reports it")
        world.api.put(topic_body("late"))
        await until(lambda: world.ready(Kind.TOPIC, "late"), "topics are reconciled")
        await asyncio.sleep(4 * IDLE_SECONDS)
        events = [body["reason"] for body in world.api.store.all(_events(world), None)]
        assert events.count("KubernetesRefuses") == 1
        assert world.deleted_pods == []
        world.api.faults.status = 0
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

    play(steps)


def test_an_outage_of_zookeeper_is_survived() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        await operator.lose_zookeeper(ConnectionLost("nobody answers"))
        world.change(Kind.SERVICE, names.bootstrap_service("demo"), {"spec": {"ports": None}})
        reason = ("False", "ZooKeeperUnreachable")
        await until(
            lambda: condition(world.get(Kind.CLUSTER, "demo")) == reason, "the status of the cluster reports it"
        )
        await until(
            lambda: condition(world.get(Kind.TOPIC, "orders"))[0] == "Unknown", "the status of the topic reports it"
        )
        assert world.get(Kind.CLUSTER, "demo")["status"]["clusterId"] == "the-id"
        assert world.get(Kind.SERVICE, names.bootstrap_service("demo"))["spec"]["ports"]
        operator.zookeeper_trouble = None
        await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders"), "all is ready")
        assert world.deleted_pods == []

    play(steps)


def test_a_roll_restarts_each_broker_once_the_controller_last() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.change(Kind.CLUSTER, "demo", {"spec": {"version": "0.1.1"}})
        await until(lambda: len(world.deleted_pods) == 3, "all are restarted")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        assert world.deleted_pods == ["demo-kafka-1", "demo-kafka-2", "demo-kafka-0"]
        events = [body["reason"] for body in world.api.store.all(_events(world), None)]
        assert events.count("RestartPod") == 3

    play(steps)


def test_a_broker_is_drained_before_its_removal_and_its_set_is_not_recreated_meanwhile() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("wide", partitions=8, replicas=2))
        await made(world)
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"replicas": 4}}})
        await until(
            lambda: world.ready(Kind.CLUSTER, "demo") and 3 in world.replicas("wide"), "the fourth broker has replicas"
        )
        before = world.get(Kind.STATEFUL_SET, "demo-kafka")["metadata"]["uid"]
        volumes = [{"id": 0, "size": "2Gi", "storageClass": "disks"}]
        brokers = {"replicas": 3, "storage": {"volumes": volumes}}
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": brokers}})

        def shrunk() -> bool:
            found = world.find(Kind.STATEFUL_SET, "demo-kafka")
            if found is None or found["metadata"]["uid"] != before:
                assert 3 not in world.replicas("wide"), "the size was known from the set alone"
            if found is None or found["spec"]["replicas"] == 4:
                assert world.deleted_pods == []
                return False
            assert 3 not in world.replicas("wide")
            return True

        await until(shrunk, "the set shrinks")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        await until(lambda: world.deleted_pods == ["demo-kafka-3"], "only its pod is deleted")

    play(steps)


def test_volumes_grow_around_running_pods() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        before = world.get(Kind.STATEFUL_SET, "demo-kafka")["metadata"]["uid"]
        volumes = [{"id": 0, "size": "2Gi", "storageClass": "disks"}]
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"storage": {"volumes": volumes}}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        after = world.get(Kind.STATEFUL_SET, "demo-kafka")
        assert after["metadata"]["uid"] != before
        assert after["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
        for number in range(3):
            claim = world.get(Kind.CLAIM, f"data-demo-kafka-{number}")
            assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
            pod = f"demo-kafka-{number}"
            await until(lambda name=pod: "ownerReferences" in world.get(Kind.POD, name)["metadata"], "it is adopted")
            owners = world.get(Kind.POD, pod)["metadata"]["ownerReferences"]
            assert [one["uid"] for one in owners] == [after["metadata"]["uid"]]
        assert world.deleted_pods == []

    play(steps)


def volumes_of(size: str) -> dict[str, object]:
    return {"storage": {"volumes": [{"id": 0, "size": size, "storageClass": "disks"}]}}


def test_a_storage_class_without_expansion_blocks_nothing_else_and_the_size_can_be_set_back() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        before = world.get(Kind.STATEFUL_SET, "demo-kafka")["metadata"]["uid"]
        world.api.faults.concerns = lambda asked: asked.method == "PATCH" and "/persistentvolumeclaims/" in asked.path
        world.api.faults.status = 403
        brokers = {**volumes_of("2Gi"), "template": {"annotations": {"team": "data"}}}
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": brokers}})
        reason = ("False", "ClaimCannotGrow")
        await until(lambda: len(world.deleted_pods) == 3, "the rest of the change is rolled out")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == reason, "the status reports it")
        present = world.get(Kind.STATEFUL_SET, "demo-kafka")
        assert present["metadata"]["uid"] == before
        assert template_sizes(present) == {"data": "1Gi"}
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": volumes_of("1Gi")}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is set back")
        assert world.get(Kind.STATEFUL_SET, "demo-kafka")["metadata"]["uid"] == before

    play(steps)


def test_a_volume_cannot_shrink_and_brokers_are_still_added() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)
        brokers = {"replicas": 4, **volumes_of("512Mi")}
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": brokers}})
        reason = ("False", "ClaimCannotShrink")
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == reason, "the status reports it")
        await until(lambda: world.find(Kind.POD, "demo-kafka-3") is not None, "the fourth broker is there")
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": volumes_of("1Gi")}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is set back")

    play(steps)


def place(world: World, node: str, *brokers: int) -> None:
    for broker in brokers:
        world.change(Kind.POD, f"demo-kafka-{broker}", {"spec": {"nodeName": node}})


def test_the_status_names_a_node_that_runs_two_brokers_and_nothing_restarts() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)

        def rules() -> list[str]:
            spec = world.get(Kind.STATEFUL_SET, "demo-kafka")["spec"]["template"]["spec"]
            return [rule["whenUnsatisfiable"] for rule in spec.get("topologySpreadConstraints", [])]

        def warnings() -> list[str]:
            warning = world.get(Kind.CLUSTER, "demo")["status"].get("warnings", [])
            return [message for message in warning if "node node-" in message]

        assert rules() == ["DoNotSchedule"]
        assert warnings() == []
        place(world, "node-5", 0, 1)
        message = "Brokers 0 and 1 run on node node-5: its loss takes both."
        await until(lambda: warnings() == [message], "the status reports it")
        assert world.ready(Kind.CLUSTER, "demo")
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"spread": "Preferred"}}})
        await until(lambda: rules() == [], "spreading is not mandatory")
        place(world, "node-0", 0)
        await until(lambda: warnings() == [], "the warning is gone")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert world.deleted_pods == []

    play(steps)
