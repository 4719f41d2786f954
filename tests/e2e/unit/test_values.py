"""Tests the parsers of Kubernetes objects and of its audit log, and the error of a wait that times out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.audit import parse
from support.kubectl import KubectlError
from support.values import Event, Node, Pod
from support.waiting import eventually, scaled

POD = {
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"nodeName": "node1", "containers": [{"name": "kafka"}], "initContainers": [{"name": "first"}]},
    "status": {
        "phase": "Running",
        "podIP": "10.250.65.2",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 2}],
    },
}


def test_a_pod_is_read() -> None:
    pod = Pod.parse(POD)

    assert (pod.name, pod.node, pod.address, pod.restarts) == ("a", "node1", "10.250.65.2", 2)
    assert pod.ready and pod.terminating
    assert pod.containers == ("first", "kafka")


def test_a_pod_that_has_no_node_yet_is_read() -> None:
    pod = Pod.parse({"metadata": POD["metadata"], "spec": {"containers": []}})

    assert (pod.phase, pod.node, pod.address, pod.ready, pod.restarts) == ("Unknown", "", "", False, 0)


def test_a_node_is_read() -> None:
    node = Node.parse(
        {
            "metadata": {"name": "node1", "labels": {"topology.kubernetes.io/zone": "zone-1"}},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.250.0.11"}],
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )

    assert node == Node(name="node1", ready=False, zone="zone-1", address="10.250.0.11")


@pytest.mark.parametrize(("extra", "count"), [({}, 1), ({"count": 3}, 3), ({"series": {"count": 4}}, 4)])
def test_an_event_counts_in_the_old_way_and_in_the_new_one(extra: dict[str, object], count: int) -> None:
    event = {"involvedObject": {"kind": "Pod", "name": "a"}, "reason": "Killing", "message": "m", "type": "Normal"}

    assert Event.parse({**event, **extra}).count == count


def audit_line(**extra: object) -> str:
    event = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": "system:serviceaccount:odradek:operator"},
        "userAgent": "odradek-operator",
        "objectRef": {"resource": "clusters", "subresource": "status", "namespace": "n", "name": "c"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.500000Z",
    }
    return json.dumps({**event, **extra}) + "\n"


def test_requests_are_read_up_to_the_line_that_is_being_written() -> None:
    lines = [audit_line(), audit_line(stage="ResponseStarted"), audit_line(verb="get", objectRef={}), '{"stage": "Resp']

    first, second = parse(lines)

    assert (first.resource, first.writes, first.code, first.at % 1) == ("clusters/status", True, 200, 0.5)
    assert (second.resource, second.writes) == ("", False)


def test_a_wait_shows_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"(?s)three pods: not within .*last seen: 2"):
        eventually(lambda: 2, lambda count: count == 3, what="three pods", seconds=0)


def test_a_wait_bears_an_api_server_that_is_away() -> None:
    answers: Iterator[KubectlError | int] = iter([KubectlError("connection refused"), 3])

    def observe() -> int:
        answer = next(answers)
        if isinstance(answer, KubectlError):
            raise answer
        return answer

    assert eventually(observe, what="an answer", poll=0) == 3


def test_a_wait_that_saw_nothing_but_failures_says_so() -> None:
    def observe() -> int:
        raise KubectlError("connection refused")

    with pytest.raises(AssertionError, match=r"(?s)last seen: 'nothing'.*connection refused"):
        eventually(observe, what="an answer", seconds=0)


def test_deadlines_are_stretched() -> None:
    assert scaled(10, {}) == 10
    assert scaled(10, {"ODRADEK_E2E_PATIENCE": "2.5"}) == 25
