"""The host names and addresses in the certificates of brokers. Pure.

They are those that `pod/addresses` advertises to clients, and those of the bootstrap Services. A node port is
advertised with the address of the broker's node. A broker may run on any node, so its certificate has the addresses of
all nodes and stays valid when the pod moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from odradek_operator.crds.types import Cluster, ListenerType
from odradek_operator.lifecycle.parsing import items, text
from odradek_operator.objects import names

Object = Mapping[str, Any]


def broker_hosts(
    cluster: Cluster, ids: Iterable[int], *, services: Iterable[Object], node_addresses: Iterable[str]
) -> dict[int, tuple[str, ...]]:
    """Return the names of each broker by id.

    `services`: those of the cluster's namespace, as the API server has them. `node_addresses`: those of all nodes.
    """
    by_name = {text(service, "metadata", "name"): service for service in services}
    common = {*_bootstrap(cluster), *(name for one in cluster.listeners for name in one.alternative_names)}
    external = [one for one in cluster.listeners if one.type is not ListenerType.INTERNAL]
    for listener in external:
        service = names.external_bootstrap_service(cluster.name, listener.name)
        common |= {*_in_namespace(service, cluster.namespace), *_ingress(by_name.get(service, {}))}
    if any(listener.type is ListenerType.NODE_PORT for listener in external):
        common |= set(node_addresses)
    found = {}
    for broker in ids:
        own = [names.external_broker_service(cluster.name, listener.name, broker) for listener in external]
        addresses = {address for name in own for address in _ingress(by_name.get(name, {}))}
        pod = names.broker_pod(cluster.name, cluster.brokers.pod_of(broker))
        service = names.brokers_service(cluster.name)
        hosts = {f"{pod}.{name}" for name in _in_namespace(service, cluster.namespace)}
        found[broker] = tuple(sorted(common | hosts | addresses))
    return found


def _bootstrap(cluster: Cluster) -> Iterator[str]:
    for service in (names.bootstrap_service(cluster.name), names.brokers_service(cluster.name)):
        yield from _in_namespace(service, cluster.namespace)


def _in_namespace(service: str, namespace: str) -> Iterator[str]:
    """Yield the names by which pods reach a Service, or what precedes them."""
    for suffix in names.service_suffixes(namespace):
        yield f"{service}{suffix}"


def _ingress(service: Object) -> Iterator[str]:
    for entry in items(service, "status", "loadBalancer", "ingress"):
        yield from (value for key in ("hostname", "ip") if (value := text(entry, key)))
