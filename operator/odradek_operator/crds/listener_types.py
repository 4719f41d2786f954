"""The listeners of a Cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import Field

from odradek_operator.crds.fields import Flag, Text, Whole, Written
from odradek_operator.crds.model import Check, Complaint, Model, Reading, Rule, must, published
from odradek_operator.objects.names import METRICS_PORT, REPLICATION_LISTENER, REPLICATION_PORT

MAX_LISTENER_NAME_LENGTH: Final = 25
RESERVED_PORTS: Final = (REPLICATION_PORT, METRICS_PORT)
"""Ports of broker pods for the other brokers and for Prometheus."""
_Authentications = Literal["tls", "scram-sha-256", "scram-sha-512"]
AUTHENTICATIONS: Final[tuple[str, ...]] = get_args(_Authentications)


class ListenerType(Enum):
    """From where clients reach a listener."""

    INTERNAL = "internal"
    NODE_PORT = "nodeport"
    LOAD_BALANCER = "loadbalancer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Authentication(Model):
    """How clients authenticate."""

    type: _Authentications
    """tls: with a certificate. The others: with a password."""


def _is_plain(listener: Mapping[str, Any]) -> bool:
    return listener.get("tls", False) is False and "authentication" not in listener


def _security(listener: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules refuse all of this; only an embedded cluster can have TLS and authentication."""
    if not reading.embedded:
        later = "comes with a later version on Kubernetes: remove it, or remove this listener."
        if listener.get("tls") is True:
            yield Complaint(("tls",), later)
        if "authentication" in listener:
            yield Complaint(("authentication",), later)
        return
    authentication = listener.get("authentication")
    if isinstance(authentication, Mapping) and authentication.get("type") == "tls" and listener.get("tls") is not True:
        yield Complaint(("authentication",), "type tls needs certificates: set tls: true for this listener.")
    external = listener.get("type") in [kind.value for kind in ListenerType if kind is not ListenerType.INTERNAL]
    if external and _is_plain(listener) and listener.get("insecure", False) is False:
        # A stored resource may be older than this rule: see `notices_of`.
        yield Complaint(("insecure",), f"must be true for a listener of type {listener['type']} without tls.")


def _is_free(listener: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    if listener.get("name") == REPLICATION_LISTENER:
        allowed = f"another than {REPLICATION_LISTENER}, by which the brokers listen to each other"
        yield must(("name",), allowed, REPLICATION_LISTENER)
    if (port := listener.get("port")) in RESERVED_PORTS:
        kept = " and ".join(map(str, RESERVED_PORTS))
        yield must(("port",), f"another than {kept}, which broker pods use themselves", port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Model):
    """A port for clients."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.type == 'internal' || self.insecure",
            "A listener of type nodeport or loadbalancer has neither encryption nor authentication in this version: "
            "everybody who reaches its port can read, write and delete everything. Set insecure: true to accept that.",
        ),
        Rule(
            f"self.name != '{REPLICATION_LISTENER}'",
            f"The brokers use the name {REPLICATION_LISTENER} themselves: choose another.",
        ),
        Rule(
            f"!(self.port in {list(RESERVED_PORTS)})",
            f"The broker pods use the ports {' and '.join(map(str, RESERVED_PORTS))} themselves: choose another.",
        ),
        Rule(
            "!self.tls && !has(self.authentication)",
            "tls and authentication come with a later version on Kubernetes: remove them from this listener.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_is_free, _security)

    name: Annotated[
        Text,
        Field(max_length=MAX_LISTENER_NAME_LENGTH, pattern="^[a-z0-9]+$"),
        published(allowed=f"up to {MAX_LISTENER_NAME_LENGTH} lower-case letters and digits"),
    ]
    """Name of the listener: lower-case letters and digits."""
    port: Annotated[Whole, Field(ge=1, le=65_535)]
    """Port of the broker pods and of their Services."""
    type: ListenerType = ListenerType.INTERNAL
    """internal: reachable within Kubernetes. nodeport: through a port of the nodes. loadbalancer: through one load
    balancer for each broker and one for all."""
    tls: Flag = False
    """Whether clients connect with TLS. Comes with a later version on Kubernetes."""
    authentication: Annotated[str, Written(_Authentication, lambda written: written.type)] | None = None
    """How clients authenticate. If not set, every client is accepted. Comes with a later version on Kubernetes."""
    insecure: Flag = False
    """Allows a listener of type nodeport or loadbalancer without encryption and authentication. Everybody who reaches
    its port can read, write and delete everything."""

    @property
    def plain(self) -> bool:
        """Whether it needs neither certificates nor passwords."""
        return not self.tls and self.authentication is None

    @property
    def is_exposed(self) -> bool:
        """Whether it accepts everybody outside of Kubernetes who reaches its port."""
        return self.plain and self.type is not ListenerType.INTERNAL
