"""Tests a Cluster in an ensemble that other brokers use. It does not touch their settings and broker ids."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from support.product import CLUSTER, Demo
from support.values import Object, Pod
from support.waiting import eventually

FIRST: Final = 100


def wanted(demo: Demo, path: str, *, first: int = 0) -> Object:
    """A Cluster of one broker that uses the example cluster's ensemble below a given ZooKeeper path."""
    ensemble = f"demo-zookeeper-client.{demo.kubectl.namespace}.svc:2181"
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": demo.name},
        "spec": {
            "brokers": {
                "replicas": 1,
                "firstBrokerId": first,
                "storage": {"volumes": [{"id": 0, "size": "1Gi", "storageClass": demo.storage_class}]},
                "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
            },
            "zookeeper": {"connect": f"{ensemble}{path}"},
            "networkPolicies": False,
            "monitoring": {"exporter": {"enabled": False}},
        },
    }


@pytest.fixture
def joining(demo: Demo) -> Iterator[Demo]:
    """A `Demo` with the name of such a Cluster, which is removed after the test."""
    made = replace(demo, name="joining")
    demo.kubectl.patch(CLUSTER, demo.name, {"spec": {"networkAccess": {"zookeeper": [{"podSelector": {}}]}}})
    yield made
    made.kubectl.delete(CLUSTER, made.name)
    demo.kubectl.patch(CLUSTER, demo.name, {"spec": {"networkAccess": None}})


def test_a_broker_id_that_others_use_is_refused_and_a_free_one_is_named(demo: Demo, joining: Demo) -> None:
    demo.await_ready()
    joining.kubectl.apply(wanted(joining, "/"))

    conditions = eventually(
        lambda: joining.cluster().get("status", {}).get("conditions", []),
        lambda found: any(one["reason"] == "BrokerIdsInUse" for one in found),
        what="a refusal of broker 0",
    )

    assert "broker 0 is registered" in str(conditions)
    assert "set spec.brokers.firstBrokerId to 3." in str(conditions)
    assert joining.kubectl.get("statefulset", "joining-kafka") is None
    assert demo.await_ready()["status"]["brokersReady"] == "3/3"


def kill(pod: Pod) -> None:
    """Send SIGKILL to all processes of a broker's pod, so that none can close its ZooKeeper session."""
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            groups, command = (process / "cgroup").read_text(), (process / "cmdline").read_bytes()
        except OSError:
            continue  # The process has ended meanwhile.
        if pod.uid in groups.replace("_", "-") and b"odradek" in command:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.usefixtures("own_cluster")
def test_brokers_begin_at_the_first_id_and_one_that_is_killed_waits_for_its_session(demo: Demo, joining: Demo) -> None:
    demo.await_ready()
    joining.kubectl.apply(wanted(joining, "/joined", first=FIRST))
    status = joining.await_ready()["status"]
    (pod,) = joining.pods("kafka")
    assert pod.name == f"joining-kafka-{FIRST}"
    assert [one["id"] for one in status["brokers"]] == [FIRST]

    kill(pod)

    (again,) = eventually(
        lambda: joining.pods("kafka"),
        lambda found: any(one.restarts > 0 and one.ready for one in found),
        what="a broker that runs again",
    )
    assert again.restarts == 1, "it waited for the session of its previous run instead of crashing"
