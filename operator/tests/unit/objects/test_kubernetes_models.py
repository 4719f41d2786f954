"""Objects checked with the models of the Kubernetes client library: unknown fields, wrong types and missing fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiClient

from odradek_operator.crds.types import (
    Brokers,
    Cluster,
    ComputeResources,
    Listener,
    ListenerType,
    Monitoring,
    PodTemplate,
    Volume,
    ZooKeeper,
)
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import Extras, wanted_objects

EVERYTHING = Cluster(
    name="demo",
    namespace="shop",
    uid="1",
    brokers=Brokers(
        volumes=(Volume(id=0, size="1Gi", storage_class="local-ssd"), Volume(id=1, size="1Gi")),
        delete_claims=True,
        rack_topology_key="topology.kubernetes.io/zone",
        resources=ComputeResources(requests={"cpu": "1"}, limits={"memory": "1Gi"}),
        template=PodTemplate(
            labels={"team": "a"},
            annotations={"note": "b"},
            node_selector={"disk": "ssd"},
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                    }
                }
            },
            tolerations=({"key": "disk", "operator": "Exists", "effect": "NoSchedule"},),
            priority_class_name="high",
            image_pull_secrets=("registry",),
            termination_grace_period_seconds=200,
        ),
    ),
    listeners=(
        Listener(name="plain", port=9092),
        Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT),
        Listener(name="balanced", port=9095, type=ListenerType.LOAD_BALANCER),
    ),
    monitoring=Monitoring(dashboards=True),
)
CLUSTERS = {
    "everything": EVERYTHING,
    "plain": Cluster(name="demo", uid="1"),
    "given-ensemble": Cluster(name="demo", uid="1", zookeeper=ZooKeeper(connect="zk:2181")),
}


def read(body: dict[str, Any], model: str) -> object:
    """Return the body as a model of the library. Raises `ValueError` if a required field is missing."""
    return ApiClient().deserialize(json.dumps(body), model, "application/json")


@pytest.mark.parametrize("name", CLUSTERS)
def test_kubernetes_knows_every_field(name: str) -> None:
    extras = Extras(dashboards={"lag": "{}"})
    wanted = wanted_objects(
        CLUSTERS[name], settings=ImageSettings(), broker_count=2, operator_namespace="odradek-system", extras=extras
    )
    assert len(wanted) > 10
    for item in wanted:
        # The library drops unknown fields and converts values of the wrong type, so the result would differ.
        model = read(item.body, f"V1{item.kind}")
        assert ApiClient().sanitize_for_serialization(model) == item.body, item.kind


@pytest.mark.parametrize("spec", [{"clusterIp": "None"}, {"publishNotReadyAddresses": "true"}, {"ports": [{}]}])
def test_the_judge_sees_what_is_wrong(spec: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "spec": spec}
    try:
        found = ApiClient().sanitize_for_serialization(read(body, "V1Service"))
    except ValueError:
        return
    assert found != body
