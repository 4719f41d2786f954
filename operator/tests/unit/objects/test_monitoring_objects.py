"""Objects for Prometheus and Grafana."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from odradek_operator.crds.types import Cluster, Monitoring
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.wanted import Extras

Objects = dict[tuple[str, str], dict[str, Any]]
Build = Callable[..., Objects]

EXTRAS = Extras(
    rule_groups=({"name": "kafka", "rules": [{"alert": "A", "expr": "x > 0"}]},),
    dashboards={"Kafka_Brokers": '{"a": 1}', "lag": "{}"},
)


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    return {name: body for (found, name), body in objects.items() if found == kind}


def built(build: Build, **monitoring: bool) -> Objects:
    return build(Cluster(name="demo", uid="1", monitoring=Monitoring(**monitoring)), extras=EXTRAS)


def test_everything_is_off_by_default(build: Build) -> None:
    objects = built(build)
    assert not of_kind(objects, "PodMonitor") | of_kind(objects, "PrometheusRule")
    assert of_kind(objects, "ConfigMap").keys() == {"demo-kafka-config", "demo-zookeeper-config"}


def relabelled(relabelings: list[dict[str, Any]], found: dict[str, str]) -> dict[str, str]:
    """Return the labels that Prometheus would create. Supports `replace` and `labelmap`, with one source label each."""
    labels = {}
    for rule in relabelings:
        if rule["action"] == "labelmap":
            for name, value in found.items():
                if match := re.fullmatch(rule["regex"], name):
                    labels[match.expand(rule["replacement"].replace("$", "\\"))] = value
        else:
            (source,) = rule["sourceLabels"]
            labels[rule["targetLabel"]] = found[source]
    return labels


@pytest.mark.parametrize("component", Component)
def test_series_get_the_labels_that_panels_ask_for(build: Build, component: Component) -> None:
    (monitor,) = of_kind(built(build, pod_monitors=True), "PodMonitor").values()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    pod = names.pod_labels("demo", component)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod.items()
    assert (endpoint["port"], endpoint["path"]) == ("tcp-prometheus", "/metrics")
    # The meta labels of Prometheus' service discovery for pods.
    found = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value for key, value in pod.items()}
    found |= {
        "__meta_kubernetes_namespace": "shop",
        "__meta_kubernetes_pod_name": "demo-pod",
        "__meta_kubernetes_pod_node_name": "node-1",
        "__meta_kubernetes_pod_host_ip": "10.0.0.1",
    }
    assert relabelled(endpoint["relabelings"], found) == {
        "namespace": "shop",
        "kubernetes_pod_name": "demo-pod",
        "node_name": "node-1",
        "node_ip": "10.0.0.1",
        "strimzi_io_cluster": "demo",
        "strimzi_io_kind": "Kafka",
        "strimzi_io_name": {
            Component.KAFKA: "demo-kafka",
            Component.ZOOKEEPER: "demo-zookeeper",
            Component.EXPORTER: "demo-kafka-exporter",
        }[component],
    }


def test_rules_are_those_that_were_handed_in(build: Build) -> None:
    (rules,) = of_kind(built(build, rules=True), "PrometheusRule").values()
    assert rules["spec"] == {"groups": [{"name": "kafka", "rules": [{"alert": "A", "expr": "x > 0"}]}]}


def test_without_rules_at_hand_there_is_no_object(build: Build) -> None:
    cluster = Cluster(name="demo", uid="1", monitoring=Monitoring(rules=True, dashboards=True))
    assert not of_kind(build(cluster), "PrometheusRule")


def test_dashboards_are_found_by_grafana(build: Build) -> None:
    found = of_kind(built(build, dashboards=True), "ConfigMap")
    brokers = found["demo-dashboard-kafka-brokers"]
    assert brokers["data"] == {"odradek-Kafka_Brokers.json": '{"a": 1}'}
    assert brokers["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["demo-dashboard-lag"]["data"] == {"odradek-lag.json": "{}"}
    assert "grafana_dashboard" not in found["demo-kafka-config"]["metadata"]["labels"]
