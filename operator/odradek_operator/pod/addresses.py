"""The advertised addresses of a broker's listeners, and its rack. Pure.

`pod/broker` calls it with the pod, its node and its Services from the API server. It returns addresses, or
`AddressPending` for one that Kubernetes has not assigned yet. A `PodError` needs a change by the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek_operator.errors import PodError
from odradek_operator.objects import names, slots
from odradek_operator.pod.identity import INTERNAL, NODE_PORT, BrokerPod, PodListener

Json = Mapping[str, object]
"""A Kubernetes object as JSON."""

NODE_ADDRESSES: Final = ("ExternalIP", "InternalIP")
"""Types of node addresses, by preference."""


class Address(NamedTuple):
    """Address of a listener for clients."""

    host: str
    port: int


class AddressPending(NamedTuple):
    """An address that does not exist yet, and what is missing."""

    reason: str


def rack(node: Json, key: str) -> str:
    """Return the rack in the node's label. A missing label is an error: brokers with and without racks cannot be
    mixed."""
    value = _mapping(_mapping(node, "metadata"), "labels").get(key)
    if not isinstance(value, str) or not value:
        raise PodError(
            f"The node {_name(node)} has no label {key} with the rack of its brokers: "
            "label every node that brokers may run on, or remove spec.brokers.rack."
        )
    return value


def node_address(node: Json) -> str:
    """Return the address of a node at which clients reach its node ports."""
    entries = _mapping(node, "status").get("addresses")
    found = {entry.get("type"): entry.get("address") for entry in _mappings(entries)}
    for kind in NODE_ADDRESSES:
        address = found.get(kind)
        if isinstance(address, str) and address:
            return address
    raise PodError(f"The node {_name(node)} has no address of type {' or '.join(NODE_ADDRESSES)}.")


def internal_address(pod: BrokerPod, port: int) -> Address:
    """Return the DNS name of the pod."""
    return Address(names.host(pod.name, names.brokers_service(pod.cluster), pod.namespace), port)


def service_name(pod: BrokerPod, listener: PodListener) -> str | None:
    """Return the name of this broker's Service for an external listener; None for an internal one."""
    if listener.type == INTERNAL:
        return None
    return names.external_broker_service(pod.cluster, listener.name, pod.broker_id)


def advertised(
    pod: BrokerPod, listener: PodListener, node: Json | None, service: Json | None
) -> Address | AddressPending:
    """Return the advertised address. `node` and `service` must be given if the listener's type needs them."""
    if listener.type == INTERNAL:
        return internal_address(pod, slots.port(listener.port, pod.slot))
    assert service is not None
    if listener.type == NODE_PORT:
        assert node is not None
        port = _node_port(service, listener)
        if port is None:
            return AddressPending(f"Service {_name(service)} has no node port for port {listener.port} yet")
        return Address(node_address(node), port)
    host = _ingress(service)
    if host is None:
        return AddressPending(f"Service {_name(service)} has no address from a load balancer yet")
    return Address(host, listener.port)


def _node_port(service: Json, listener: PodListener) -> int | None:
    """Return the node port of the Service's port; if it has only one port, of that one, whatever its number."""
    ports = _mappings(_mapping(service, "spec").get("ports"))
    fitting = [entry for entry in ports if entry.get("port") == listener.port] or (ports if len(ports) == 1 else [])
    found = fitting[0].get("nodePort") if fitting else None
    return found if isinstance(found, int) and found > 0 else None


def _ingress(service: Json) -> str | None:
    for entry in _mappings(_mapping(_mapping(service, "status"), "loadBalancer").get("ingress")):
        for key in ("hostname", "ip"):
            value = entry.get(key)
            if isinstance(value, str) and value:
                return value
    return None


def _name(item: Json) -> str:
    return str(_mapping(item, "metadata").get("name", "?"))


def _mapping(item: Json, key: str) -> Json:
    value = item.get(key)
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
