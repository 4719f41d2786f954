"""The PodMonitor, the PrometheusRule and the ConfigMaps with dashboards of one cluster. Pure.

The resource selects which of them exist. The PodMonitor adds the labels that dashboards and alerts use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_operator.crds.types import Cluster, Json
from odradek_operator.objects import names, parts, slots
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

_API_VERSION = "monitoring.coreos.com/v1"
_COMPONENT = Component.KAFKA
_DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""The label that Grafana's sidecar looks for."""
_META = "__meta_kubernetes"
_RELABELLED = {
    "namespace": "namespace",
    "kubernetes_pod_name": "pod_name",
    "node_name": "pod_node_name",
    "node_ip": "pod_host_ip",
}
"""Labels of series, and the metadata labels that they are copied from."""


def monitoring_objects(cluster: Cluster, *, rule_groups: Sequence[Json], dashboards: Mapping[str, str]) -> list[Object]:
    """Return the objects that the resource requests.

    `rule_groups`: groups as in a PrometheusRule. `dashboards`: JSON text by title.
    """
    monitoring = cluster.monitoring
    objects = [_pod_monitor(cluster)] if monitoring.pod_monitors else []
    if monitoring.rules and rule_groups:
        objects.append(_rules(cluster, rule_groups))
    if monitoring.dashboards:
        objects += [_dashboard(cluster, title, text) for title, text in sorted(dashboards.items())]
    return objects


def _pod_monitor(cluster: Cluster) -> Object:
    """Return one PodMonitor for all pods of the cluster: brokers, ensemble and exporter use the same port and path.

    Each further broker of a pod has its endpoint. The Prometheus operator adds the label `container`.
    """
    relabelings: list[Object] = [
        {"action": "labelmap", "regex": f"{_META}_pod_label_(strimzi_io_.+)", "replacement": "$1"}
    ]
    relabelings += [
        {"action": "replace", "sourceLabels": [f"{_META}_{source}"], "targetLabel": target}
        for target, source in _RELABELLED.items()
    ]
    return {
        "apiVersion": _API_VERSION,
        "kind": "PodMonitor",
        "metadata": parts.metadata(cluster, _COMPONENT, names.pod_monitor(cluster.name)),
        "spec": {
            "selector": {"matchLabels": {names.CLUSTER_LABEL: cluster.name}},
            "podMetricsEndpoints": [
                {
                    "port": slots.port_name(names.METRICS_PORT_NAME, slot),
                    "path": "/metrics",
                    "relabelings": relabelings,
                }
                for slot in range(cluster.brokers.per_pod)
            ],
        },
    }


def _rules(cluster: Cluster, groups: Sequence[Json]) -> Object:
    return {
        "apiVersion": _API_VERSION,
        "kind": "PrometheusRule",
        "metadata": parts.metadata(cluster, _COMPONENT, names.alerts(cluster.name)),
        "spec": {"groups": [dict(group) for group in groups]},
    }


def _dashboard(cluster: Cluster, title: str, text: str) -> Object:
    found = parts.config_map(cluster, _COMPONENT, names.dashboard(cluster.name, title), {f"odradek-{title}.json": text})
    found["metadata"]["labels"] = {**found["metadata"]["labels"], **_DASHBOARD_LABEL}
    return found
