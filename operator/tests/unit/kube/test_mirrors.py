"""Mirrors in rounds of the operator: Deployment, statuses, restarts, logins, and what belongs to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.mirrors import mirror_names as names
from odradek_operator.mirrors.mirror_report import MirrorReport, ReportedPartition
from odradek_operator_testkit.deployments import deployed_pods
from odradek_operator_testkit.mirrors import EAST, NAME, mirror_body
from odradek_operator_testkit.surroundings import NAMESPACE, Operator, World, cluster_body, condition, scenario, until
from odradek_testkit.loop import run_virtual

OWN = names.mirror_objects_name(NAME)
SECOND = ReportedPartition("east", "departures", 1)
FIRST = ReportedPartition("east", "departures", 0)


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    async def with_cluster(world: World, operator: Operator) -> None:
        body = cluster_body(listeners=[{"name": "plain", "port": 9092}])
        body["spec"]["brokers"]["replicas"] = 1
        world.api.put(body)
        await steps(world, operator)

    run_virtual(scenario(with_cluster, **options)())


def status(world: World) -> Object:
    found: Object = world.get(Kind.MIRROR, NAME).get("status") or {}
    return found


def phase(world: World) -> str:
    return str(status(world).get("phase", ""))


def reason(world: World) -> str:
    return condition(world.get(Kind.MIRROR, NAME))[1]


def message(world: World) -> str:
    return str(status(world)["conditions"][0]["message"])


def pods(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in deployed_pods(world.api, world.get(Kind.DEPLOYMENT, OWN))]


def set_status(world: World, pod: str, content: Object) -> None:
    """Write the status of a pod, as a kubelet does."""
    world.api.store.merge(world.api.place(Kind.POD.path(NAMESPACE)).key(pod), {"status": content}, status_only=True)


def secret(world: World, name: str, text: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"client.properties": text}})


def test_a_mirror_runs_and_reports() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body(replicas=2))
        await until(lambda: phase(world) == "Running", "it runs")
        for kind in (Kind.SERVICE_ACCOUNT, Kind.CONFIG_MAP, Kind.NETWORK_POLICY, Kind.DISRUPTION_BUDGET):
            assert world.find(kind, OWN) is not None, kind
        file = yaml.safe_load(world.get(Kind.CONFIG_MAP, OWN)["data"][names.MIRROR_FILE])
        assert file["name"] == f"{NAMESPACE}-{NAME}"
        assert file["target"] == {"bootstrapServers": "demo-kafka-bootstrap.shop.svc:9092"}
        assert file["sources"][0]["bootstrapServers"] == "east:9092"
        assert condition(world.get(Kind.MIRROR, NAME)) == ("True", "Running")
        found = status(world)
        assert (found["podsReady"], found["replicas"], found["sourceNames"]) == ("2/2", 2, "east")

        one, other = pods(world)
        world.mirror_reports[one] = MirrorReport(records={FIRST: 5}, seconds={FIRST: 1.5})
        world.mirror_reports[other] = MirrorReport(records={SECOND: 7}, seconds={SECOND: 0.5})
        await until(lambda: status(world)["lagRecords"] == 12, "the lag")
        found = status(world)
        assert (found["lagSeconds"], found["failingPartitions"]) == (1.5, 0)
        (source,) = found["sources"]
        assert (source["partitions"], source["lagRecords"], source["lagSeconds"]) == (2, 12, 1.5)
        world.mirror_reports[other] = None
        await until(lambda: "warnings" in status(world), "a pod is silent")
        assert other in status(world)["warnings"][0]
        assert status(world)["lagRecords"] == 5

    play(steps)


def test_a_stopped_partition_is_shown_with_its_error() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        labels = {"mirror_namespace": NAMESPACE, "mirror": NAME}
        assert operator.registry.get_sample_value("odradek_mirror_ready", labels) == 1
        (pod,) = pods(world)
        error = "The batch at offset 7 is larger than max.message.bytes."
        world.mirror_reports[pod] = MirrorReport(records={FIRST: 5}, stopped={FIRST: error})
        await until(lambda: phase(world) == "Degraded", "the partition has stopped")
        assert condition(world.get(Kind.MIRROR, NAME)) == ("False", "PartitionsStopped")
        assert error in message(world)
        assert operator.registry.get_sample_value("odradek_mirror_ready", labels) == 0
        assert status(world)["failing"] == [{"source": "east", "topic": "departures", "partition": 0, "error": error}]
        world.mirror_reports[pod] = MirrorReport(records={FIRST: 5})
        await until(lambda: phase(world) == "Running", "it continues")
        assert "failing" not in status(world)
        world.delete(Kind.MIRROR, NAME)
        await until(lambda: operator.registry.get_sample_value("odradek_mirror_ready", labels) is None, "no series")

    play(steps)


def test_a_change_of_the_file_replaces_the_pods() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        (former,) = pods(world)
        world.change(Kind.MIRROR, NAME, {"spec": {"sources": [{**EAST, "prefix": ""}]}})
        await until(lambda: former not in pods(world), "another pod")
        await until(lambda: phase(world) == "Running", "it runs again")
        assert status(world)["observedGeneration"] == 2

    play(steps)


def test_a_change_of_a_login_replaces_the_pods() -> None:
    async def steps(world: World, operator: Operator) -> None:
        source = {**EAST, "secret": "east-login"}
        world.api.put(mirror_body(sources=[source]))
        await until(lambda: reason(world) == "NoSecret", "it waits for the Secret")
        assert world.find(Kind.DEPLOYMENT, OWN) is None
        assert "east-login" in message(world)
        secret(world, "east-login", "YQ==")
        await until(lambda: phase(world) == "Running", "it runs")
        (former,) = pods(world)
        world.change(Kind.SECRET, "east-login", {"data": {"client.properties": "Yg=="}})
        await until(lambda: former not in pods(world), "another pod")
        await until(lambda: phase(world) == "Running", "it runs again")

    play(steps)


def test_suspend_stops_and_resumes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        world.change(Kind.MIRROR, NAME, {"spec": {"suspend": True}})
        await until(lambda: phase(world) == "Suspended" and not pods(world), "it is suspended")
        assert condition(world.get(Kind.MIRROR, NAME)) == ("Unknown", "Suspended")
        await until(lambda: status(world).get("podsReady") == "0/0", "the number of pods")
        world.change(Kind.MIRROR, NAME, {"spec": {"suspend": False}})
        await until(lambda: phase(world) == "Running", "it runs again")

    play(steps)


def test_what_is_no_longer_needed_is_deleted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body(replicas=2, podMonitor=True))
        await until(lambda: phase(world) == "Running", "it runs")
        assert world.find(Kind.POD_MONITOR, OWN) is not None
        world.change(Kind.MIRROR, NAME, {"spec": {"replicas": 1, "podMonitor": False, "networkPolicies": False}})
        for kind in (Kind.DISRUPTION_BUDGET, Kind.POD_MONITOR, Kind.NETWORK_POLICY):
            await until(lambda kind=kind: world.find(kind, OWN) is None, kind.word)  # type: ignore[misc]
        await until(lambda: len(pods(world)) == 1, "one pod")

    play(steps)


def test_pods_that_fail_are_explained() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        (pod,) = pods(world)
        ended = {"exitCode": 1, "message": "mirror.yaml: target.bootstrapServers is not valid."}
        containers = [{"name": names.CONTAINER, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
        containers[0]["lastState"] = {"terminated": ended}
        not_ready = [{"type": "Ready", "status": "False"}]
        set_status(world, pod, {"conditions": not_ready, "containerStatuses": containers})
        await until(lambda: phase(world) == "Failing", "the pod fails")
        assert reason(world) == "PodsFailing"
        assert message(world) == f"Pod {pod}: mirror.yaml: target.bootstrapServers is not valid."
        assert "lagRecords" not in status(world)

    play(steps)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"target": {"cluster": "other"}}, "NoCluster"),
        ({"sources": [{**EAST, "bootstrapServers": None, "cluster": "other"}]}, "NoCluster"),
        ({"target": {"cluster": "demo", "user": "alice"}}, "NoUser"),
        ({"sources": [{**EAST, "topics": {"include": ["("]}}]}, "InvalidSpec"),
    ],
)
def test_why_a_mirror_waits(spec: dict[str, Any], expected: str) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body(**spec))
        await until(lambda: reason(world) == expected, expected)
        assert phase(world) == "Waiting"
        assert world.find(Kind.DEPLOYMENT, OWN) is None

    play(steps)


def test_an_invalid_change_and_a_missing_cluster_stop_nothing() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        before = pods(world)
        world.change(Kind.MIRROR, NAME, {"spec": {"target": {"cluster": "other"}}})
        await until(lambda: reason(world) == "NoCluster", "it says so")
        assert message(world).startswith("spec.target: ")
        assert phase(world) == "Running"
        world.change(Kind.MIRROR, NAME, {"spec": {"target": {"cluster": "demo", "bootstrapServers": "x:1"}}})
        await until(lambda: reason(world) == "InvalidSpec", "it says so")
        assert phase(world) == "Running"
        assert pods(world) == before

    play(steps)


def test_a_paused_resource_is_left_alone() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        change = {"metadata": {"annotations": {"odradek.dev/paused": "true"}}, "spec": {"suspend": True}}
        world.change(Kind.MIRROR, NAME, change)
        await until(lambda: condition(world.get(Kind.MIRROR, NAME)) == ("Unknown", "Paused"), "it is paused")
        assert len(pods(world)) == 1

    play(steps)


def test_objects_of_others_stay_as_they_are() -> None:
    async def steps(world: World, operator: Operator) -> None:
        theirs = {"name": OWN, "namespace": NAMESPACE, "labels": {"app": "theirs"}}
        world.api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": theirs})
        world.api.put(mirror_body())
        await until(lambda: reason(world) == "ForeignObject", "it says so")
        assert world.find(Kind.DEPLOYMENT, OWN) is None, "it would run with the rights of somebody else"
        assert "this mirror lacks it" in message(world)
        world.delete(Kind.SERVICE_ACCOUNT, OWN)
        await until(lambda: phase(world) == "Running", "it runs when the name is free")

    play(steps)


def test_deletion_removes_all_objects() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body(replicas=2, podMonitor=True))
        await until(lambda: phase(world) == "Running", "it runs")
        topics = world.topics()
        world.delete(Kind.MIRROR, NAME)
        kinds = (
            Kind.DEPLOYMENT,
            Kind.CONFIG_MAP,
            Kind.SERVICE_ACCOUNT,
            Kind.NETWORK_POLICY,
            Kind.POD_MONITOR,
            Kind.POD,
        )
        await until(
            lambda: (
                not any(
                    names.MIRROR_LABEL in (body["metadata"].get("labels") or {})
                    for kind in (*kinds, Kind.DISRUPTION_BUDGET, Kind.POD)
                    for body in world._all(kind)
                )
            ),
            "all is gone",
        )
        assert world.topics() == topics

    play(steps)


def test_a_mirror_without_changes_causes_no_writes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(mirror_body())
        await until(lambda: phase(world) == "Running", "it runs")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the cluster is ready")

        def writes() -> list[str]:
            return [asked.path for asked in world.api.writes if "mirror" in asked.path]

        await until(lambda: status(world).get("lagRecords") == 0, "the figures")
        until_then, before = world.now() + timedelta(seconds=200), writes()
        await until(lambda: world.now() > until_then, "several rounds")
        assert writes() == before

    play(steps)


@pytest.mark.parametrize("lives", range(8))
def test_an_operator_that_is_killed_at_any_write_is_continued(lives: int) -> None:
    async def run() -> None:
        world = World()
        async with world.living():
            body = cluster_body(listeners=[{"name": "plain", "port": 9092}])
            body["metadata"]["annotations"] = {"odradek.dev/paused": "true"}
            world.api.put(body)
            world.api.put(mirror_body(replicas=2))
            first = Operator(world, lives=lives)
            async with first.working():
                await until(lambda: first.killed.is_set() or phase(world) == "Running", "the first ends or is done")
            async with Operator(world).working():
                await until(lambda: phase(world) == "Running", "it runs")
                assert len(pods(world)) == 2

    run_virtual(run())
