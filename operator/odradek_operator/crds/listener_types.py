"""The listeners of a Cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from odradek_operator.crds.fields import (
    MAX_LABELS,
    MAX_NAME_LENGTH,
    MAX_TEXT,
    Entries,
    Flag,
    ObjectName,
    Text,
    Whole,
)
from odradek_operator.crds.model import Check, Complaint, Model, Reading, Rule, must, published
from odradek_operator.objects.names import METRICS_PORT, REPLICATION_LISTENER, REPLICATION_PORT

MAX_LISTENER_NAME_LENGTH: Final = 25
RESERVED_PORTS: Final = (REPLICATION_PORT, METRICS_PORT)
"""Ports of broker pods for the other brokers and for Prometheus."""
TLS_LOGIN: Final = "tls"
"""Authentication with a certificate."""
OAUTH_LOGIN: Final = "oauth"
"""Authentication with a token of an OAuth 2 issuer."""
SERVICE_ACCOUNT_LOGIN: Final = "serviceaccount"
"""Authentication with the token of a pod."""
TOKEN_LOGINS: Final = (OAUTH_LOGIN, SERVICE_ACCOUNT_LOGIN)
MAX_URL: Final = 2_048


class ListenerType(Enum):
    """From where clients reach a listener."""

    INTERNAL = "internal"
    NODE_PORT = "nodeport"
    LOAD_BALANCER = "loadbalancer"


_OF_OAUTH: Final = ("jwksUrl", "issuer", "audience", "principalClaim")


def _of_oauth(login: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    if login.get("type") == OAUTH_LOGIN:
        for name in ("jwksUrl", "issuer"):
            if name not in login:
                yield Complaint((name,), "must be set for type oauth, and it is missing.")
        return
    for name in _OF_OAUTH:
        if name in login:
            yield Complaint((name,), "has a meaning for type oauth only: remove it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAuthentication(Model):
    """How clients authenticate."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.type != '{OAUTH_LOGIN}' || (has(self.jwksUrl) && has(self.issuer))",
            "Type oauth needs jwksUrl and issuer: the address of the keys that verify tokens, and who issues them.",
        ),
        Rule(
            f"self.type == '{OAUTH_LOGIN}' || !({' || '.join(f'has(self.{name})' for name in _OF_OAUTH)})",
            f"{', '.join(_OF_OAUTH[:-1])} and {_OF_OAUTH[-1]} have a meaning for type oauth only: remove them.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_of_oauth,)

    type: Literal["tls", "scram-sha-256", "scram-sha-512", "oauth", "serviceaccount"]
    """tls: with a certificate. scram-sha-256, scram-sha-512: with a password. oauth: with a token of an OAuth 2 issuer.
    serviceaccount: with the token of a pod, whose audience is NAMESPACE.CLUSTER."""
    jwks_url: Annotated[
        Text | None,
        Field(max_length=MAX_URL, pattern="^https?://[^ ]+$"),
        published(allowed="an address that begins with https:// or http://"),
    ] = None
    """Address of the keys with which the brokers verify tokens (RFC 7517), for type oauth."""
    issuer: Annotated[Text | None, Field(max_length=MAX_URL)] = None
    """Issuer that the claim iss of a token must have, for type oauth."""
    audience: Annotated[Text | None, Field(max_length=MAX_TEXT)] = None
    """Audience that the claim aud of a token must contain, for type oauth. If not set, only tokens without an audience
    are accepted."""
    principal_claim: Annotated[Text | None, Field(max_length=MAX_TEXT)] = None
    """Claim with the name of the user, for type oauth. If not set, sub."""


MAX_CERTIFICATE_DAYS: Final = 36_500
MAX_GRACE_HOURS: Final = 8_760
MAX_ALTERNATIVE_NAMES: Final = 32
MAX_SOURCE_RANGES: Final = 64

Host = Annotated[
    Text,
    Field(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[A-Za-z0-9*]([-A-Za-z0-9.:]*[A-Za-z0-9])?$",
        description="A host name or an IP address.",
    ),
    published(allowed="a host name or an IP address"),
]
Network = Annotated[
    Text,
    Field(max_length=49, pattern="^[0-9a-fA-F.:/]+$", description="A network, such as 192.0.2.0/24."),
    published(allowed="a network such as 192.0.2.0/24"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerReference(Model):
    """An issuer of cert-manager."""

    name: ObjectName
    """Its name."""
    kind: Annotated[Text, Field(max_length=MAX_TEXT)] = "Issuer"
    """Its kind: Issuer, ClusterIssuer, or that of an external issuer."""
    group: Annotated[Text, Field(max_length=MAX_TEXT)] = "cert-manager.io"
    """Its API group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthoritySource(Model):
    """A certificate authority of the cluster: made by the operator, given in a Secret, or issued by cert-manager."""

    secret_name: ObjectName | None = None
    """Secret with an authority that you have: ca.crt and ca.key, or tls.crt and tls.key. The operator does not change
    it, and you renew it. If neither this nor issuerRef is set, the operator makes an authority."""
    issuer_ref: IssuerReference | None = None
    """Issuer of cert-manager that signs the authority. The operator creates a Certificate for it, and cert-manager
    renews it. Without effect if secretName is set."""
    validity_days: Annotated[Whole, Field(ge=1, le=MAX_CERTIFICATE_DAYS)] = 1_825
    """Days for which an authority that the operator makes is valid."""
    renewal_days: Annotated[Whole, Field(ge=1, le=MAX_CERTIFICATE_DAYS)] = 90
    """Days before its end at which the operator renews it, at most half of validityDays. It keeps its key, so
    certificates stay valid."""
    certificate_days: Annotated[Whole, Field(ge=1, le=MAX_CERTIFICATE_DAYS)] = 365
    """Days for which certificates of the authority are valid. They are replaced when a third of that is left."""

    grace_hours: Annotated[Whole, Field(ge=0, le=MAX_GRACE_HOURS)] = 24
    """Hours that clients have to read a new authority before it signs certificates, and for which the former one is
    trusted after that, when an authority that the operator has made is replaced."""


_MADE: Final = CertificateAuthoritySource()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthorities(Model):
    """The authorities whose certificates brokers and users have."""

    cluster: Annotated[CertificateAuthoritySource, published(default={})] = _MADE
    """Signs the certificates of brokers and of the operator. Clients trust it."""
    clients: Annotated[CertificateAuthoritySource, published(default={})] = _MADE
    """Signs the certificates of users. Brokers trust it on listeners with authentication of type tls."""


DEFAULT_AUTHORITIES: Final = CertificateAuthorities()

MAX_WINDOWS: Final = 64
_Day = Annotated[
    Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], Field(description="The beginning of a name of a day.")
]
MAX_WINDOW_MINUTES: Final = 10_080
"""A week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow(Model):
    """A time of the week in which pods may restart for renewed certificates."""

    days: Annotated[tuple[_Day, ...], Field(max_length=7)] = ()
    """Days on which it begins. If empty, every day."""
    start: Annotated[
        Text,
        Field(max_length=5, pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$"),
        published(allowed="a time of the day from 00:00 to 23:59"),
    ]
    """When it begins, in UTC, such as 02:30."""
    minutes: Annotated[Whole, Field(ge=1, le=MAX_WINDOW_MINUTES)] = 120
    """How long it is."""


def _security(listener: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    authentication = listener.get("authentication")
    login = authentication.get("type") if isinstance(authentication, Mapping) else None
    if login in (TLS_LOGIN, *TOKEN_LOGINS) and listener.get("tls") is not True:
        what = "needs certificates" if login == TLS_LOGIN else "sends tokens"
        yield Complaint(("authentication",), f"type {login} {what}: set tls: true for this listener.")
    external = listener.get("type") in [kind.value for kind in ListenerType if kind is not ListenerType.INTERNAL]
    is_open = authentication is None and listener.get("insecure", False) is False
    if external and is_open and reading.embedded:
        # A stored resource may be older than this rule: see `notices_of`.
        yield Complaint(
            ("insecure",), f"must be true for a listener of type {listener['type']} without authentication."
        )


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
            "self.type == 'internal' || self.insecure || has(self.authentication)",
            "A listener of type nodeport or loadbalancer without authentication: everybody who reaches its port can "
            "read, write and delete everything. Set authentication, or set insecure: true to accept that.",
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
            "!has(self.authentication) || self.authentication.type != 'tls' || self.tls",
            "authentication of type tls needs certificates: set tls: true for this listener.",
        ),
        Rule(
            f"!has(self.authentication) || !(self.authentication.type in {list(TOKEN_LOGINS)}) || self.tls",
            "Without TLS, everybody on the way could read a token and use it: set tls: true for this listener.",
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
    """Whether clients connect with TLS. They find the authority of the brokers in the Secret CLUSTER-cluster-ca-cert.
    An embedded cluster does not serve such a listener."""
    authentication: ListenerAuthentication | None = None
    """How clients authenticate. If not set, every client is accepted and may do everything. An embedded cluster does
    not serve a listener with authentication."""
    insecure: Flag = False
    """Allows a listener of type nodeport or loadbalancer without authentication. Everybody who reaches its port can
    read, write and delete everything."""
    alternative_names: Annotated[tuple[Host, ...], Field(max_length=MAX_ALTERNATIVE_NAMES)] = ()
    """Further host names and IP addresses at which clients reach this listener, for the certificates of the brokers."""
    annotations: Annotated[Mapping[str, str], Entries(max_entries=MAX_LABELS, max_length=MAX_TEXT)] = field(
        default_factory=dict
    )
    """Annotations of the Services of a listener of type nodeport or loadbalancer, such as those of your cloud. They
    have no effect on a listener of type internal."""
    source_ranges: Annotated[tuple[Network, ...], Field(max_length=MAX_SOURCE_RANGES)] = ()
    """Networks that may connect to the load balancers, such as 192.0.2.0/24. If not set, all. They have an effect only
    on a listener of type loadbalancer."""

    @property
    def login(self) -> str | None:
        """The type of authentication."""
        return None if self.authentication is None else self.authentication.type

    @property
    def plain(self) -> bool:
        """Whether it needs neither certificates nor passwords."""
        return not self.tls and self.authentication is None

    @property
    def is_exposed(self) -> bool:
        """Whether it accepts everybody outside of Kubernetes who reaches its port."""
        return self.authentication is None and self.type is not ListenerType.INTERNAL
