"""The progress of a roll, from the objects of a cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.objects import names
from odradek_operator.plugin.roll_progress import roll_progress


def cluster(*, ready: str = "True", observed: int = 3, **status: Any) -> Object:
    condition = {"type": "Ready", "status": ready, "reason": "Rolling", "message": "It rolls."}
    return {
        "metadata": {"name": "demo", "generation": 3},
        "status": {"observedGeneration": observed, "conditions": [condition], **status},
    }


def members(replicas: int = 2) -> Object:
    template = {"metadata": {"annotations": {names.RESTART_HASH: "new"}}}
    return {"metadata": {"name": "demo-kafka"}, "spec": {"replicas": replicas, "template": template}}


def pod(number: int, *, restart_hash: str = "new", ready: bool = True, **metadata: Any) -> Object:
    return {
        "metadata": {
            "name": f"demo-kafka-{number}",
            "annotations": {names.RESTART_HASH: restart_hash},
            **metadata,
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_it_is_done_when_every_pod_is_new_and_ready_and_the_operator_agrees() -> None:
    found = roll_progress(cluster(), [members()], [pod(0), pod(1), {"metadata": {"name": "other-0"}}])
    assert (found.is_done, found.message) == (True, "All 2 pods have the current template and are ready.")


@pytest.mark.parametrize(
    ("body", "pods", "message"),
    [
        (cluster(), [pod(0, restart_hash="old"), pod(1)], "1 of 2 pods .*; to restart: demo-kafka-0."),
        (cluster(), [pod(0), pod(1, ready=False)], "starting: demo-kafka-1"),
        (cluster(), [pod(0), pod(1, deletionTimestamp="now")], "starting: demo-kafka-1"),
        (cluster(), [pod(0)], "1 of 2 pods"),
        (cluster(ready="False"), [pod(0), pod(1)], "2 of 2 pods .* Rolling: It rolls."),
        (cluster(observed=2), [pod(0), pod(1)], "has not reconciled the latest specification"),
        (cluster(ready="False", roll={"waitingFor": "broker 1"}), [pod(0), pod(1)], "Waiting: broker 1"),
        ({"metadata": {"name": "demo", "generation": 1}}, [pod(0), pod(1)], "has not reconciled"),
    ],
)
def test_it_is_not_done(body: Object, pods: list[Object], message: str) -> None:
    found = roll_progress(body, [members()], pods)
    assert not found.is_done
    assert re.search(message, found.message), found.message


def test_a_cluster_without_pods_is_not_done() -> None:
    assert not roll_progress(cluster(), [], []).is_done
