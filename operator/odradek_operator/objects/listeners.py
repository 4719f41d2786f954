"""The served listeners of a cluster, their ports and their addresses. Pure.

A resource with TLS or authentication on a listener is rejected when it is read. As a second safeguard, this module
ignores such listeners.
"""

from __future__ import annotations

import json

from odradek_operator.crds.types import Cluster, Listener, ListenerType
from odradek_operator.objects import names


def served(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served listeners for clients, in the order of the resource."""
    return tuple(listener for listener in cluster.listeners if listener.plain)


def internal(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served internal listeners."""
    return tuple(listener for listener in served(cluster) if listener.type is ListenerType.INTERNAL)


def external(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served external listeners, which have Services."""
    return tuple(listener for listener in served(cluster) if listener.type is not ListenerType.INTERNAL)


def reads_services(cluster: Cluster) -> bool:
    """Whether brokers have to read their external Services to learn their advertised addresses."""
    return bool(external(cluster))


def reads_nodes(cluster: Cluster) -> bool:
    """Whether brokers have to read their Node object, for their rack or their advertised address."""
    node_ports = any(listener.type is ListenerType.NODE_PORT for listener in served(cluster))
    return node_ports or cluster.brokers.rack_topology_key is not None


def for_pods(cluster: Cluster) -> str:
    """Return the value of `LISTENERS` in broker pods: a JSON list with name, port and type of each served listener.

    It is sorted by port, so that a reordering in the resource does not restart pods.
    """
    listeners = [
        {"name": listener.name, "port": listener.port, "type": listener.type.value}
        for listener in sorted(served(cluster), key=lambda listener: listener.port)
    ]
    return json.dumps(listeners, separators=(",", ":"))


def bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap address for the operator and the exporter.

    It is that of the first internal listener. Without one, it is that of the inter-broker listener.
    """
    inside = internal(cluster)
    if not inside:
        return f"{names.brokers_service(cluster.name)}.{cluster.namespace}.svc:{names.REPLICATION_PORT}"
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{inside[0].port}"
