"""Access rules, quotas and credentials as fields of requests, and back. Used by `Admin`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from odradek.base.errors import ConfigError
from odradek.protocol.codec import Message
from odradek.protocol.messages.quotas import DescribeClientQuotasResponse
from odradek.security.acls.model import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import parse_principal
from odradek.security.quotas.quota_filters import (
    ANY,
    CLIENT_ID_TYPE,
    IP_TYPE,
    USER_TYPE,
    QuotaFilter,
    QuotaMatch,
    parse_entity,
)
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind
from odradek.security.sasl.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    new_salt,
    salted_password,
)
from odradek.security.sasl.mechanism import SCRAM_SHA_512


@dataclass(frozen=True, slots=True)
class ScramPassword:
    """A new password of a user, for `Admin.alter_user_scram_credentials`."""

    user: str
    password: str = field(repr=False)
    mechanism: str = SCRAM_SHA_512
    iterations: int = MIN_ITERATIONS
    """From 4096 to 16384: how much CPU time it takes to try a password."""


def pattern_types_since(pattern: PatternType) -> int:
    """Return the first version of the requests for access rules that has the type of pattern (KIP-290)."""
    return 0 if pattern is PatternType.LITERAL else 1


def binding_fields(binding: AclBinding) -> Message:
    """Return a rule as in CreateAcls."""
    resource, rule = binding
    return {
        "resource_type": resource.type,
        "resource_name": resource.name,
        "resource_pattern_type": resource.pattern,
        "principal": str(rule.principal),
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }


def acl_filter_fields(selection: AclFilter) -> Message:
    """Return a filter as in DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": selection.type,
        "resource_name_filter": selection.name,
        "pattern_type_filter": selection.pattern,
        "principal_filter": None if selection.principal is None else str(selection.principal),
        "host_filter": selection.host,
        "operation": selection.operation,
        "permission_type": selection.permission,
    }


class _Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...


class _Rule(Protocol):
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def acl_binding(resource: _Resource, rule: _Rule) -> AclBinding:
    """Return a rule of an answer. Raises `ConfigError` if it has a value that this version does not know."""
    try:
        return AclBinding(
            ResourcePattern(
                ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
            ),
            AclRule(
                parse_principal(rule.principal),
                AclPermission(rule.permission_type),
                AclOperation(rule.operation),
                rule.host,
            ),
        )
    except ValueError as error:
        raise ConfigError(
            f"the broker has a rule for {rule.principal} that this version does not know: {error}"
        ) from error


def quota_components(selection: QuotaFilter) -> list[Message]:
    """Return the components of a filter as in DescribeClientQuotas."""
    found: list[Message] = []
    for kind, wanted in ((USER_TYPE, selection.user), (CLIENT_ID_TYPE, selection.client_id), (IP_TYPE, selection.ip)):
        if wanted is ANY:
            found.append({"entity_type": kind, "match_type": QuotaMatch.SPECIFIED, "match": None})
        elif wanted is DEFAULT:
            found.append({"entity_type": kind, "match_type": QuotaMatch.DEFAULT, "match": None})
        elif wanted is not None:
            found.append({"entity_type": kind, "match_type": QuotaMatch.EXACT, "match": wanted})
    return found


def quotas_of(response: DescribeClientQuotasResponse) -> dict[QuotaEntity, dict[QuotaKind, float]]:
    """Return the quotas of an answer. Kinds that this version does not know are left out."""
    known = {kind.value: kind for kind in QuotaKind}
    return {
        parse_entity((part.entity_type, part.entity_name) for part in entry.entity): {
            known[each.key]: each.value for each in entry.values if each.key in known
        }
        for entry in response.entries or ()
    }


def mechanism_number(name: str) -> int:
    """Return the number of a SCRAM mechanism in requests. Raises `ConfigError`."""
    mechanism = SCRAM_MECHANISMS.get(name)
    if mechanism is None:
        raise ConfigError(f"{name!r} is not a SCRAM mechanism: use {' or '.join(SCRAM_MECHANISMS)}")
    return mechanism.number


def mechanism_name(number: int) -> str:
    """Return the name of a SCRAM mechanism; the number if this version does not know it."""
    return next((each.name for each in SCRAM_MECHANISMS.values() if each.number == number), str(number))


def upsertion_fields(wanted: ScramPassword) -> Message:
    """Return a new password as in AlterUserScramCredentials. Call it in a thread: it takes milliseconds of CPU time.

    Raises `ConfigError`.
    """
    number = mechanism_number(wanted.mechanism)
    if not MIN_ITERATIONS <= wanted.iterations <= MAX_ITERATIONS:
        raise ConfigError(f"iterations={wanted.iterations} is not allowed: use {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not wanted.password:
        raise ConfigError("the password must not be empty")
    salt = new_salt()
    try:
        salted = salted_password(SCRAM_MECHANISMS[wanted.mechanism], wanted.password, salt, wanted.iterations)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return {
        "name": wanted.user,
        "mechanism": number,
        "iterations": wanted.iterations,
        "salt": salt,
        "salted_password": salted,
    }
