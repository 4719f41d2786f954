"""Objects of the dedicated ZooKeeper ensemble of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odradek_operator.crds.types import Brokers, Cluster, ComputeResources, NetworkAccess, ZooKeeper
from odradek_operator.objects import names
from odradek_operator.objects.policies import PROMETHEUS

Objects = dict[tuple[str, str], dict[str, Any]]
Build = Callable[..., Objects]


def cluster(zookeeper: ZooKeeper | None = None, **more: Any) -> Cluster:
    return Cluster(name="demo", namespace="shop", uid="1", zookeeper=zookeeper or ZooKeeper(), **more)


def test_a_given_ensemble_has_no_objects(build: Build) -> None:
    found = build(cluster(ZooKeeper(connect="zk:2181")))
    assert not [name for _, name in found if "zookeeper" in name]


def test_the_set(build: Build) -> None:
    spec = build(cluster(ZooKeeper(replicas=5, resources=ComputeResources(limits={"memory": "1Gi"}))))[
        "StatefulSet", "demo-zookeeper"
    ]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], spec["serviceName"]) == (5, "demo-zookeeper-nodes")
    assert (spec["podManagementPolicy"], spec["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})
    assert (container["name"], container["command"]) == ("zookeeper", ["odradek-pod", "zookeeper"])
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert {"name": "ENSEMBLE_REPLICAS", "value": "5"} in container["env"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    assert {"name": "data", "mountPath": "/var/lib/odradek/data"} in container["volumeMounts"]


def test_members_without_a_token(build: Build) -> None:
    objects = build(cluster())
    assert objects["ServiceAccount", "demo-zookeeper"]["automountServiceAccountToken"] is False
    pod = objects["StatefulSet", "demo-zookeeper"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False


def test_members_are_spread_over_the_brokers_racks(build: Build) -> None:
    objects = build(cluster(brokers=Brokers(rack_topology_key="zone")))
    pod = objects["StatefulSet", "demo-zookeeper"]["spec"]["template"]["spec"]
    assert [spread["topologyKey"] for spread in pod["topologySpreadConstraints"]] == ["zone"]


def test_services(build: Build) -> None:
    objects = build(cluster())
    nodes = objects["Service", "demo-zookeeper-nodes"]["spec"]
    assert (nodes["clusterIP"], nodes["publishNotReadyAddresses"]) == ("None", True)
    assert [port["port"] for port in nodes["ports"]] == [2181, 2888, 3888]
    client = objects["Service", "demo-zookeeper-client"]["spec"]
    assert "clusterIP" not in client
    assert [port["port"] for port in client["ports"]] == [2181]


def test_policy_keeps_strangers_out(build: Build) -> None:
    rules = build(cluster())["NetworkPolicy", "demo-zookeeper"]["spec"]["ingress"]
    allowed = {port["port"]: rule.get("from", "everybody") for rule in rules for port in rule["ports"]}
    kafka, exporter, operator = allowed[2181]
    assert kafka == {"podSelector": {"matchLabels": names.selector("demo", names.Component.KAFKA)}}
    assert exporter == {"podSelector": {"matchLabels": names.selector("demo", names.Component.EXPORTER)}}
    # Both selectors are in one peer, so it only matches pods with the operator's labels in the operator's namespace.
    assert operator == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "odradek-system"}},
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "odradek", "app.kubernetes.io/component": "operator"}
        },
    }
    members = [{"podSelector": {"matchLabels": names.selector("demo", names.Component.ZOOKEEPER)}}]
    assert allowed[2888] == allowed[3888] == members
    assert allowed[9404] == [operator, PROMETHEUS]


def test_policy_lets_in_peers_that_the_resource_names(build: Build) -> None:
    tool = {"podSelector": {"matchLabels": {"app": "tool"}}}
    given = replace(cluster(), network_access=NetworkAccess(zookeeper=(tool,), metrics=(tool,)))
    rules = build(given)["NetworkPolicy", "demo-zookeeper"]["spec"]["ingress"]
    allowed = {port["port"]: rule["from"] for rule in rules for port in rule["ports"]}
    assert allowed[2181][-1] == tool
    assert tool in allowed[9404]
    assert PROMETHEUS not in allowed[9404]


def test_claims_may_go_with_the_cluster(build: Build) -> None:
    spec = build(cluster(ZooKeeper(delete_claims=True)))["StatefulSet", "demo-zookeeper"]["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}
