"""The User resource: who an application is, what it may do, and how much. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from odradek.security.acls.model import (
    ANY_HOST,
    CLUSTER_NAME,
    OPERATIONS,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.nodes import kafka_name
from odradek.security.principals import USER, Principal
from odradek.security.quotas.quota_model import QuotaKind
from odradek_operator.crds.fields import MAX_NAME_LENGTH, ObjectName, Text, Whole, Written
from odradek_operator.crds.listener_types import SERVICE_ACCOUNT_LOGIN, TLS_LOGIN
from odradek_operator.crds.metadata import MAX_CLUSTER_NAME_LENGTH, METADATA, SPECIFICATION, Metadata
from odradek_operator.crds.model import Check, Complaint, Group, Model, Reading, Rule, must, published
from odradek_operator.crds.problems import either

MAX_USER_NAME_LENGTH: Final = 64
"""Longest common name of a certificate (RFC 5280)."""
MAX_ACLS: Final = 512
MAX_RESOURCE_NAME: Final = 249
MAX_HOST: Final = 64
MAX_BYTE_RATE: Final = 10**15
"""Bytes per second. The bound catches typing errors."""
MAX_PERCENTAGE: Final = 1_000_000
MAX_MUTATION_RATE: Final = 1e9

_SCRAM: Final = "scram-"
_UserLogins = Literal["scram-sha-256", "scram-sha-512", "tls", "serviceaccount"]

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
    "delegationToken": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_ResourceTypes = Literal["topic", "group", "cluster", "transactionalId", "delegationToken", "user"]
_OPERATIONS: Final = {kafka_name(each): each for each in tuple(AclOperation)[2:]}
_Operations = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
]


class AclPattern(Enum):
    """How the name of an access rule is compared."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class AclEffect(Enum):
    """What an access rule does."""

    ALLOW = "allow"
    DENY = "deny"


