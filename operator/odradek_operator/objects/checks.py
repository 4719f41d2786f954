"""What of a cluster Kubernetes would refuse, said before anything is applied. Pure.

Enters: a Cluster. Leaves: a sentence for each thing that is wrong. Names of objects are made of the cluster's name and
must fit Kubernetes' bounds, which its own validation of the resource does not know.
"""

from __future__ import annotations

import re
from typing import Final

from odradek_operator.crds.types import Cluster
from odradek_operator.objects import listeners, names

MAX_LABEL: Final = 63
"""Letters of a Service's name and of a label's value."""
MAX_SET: Final = 52
"""Letters of a StatefulSet's name: pods carry it with a hash as a label's value."""
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_RESERVED_PORTS: Final = {
    names.REPLICATION_PORT: "the port of the brokers among themselves",
    names.METRICS_PORT: "the port of the metrics",
}


def problems(cluster: Cluster) -> tuple[str, ...]:
    """Why the cluster's objects cannot be made; nothing where they can."""
    return (*_name_problems(cluster), *_listener_problems(cluster))


def _name_problems(cluster: Cluster) -> list[str]:
    if not _SERVICE_NAME.fullmatch(cluster.name):
        return [
            f"The name {cluster.name} is not allowed for a cluster: it must begin with a lower-case letter and consist "
            "of lower-case letters, digits and '-', since Services are named after it."
        ]
    longest = names.zookeeper(cluster.name)
    if len(longest) > MAX_SET:
        most = MAX_SET - len(longest) + len(cluster.name)
        return [f"The name {cluster.name} is too long: it must have at most {most} letters, for {longest} to be one."]
    last = max(cluster.brokers.replicas - 1, 0)
    found = []
    for listener in listeners.external(cluster):
        needed = (
            names.external_bootstrap_service(cluster.name, listener.name),
            names.external_broker_service(cluster.name, listener.name, last),
        )
        service = max(needed, key=len)
        if len(service) > MAX_LABEL:
            found.append(
                f"The name of listener {listener.name} is too long for cluster {cluster.name}: "
                f"the Service {service} would have {len(service)} letters, and may have {MAX_LABEL}."
            )
    return found


def _listener_problems(cluster: Cluster) -> list[str]:
    found = []
    for listener in cluster.listeners:
        if listener.name == names.REPLICATION_LISTENER:
            found.append(f"No listener may be called {listener.name}: brokers have one of that name among themselves.")
        if listener.port in _RESERVED_PORTS:
            found.append(
                f"Port {listener.port} of listener {listener.name} is taken: it is {_RESERVED_PORTS[listener.port]}."
            )
    for attribute in ("name", "port"):
        values = [getattr(listener, attribute) for listener in cluster.listeners]
        found += [
            f"Several listeners have the {attribute} {value}: each needs its own."
            for value in sorted({value for value in values if values.count(value) > 1})
        ]
    return found
