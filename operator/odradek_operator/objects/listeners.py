"""The listeners of a cluster on Kubernetes: which are served, their ports, and what pods and clients are told. Pure.

Enters: a Cluster. Leaves: values for the builders beside this module and for the brokers' pods. A listener that asks
for certificates or passwords is refused when the resource is read; should one come this far, it is not served rather
than served without them.
"""

from __future__ import annotations

import json

from odradek_operator.crds.types import Cluster, Listener, ListenerType
from odradek_operator.objects import names


def served(cluster: Cluster) -> tuple[Listener, ...]:
    """The listeners that brokers open for clients, in the order of the resource."""
    return tuple(listener for listener in cluster.listeners if listener.plain)


def internal(cluster: Cluster) -> tuple[Listener, ...]:
    """The served ones that are reached from within Kubernetes."""
    return tuple(listener for listener in served(cluster) if listener.type is ListenerType.INTERNAL)


def external(cluster: Cluster) -> tuple[Listener, ...]:
    """The served ones that have Services of their own."""
    return tuple(listener for listener in served(cluster) if listener.type is not ListenerType.INTERNAL)


def reads_services(cluster: Cluster) -> bool:
    """Whether brokers look up their own Services to know what to advertise."""
    return bool(external(cluster))


def reads_nodes(cluster: Cluster) -> bool:
    """Whether brokers look up their own node: for its rack, or for its address beside a node port."""
    node_ports = any(listener.type is ListenerType.NODE_PORT for listener in served(cluster))
    return node_ports or cluster.brokers.rack_topology_key is not None


def for_pods(cluster: Cluster) -> str:
    """JSON text for `LISTENERS` of broker pods: name, port and type of each served listener.

    By port: the same listeners in another order are no reason to restart a pod.
    """
    listeners = [
        {"name": listener.name, "port": listener.port, "type": listener.type.value}
        for listener in sorted(served(cluster), key=lambda listener: listener.port)
    ]
    return json.dumps(listeners, separators=(",", ":"))


def bootstrap(cluster: Cluster) -> str:
    """`host:port` at which the operator and the exporter begin: the first internal listener, else the brokers' own."""
    inside = internal(cluster)
    if not inside:
        return f"{names.brokers_service(cluster.name)}.{cluster.namespace}.svc:{names.REPLICATION_PORT}"
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{inside[0].port}"
