"""Drivers from pods and statuses, whatever users and kubelets have written there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.objects.pod_facts import MAX_ERROR
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.pipelines.driver_pods import (
    DriverPhase,
    EndedDriver,
    clean_text,
    driver_pods,
    executors_of,
    former_pods,
    parse_time,
)


def body(name: str = "departures-driver-3", owner: str = "mine", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid of {name}",
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": names.pipeline_selector("departures", names.DRIVER),
            "annotations": {names.SPECIFICATION: "abc", names.RUN: "streaming", names.ATTEMPT: "2"},
            "ownerReferences": [{"kind": "Pipeline", "name": "departures", "uid": owner, "controller": True}],
        },
        "status": status,
    }


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "driver", "state": state}]


def test_a_driver_is_read() -> None:
    (pod,) = driver_pods([body(phase="Running", podIP="10.1.2.3", startTime="2026-03-01T10:00:05Z")], "mine")
    assert (pod.number, pod.specification, pod.run, pod.attempt) == (3, "abc", "streaming", 2)
    assert (pod.phase, pod.address) == (DriverPhase.RUNNING, "10.1.2.3")
    assert pod.started_at == datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize("address", ["evil.example/x", "10.0.0.1:80", "", None, 7])
def test_what_is_no_address_becomes_no_url(address: Any) -> None:
    (pod,) = driver_pods([body(phase="Running", podIP=address)], "mine")
    assert pod.address is None


def test_an_address_of_version_6_is_in_brackets() -> None:
    (pod,) = driver_pods([body(phase="Running", podIP="fd00::1")], "mine")
    assert pod.address == "[fd00::1]"


@pytest.mark.parametrize(
    ("status", "phase", "error"),
    [
        ({"phase": "Succeeded"}, DriverPhase.SUCCEEDED, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "no memory"}, DriverPhase.FAILED, "no memory"),
        (
            {"phase": "Failed", "containerStatuses": container(terminated={"exitCode": 1, "message": "no\ntopic"})},
            DriverPhase.FAILED,
            "no topic",
        ),
        (
            {"phase": "Failed", "containerStatuses": container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            DriverPhase.FAILED,
            "The driver needed more memory than it has: raise spec.driver.memory.",
        ),
        (
            {"phase": "Running", "containerStatuses": container(terminated={"exitCode": 3})},
            DriverPhase.FAILED,
            "The driver ended with code 3.",
        ),
        (
            {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ErrImagePull", "message": "gone"})},
            DriverPhase.STARTING,
            "ErrImagePull: gone",
        ),
        (
            {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ContainerCreating"})},
            DriverPhase.STARTING,
            "",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
            DriverPhase.STARTING,
            "0/3 nodes",
        ),
        ({}, DriverPhase.STARTING, ""),
    ],
)
def test_phases_and_errors(status: dict[str, Any], phase: DriverPhase, error: str) -> None:
    (pod,) = driver_pods([body(**status)], "mine")
    assert (pod.phase, pod.error) == (phase, error)
    assert (pod.ended_at is not None) == phase.has_ended


def test_pods_of_others_are_ignored() -> None:
    strangers = [
        body(owner="other", phase="Running"),
        {**body(), "metadata": {**body()["metadata"], "ownerReferences": []}},
        body("departures-driver-x"),
        {**body(), "metadata": {**body()["metadata"], "labels": names.pipeline_selector("departures", "executor")}},
    ]
    assert driver_pods(strangers, "mine") == ()
    assert former_pods(strangers, "mine") == ["departures-driver-3"]
    assert former_pods([body(owner="other", phase="Failed")], "mine") == []


def test_executors_of_ended_drivers() -> None:
    labels = names.pipeline_selector("departures", names.EXECUTOR)
    executor = {"name": "e-1", "uid": "u-1", "labels": labels, "ownerReferences": [{"kind": "Pod", "uid": "ended"}]}
    other = {**executor, "name": "e-2", "uid": "u-2", "ownerReferences": [{"kind": "Pod", "uid": "runs"}]}
    leaving = {**executor, "name": "e-3", "uid": "u-3", "deletionTimestamp": "2026-03-01T10:00:00Z"}
    found = executors_of([{"metadata": each} for each in (executor, other, leaving)], {"ended"})
    assert found == [("e-1", "u-1")]


def test_an_end_survives_the_status() -> None:
    failed = {"exitCode": 1, "message": "Boom.", "finishedAt": "2026-03-01T11:00:00Z"}
    (pod,) = driver_pods([body(phase="Failed", containerStatuses=container(terminated=failed))], "mine")
    ended = EndedDriver.of(pod)
    assert EndedDriver.read(ended.document()) == ended


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=9,
)


@given(json_values, st.sampled_from(["number", "attempt", "startedAt", "endedAt", "result", "run"]), json_values)
def test_any_status_is_read(whole: Any, field: str, value: Any) -> None:
    EndedDriver.read(whole)
    failed = {"exitCode": 1, "finishedAt": "2026-03-01T11:00:00Z"}
    (pod,) = driver_pods([body(phase="Failed", containerStatuses=container(terminated=failed))], "mine")
    EndedDriver.read({**EndedDriver.of(pod).document(), field: value})


@pytest.mark.parametrize("text", ["", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", None, 5])
def test_what_is_no_time(text: Any) -> None:
    assert parse_time(text) is None


@given(st.text(max_size=3_000))
def test_texts_of_jobs_are_one_short_line(text: str) -> None:
    line = clean_text(text)
    assert len(line) <= MAX_ERROR
    assert line.isprintable()
