"""The listeners of a cluster: which are served, their ports and addresses. Pure.

A listener with TLS or authentication is refused when the resource is read. If one gets here nevertheless, it is not
served.
"""

from __future__ import annotations

import json

from odradek_operator.crds.types import Cluster, Listener, ListenerType
from odradek_operator.objects import names


def served(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the listeners for clients, in the order of the resource."""
    return tuple(listener for listener in cluster.listeners if listener.plain)


def internal(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served internal listeners."""
    return tuple(listener for listener in served(cluster) if listener.type is ListenerType.INTERNAL)


def external(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served external listeners, which have Services."""
    return tuple(listener for listener in served(cluster) if listener.type is not ListenerType.INTERNAL)


def reads_services(cluster: Cluster) -> bool:
    """Whether brokers have to read their Services to know their advertised addresses."""
    return bool(external(cluster))


def reads_nodes(cluster: Cluster) -> bool:
    """Whether brokers have to read their node, for its rack or its address."""
    node_ports = any(listener.type is ListenerType.NODE_PORT for listener in served(cluster))
    return node_ports or cluster.brokers.rack_topology_key is not None


def for_pods(cluster: Cluster) -> str:
    """Return the JSON for `LISTENERS` of broker pods: name, port and type of each served listener.

    It is sorted by port, so that another order in the resource does not restart pods.
    """
    listeners = [
        {"name": listener.name, "port": listener.port, "type": listener.type.value}
        for listener in sorted(served(cluster), key=lambda listener: listener.port)
    ]
    return json.dumps(listeners, separators=(",", ":"))


def bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap address for the operator and the exporter: the first internal or the inter-broker
    listener."""
    inside = internal(cluster)
    if not inside:
        return f"{names.brokers_service(cluster.name)}.{cluster.namespace}.svc:{names.REPLICATION_PORT}"
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{inside[0].port}"
