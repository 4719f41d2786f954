"""Every name, label, port and path of a cluster's Kubernetes objects, once. Pure.

Called by the builders beside this module, by the shell that looks for what is there, and by what runs inside the
pods. Names and labels are those that existing Kafka dashboards and alerts expect (`docs/design/0009`).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

FIELD_MANAGER: Final = "odradek-operator"
CLUSTER_LABEL: Final = "odradek.dev/cluster"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
NAMESPACE_LABEL: Final = "odradek.dev/namespace"
"""On objects, not on pods: objects that belong to no namespace are told apart by it."""
OPERATOR_LABELS: Final = {"app.kubernetes.io/name": "odradek", COMPONENT_LABEL: "operator"}
"""Of the operator's own pods, as the chart sets them."""
RESTART_HASH: Final = "odradek.dev/restart-hash"
"""Annotation of a pod template: a pod with another value is outdated and waits for its restart."""
PAUSED: Final = "odradek.dev/paused"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""On nodes, by Kubernetes itself."""
NODE_READER: Final = "odradek-node-reader"
"""The ClusterRole of the chart by which broker pods may read their node's labels and addresses."""

METRICS_PORT: Final = 9404
METRICS_PORT_NAME: Final = "tcp-prometheus"
REPLICATION_LISTENER: Final = "replication"
REPLICATION_PORT: Final = 9091
ZOOKEEPER_CLIENT_PORT: Final = 2181
ZOOKEEPER_PEER_PORT: Final = 2888
ZOOKEEPER_ELECTION_PORT: Final = 3888

USER_ID: Final = 10001
CONFIG_FOLDER: Final = "/etc/odradek"
SECRETS_FOLDER: Final = "/etc/odradek-secrets"
"""Of a broker's container: the Secrets of `spec.brokers.configFrom`, each in a folder named by its position."""
BROKER_PROPERTIES: Final = "server.properties"
ZOOKEEPER_PROPERTIES: Final = "zookeeper.properties"
DATA_FOLDER: Final = "/var/lib/odradek"


ENSEMBLE_STATE: Final = "ensemble.state"
"""File beside the ensemble's properties: whether members may begin without data."""
FORMING: Final = "forming"
"""The ensemble is new: a member that has no data yet may vote."""
FORMED: Final = "formed"
"""A majority has held data: a member without any copies it from the leader before it votes."""
MAX_MEMBERS: Final = 255
"""Of an ensemble: ZooKeeper's ids are a byte, from 1 on."""


class Component(Enum):
    """What a pod is part of."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"
    EXPORTER = "exporter"


def kafka(cluster: str) -> str:
    """StatefulSet and ServiceAccount of the brokers."""
    return f"{cluster}-kafka"


def broker_pod(cluster: str, broker_id: int) -> str:
    """Pod of a broker."""
    return f"{cluster}-kafka-{broker_id}"


def brokers_service(cluster: str) -> str:
    """Headless Service of the brokers: one name in DNS for each pod, ready or not."""
    return f"{cluster}-kafka-brokers"


def bootstrap_service(cluster: str) -> str:
    """Service over all ready brokers, for internal listeners."""
    return f"{cluster}-kafka-bootstrap"


def external_bootstrap_service(cluster: str, listener: str) -> str:
    """Service over all ready brokers, for a listener that is reached from outside."""
    return f"{cluster}-kafka-{listener}-bootstrap"


def external_broker_service(cluster: str, listener: str, broker_id: int) -> str:
    """Service of one broker, for a listener that is reached from outside."""
    return f"{cluster}-kafka-{listener}-{broker_id}"


def kafka_config(cluster: str) -> str:
    """ConfigMap with the brokers' properties."""
    return f"{cluster}-kafka-config"


def record(cluster: str) -> str:
    """ConfigMap with the numbers of brokers and ensemble members, which outlives the Cluster resource."""
    return f"{cluster}-members"


def zookeeper(cluster: str) -> str:
    """StatefulSet and ServiceAccount of the ensemble."""
    return f"{cluster}-zookeeper"


def zookeeper_pod(cluster: str, member: int) -> str:
    """Pod of a member of the ensemble."""
    return f"{cluster}-zookeeper-{member}"


def zookeeper_nodes_service(cluster: str) -> str:
    """Headless Service of the ensemble."""
    return f"{cluster}-zookeeper-nodes"


def zookeeper_client_service(cluster: str) -> str:
    """Service over all ready members."""
    return f"{cluster}-zookeeper-client"


def zookeeper_config(cluster: str) -> str:
    """ConfigMap with the ensemble's properties."""
    return f"{cluster}-zookeeper-config"


def exporter(cluster: str) -> str:
    """Deployment, Service and ServiceAccount of the exporter of lag and sizes."""
    return f"{cluster}-kafka-exporter"


def pod_monitor(cluster: str) -> str:
    """PodMonitor of all pods of the cluster."""
    return f"{cluster}-pods"


def alerts(cluster: str) -> str:
    """PrometheusRule with the alerts."""
    return f"{cluster}-alerts"


def dashboard(cluster: str, title: str) -> str:
    """ConfigMap with one dashboard. What may not stand in an object's name is replaced by `-`."""
    return f"{cluster}-dashboard-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"


def node_reader_binding(namespace: str, cluster: str) -> str:
    """ClusterRoleBinding of the brokers' account. A namespace has no dot, so no two clusters share the name."""
    return f"odradek-{namespace}.{cluster}-node-reader"


def volume_claim_template(volume_id: int, *, volumes: int) -> str:
    """`data` where a broker has one volume, numbered where it has several."""
    return "data" if volumes == 1 else f"data-{volume_id}"


def log_dir(volume_id: int) -> str:
    """The log directory on a volume. Below its root, where file systems keep `lost+found`."""
    return f"{DATA_FOLDER}/data-{volume_id}/kafka-log"


def host(pod: str, service: str, namespace: str) -> str:
    """A pod's name in DNS; without the cluster's domain, which need not be `cluster.local`."""
    return f"{pod}.{service}.{namespace}.svc"


def selector(cluster: str, component: Component) -> dict[str, str]:
    """The labels by which Services and sets find their pods. Never changed: a StatefulSet's selector is immutable."""
    return {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component.value}


def labels(cluster: str, component: Component) -> dict[str, str]:
    """The labels of every object of a cluster."""
    return {
        "app.kubernetes.io/name": "odradek",
        "app.kubernetes.io/instance": cluster,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        **selector(cluster, component),
    }


def pod_labels(cluster: str, component: Component) -> dict[str, str]:
    """The labels of pods: beside the others those that dashboards' relabelling reads."""
    part = {Component.KAFKA: kafka, Component.ZOOKEEPER: zookeeper, Component.EXPORTER: exporter}[component]
    return {
        **labels(cluster, component),
        "strimzi.io/cluster": cluster,
        "strimzi.io/kind": "Kafka",
        "strimzi.io/name": part(cluster),
    }


def ordinal(pod: str) -> int:
    """The number at the end of a StatefulSet pod's name. Raises `ValueError` where there is none."""
    return int(pod.rsplit("-", 1)[1])
