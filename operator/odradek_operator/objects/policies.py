"""The NetworkPolicies of a cluster: one for each component, unless the resource disables them. Pure.

Only these peers may connect to the ports that clients do not need:

    9091 (between brokers)    the cluster's brokers, and its exporter if there is no internal listener; with TLS 9090
    9404 (metrics)            Prometheus, the operator
    2181, 2182 (ZooKeeper)    the cluster's brokers and exporter, the operator
    2888, 3888                the members of the ensemble

With several brokers in a pod, the rules of a port include the ports of all slots.

`spec.networkAccess` adds peers. For metrics, it replaces Prometheus as a peer. Probes need no rule, because a kubelet
can always connect to the pods of its node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek_operator.crds.types import Cluster, Json
from odradek_operator.objects import listeners, names, parts, slots
from odradek_operator.objects.ensemble_security import client_ports
from odradek_operator.objects.listener_security import is_closed
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

PROMETHEUS: Final[Object] = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}
"""Peer that selects Prometheus by the label that the Prometheus operator and the Prometheus chart set on its pods."""

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""Label that Kubernetes sets on every namespace."""


def broker_policy(cluster: Cluster, *, operator_namespace: str) -> list[Object]:
    """Return the policy of brokers. All pods may connect to internal listeners, and everyone to external ones.

    `operator_namespace`: the operator's namespace. The list is empty if policies are disabled.
    """
    per_pod = cluster.brokers.per_pod
    rules = [_replication_rule(cluster), _metrics_rule(cluster, operator_namespace, per_pod=per_pod)]
    if inside := slots.ports([listener.port for listener in listeners.internal(cluster)], per_pod):
        rules.append(allow(inside, [{"namespaceSelector": {}}]))
    if outside := slots.ports([listener.port for listener in listeners.external(cluster)], per_pod):
        rules.append(allow(outside))
    return _policy(cluster, Component.KAFKA, names.kafka(cluster.name), rules)


def ensemble_policy(cluster: Cluster, *, operator_namespace: str) -> list[Object]:
    """Return the policy of the ensemble. It is strict, because a client that can write to ZooKeeper controls the
    cluster."""
    clients = [
        *pods_of(cluster, Component.KAFKA, Component.EXPORTER),
        operator_peer(operator_namespace),
        *cluster.network_access.zookeeper,
    ]
    rules = [
        allow(list(client_ports(cluster.ensemble_link).values()), clients),
        allow([names.ZOOKEEPER_PEER_PORT, names.ZOOKEEPER_ELECTION_PORT], pods_of(cluster, Component.ZOOKEEPER)),
        _metrics_rule(cluster, operator_namespace),
    ]
    return _policy(cluster, Component.ZOOKEEPER, names.zookeeper(cluster.name), rules)


def exporter_policy(cluster: Cluster, *, operator_namespace: str) -> list[Object]:
    """Return the policy of the exporter. Prometheus and the operator may connect to it."""
    rules = [_metrics_rule(cluster, operator_namespace)]
    return _policy(cluster, Component.EXPORTER, names.exporter(cluster.name), rules)


def _replication_rule(cluster: Cluster) -> Object:
    ports = slots.ports(listeners.between_brokers(cluster).values(), cluster.brokers.per_pod)
    if cluster.replication_is_open:
        return allow(ports)
    own = [Component.KAFKA]
    if cluster.monitoring.exporter and (is_closed(cluster) or not listeners.internal(cluster)):
        own.append(Component.EXPORTER)
    return allow(ports, [*pods_of(cluster, *own), *(cluster.network_access.replication or ())])


def _metrics_rule(cluster: Cluster, operator_namespace: str, *, per_pod: int = 1) -> Object:
    peers, ports = cluster.network_access.metrics, slots.ports([names.METRICS_PORT], per_pod)
    return allow(ports, [operator_peer(operator_namespace), *((PROMETHEUS,) if peers is None else peers)])


def operator_peer(namespace: str) -> Object:
    """Return the peer that selects the operator in its namespace."""
    return {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: namespace}},
        "podSelector": {"matchLabels": dict(names.OPERATOR_LABELS)},
    }


def _policy(cluster: Cluster, component: Component, name: str, ingress: Sequence[Object]) -> list[Object]:
    """Return a policy for incoming connections, or none if policies are disabled. Outgoing ones are not restricted."""
    if not cluster.network_policies:
        return []
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": parts.metadata(cluster, component, name),
        "spec": {
            "podSelector": {"matchLabels": names.selector(cluster.name, component)},
            "policyTypes": ["Ingress"],
            "ingress": list(ingress),
        },
    }
    return [policy]


def allow(ports: Sequence[int], peers: Sequence[Json] | None = None) -> Object:
    """Return a rule that allows `peers` to connect to `ports`. None means everyone, also from outside of Kubernetes."""
    rule: Object = {"ports": [{"port": number, "protocol": "TCP"} for number in ports]}
    return rule if peers is None else {"from": [dict(peer) for peer in peers], **rule}


def pods_of(cluster: Cluster, *components: Component) -> list[Json]:
    """Return peers that select the pods of these components of the cluster."""
    return [{"podSelector": {"matchLabels": names.selector(cluster.name, component)}} for component in components]
