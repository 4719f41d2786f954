"""The identity of a pod, from the environment that its StatefulSet sets. Pure.

`pod/broker` and `pod/zookeeper_pod` call it first. A missing or invalid variable raises a `PodError` with its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.errors import PodError
from odradek_operator.objects.names import BROKER_LINK, MAX_MEMBERS, BrokerLink
from odradek_operator.objects.slots import ID_STRIDE, MAX_PER_POD

INTERNAL: Final = "internal"
NODE_PORT: Final = "nodeport"
LOAD_BALANCER: Final = "loadbalancer"
LISTENER_TYPES: Final = (INTERNAL, NODE_PORT, LOAD_BALANCER)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodListener:
    """A listener in `LISTENERS`."""

    name: str
    port: int
    type: str
    protocol: str = "PLAINTEXT"
    """Kafka's security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPod:
    """A broker and its pod."""

    cluster: str
    name: str
    namespace: str
    node: str
    broker_id: int
    """The ordinal of the pod + 1000 * `slot`."""
    slot: int = 0
    """Number of the broker in its pod."""
    listeners: tuple[PodListener, ...]
    """Listeners for clients, in the order of the resource."""
    link: BrokerLink = BrokerLink.PLAINTEXT
    rack_key: str | None
    """The label of nodes with their rack."""

    @property
    def reads_node(self) -> bool:
        """Whether the pod needs to read its node before it can start."""
        return self.rack_key is not None or any(listener.type == NODE_PORT for listener in self.listeners)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPod:
    """The pod of a member of a ZooKeeper ensemble."""

    cluster: str
    namespace: str
    ordinal: int
    members: int
    """Number of members of the ensemble."""

    @property
    def server_id(self) -> int:
        """ZooKeeper's server id, from 1 on."""
        return self.ordinal + 1


def broker_pod(environment: Mapping[str, str]) -> BrokerPod:
    """Return the broker of this container. Raises `PodError` if a variable is missing or invalid."""
    name, slot = needed(environment, "POD_NAME"), _slot(environment.get("SLOT", "0"))
    return BrokerPod(
        cluster=needed(environment, "CLUSTER"),
        name=name,
        namespace=needed(environment, "POD_NAMESPACE"),
        node=needed(environment, "NODE_NAME"),
        broker_id=ordinal(name) + ID_STRIDE * slot,
        slot=slot,
        listeners=pod_listeners(environment.get("LISTENERS", "[]")),
        link=_link(environment.get(BROKER_LINK, BrokerLink.PLAINTEXT.value)),
        rack_key=environment.get("RACK_TOPOLOGY_KEY") or None,
    )


def _link(text: str) -> BrokerLink:
    try:
        return BrokerLink(text)
    except ValueError as error:
        allowed = ", ".join(link.value for link in BrokerLink)
        raise PodError(f"{BROKER_LINK}={text!r} must be one of {allowed}.") from error


def _slot(text: str) -> int:
    slot = int(text) if text.isascii() and text.isdecimal() else MAX_PER_POD
    if slot >= MAX_PER_POD:
        raise PodError(f"SLOT={text!r} must be a number from 0 to {MAX_PER_POD - 1}.")
    return slot


def member_pod(environment: Mapping[str, str]) -> MemberPod:
    """Return the pod of an ensemble member. Raises `PodError` if a variable is missing or invalid."""
    text = needed(environment, "ENSEMBLE_REPLICAS")
    members = int(text) if text.isdecimal() else 0
    if not 1 <= members <= MAX_MEMBERS:
        raise PodError(f"ENSEMBLE_REPLICAS={text!r} must be a number from 1 to {MAX_MEMBERS}.")
    found = ordinal(needed(environment, "POD_NAME"))
    if found >= members:
        raise PodError(
            f"POD_NAME ends in {found}, but with ENSEMBLE_REPLICAS={members} the last member is {members - 1}."
        )
    return MemberPod(
        cluster=needed(environment, "CLUSTER"),
        namespace=needed(environment, "POD_NAMESPACE"),
        ordinal=found,
        members=members,
    )


def needed(environment: Mapping[str, str], name: str) -> str:
    """Return the value of a variable. Raises `PodError` if it is missing or empty."""
    value = environment.get(name)
    if not value:
        raise PodError(f"The environment variable {name} is not set: the operator's StatefulSet sets it.")
    return value


def ordinal(pod: str) -> int:
    """Return the ordinal in the name of a StatefulSet pod."""
    digits = pod.rpartition("-")[2]
    if not digits.isdecimal() or digits == pod:
        raise PodError(f"POD_NAME={pod!r} does not end in a number, as the names of StatefulSet pods do.")
    return int(digits)


def pod_listeners(text: str) -> tuple[PodListener, ...]:
    """Parse the JSON in `LISTENERS`."""
    try:
        entries: object = json.loads(text)
    except ValueError as error:
        raise PodError(f"LISTENERS is not JSON: {error}.") from error
    if not isinstance(entries, list):
        raise PodError("LISTENERS is not a JSON list.")
    return tuple(_listener(entry) for entry in entries)


def _listener(entry: object) -> PodListener:
    if isinstance(entry, dict):
        name, port, kind = entry.get("name"), entry.get("port"), entry.get("type")
        protocol = entry.get("protocol", PROTOCOLS[0])
        is_port = type(port) is int and 0 < port < 65_536
        if isinstance(name, str) and name and is_port and kind in LISTENER_TYPES and protocol in PROTOCOLS:
            assert isinstance(port, int), "its type was compared"
            return PodListener(name=name, port=port, type=kind, protocol=protocol)
    raise PodError(
        f"LISTENERS has {json.dumps(entry)}: an entry must have a name, a port, a type: {', '.join(LISTENER_TYPES)}, "
        f"and may have a protocol: {', '.join(PROTOCOLS)}."
    )
