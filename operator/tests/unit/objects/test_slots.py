"""Ports, names and directories of the brokers of a pod, and the objects of a cluster with several brokers in a pod."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import Brokers, Cluster, Listener, ListenerType, Monitoring, Volume
from odradek_operator.objects import names, slots
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import hashes, wanted_objects

BASES = st.lists(st.integers(1, 50_000), min_size=1, max_size=6, unique=True)
CLUSTER = Cluster(
    name="demo",
    namespace="shop",
    uid="u",
    brokers=Brokers(replicas=2, per_pod=2, volumes=(Volume(id=0, size="1Gi"),)),
    listeners=(
        Listener(name="plain", port=9092),
        Listener(name="out", port=9094, type=ListenerType.NODE_PORT, insecure=True),
    ),
    monitoring=Monitoring(pod_monitors=True),
)


@given(bases=BASES, per_pod=st.integers(1, slots.MAX_PER_POD))
def test_ports_differ_unless_they_collide(bases: list[int], per_pod: int) -> None:
    ports = slots.ports(bases, per_pod)
    collides = any(slots.collide(one, other, per_pod) for one in bases for other in bases if one != other)
    assert (len(set(ports)) < len(ports)) == collides


@given(slot=st.integers(0, slots.MAX_PER_POD - 1))
def test_names_of_slots_are_a_bijection(slot: int) -> None:
    assert slots.slot_of(slots.container(slot)) == slot
    for name in ("tcp-65535", "tcp-replication", names.METRICS_PORT_NAME):
        assert len(slots.port_name(name, slot)) <= 15


def test_other_containers_have_no_slot() -> None:
    assert [slots.slot_of(name) for name in ("zookeeper", "kafka-", "kafka-01", "kafka-x", "kafka-exporter")] == [
        None
    ] * 5


def objects(cluster: Cluster = CLUSTER, **options: Any) -> dict[tuple[str, str], dict[str, Any]]:
    found = wanted_objects(
        cluster, settings=ImageSettings(), broker_count=2, operator_namespace="odradek-system", **options
    )
    return {(one.kind, one.name): one.body for one in found}


def test_a_pod_has_a_container_for_each_broker() -> None:
    spec = objects()["StatefulSet", "demo-kafka"]["spec"]
    first, second = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 2
    assert (first["name"], second["name"]) == ("kafka", "kafka-1")
    assert {"name": "SLOT", "value": "1"} in second["env"]
    assert [each for each in second["env"] if each["name"] != "SLOT"] == first["env"]
    assert {port["name"]: port["containerPort"] for port in second["ports"]} == {
        "tcp-9092-1": 10092,
        "tcp-9094-1": 10094,
        "tcp-repl-1": 10091,
        "tcp-prom-1": 10404,
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert first[probe]["httpGet"]["port"] == "tcp-prometheus"
        assert second[probe]["httpGet"]["port"] == "tcp-prom-1"
    shared = [mount for mount in first["volumeMounts"] if mount in second["volumeMounts"]]
    assert "data" in {mount["name"] for mount in shared}
    assert not {mount["name"] for mount in shared} & {"tmp", "tmp-1"}


def test_the_first_container_is_that_of_a_pod_with_one_broker() -> None:
    single = objects(dataclasses.replace(CLUSTER, brokers=dataclasses.replace(CLUSTER.brokers, per_pod=1)))
    pod, several = (found["StatefulSet", "demo-kafka"]["spec"]["template"]["spec"] for found in (single, objects()))
    assert several["containers"][0] == pod["containers"][0]
    assert single["ConfigMap", "demo-kafka-config"] == objects()["ConfigMap", "demo-kafka-config"]


def test_services_reach_every_broker() -> None:
    found = objects()
    headless = found["Service", "demo-kafka-brokers"]["spec"]["ports"]
    assert {port["name"]: port["port"] for port in headless} == {
        "tcp-replication": 9091,
        "tcp-plain": 9092,
        "tcp-replication-1": 10091,
        "tcp-plain-1": 10092,
    }
    assert [port["port"] for port in found["Service", "demo-kafka-bootstrap"]["spec"]["ports"]] == [9092]
    for broker, pod, target in ((0, 0, 9094), (1, 1, 9094), (1000, 0, 10094), (1001, 1, 10094)):
        spec = found["Service", f"demo-kafka-out-{broker}"]["spec"]
        assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [(9094, target)]
        assert spec["selector"]["statefulset.kubernetes.io/pod-name"] == f"demo-kafka-{pod}"
    (rule,) = found["Role", "demo-kafka"]["rules"]
    assert rule["resourceNames"] == [f"demo-kafka-out-{broker}" for broker in (0, 1, 1000, 1001)]


def test_policies_and_monitoring_have_the_ports_of_every_slot() -> None:
    found = objects()
    ingress = found["NetworkPolicy", "demo-kafka"]["spec"]["ingress"]
    assert [[port["port"] for port in rule["ports"]] for rule in ingress] == [
        [9091, 10091],
        [9404, 10404],
        [9092, 10092],
        [9094, 10094],
    ]
    endpoints = found["PodMonitor", "demo-pods"]["spec"]["podMetricsEndpoints"]
    assert [endpoint["port"] for endpoint in endpoints] == ["tcp-prometheus", "tcp-prom-1"]


def test_pods_that_still_have_more_brokers_stay_reachable() -> None:
    smaller = dataclasses.replace(CLUSTER, brokers=dataclasses.replace(CLUSTER.brokers, per_pod=1))
    found = objects(smaller, reachable_slots=2)
    assert len(found["StatefulSet", "demo-kafka"]["spec"]["template"]["spec"]["containers"]) == 1
    for kind, name in (
        ("NetworkPolicy", "demo-kafka"),
        ("Service", "demo-kafka-out-1001"),
        ("PodMonitor", "demo-pods"),
    ):
        assert found[kind, name] == objects()[kind, name]
    assert hashes(smaller, ImageSettings()) != hashes(CLUSTER, ImageSettings())
