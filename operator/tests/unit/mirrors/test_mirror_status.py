"""Deployment, pods and reports as phase, condition and status of a Mirror."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_operator.mirrors.mirror_names import CONTAINER
from odradek_operator.mirrors.mirror_pods import MirrorDeployment, MirrorPod, mirror_deployment, mirror_pods
from odradek_operator.mirrors.mirror_report import MirrorReport, ReportedPartition
from odradek_operator.mirrors.mirror_status import (
    MAX_FAILING,
    MAX_SOURCE_NAMES,
    MirrorPhase,
    MirrorState,
    findings,
    mirror_document,
)
from odradek_operator_testkit.mirrors import EAST, mirror


def pod(name: str = "a", *, is_ready: bool = True, is_leaving: bool = False, error: str = "") -> MirrorPod:
    return MirrorPod(name=name, is_ready=is_ready, is_leaving=is_leaving, address="10.0.0.1", error=error)


def deployed(count: int, **fields: Any) -> MirrorDeployment:
    return MirrorDeployment(**{"is_observed": True, "replicas": count, "updated": count, "ready": count, **fields})


STOPPED = MirrorReport(stopped={ReportedPartition("east", "a", number): f"error {number}" for number in range(30)})


@pytest.mark.parametrize(
    ("state", "phase", "reason"),
    [
        (MirrorState(), MirrorPhase.STARTING, "Starting"),
        (MirrorState(deployment=deployed(2, ready=0)), MirrorPhase.STARTING, "Starting"),
        (MirrorState(deployment=deployed(2), pods=(pod("a"), pod("b"))), MirrorPhase.RUNNING, "Running"),
        (
            MirrorState(deployment=deployed(2, is_observed=False), pods=(pod("a"), pod("b"))),
            MirrorPhase.UPDATING,
            "Updating",
        ),
        (MirrorState(deployment=deployed(3, updated=1), pods=(pod("a"), pod("b"))), MirrorPhase.UPDATING, "Updating"),
        (
            MirrorState(deployment=deployed(2, ready=1), pods=(pod("a"), pod("b", is_ready=False, error="x"))),
            MirrorPhase.DEGRADED,
            "PodsFailing",
        ),
        (
            MirrorState(deployment=deployed(1, ready=0), pods=(pod(is_ready=False, error="x"),)),
            MirrorPhase.FAILING,
            "PodsFailing",
        ),
        (MirrorState(deployment=deployed(0, error="exceeded quota")), MirrorPhase.FAILING, "PodsFailing"),
        (MirrorState(deployment=deployed(2), report=STOPPED), MirrorPhase.DEGRADED, "PartitionsStopped"),
    ],
)
def test_phases(state: MirrorState, phase: MirrorPhase, reason: str) -> None:
    found = findings(mirror(replicas=2), state)
    assert (found.phase, found.condition.reason) == (phase, reason)
    assert found.condition.message


def test_a_suspended_mirror_counts_the_pods_that_are_left() -> None:
    found = findings(mirror(suspend=True), MirrorState(pods=(pod(is_leaving=True),)))
    assert found.phase is MirrorPhase.SUSPENDED
    assert "1 pod still stop" in found.condition.message


def test_failing_partitions_are_counted_and_some_are_named() -> None:
    found = mirror_document(mirror(), MirrorState(report=STOPPED), MirrorPhase.DEGRADED)
    assert found["failingPartitions"] == 30
    assert len(found["failing"]) == MAX_FAILING
    assert found["failing"][0] == {"source": "east", "topic": "a", "partition": 0, "error": "error 0"}
    message = findings(mirror(), MirrorState(deployment=deployed(1), report=STOPPED)).condition.message
    assert message == "a-0 of source east has stopped: error 0 29 more partitions have stopped."


def test_only_sources_of_the_resource_are_in_the_status() -> None:
    report = MirrorReport(records={ReportedPartition("east", "a", 0): 1, ReportedPartition("invented", "a", 0): 2})
    found = mirror_document(mirror(), MirrorState(report=report), MirrorPhase.RUNNING)
    assert [source["name"] for source in found["sources"]] == ["east"]


def test_names_of_many_sources_are_cut_off() -> None:
    sources = [{**EAST, "name": f"source-number-{number}"} for number in range(20)]
    found = mirror_document(mirror(sources=sources), MirrorState(), MirrorPhase.STARTING)
    assert len(found["sourceNames"]) == MAX_SOURCE_NAMES


def test_without_a_report_there_are_no_figures() -> None:
    found = mirror_document(mirror(), MirrorState(), MirrorPhase.STARTING)
    assert found == {"phase": "Starting", "replicas": 0, "podsReady": "0/1", "sourceNames": "east"}


def body(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", **metadata}, "status": status}


@pytest.mark.parametrize(
    ("container", "error"),
    [
        ({"state": {"terminated": {"exitCode": 1, "message": "line\none"}}}, "line one"),
        ({"lastState": {"terminated": {"exitCode": 3}}}, "The process ended with code 3."),
        (
            {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            "The process needed more memory than it has: raise spec.resources.limits.memory.",
        ),
        ({"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}, "ErrImagePull: not found"),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
        ({}, ""),
    ],
)
def test_why_a_pod_does_not_run(container: dict[str, Any], error: str) -> None:
    (found,) = mirror_pods([body({"containerStatuses": [{"name": CONTAINER, **container}]})])
    assert (found.is_ready, found.error) == (False, error)


def test_pods_that_have_ended_are_left_out() -> None:
    assert mirror_pods([body({"phase": "Failed"}), body({"phase": "Succeeded"})]) == ()


def test_a_ready_pod_has_no_error() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "fd00::1"}
    ready["containerStatuses"] = [{"name": CONTAINER, "lastState": {"terminated": {"exitCode": 1}}}]  # type: ignore[list-item]
    (found,) = mirror_pods([body(ready, deletionTimestamp="2026-01-01T00:00:00Z")])
    assert found == MirrorPod(name="a", is_ready=True, is_leaving=True, address="[fd00::1]", error="")


def test_a_deployment_that_cannot_create_pods() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    status = {"observedGeneration": 2, "replicas": 1, "readyReplicas": "x", "conditions": [refused]}
    found = mirror_deployment(body(status, generation=2))
    assert found == MirrorDeployment(is_observed=True, replicas=1, error="exceeded quota")
    assert not mirror_deployment(body(status, generation=3)).is_observed
    assert mirror_deployment(None) == MirrorDeployment()
