"""Objects of the brokers: RBAC rules, Services, the NetworkPolicy and the StatefulSet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from odradek_operator.crds.types import (
    Brokers,
    Cluster,
    Listener,
    ListenerAuthentication,
    ListenerType,
    Monitoring,
    NetworkAccess,
    PodTemplate,
    ZooKeeper,
)
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import wanted_objects

Objects = dict[tuple[str, str], dict[str, Any]]
Build = Callable[..., Objects]

PLAIN = Listener(name="plain", port=9092)
NODES = Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT)
BALANCED = Listener(name="balanced", port=9095, type=ListenerType.LOAD_BALANCER)


def cluster(*listeners: Listener, rack: str | None = None, **more: Any) -> Cluster:
    return Cluster(
        name="demo",
        namespace="shop",
        uid="1",
        listeners=listeners or (PLAIN,),
        brokers=Brokers(replicas=2, rack_topology_key=rack),
        **more,
    )


def pod_of(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["StatefulSet", "demo-kafka"]["spec"]["template"]["spec"]
    return spec


def environment(objects: Objects) -> dict[str, Any]:
    (container,) = pod_of(objects)["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize(
    ("listeners", "rack", "services", "nodes"),
    [
        ((PLAIN,), None, False, False),
        ((PLAIN,), "zone", False, True),
        ((NODES,), None, True, True),
        ((BALANCED,), None, True, False),
    ],
)
def test_rights_are_those_that_are_used(
    build: Build, listeners: tuple[Listener, ...], rack: str | None, services: bool, nodes: bool
) -> None:
    objects = build(cluster(*listeners, rack=rack))
    assert (("Role", "demo-kafka") in objects) is services
    assert (("RoleBinding", "demo-kafka") in objects) is services
    assert (("ClusterRoleBinding", "odradek-shop.demo-node-reader") in objects) is nodes
    assert pod_of(objects)["automountServiceAccountToken"] is (services or nodes)
    assert objects["ServiceAccount", "demo-kafka"]["automountServiceAccountToken"] is (services or nodes)


def test_brokers_read_their_own_services_and_nothing_else(build: Build) -> None:
    objects = build(cluster(PLAIN, NODES, BALANCED))
    (rule,) = objects["Role", "demo-kafka"]["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["services"],
        "resourceNames": ["demo-kafka-balanced-0", "demo-kafka-balanced-1", "demo-kafka-nodes-0", "demo-kafka-nodes-1"],
        "verbs": ["get"],
    }
    binding = objects["ClusterRoleBinding", "odradek-shop.demo-node-reader"]
    assert binding["roleRef"]["name"] == "odradek-node-reader"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "demo-kafka", "namespace": "shop"}]
    assert binding["metadata"]["labels"]["odradek.dev/namespace"] == "shop"


def test_namespaces_and_names_that_run_together_have_bindings_of_their_own(build: Build) -> None:
    def names_of(namespace: str, name: str) -> set[str]:
        given = dataclasses.replace(cluster(rack="zone"), namespace=namespace, name=name)
        return {name for kind, name in build(given) if kind == "ClusterRoleBinding"}

    assert not names_of("a-b", "c") & names_of("a", "b-c")


def test_pods_are_told_what_they_need(build: Build) -> None:
    variables = environment(build(cluster(PLAIN, NODES, rack="zone")))
    assert (variables["CLUSTER"], variables["RACK_TOPOLOGY_KEY"]) == ("demo", "zone")
    assert [variables[name]["fieldRef"]["fieldPath"] for name in ("POD_NAME", "POD_NAMESPACE", "NODE_NAME")] == [
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
    ]
    assert json.loads(variables["LISTENERS"]) == [
        {"name": "plain", "port": 9092, "type": "internal"},
        {"name": "nodes", "port": 9094, "type": "nodeport"},
    ]
    assert "RACK_TOPOLOGY_KEY" not in environment(build(cluster()))


@pytest.mark.parametrize("secured", [{"tls": True}, {"authentication": ListenerAuthentication(type="scram-sha-512")}])
def test_a_listener_that_asks_for_secrets_is_never_served_without(build: Build, secured: dict[str, Any]) -> None:
    objects = build(cluster(PLAIN, Listener(name="secret", port=9099, type=ListenerType.NODE_PORT, **secured)))
    assert "9099" not in json.dumps([body for (kind, _), body in objects.items() if kind != "ConfigMap"])
    assert not [name for _, name in objects if "secret" in name]


def test_without_internal_listeners_there_is_no_internal_bootstrap(build: Build) -> None:
    assert ("Service", "demo-kafka-bootstrap") in build(cluster(PLAIN, NODES))
    objects = build(cluster(NODES))
    assert ("Service", "demo-kafka-bootstrap") not in objects
    ports = objects["Service", "demo-kafka-brokers"]["spec"]["ports"]
    assert [port["port"] for port in ports] == [9091]


@pytest.mark.parametrize(
    ("listener", "type_", "policy"), [(NODES, "NodePort", "Local"), (BALANCED, "LoadBalancer", "Cluster")]
)
def test_services_of_an_external_listener(build: Build, listener: Listener, type_: str, policy: str) -> None:
    objects = build(cluster(PLAIN, listener), broker_count=3)
    bootstrap = objects["Service", f"demo-kafka-{listener.name}-bootstrap"]["spec"]
    assert (bootstrap["type"], bootstrap["externalTrafficPolicy"]) == (type_, "Cluster")
    for broker in range(3):
        spec = objects["Service", f"demo-kafka-{listener.name}-{broker}"]["spec"]
        assert (spec["type"], spec["externalTrafficPolicy"], spec["publishNotReadyAddresses"]) == (type_, policy, True)
        assert spec["selector"]["statefulset.kubernetes.io/pod-name"] == f"demo-kafka-{broker}"
    assert ("Service", f"demo-kafka-{listener.name}-3") not in objects


def ingress(objects: Objects) -> dict[int, Any]:
    rules = objects["NetworkPolicy", "demo-kafka"]["spec"]["ingress"]
    return {port["port"]: rule.get("from", "everybody") for rule in rules for port in rule["ports"]}


def components(peers: list[dict[str, Any]]) -> list[str]:
    return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers]


def test_policy_lets_in_those_whom_a_port_is_for(build: Build) -> None:
    allowed = ingress(build(cluster(PLAIN, NODES, BALANCED)))
    assert components(allowed[9091]) == ["kafka"]
    assert allowed[9092] == [{"namespaceSelector": {}}]
    assert (allowed[9094], allowed[9095]) == ("everybody", "everybody")


def test_policy_closes_metrics_to_all_but_operator_and_prometheus(build: Build) -> None:
    operator, prometheus = ingress(build(cluster(PLAIN)))[9404]
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "odradek-system"}}
    assert prometheus["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    scraper = {"namespaceSelector": {"matchLabels": {"team": "metrics"}}}
    named = cluster(PLAIN, network_access=NetworkAccess(metrics=(scraper,)))
    assert ingress(build(named))[9404] == [operator, scraper]


def test_exporter_comes_in_by_the_brokers_own_listener_where_no_other_is_internal(build: Build) -> None:
    assert components(ingress(build(cluster(NODES)))[9091]) == ["kafka", "exporter"]
    without = cluster(NODES, monitoring=Monitoring(exporter=False))
    assert components(ingress(build(without))[9091]) == ["kafka"]


def test_brokers_beside_a_given_ensemble_may_replicate_from_ours(build: Build) -> None:
    given = ZooKeeper(connect="zk:2181")
    assert ingress(build(cluster(zookeeper=given)))[9091] == "everybody"
    outside = {"ipBlock": {"cidr": "192.0.2.0/24"}}
    named = ingress(build(cluster(zookeeper=given, network_access=NetworkAccess(replication=(outside,)))))[9091]
    assert named == [{"podSelector": {"matchLabels": names.selector("demo", names.Component.KAFKA)}}, outside]
    nobody = cluster(zookeeper=given, network_access=NetworkAccess(replication=()))
    assert components(ingress(build(nobody))[9091]) == ["kafka"]


def test_passwords_come_from_secrets(build: Build) -> None:
    without = pod_of(build(cluster()))
    given = pod_of(build(dataclasses.replace(cluster(), brokers=Brokers(replicas=2, config_secrets=("one", "two")))))
    mounts = [mount for mount in given["containers"][0]["volumeMounts"] if mount["name"].startswith("secret")]
    assert [mount["mountPath"] for mount in mounts] == ["/etc/odradek-secrets/0", "/etc/odradek-secrets/1"]
    secrets = [volume["secret"] for volume in given["volumes"] if "secret" in volume]
    assert [secret["secretName"] for secret in secrets] == ["one", "two"]
    assert not [volume for volume in without["volumes"] if "secret" in volume], "and nothing changes without any"


def test_policies_can_be_left_out(build: Build) -> None:
    assert not [name for kind, name in build(cluster(network_policies=False)) if kind == "NetworkPolicy"]


def test_the_set_never_acts_of_its_own_accord(build: Build) -> None:
    spec = build(cluster(), broker_count=5)["StatefulSet", "demo-kafka"]["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (5, "demo-kafka-brokers")
    assert (spec["podManagementPolicy"], spec["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})


def test_racks_and_nodes_are_soft(build: Build) -> None:
    pod = pod_of(build(cluster(rack="zone")))
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("zone", "ScheduleAnyway")
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert "topologySpreadConstraints" not in pod_of(build(cluster()))


def test_what_the_user_adds_to_pods(build: Build) -> None:
    user = PodTemplate(
        labels={"team": "a", "odradek.dev/cluster": "other"},
        annotations={"note": "b", "odradek.dev/restart-hash": "mine"},
        node_selector={"disk": "ssd"},
        affinity={"nodeAffinity": {"x": 1}},
        tolerations=({"operator": "Exists"},),
        priority_class_name="high",
        image_pull_secrets=("one", "two"),
        termination_grace_period_seconds=0,
    )
    given = Cluster(name="demo", uid="1", brokers=Brokers(template=user))
    template = build(given)["StatefulSet", "demo-kafka"]["spec"]["template"]
    metadata, pod = template["metadata"], template["spec"]
    assert (metadata["labels"]["team"], metadata["labels"]["odradek.dev/cluster"]) == ("a", "demo")
    assert metadata["annotations"]["note"] == "b"
    assert metadata["annotations"]["odradek.dev/restart-hash"] not in ("", "mine")
    assert pod["affinity"].keys() == {"nodeAffinity", "podAntiAffinity"}
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"disk": "ssd"}, [{"operator": "Exists"}])
    assert (pod["priorityClassName"], pod["terminationGracePeriodSeconds"]) == ("high", 0)
    assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_what_the_user_says_of_pods_apart_replaces_ours(build: Build) -> None:
    mine = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    given = Cluster(name="demo", uid="1", brokers=Brokers(template=PodTemplate(affinity=mine)))
    assert pod_of(build(given))["affinity"] == mine


def test_nothing_is_said_where_the_user_says_nothing(build: Build) -> None:
    pod = pod_of(build(cluster()))
    assert not pod.keys() & {"nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets"}
    assert "resources" not in pod["containers"][0]
    assert pod["terminationGracePeriodSeconds"] == 120


@pytest.mark.parametrize(
    ("brokers", "image"), [(Brokers(), "here/broker:0.3.0"), (Brokers(image="there/b:1"), "there/b:1")]
)
def test_image_of_brokers(brokers: Brokers, image: str) -> None:
    settings = ImageSettings(prefix="here", pull_policy="Always")
    given = Cluster(name="demo", uid="1", version="0.3.0", brokers=brokers)
    (found,) = (
        item.body["spec"]["template"]["spec"]["containers"][0]
        for item in wanted_objects(given, settings=settings, broker_count=1, operator_namespace="odradek-system")
        if (item.kind, item.name) == ("StatefulSet", "demo-kafka")
    )
    assert (found["image"], found["imagePullPolicy"], found["command"]) == (image, "Always", ["odradek-pod", "broker"])


@pytest.mark.parametrize(("seconds", "given"), [(None, None), (60.0, "60"), (0.5, "0.5")])
def test_pods_know_how_long_to_ask_the_api_server(seconds: float | None, given: str | None) -> None:
    """Without the setting there is no variable, because a new variable would restart the brokers."""
    objects = {
        (item.kind, item.name): item.body
        for item in wanted_objects(
            cluster(), settings=ImageSettings(api_seconds=seconds), broker_count=2, operator_namespace="odradek-system"
        )
    }
    assert environment(objects).get("API_SECONDS") == given


@pytest.mark.parametrize("component", [Component.KAFKA, Component.ZOOKEEPER])
def test_a_rule_of_spreading_restarts_no_pod(build: Build, component: Component) -> None:
    own = dataclasses.replace(cluster(rack="zone"), zookeeper=ZooKeeper())
    before, after = (
        build(own, spread=spread)["StatefulSet", f"demo-{component.value}"]["spec"]["template"]
        for spread in ((), (component,))
    )
    assert before["metadata"]["annotations"] == after["metadata"]["annotations"]
    (rack, rule) = after["spec"]["topologySpreadConstraints"]
    assert before["spec"]["topologySpreadConstraints"] == [rack]
    assert (rule["topologyKey"], rule["whenUnsatisfiable"], rule["maxSkew"]) == (
        "kubernetes.io/hostname",
        "DoNotSchedule",
        1,
    )
    assert rule["labelSelector"]["matchLabels"].items() <= after["metadata"]["labels"].items()
