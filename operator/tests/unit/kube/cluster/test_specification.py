"""An invalid specification stops nothing: the last valid one stays in force, and the status reports it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.kube.cluster.cluster_view import View
from odradek_operator.kube.cluster.specification import MAX_KEPT_BYTES, read_topics, specification
from odradek_operator.lifecycle.cluster_record import in_force, read_record, record_data
from odradek_operator.lifecycle.observed_cluster import KeptSpec, KubernetesState, Record
from odradek_operator.objects import names
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

WRONG = {"spec": {"brokers": {"replicas": 0}}}
RIGHT = {"spec": {"brokers": {"replicas": 3}}}


async def made(world: World, *topics: str) -> None:
    world.api.put(cluster_body())
    for topic in topics:
        world.api.put(topic_body(topic))
    await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, *topics), "all is ready")


async def refused(world: World) -> dict[str, Any]:
    """Wait until the status reports an invalid specification, and return it."""
    await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("False", "InvalidSpec"), "the status reports it")
    status: dict[str, Any] = world.get(Kind.CLUSTER, "demo")["status"]
    return status


def message(status: dict[str, Any]) -> str:
    return str(status["conditions"][0]["message"])


def test_the_last_valid_specification_stays_in_force() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        valid = world.get(Kind.CLUSTER, "demo")["metadata"]["generation"]
        world.change(Kind.CLUSTER, "demo", WRONG)

        status = await refused(world)
        assert "spec.brokers.replicas: must be a whole number" in message(status)
        assert f"The last valid specification, of generation {valid}, stays in force." in message(status)
        assert (status["observedGeneration"], status["brokersReady"]) == (valid, "3/3")
        world.api.put(topic_body("later"))
        await until(lambda: world.ready(Kind.TOPIC, "later"), "a new topic is created")
        service = names.bootstrap_service("demo")
        world.delete(Kind.SERVICE, service)
        await until(lambda: world.find(Kind.SERVICE, service) is not None, "a Service is created again")
        (warning,) = world.get(Kind.TOPIC, "later")["status"]["warnings"]
        assert warning.startswith("The specification of Cluster demo is invalid.")

        world.change(Kind.CLUSTER, "demo", RIGHT)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is corrected")
        await until(
            lambda: "warnings" not in world.get(Kind.TOPIC, "later")["status"], "the statuses of Topics are written"
        )

    run_virtual(scenario(steps)())


def test_another_operator_knows_the_last_valid_specification() -> None:
    async def run() -> None:
        world, service = World(), names.bootstrap_service("demo")
        async with world.living():
            async with Operator(world).working():
                await made(world)
                world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [{"name": "plain", "port": 9999}]}})
                await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it has another port")
            world.change(Kind.CLUSTER, "demo", WRONG)
            world.delete(Kind.SERVICE, service)
            async with Operator(world).working():
                await refused(world)
                await until(lambda: world.find(Kind.SERVICE, service) is not None, "it is created again")
                assert [one["port"] for one in world.get(Kind.SERVICE, service)["spec"]["ports"]] == [9999]

    run_virtual(run())


def test_topics_of_a_cluster_that_was_never_valid_have_the_reason() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = cluster_body()
        body["spec"] |= WRONG["spec"]
        world.api.put(body)
        world.api.put(topic_body("orders"))
        assert "stays in force" not in message(await refused(world))
        await until(
            lambda: condition(world.get(Kind.TOPIC, "orders")) == ("Unknown", "ClusterInvalid"), "the status reports it"
        )
        assert world.find(Kind.STATEFUL_SET, "demo-kafka") is None

    run_virtual(scenario(steps)())


def test_a_paused_cluster_stays_paused_whatever_its_specification_is() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world)
        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {names.PAUSED: "true"}}})
        world.change(Kind.CLUSTER, "demo", WRONG)
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo")) == ("Unknown", "Paused"), "it is paused")
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert condition(world.get(Kind.CLUSTER, "demo")) == ("Unknown", "Paused")

    run_virtual(scenario(steps)())


def test_topics_are_deleted_while_the_specification_is_invalid() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("loose", deletion="Delete"))
        await made(world, "orders")
        await until(lambda: world.get(Kind.TOPIC, "loose")["metadata"].get("finalizers"), "it has the finalizer")
        world.change(Kind.CLUSTER, "demo", WRONG)
        await refused(world)
        world.delete(Kind.TOPIC, "loose")
        await until(lambda: world.find(Kind.TOPIC, "loose") is None, "the resource is gone")
        assert world.topics() == {"orders"}

    run_virtual(scenario(steps)())


@pytest.mark.parametrize(("deletion", "left"), [("Delete", set()), ("Protect", {"wrong"})])
def test_an_invalid_topic_can_be_deleted(deletion: str, left: set[str]) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(topic_body("wrong", deletion="Delete"))
        await made(world)
        await until(lambda: world.get(Kind.TOPIC, "wrong")["metadata"].get("finalizers"), "it has the finalizer")
        world.change(Kind.TOPIC, "wrong", {"spec": {"partitions": 0, "deletion": deletion}})
        await until(
            lambda: condition(world.get(Kind.TOPIC, "wrong")) == ("False", "InvalidSpec"), "the status reports it"
        )
        assert world.topics() == {"wrong"}, "its topic stays as it is"
        world.delete(Kind.TOPIC, "wrong")
        await until(lambda: world.find(Kind.TOPIC, "wrong") is None, "the resource is gone")
        assert world.topics() == left

    run_virtual(scenario(steps)())


def test_fields_of_newer_definitions_are_kept_and_reported() -> None:
    async def steps(world: World, operator: Operator) -> None:
        await made(world, "orders")
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"tiering": {"bucket": "cold"}, "replicas": 3}}})
        world.change(Kind.TOPIC, "orders", {"spec": {"partitions": 2, "colour": "red"}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo") and world.ready(Kind.TOPIC, "orders"), "both are ready")

        cluster, topic = world.get(Kind.CLUSTER, "demo"), world.get(Kind.TOPIC, "orders")
        assert cluster["spec"]["brokers"]["tiering"] == {"bucket": "cold"}
        assert topic["spec"]["colour"] == "red"
        assert topic["status"]["partitions"] == 2
        (of_topic,) = topic["status"]["warnings"]
        of_cluster = next(said for said in cluster["status"]["warnings"] if "know" in said)
        assert of_cluster.startswith("Cluster demo: this version of the operator does not know spec.brokers.tiering,")
        assert of_topic.startswith("Topic orders: this version of the operator does not know spec.colour,")

    run_virtual(scenario(steps)())


def view_of(spec: dict[str, Any], kept: KeptSpec | None) -> View:
    body = {**cluster_body(), "spec": spec}
    body["metadata"] |= {"uid": "1", "generation": 9}
    return View(cluster=body, topics={}, state=KubernetesState(record=Record(cluster_uid="1", spec=kept)))


@pytest.mark.parametrize("text", ["no JSON", '{"brokers": {"replicas": -1}}', "[]"])
def test_a_kept_specification_that_cannot_be_read_does_not_count(text: str) -> None:
    found = specification(view_of({"brokers": {"replicas": 0}}, KeptSpec(generation=3, text=text)))
    assert found.cluster is None
    assert "spec.brokers.replicas" in found.problem
    assert "stays in force" not in found.problem


def test_a_specification_that_a_config_map_cannot_hold_is_in_force_but_not_kept() -> None:
    template = {"annotations": {"note": "x" * MAX_KEPT_BYTES}}
    found = specification(view_of({"brokers": {"template": template}}, None))
    assert found.cluster is not None
    assert found.kept is None


def test_the_record_keeps_a_specification_of_the_same_resource_only() -> None:
    record = Record(brokers=3, cluster_uid="1", spec=KeptSpec(generation=3, text=json.dumps({"version": "1"})))
    assert read_record(record_data(record)) == record
    state = KubernetesState(brokers={0: None})  # type: ignore[dict-item]
    assert in_force(record, state, uid="1") == record
    assert in_force(record, state, uid="2").spec is None
    assert in_force(record, state, uid="2").brokers == 3


def test_an_invalid_topic_that_is_being_deleted_counts_as_valid() -> None:
    body = topic_body("wrong", partitions=0, deletion="Delete")
    body["metadata"] |= {"uid": "1"}
    assert read_topics({"wrong": body})[1].keys() == {"wrong"}
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    topics, invalid = read_topics({"wrong": body})
    assert (topics.keys(), invalid) == ({"wrong"}, {})
