"""Tests that objects of other owners stay unchanged even if a Cluster needs an object with the same name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from support.kubectl import Kubectl
from support.product import CLUSTER
from support.waiting import eventually

THEIRS: Final = "taken-kafka-bootstrap"


@pytest.fixture
def taken(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """A Service that another operator's object owns, with a name that our Cluster would use."""
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "their-cluster"}})
    owner = kubectl.require("configmap", "their-cluster")["metadata"]["uid"]
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": THEIRS,
                "labels": {"app.kubernetes.io/managed-by": "another-operator"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "their-cluster", "uid": owner, "controller": True}
                ],
            },
            "spec": {"ports": [{"name": "theirs", "port": 9092}], "selector": {"theirs": "1"}},
        }
    )
    yield kubectl.require("service", THEIRS)
    kubectl.delete(CLUSTER, "taken")


@pytest.mark.usefixtures("operator_release")
def test_a_service_of_another_operator_is_refused_by_name(kubectl: Kubectl, taken: dict[str, Any]) -> None:
    kubectl.apply(
        {
            "apiVersion": "odradek.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "taken"},
            "spec": {"brokers": {"replicas": 1}, "zookeeper": {"replicas": 1}},
        }
    )

    sentence = f"Service {kubectl.namespace}/{THEIRS} belongs to ConfigMap their-cluster (v1)"
    eventually(
        lambda: str(kubectl.require(CLUSTER, "taken").get("status", {})),
        lambda status: sentence in status,
        what="a status that names the owner",
    )
    eventually(lambda: kubectl.get("service", "taken-kafka-brokers"), what="the other objects of the cluster")
    eventually(lambda: kubectl.get("statefulset", "taken-kafka"), what="the brokers of the cluster")
    now = kubectl.require("service", THEIRS)
    assert now["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"]
