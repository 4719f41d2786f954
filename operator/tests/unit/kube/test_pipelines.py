"""Pipelines in rounds of the operator: drivers, statuses, Events, restarts, schedules, and what belongs to others."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.pipelines.driver_pods import time_text
from odradek_operator.pipelines.job_report import JobReport
from odradek_operator_testkit.surroundings import NAMESPACE, Operator, World, cluster_body, condition, scenario, until
from odradek_testkit.loop import run_virtual

NAME = "departures"
FIRST, SECOND, THIRD = (names.driver_pod(NAME, number) for number in (1, 2, 3))
OWN = names.pipeline_objects_name(NAME)


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    async def with_cluster(world: World, operator: Operator) -> None:
        body = cluster_body(listeners=[{"name": "plain", "port": 9092}])
        body["spec"]["brokers"]["replicas"] = 1
        world.api.put(body)
        await steps(world, operator)

    run_virtual(scenario(with_cluster, **options)())


def pipeline_body(**spec: Any) -> Object:
    whole = {
        "cluster": "demo",
        "source": {"topics": ["departures"]},
        "target": {"topic": "delayed", "deliveryGuarantee": "exactly-once"},
        "checkpoint": {"claim": "checkpoints", "path": "delayed"},
        "streaming": {"triggerSeconds": 5},
        **spec,
    }
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Pipeline",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {name: value for name, value in whole.items() if value is not None},
    }


def status(world: World) -> Object:
    found: Object = world.get(Kind.PIPELINE, NAME).get("status") or {}
    return found


def figure(operator: Operator, name: str) -> float | None:
    labels = {"pipeline_namespace": NAMESPACE, "pipeline": NAME}
    return operator.registry.get_sample_value(f"odradek_pipeline_{name}", labels)


def phase(world: World) -> str:
    return str(status(world).get("phase", ""))


def reasons(world: World) -> list[str]:
    events = [one for one in world._all(Kind.EVENT) if one["involvedObject"]["kind"] == "Pipeline"]
    return [one["reason"] for one in events]


def exists(world: World, kind: Kind, name: str) -> bool:
    return world.find(kind, name) is not None


def end(world: World, pod: str, *, code: int = 1, message: str = "Boom.", at: datetime | None = None) -> None:
    """End the process of a driver, as a kubelet reports it."""
    key = world.api.place(Kind.POD.path(NAMESPACE)).key(pod)
    finished = time_text(at or world.now())
    terminated = {"exitCode": code, "message": message, "finishedAt": finished}
    ended = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}],
    }
    world.api.store.merge(key, {"status": ended}, status_only=True)


def test_a_streaming_job_runs_and_reports() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        for kind in (Kind.SERVICE_ACCOUNT, Kind.ROLE, Kind.ROLE_BINDING, Kind.SERVICE, Kind.NETWORK_POLICY):
            assert exists(world, kind, OWN), kind
        pod = world.get(Kind.POD, FIRST)
        (config,) = [one for one in pod["spec"]["volumes"] if one["name"] == "specification"]
        data = world.get(Kind.CONFIG_MAP, config["configMap"]["name"])["data"]
        job = json.loads(data[names.JOB_FILE])
        uid = world.get(Kind.PIPELINE, NAME)["metadata"]["uid"]
        assert job["bootstrapServers"] == "demo-kafka-bootstrap.shop.svc:9092"
        assert job["target"]["options"]["sinkId"] == f"{NAMESPACE}/{NAME}/{uid}"
        assert condition(world.get(Kind.PIPELINE, NAME)) == ("True", "Running")

        checkpoint = world.now().replace(microsecond=0)
        world.job_reports[FIRST] = JobReport(batch=7, rate=12.5, input_rate=13.0, lag=42, last_checkpoint=checkpoint)
        await until(lambda: status(world).get("lag") == 42, "the lag")
        found = status(world)
        assert (found["batch"], found["rate"], found["inputRate"]) == (7, 12.5, 13.0)
        assert (found["lastCheckpoint"], found["driver"]) == (time_text(checkpoint), FIRST)
        assert "error" not in found
        assert figure(operator, "lag_records") == 42
        assert figure(operator, "processed_records_per_second") == 12.5
        assert figure(operator, "ready") == 1
        world.job_reports[FIRST] = JobReport(batch=8, error="The topic is gone.")
        await until(lambda: status(world).get("error") == "The topic is gone.", "the error")
        assert status(world)["lag"] == 42, "what is unknown is kept"
        assert reasons(world) == ["DriverStarted"]

    play(steps)


def test_a_failed_driver_is_restarted_with_growing_pauses() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(restart={"backoffSeconds": 30}))
        await until(lambda: phase(world) == "Running", "it runs")
        end(world, FIRST, message="The topic departures does not exist.")
        await until(lambda: phase(world) == "BackOff", "a pause")
        found = status(world)
        assert found["error"] == "The topic departures does not exist."
        assert (found["lastRun"]["driver"], found["lastRun"]["result"]) == (FIRST, "Failed")
        assert condition(world.get(Kind.PIPELINE, NAME)) == ("False", "BackOff")
        await until(lambda: exists(world, Kind.POD, SECOND), "the second driver")
        await until(lambda: phase(world) == "Running", "it runs again")
        began = world.now()
        end(world, SECOND)
        await until(lambda: exists(world, Kind.POD, THIRD), "the third driver")
        assert world.now() - began >= timedelta(seconds=59)
        assert exists(world, Kind.POD, FIRST), "its log is kept"
        assert reasons(world).count("DriverFailed") == 2

    play(steps)


def test_only_the_last_drivers_are_kept() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(history=1, restart={"backoffSeconds": 1}))
        for pod in (FIRST, SECOND):
            await until(lambda pod=pod: exists(world, Kind.POD, pod), pod)  # type: ignore[misc]
            end(world, pod)
        await until(lambda: not exists(world, Kind.POD, FIRST), "the first is gone")
        assert exists(world, Kind.POD, SECOND)

    play(steps)


def test_a_change_stops_the_driver_and_then_starts_the_next() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        former = {one["metadata"]["name"] for one in world._all(Kind.CONFIG_MAP)}
        # The process needs a while to end: a pod on a node stays until the kubelet has ended it.
        world.change(Kind.POD, FIRST, {"metadata": {"finalizers": ["test/slow"]}})
        world.change(Kind.PIPELINE, NAME, {"spec": {"streaming": {"triggerSeconds": 60}}})
        await until(lambda: "deletionTimestamp" in world.get(Kind.POD, FIRST)["metadata"], "it stops")
        await until(lambda: phase(world) == "Stopping", "the status says so")
        assert not exists(world, Kind.POD, SECOND), "never two drivers"
        world.change(Kind.POD, FIRST, {"metadata": {"finalizers": None}})
        await until(lambda: exists(world, Kind.POD, SECOND), "the next one")
        await until(lambda: phase(world) == "Running", "it runs")
        maps = {one["metadata"]["name"] for one in world._all(Kind.CONFIG_MAP)}
        assert len([name for name in maps - former if name.startswith(f"{NAME}-pipeline-")]) == 1
        assert "DriverStopped" in reasons(world)

    play(steps)


def test_the_configmaps_of_former_specifications_are_deleted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        def maps() -> list[str]:
            found = [one["metadata"]["name"] for one in world._all(Kind.CONFIG_MAP)]
            return [name for name in found if name.startswith(f"{NAME}-pipeline-")]

        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        (former,) = maps()
        world.change(Kind.PIPELINE, NAME, {"spec": {"streaming": {"triggerSeconds": 60}}})
        await until(lambda: exists(world, Kind.POD, SECOND), "the next driver", 60)
        await until(lambda: former not in maps(), "the former specification is gone", 60)
        assert len(maps()) == 1

    play(steps)


def test_suspend_stops_and_resumes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        world.change(Kind.PIPELINE, NAME, {"spec": {"suspend": True}})
        await until(lambda: phase(world) == "Suspended", "it is suspended")
        assert not exists(world, Kind.POD, FIRST)
        assert condition(world.get(Kind.PIPELINE, NAME)) == ("Unknown", "Suspended")
        world.change(Kind.PIPELINE, NAME, {"spec": {"suspend": False}})
        await until(lambda: exists(world, Kind.POD, SECOND), "it resumes")

    play(steps)


def test_a_batch_job_runs_once() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(streaming=None))
        await until(lambda: exists(world, Kind.POD, FIRST), "a driver")
        await until(lambda: phase(world) == "Running", "it runs")
        end(world, FIRST, code=0)
        await until(lambda: phase(world) == "Succeeded", "it has succeeded")
        world.delete(Kind.POD, FIRST)
        await until(lambda: not exists(world, Kind.POD, FIRST), "somebody cleans up")
        before = len(world.api.writes)
        world.change(Kind.PIPELINE, NAME, {"spec": {"history": 5}})
        await until(lambda: status(world)["observedGeneration"] == 2, "the change is seen")
        assert phase(world) == "Succeeded"
        assert not exists(world, Kind.POD, SECOND), "the run is remembered"
        assert len(world.api.writes) - before <= 2
        assert "DriverSucceeded" in reasons(world)
        world.change(Kind.PIPELINE, NAME, {"spec": {"target": {"topic": "other"}}})
        await until(lambda: exists(world, Kind.POD, SECOND), "a run of the new specification")

    play(steps)


def test_a_schedule_starts_runs() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(streaming=None, schedule={"cron": "*/15 * * * *"}))
        await until(lambda: phase(world) == "Scheduled", "it waits")
        following = datetime.fromisoformat(status(world)["nextStart"])
        assert following > world.now()
        await until(lambda: exists(world, Kind.POD, FIRST), "the first run")
        assert world.get(Kind.POD, FIRST)["metadata"]["annotations"][names.RUN] == time_text(following)
        await until(lambda: phase(world) == "Running", "it runs")
        end(world, FIRST, code=0)
        await until(lambda: phase(world) == "Scheduled", "it waits for the next")
        await until(lambda: exists(world, Kind.POD, SECOND), "the second run")

    play(steps)


def test_executors_of_an_ended_driver_are_deleted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": FIRST, "uid": world.get(Kind.POD, FIRST)["metadata"]["uid"]}
        world.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{FIRST}-exec-1",
                    "namespace": NAMESPACE,
                    "labels": names.pipeline_selector(NAME, names.EXECUTOR),
                    "ownerReferences": [owner],
                },
                "spec": {"containers": [{"name": "executor"}]},
            }
        )
        end(world, FIRST)
        await until(lambda: not exists(world, Kind.POD, f"{FIRST}-exec-1"), "the executor is deleted")

    play(steps)


def test_deletion_removes_everything_but_claims() -> None:
    async def steps(world: World, operator: Operator) -> None:
        metadata = {"name": "checkpoints", "namespace": NAMESPACE}
        world.api.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}})
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        world.delete(Kind.PIPELINE, NAME)
        await until(lambda: not exists(world, Kind.POD, FIRST), "the driver is gone")
        labelled = [
            body
            for kind in (Kind.CONFIG_MAP, Kind.SERVICE, Kind.ROLE, Kind.NETWORK_POLICY)
            for body in world._all(kind)
            if names.PIPELINE_LABEL in body["metadata"].get("labels", {})
        ]
        assert labelled == []
        assert exists(world, Kind.CLAIM, "checkpoints")
        # A new one of the name starts again, with a number of its own.
        world.api.put(pipeline_body())
        await until(lambda: exists(world, Kind.POD, FIRST), "a driver of the new resource")

    play(steps)


def test_objects_of_others_stay_as_they_are() -> None:
    async def steps(world: World, operator: Operator) -> None:
        theirs = {"name": OWN, "namespace": NAMESPACE, "labels": {"app": "theirs"}}
        world.api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": theirs})
        world.api.put(pipeline_body())
        await until(lambda: condition(world.get(Kind.PIPELINE, NAME))[1] == "ForeignObject", "it says so")
        assert not exists(world, Kind.POD, FIRST), "it would run with the rights of somebody else"
        assert world.get(Kind.SERVICE_ACCOUNT, OWN)["metadata"]["labels"] == {"app": "theirs"}
        message = world.get(Kind.PIPELINE, NAME)["status"]["conditions"][0]["message"]
        assert "this pipeline lacks it" in message
        world.delete(Kind.SERVICE_ACCOUNT, OWN)
        await until(lambda: phase(world) == "Running", "it runs when the name is free")

    play(steps)


def test_what_others_label_is_not_deleted() -> None:
    async def steps(world: World, operator: Operator) -> None:
        theirs = {"name": "notes", "namespace": NAMESPACE, "labels": {names.PIPELINE_LABEL: NAME}}
        world.api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs})
        world.api.put(pipeline_body(podMonitor=True))
        await until(lambda: phase(world) == "Running", "it runs")
        assert exists(world, Kind.POD_MONITOR, OWN)
        world.change(Kind.PIPELINE, NAME, {"spec": {"podMonitor": False, "networkPolicies": False}})
        await until(lambda: not exists(world, Kind.POD_MONITOR, OWN), "the PodMonitor is pruned", 30)
        assert not exists(world, Kind.NETWORK_POLICY, OWN)
        assert exists(world, Kind.CONFIG_MAP, "notes")

    play(steps)


def test_a_deleted_account_is_made_again() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(suspend=True))
        await until(lambda: phase(world) == "Suspended", "all objects are there")
        world.delete(Kind.SERVICE_ACCOUNT, OWN)
        world.api.faults.status = 403
        world.api.faults.concerns = lambda asked: asked.method == "POST" and asked.path.endswith("/pods")
        world.change(Kind.PIPELINE, NAME, {"spec": {"suspend": False}})
        await until(lambda: condition(world.get(Kind.PIPELINE, NAME))[1] == "KubernetesRefuses", "it says so")
        await until(lambda: exists(world, Kind.SERVICE_ACCOUNT, OWN), "the account", 60)
        world.api.faults.status = 0
        await until(lambda: phase(world) == "Running", "it runs")

    play(steps)


@pytest.mark.parametrize("drivers", [-1, 10**15, 2])
def test_a_status_that_others_wrote_does_no_harm(drivers: int) -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = pipeline_body(suspend=True)
        world.api.put(body)
        await until(lambda: phase(world) == "Suspended", "it is suspended")
        key = world.api.place(Kind.PIPELINE.path(NAMESPACE)).key(NAME)
        wrong = {"drivers": drivers, "lastRun": {"number": 10**15, "attempt": -3}, "batch": "x"}
        world.api.store.merge(key, {"status": wrong}, status_only=True)
        world.change(Kind.PIPELINE, NAME, {"spec": {"suspend": False}})
        await until(lambda: phase(world) == "Running", "it runs")
        assert exists(world, Kind.POD, THIRD if drivers == 2 else FIRST)

    play(steps)


def test_a_pod_of_others_with_the_name_of_a_driver() -> None:
    async def steps(world: World, operator: Operator) -> None:
        metadata = {"name": FIRST, "namespace": NAMESPACE, "labels": {"app": "theirs"}}
        world.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
        world.api.put(pipeline_body())
        await until(lambda: exists(world, Kind.POD, SECOND), "the next number")
        assert world.get(Kind.POD, FIRST)["metadata"]["labels"] == {"app": "theirs"}

    play(steps)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"cluster": "other"}, "NoCluster"),
        ({"user": "alice"}, "NoUser"),
        ({"schedule": {"cron": "never"}, "streaming": None}, "InvalidSpec"),
    ],
)
def test_why_a_job_waits(spec: dict[str, Any], reason: str) -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(**spec))
        await until(lambda: condition(world.get(Kind.PIPELINE, NAME))[1] == reason, reason)
        assert phase(world) == "Waiting"
        assert not exists(world, Kind.POD, FIRST)

    play(steps)


def test_an_invalid_change_stops_nothing() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        world.change(Kind.PIPELINE, NAME, {"spec": {"driver": {"memory": "1"}}})
        await until(lambda: condition(world.get(Kind.PIPELINE, NAME))[1] == "InvalidSpec", "it is refused")
        assert phase(world) == "Running"
        assert "deletionTimestamp" not in world.get(Kind.POD, FIRST)["metadata"]

    play(steps)


def test_a_paused_resource_is_left_alone() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body())
        await until(lambda: phase(world) == "Running", "it runs")
        paused = {"metadata": {"annotations": {"odradek.dev/paused": "true"}}, "spec": {"suspend": True}}
        world.change(Kind.PIPELINE, NAME, paused)
        await until(lambda: condition(world.get(Kind.PIPELINE, NAME)) == ("Unknown", "Paused"), "it is paused")
        assert exists(world, Kind.POD, FIRST)

    play(steps)


def test_an_idle_job_causes_no_writes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(pipeline_body(streaming=None))
        await until(lambda: phase(world) == "Running", "it runs")
        end(world, FIRST, code=0)
        await until(lambda: phase(world) == "Succeeded", "it has succeeded")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the cluster is ready")
        until_then = world.now() + timedelta(seconds=200)
        before = [asked for asked in world.api.writes if "pipeline" in asked.path or NAME in asked.path]
        await until(lambda: world.now() > until_then, "several rounds")
        after = [asked for asked in world.api.writes if "pipeline" in asked.path or NAME in asked.path]
        assert after == before

    play(steps)


@pytest.mark.parametrize("lives", range(14))
def test_an_operator_that_is_killed_at_any_write_is_continued(lives: int) -> None:
    """Never two drivers, and the job runs in the end."""

    async def run() -> None:
        world = World()
        async with world.living():
            body = cluster_body(listeners=[{"name": "plain", "port": 9092}])
            body["metadata"]["annotations"] = {"odradek.dev/paused": "true"}
            world.api.put(body)
            world.api.put(pipeline_body())
            first = Operator(world, lives=lives)
            async with first.working():
                await until(lambda: first.killed.is_set() or phase(world) == "Running", "the first ends or is done")
            async with Operator(world).working():
                await until(lambda: phase(world) == "Running", "it runs")
                drivers = [
                    pod["metadata"]["name"]
                    for pod in world._all(Kind.POD)
                    if pod["metadata"].get("labels", {}).get(names.ROLE_LABEL) == names.DRIVER
                ]
                assert drivers == [FIRST]

    run_virtual(run())
