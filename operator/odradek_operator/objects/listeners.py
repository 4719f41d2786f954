"""The served listeners of a cluster, their ports and their addresses. Pure.

Listeners with TLS or authentication are served when the brokers use TLS among themselves (`listener_security`).
"""

from __future__ import annotations

import json

from odradek_operator.crds.types import Cluster, Listener, ListenerType
from odradek_operator.objects import listener_security, names


def served(cluster: Cluster) -> tuple[Listener, ...]:
    """Return the served listeners for clients, in the order of the resource."""
    closed = listener_security.is_closed(cluster)
    return tuple(listener for listener in cluster.listeners if closed or listener.plain)


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
    """Return the value of `LISTENERS` in broker pods: a JSON list with name, port and type of each served listener,
    and with its protocol unless that is PLAINTEXT.

    It is sorted by port, so that a reordering in the resource does not restart pods.
    """
    listeners = [_for_pods(listener) for listener in sorted(served(cluster), key=lambda listener: listener.port)]
    return json.dumps(listeners, separators=(",", ":"))


def _for_pods(listener: Listener) -> dict[str, str | int]:
    known: dict[str, str | int] = {"name": listener.name, "port": listener.port, "type": listener.type.value}
    protocol = listener_security.protocol(listener)
    return known if protocol == listener_security.PLAINTEXT else {**known, "protocol": protocol}


def between_brokers(cluster: Cluster) -> dict[str, int]:
    """Return the ports of the listeners that brokers use among themselves, by name of the listener."""
    link = cluster.broker_link
    plain = {names.REPLICATION_LISTENER: names.REPLICATION_PORT} if link.listens_plain else {}
    secure = {names.SECURE_REPLICATION_LISTENER: names.SECURE_REPLICATION_PORT} if link.listens_tls else {}
    return {**plain, **secure}


def bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap address for the exporter.

    It is that of the first internal listener, and without one, or if that may require a login, that of the brokers'
    own listener.
    """
    inside = internal(cluster)
    closed = listener_security.is_closed(cluster)
    if closed or not inside:
        port = names.SECURE_REPLICATION_PORT if closed else names.REPLICATION_PORT
        return f"{names.brokers_service(cluster.name)}.{cluster.namespace}.svc:{port}"
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{inside[0].port}"