def _named(resource: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    kind, name = resource.get("type"), resource.get("name")
    if kind != "cluster" and kind in _TYPES and name is None:
        yield Complaint(("name",), f"must be the name of the {kind}, or '*' for every one, and it is missing.")
    if kind == "cluster" and name not in (None, CLUSTER_NAME):
        yield must(("name",), f"{CLUSTER_NAME} or not set: there is only one cluster", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResource(Model):
    """The resources that an access rule is about."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.type == 'cluster' || has(self.name)", "name is missing: set it, or '*' for every one."),
        Rule(
            f"self.type != 'cluster' || !has(self.name) || self.name == '{CLUSTER_NAME}'",
            "There is only one cluster: remove name.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_named,)

    type: _ResourceTypes
    """What kind of resources they are."""
    name: Annotated[Text | None, Field(max_length=MAX_RESOURCE_NAME)] = None
    """Their name; with pattern prefixed, how their names begin. * means every name. For type cluster, it is not set."""
    pattern: AclPattern = AclPattern.LITERAL
    """literal: the resource of that name. prefixed: all resources whose names begin with it."""

    @property
    def value(self) -> ResourcePattern:
        """The pattern of Kafka."""
        pattern = PatternType.PREFIXED if self.pattern is AclPattern.PREFIXED else PatternType.LITERAL
        return ResourcePattern(_TYPES[self.type], self.name or CLUSTER_NAME, pattern)


def _possible(acl: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """Complain of operations that resources of this type do not have. Only the reader has this rule."""
    resource, operations = acl.get("resource"), acl.get("operations")
    kind = _TYPES.get(str(resource.get("type"))) if isinstance(resource, Mapping) else None
    if kind is None or not isinstance(operations, list):
        return
    possible = {"All", *(name for name, operation in _OPERATIONS.items() if operation in OPERATIONS[kind])}
    for index, operation in enumerate(operations):
        if operation in _OPERATIONS and operation not in possible:
            yield must(("operations", index), f"one of {either(sorted(possible))} for this type", operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAcl(Model):
    """An access rule."""

    checks: ClassVar[tuple[Check, ...]] = (_possible,)

    resource: AclResource
    """The resources that it is about."""
    operations: Annotated[tuple[_Operations, ...], Field(min_length=1, max_length=len(_OPERATIONS))]
    """What the user does with them, by Kafka's names. Read, Write, Delete and Alter include Describe; AlterConfigs
    includes DescribeConfigs."""
    effect: AclEffect = AclEffect.ALLOW
    """allow, or deny. A rule that denies comes before all rules that allow."""
    host: Annotated[Text, Field(max_length=MAX_HOST)] = ANY_HOST
    """IP address from which the user connects; * for every address."""

    @property
    def permission(self) -> AclPermission:
        """The permission of Kafka."""
        return AclPermission.DENY if self.effect is AclEffect.DENY else AclPermission.ALLOW

    @property
    def values(self) -> tuple[AclOperation, ...]:
        """The operations of Kafka."""
        return tuple(_OPERATIONS[name] for name in self.operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuotas(Model):
    """Limits of a user, on each broker. What is not set is not limited by this resource."""

    producer_byte_rate: Annotated[Whole | None, Field(ge=0, le=MAX_BYTE_RATE)] = None
    """Bytes per second that the user writes to a broker."""
    consumer_byte_rate: Annotated[Whole | None, Field(ge=0, le=MAX_BYTE_RATE)] = None
    """Bytes per second that the user reads from a broker."""
    request_percentage: Annotated[Whole | None, Field(ge=0, le=MAX_PERCENTAGE)] = None
    """Percentage of the time of one thread of a broker that the user's requests take."""
    controller_mutation_rate: Annotated[
        float | None,
        Field(ge=0, le=MAX_MUTATION_RATE),
        published(allowed=f"a number from 0 to {MAX_MUTATION_RATE:.0f}"),
    ] = None
    """Partitions per second that the user creates or deletes."""

    @property
    def values(self) -> dict[QuotaKind, float]:
        """The quotas of Kafka."""
        found = {kind: getattr(self, kind.value) for kind in QuotaKind if hasattr(self, kind.value)}
        return {kind: float(value) for kind, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountName(Model):
    """A ServiceAccount."""

    name: ObjectName
    """Name of the ServiceAccount."""
    namespace: ObjectName | None = None
    """Its namespace. If not set, that of the User."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey(Model):
    """An entry of a Secret in the namespace of the resource."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[Text, Field(max_length=MAX_NAME_LENGTH)]
    """The entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ValueFrom(Model):
    """Where a value comes from."""

    secret_key_ref: SecretKey
    """An entry of a Secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PasswordSource(Model):
    """A password that you have."""

    value_from: _ValueFrom
    """Where it is."""


def _identified(login: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule is the same."""
    if (login.get("type") == SERVICE_ACCOUNT_LOGIN) != ("serviceAccount" in login):
        yield Complaint(("serviceAccount",), "must be set for type serviceaccount, and for no other type.")
    if "password" in login and not str(login.get("type")).startswith(_SCRAM):
        yield Complaint(("password",), "has a meaning for types with a password only: remove it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAuthentication(Model):
    """How a user authenticates."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"(self.type == '{SERVICE_ACCOUNT_LOGIN}') == has(self.serviceAccount)",
            "serviceAccount must be set for type serviceaccount, and for no other type.",
        ),
        Rule(
            f"!has(self.password) || self.type.startsWith('{_SCRAM}')",
            "password has a meaning for types with a password only: remove it.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_identified,)

    type: _UserLogins
    """tls: with a certificate. serviceaccount: a pod with the token of its ServiceAccount. The others: with a
    password."""
    service_account: ServiceAccountName | None = None
    """The ServiceAccount whose pods are the user, for type serviceaccount."""
    password: Annotated[SecretKey, Written(_PasswordSource, lambda source: source.value_from.secret_key_ref)] | None = (
        None
    )
    """A password that you have, without white space around it. The operator copies it to the Secret of the user, and
    follows changes within minutes. If not set, the operator makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User(Metadata):
    """A user of a Cluster: an application, or a person."""

    __pydantic_config__: ClassVar[ConfigDict] = SPECIFICATION
    field_groups: ClassVar[Mapping[str, Group]] = {
        "metadata": METADATA,
        "spec": Group(description="The desired state of the user.", required=True),
    }

    name: Annotated[ObjectName, Field(alias="metadata.name", max_length=MAX_USER_NAME_LENGTH)]
    cluster: Annotated[
        ObjectName,
        Field(max_length=MAX_CLUSTER_NAME_LENGTH),
        published(Rule("self == oldSelf", "A user cannot move to another cluster: set spec.cluster back.")),
    ]
    """Name of the Cluster that the user belongs to, in the same namespace. It cannot change."""
    authentication: UserAuthentication | None = None
    """How the user authenticates. The operator makes what it needs and stores it in the Secret with the name of this
    resource, except for ServiceAccounts, which need none. If not set, the user is known from elsewhere, such as by a
    listener with authentication of type oauth; this resource has its access rules and quotas."""
    acls: Annotated[tuple[UserAcl, ...], Field(max_length=MAX_ACLS)] = ()
    """Access rules of the user. Rules that others have added to the user are kept."""
    quotas: UserQuotas | None = None
    """Limits of the user. Quotas of the user that are not set here are kept."""

    @property
    def login(self) -> str | None:
        """The type of authentication."""
        return None if self.authentication is None else self.authentication.type

    @property
    def password_source(self) -> SecretKey | None:
        """The entry of a Secret with the password; None if the operator makes one."""
        return None if self.authentication is None else self.authentication.password

    @property
    def has_secret(self) -> bool:
        """Whether the user has a Secret."""
        return self.login not in (None, SERVICE_ACCOUNT_LOGIN)

    @property
    def principal(self) -> Principal:
        """The user in access rules and quotas."""
        if self.authentication is None:
            return Principal(USER, self.name)
        if (account := self.authentication.service_account) is not None:
            return Principal(USER, f"system:serviceaccount:{account.namespace or self.namespace}:{account.name}")
        return Principal(USER, f"CN={self.name}" if self.login == TLS_LOGIN else self.name)
