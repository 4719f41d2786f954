"""Properties of the objects of every cluster: names, references, selectors, ports, order and restart hashes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.base.config import BROKER_SETTINGS
from odradek_operator.crds import OPERATED_KEYS
from odradek_operator.crds.types import (
    Brokers,
    Cluster,
    ComputeResources,
    Listener,
    ListenerType,
    Monitoring,
    PodTemplate,
    Rebalance,
    Volume,
    ZooKeeper,
)
from odradek_operator.kube.api.object_kinds import Kind, kind_of
from odradek_operator.objects import names
from odradek_operator.objects.cluster_properties import is_dynamic
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import (
    PRUNED_KINDS,
    Extras,
    WantedObject,
    hashes,
    prune_selector,
    wanted_objects,
)

Object = dict[str, Any]
IMAGES = ImageSettings(prefix="registry.example/odradek", pull_policy="Always", operator_version="0.9.9")
EXTRAS = Extras(rule_groups=({"name": "g", "rules": []},), dashboards={"Brokers & Disks": "{}", "lag": "{}"})

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")

# The longest names that the resource permits: 40 characters, or 46 together with the name of an external listener.
dns_words = st.from_regex(r"[a-z]([-a-z0-9]{0,19}[a-z0-9])?", fullmatch=True)
label_maps = st.dictionaries(st.sampled_from(["team", "odradek.dev/cluster", "tier"]), dns_words, max_size=2)
quantities = st.sampled_from(["1", "500m", "2Gi", "10Gi"])
quantity_maps = st.dictionaries(st.sampled_from(["cpu", "memory"]), quantities, max_size=2)
compute = st.builds(ComputeResources, requests=quantity_maps, limits=quantity_maps)
templates = st.builds(
    PodTemplate,
    labels=label_maps,
    annotations=label_maps,
    node_selector=label_maps,
    affinity=st.none() | st.just({"nodeAffinity": {}}),
    tolerations=st.sampled_from([(), ({"key": "disk", "operator": "Exists"},)]),
    priority_class_name=st.none() | dns_words,
    image_pull_secrets=st.lists(dns_words, max_size=2, unique=True).map(tuple),
    termination_grace_period_seconds=st.none() | st.integers(0, 600),
)
volumes = st.lists(
    st.builds(Volume, id=st.integers(0, 999), size=quantities, storage_class=st.none() | dns_words),
    max_size=3,
    unique_by=lambda volume: volume.id,
).map(tuple)
own_config = st.dictionaries(st.sampled_from(sorted(BROKER_SETTINGS.keys() - OPERATED_KEYS)), st.text(max_size=5))
brokers = st.builds(
    Brokers,
    replicas=st.integers(1, 5),
    volumes=volumes,
    delete_claims=st.booleans(),
    rack_topology_key=st.none() | st.just("topology.kubernetes.io/zone"),
    image=st.none() | dns_words,
    resources=compute,
    template=templates,
    config=own_config,
)
free_ports = st.integers(1, 65_535).filter(lambda port: port not in (names.REPLICATION_PORT, names.METRICS_PORT))
listeners = st.lists(
    st.builds(
        Listener,
        name=st.from_regex(r"[a-z0-9]{1,25}", fullmatch=True).filter(lambda name: name != names.REPLICATION_LISTENER),
        port=free_ports,
        type=st.sampled_from(ListenerType),
        tls=st.booleans(),
    ),
    max_size=4,
    unique_by=(lambda listener: listener.name, lambda listener: listener.port),
).map(tuple)
ensembles = st.builds(
    ZooKeeper,
    replicas=st.sampled_from([1, 3, 5]),
    size=st.none() | quantities,
    storage_class=st.none() | dns_words,
    delete_claims=st.booleans(),
    resources=compute,
    template=templates,
    connect=st.none() | st.just("zk-0:2181,zk-1:2181/kafka"),
)
monitorings = st.builds(
    Monitoring,
    pod_monitors=st.booleans(),
    rules=st.booleans(),
    dashboards=st.booleans(),
    exporter=st.booleans(),
    exporter_resources=compute,
)
clusters = st.builds(
    Cluster,
    name=dns_words,
    namespace=dns_words,
    uid=st.uuids().map(str),
    version=st.sampled_from(["0.1.0", "0.2.0"]),
    brokers=brokers,
    listeners=listeners,
    zookeeper=ensembles,
    monitoring=monitorings,
    network_policies=st.booleans(),
)
SOME = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


def wanted_of(cluster: Cluster, broker_count: int = 3) -> tuple[WantedObject, ...]:
    return wanted_objects(
        cluster, settings=IMAGES, broker_count=broker_count, operator_namespace="odradek-system", extras=EXTRAS
    )


def bodies(cluster: Cluster) -> list[Object]:
    return [item.body for item in wanted_of(cluster)]


def templates_of(objects: list[Object]) -> Iterator[tuple[Object, Object]]:
    """Yield StatefulSets and Deployments with their pod templates."""
    for body in objects:
        if body["kind"] in ("StatefulSet", "Deployment"):
            yield body, body["spec"]["template"]


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


@SOME
@given(clusters)
def test_every_name_and_label_is_one_that_kubernetes_takes(cluster: Cluster) -> None:
    for body in bodies(cluster):
        name = body["metadata"]["name"]
        assert (SERVICE if body["kind"] == "Service" else SUBDOMAIN).fullmatch(name), name
        assert len(name) <= 253
        assert "namespace" not in body["metadata"] or LABEL.fullmatch(body["metadata"]["namespace"])
        for value in body["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(value), value
        if body["kind"] == "StatefulSet":
            # Pods have the name as the value of a label, followed by '-' and a hash of ten characters.
            assert len(name) <= 52
    for _, template in templates_of(bodies(cluster)):
        assert all(LABEL_VALUE.fullmatch(value) for value in template["metadata"]["labels"].values())


@SOME
@given(clusters)
def test_what_an_object_refers_to_comes_before_it(cluster: Cluster) -> None:
    seen: set[tuple[str, str]] = set()
    for body in bodies(cluster):
        spec = body.get("spec", {})
        needed = set()
        if "roleRef" in body:
            if body["kind"] == "RoleBinding":
                needed.add((body["roleRef"]["kind"], body["roleRef"]["name"]))
            needed |= {(subject["kind"], subject["name"]) for subject in body["subjects"]}
        if "template" in spec:
            pod = spec["template"]["spec"]
            needed.add(("ServiceAccount", pod["serviceAccountName"]))
            needed |= {("ConfigMap", volume["configMap"]["name"]) for volume in pod["volumes"] if "configMap" in volume}
        if "serviceName" in spec:
            needed.add(("Service", spec["serviceName"]))
        assert needed <= seen, body["kind"]
        seen.add((body["kind"], body["metadata"]["name"]))


@SOME
@given(clusters)
def test_selectors_find_the_pods_of_one_component(cluster: Cluster) -> None:
    objects = bodies(cluster)
    pods = {set_["metadata"]["name"]: template["metadata"]["labels"] for set_, template in templates_of(objects)}
    for set_, template in templates_of(objects):
        assert matches(set_["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
    for body in objects:
        spec = body.get("spec", {})
        if body["kind"] == "Service":
            selector = dict(spec["selector"])
            pod = selector.pop("statefulset.kubernetes.io/pod-name", None)
            assert pod is None or pod in [names.broker_pod(cluster.name, broker) for broker in cluster.brokers.ids(3)]
        elif body["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            selector = spec["selector" if "selector" in spec else "podSelector"]["matchLabels"]
        else:
            continue
        assert sum(matches(selector, labels) for labels in pods.values()) == 1, body["metadata"]["name"]


@SOME
@given(clusters)
def test_ports_are_unique_and_services_lead_to_open_ones(cluster: Cluster) -> None:
    objects = bodies(cluster)
    opened: dict[str, set[int]] = {}
    for _, template in templates_of(objects):
        (container,) = template["spec"]["containers"]
        ports = container["ports"]
        assert len({port["name"] for port in ports}) == len({port["containerPort"] for port in ports}) == len(ports)
        assert all(PORT_NAME.fullmatch(port["name"]) for port in ports)
        opened[template["metadata"]["labels"][names.COMPONENT_LABEL]] = {port["containerPort"] for port in ports}
    for body in objects:
        if body["kind"] == "Service":
            ports = body["spec"]["ports"]
            assert ports
            assert len({port["name"] for port in ports}) == len({port["port"] for port in ports}) == len(ports)
            assert all(LABEL.fullmatch(port["name"]) for port in ports)
            assert {port["targetPort"] for port in ports} <= opened[body["spec"]["selector"][names.COMPONENT_LABEL]]


@SOME
@given(clusters)
def test_policies_open_every_port_that_pods_have_and_no_other(cluster: Cluster) -> None:
    objects = bodies(cluster)
    policies = {body["metadata"]["name"]: body for body in objects if body["kind"] == "NetworkPolicy"}
    for set_, template in templates_of(objects):
        ports = {port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
        if not cluster.network_policies:
            assert policies == {}
            continue
        rules = policies[set_["metadata"]["name"]]["spec"]["ingress"]
        assert sorted(port["port"] for rule in rules for port in rule["ports"]) == sorted(ports)


@SOME
@given(clusters)
def test_every_volume_that_is_mounted_is_there(cluster: Cluster) -> None:
    for set_, template in templates_of(bodies(cluster)):
        mounts = template["spec"]["containers"][0]["volumeMounts"]
        claims = [claim["metadata"]["name"] for claim in set_["spec"].get("volumeClaimTemplates", [])]
        volumes = [volume["name"] for volume in template["spec"]["volumes"]]
        assert sorted(mount["name"] for mount in mounts) == sorted(claims + volumes)
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)


@SOME
@given(clusters)
def test_pods_obey_the_restricted_standard(cluster: Cluster) -> None:
    for _, template in templates_of(bodies(cluster)):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert all(volume.keys() & {"configMap", "emptyDir"} for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


@SOME
@given(clusters)
def test_objects_go_with_the_cluster_or_are_found_by_their_labels(cluster: Cluster) -> None:
    for item in wanted_of(cluster):
        body = item.body
        assert (item.api_version, item.kind, item.name) == (body["apiVersion"], body["kind"], body["metadata"]["name"])
        assert kind_of(body).namespaced is (item.namespace is not None)
        assert item.owned is (item.namespace is not None)
        if item.owned:
            (owner,) = body["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (cluster.uid, True, True)
            assert item.namespace == cluster.namespace
        else:
            assert kind_of(body) is Kind.CLUSTER_ROLE_BINDING
        assert selected(prune_selector(cluster), body["metadata"]["labels"])
        assert (item.api_version, item.kind) in PRUNED_KINDS or item.kind == "StatefulSet"


def selected(selector: str, labels: Mapping[str, str]) -> bool:
    """Match labels as the API server does. Supports selectors with `=` and `!=`."""
    for term in selector.split(","):
        if "!=" in term:
            label, value = term.split("!=")
            if labels.get(label) == value:
                return False
        else:
            label, value = term.split("=")
            if labels.get(label) != value:
                return False
    return True


@SOME
@given(clusters)
def test_the_same_wishes_give_the_same_bytes(cluster: Cluster) -> None:
    def reversed_maps(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: reversed_maps(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **fields)
        return dict(reversed(value.items())) if isinstance(value, dict) else value

    first, second = bodies(cluster), bodies(reversed_maps(cluster))
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    identities = [(body["kind"], body["metadata"]["name"]) for body in first]
    assert len(set(identities)) == len(identities)


def of_brokers(**changed: Any) -> Callable[[Cluster], Cluster]:
    return lambda cluster: dataclasses.replace(cluster, brokers=dataclasses.replace(cluster.brokers, **changed))


def of_broker_pods(**changed: Any) -> Callable[[Cluster], Cluster]:
    def change(cluster: Cluster) -> Cluster:
        return of_brokers(template=dataclasses.replace(cluster.brokers.template, **changed))(cluster)

    return change


def of_zookeeper(**changed: Any) -> Callable[[Cluster], Cluster]:
    return lambda cluster: dataclasses.replace(cluster, zookeeper=dataclasses.replace(cluster.zookeeper, **changed))


def of_cluster(**changed: Any) -> Callable[[Cluster], Cluster]:
    return lambda cluster: dataclasses.replace(cluster, **changed)


def of_config(key: str, value: str) -> Callable[[Cluster], Cluster]:
    return lambda cluster: of_brokers(config={**cluster.brokers.config, key: value})(cluster)


NOTHING = "nothing"
BROKERS = "brokers"
ENSEMBLE = "ensemble"
BOTH = "both"


@pytest.mark.parametrize(
    ("restarts", "change"),
    [
        (NOTHING, of_brokers(replicas=4)),
        (NOTHING, of_brokers(replicas=1)),
        (NOTHING, of_brokers(delete_claims=True)),
        (NOTHING, of_brokers(release_lost_after_seconds=1)),
        (NOTHING, of_brokers(rack_names=("a",))),
        (NOTHING, of_brokers(rebalance=Rebalance(partitions=1))),
        (NOTHING, of_config("min.insync.replicas", "2")),
        (NOTHING, of_config("log.retention.ms", "1000")),
        (NOTHING, of_cluster(monitoring=Monitoring(pod_monitors=True, rules=True, dashboards=True, exporter=False))),
        (NOTHING, of_cluster(network_policies=False)),
        (NOTHING, of_cluster(paused=True)),
        (NOTHING, of_cluster(generation=7)),
        (NOTHING, of_zookeeper(delete_claims=True)),
        (BROKERS, of_brokers(image="elsewhere/broker:1")),
        (BROKERS, of_brokers(resources=ComputeResources(limits={"cpu": "2"}))),
        (BROKERS, of_config("num.partitions", "6")),
        (NOTHING, of_config("a.setting.of.others", "6")),
        (BROKERS, of_config("zookeeper.session.timeout.ms", "6000")),
        (BROKERS, of_config("default.replication.factor", "2")),
        (BROKERS, of_broker_pods(labels={"team": "b"})),
        (BROKERS, of_broker_pods(annotations={"team": "b"})),
        (BROKERS, of_broker_pods(node_selector={"disk": "fast"})),
        (BROKERS, of_broker_pods(affinity={"podAntiAffinity": {}})),
        (BROKERS, of_broker_pods(tolerations=({"operator": "Exists"},))),
        (BROKERS, of_broker_pods(priority_class_name="high")),
        (BROKERS, of_broker_pods(image_pull_secrets=("other",))),
        (BROKERS, of_broker_pods(termination_grace_period_seconds=7)),
        (BROKERS, of_cluster(listeners=(Listener(name="plain", port=9093),))),
        (BROKERS, of_cluster(listeners=(Listener(name="plain", port=9092, type=ListenerType.NODE_PORT),))),
        (ENSEMBLE, of_zookeeper(image="elsewhere/zookeeper:1")),
        (ENSEMBLE, of_zookeeper(config={"tickTime": "500"})),
        (ENSEMBLE, of_zookeeper(resources=ComputeResources(limits={"cpu": "2"}))),
        (ENSEMBLE, of_zookeeper(template=PodTemplate(labels={"team": "b"}))),
        (BOTH, of_zookeeper(replicas=5)),
        (BOTH, of_cluster(version="0.2.0")),
        (BOTH, of_brokers(rack_topology_key="rack")),
    ],
)
def test_what_restarts_pods(restarts: str, change: Callable[[Cluster], Cluster]) -> None:
    cluster = Cluster(name="demo", uid="1")
    before, after = hashes(cluster, IMAGES), hashes(change(cluster), IMAGES)
    assert change(cluster) != cluster
    assert (before.brokers != after.brokers) is (restarts in (BROKERS, BOTH))
    assert (before.ensemble != after.ensemble) is (restarts in (ENSEMBLE, BOTH))


@SOME
@given(clusters, st.integers(1, 9), own_config)
def test_restart_hash_follows_template_and_static_properties_alone(
    cluster: Cluster, replicas: int, config: dict[str, str]
) -> None:
    dynamic = {key: value for key, value in config.items() if is_dynamic(key)}
    static = {key: value for key, value in config.items() if not is_dynamic(key)}
    kept = {key: value for key, value in cluster.brokers.config.items() if not is_dynamic(key)}
    # Defaults that depend on the number of brokers count as set by the user if they are in the resource.
    before = hashes(cluster, IMAGES)
    assert hashes(of_brokers(replicas=replicas, config={**kept, **dynamic})(cluster), IMAGES) == before
    changed = hashes(of_brokers(config={**cluster.brokers.config, **static})(cluster), IMAGES)
    defaults = {"zookeeper.session.timeout.ms": "18000", "controlled.shutdown.enable": "true"}
    same = {**defaults, **kept, **static} == {**defaults, **kept}
    assert (changed.brokers == before.brokers) is same
    assert changed.ensemble == before.ensemble


@SOME
@given(clusters)
def test_templates_bear_their_hash(cluster: Cluster) -> None:
    found = {
        set_["metadata"]["name"]: template["metadata"]["annotations"][names.RESTART_HASH]
        for set_, template in templates_of(bodies(cluster))
        if set_["kind"] == "StatefulSet"
    }
    wanted = hashes(cluster, IMAGES)
    expected = {names.kafka(cluster.name): wanted.brokers}
    if wanted.ensemble is not None:
        expected[names.zookeeper(cluster.name)] = wanted.ensemble
    assert found == expected


@SOME
@given(clusters)
def test_the_order_of_lists_restarts_nobody(cluster: Cluster) -> None:
    turned = dataclasses.replace(cluster, listeners=cluster.listeners[::-1])
    turned = of_brokers(volumes=cluster.brokers.volumes[::-1])(turned)
    assert hashes(turned, IMAGES) == hashes(cluster, IMAGES)


def test_image_settings_restart_pods() -> None:
    cluster = Cluster(name="demo", uid="1")
    first, second = (hashes(cluster, ImageSettings(prefix=prefix)) for prefix in ("one", "two"))
    assert first.brokers != second.brokers
    assert first.ensemble != second.ensemble


def test_a_cluster_without_uid_is_refused() -> None:
    with pytest.raises(ValueError, match="uid"):
        wanted_objects(Cluster(name="demo"), settings=IMAGES, broker_count=3, operator_namespace="odradek-system")


def test_zookeeper_comes_first_and_monitoring_last() -> None:
    cluster = Cluster(name="demo", uid="1", monitoring=Monitoring(pod_monitors=True))
    components = [item.body["metadata"]["labels"][names.COMPONENT_LABEL] for item in wanted_of(cluster)]
    assert [component for at, component in enumerate(components) if component not in components[:at]] == [
        "zookeeper",
        "kafka",
        "exporter",
    ]
    assert [item.kind for item in wanted_of(cluster)][-1] == "PodMonitor"


def test_a_given_ensemble_leaves_the_own_one_alone() -> None:
    own = Cluster(name="demo", uid="1")
    given_one = dataclasses.replace(own, zookeeper=ZooKeeper(connect="zk:2181"))
    selector = prune_selector(given_one)
    for item in wanted_of(own):
        labels = item.body["metadata"]["labels"]
        assert selected(selector, labels) is (labels[names.COMPONENT_LABEL] != "zookeeper")
    assert hashes(given_one, IMAGES).ensemble is None


def test_clusters_of_one_name_do_not_prune_each_other() -> None:
    here, there = Cluster(name="demo", uid="1", namespace="here"), Cluster(name="demo", uid="2", namespace="there")
    assert not any(selected(prune_selector(here), item.body["metadata"]["labels"]) for item in wanted_of(there))


def test_pruned_kinds_are_known() -> None:
    for api_version, kind in PRUNED_KINDS:
        kind_of({"apiVersion": api_version, "kind": kind})
